#define _GNU_SOURCE
#include "fabric.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Of one operation: many together keep the link busy, and none is too large for a provider's buffers. */
#define PART_BYTES ((size_t)1 << 20)
#define PARTS_AT_ONCE 8
/* How many looks at the completion queue come between two at the socket. */
#define LOOKS 64

/* What libfabric exports; all else are inline calls through its tables. */
static struct {
    int (*getinfo)(uint32_t, const char *, const char *, uint64_t, const struct fi_info *, struct fi_info **);
    void (*freeinfo)(struct fi_info *);
    struct fi_info *(*dupinfo)(const struct fi_info *);
    int (*fabric)(struct fi_fabric_attr *, struct fid_fabric **, void *);
    const char *(*strerror)(int);
} library;
static pthread_once_t loading = PTHREAD_ONCE_INIT;
static char load_error[256];

static void load(void) {
    void *handle = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle) {
        *(void **)&library.getinfo = dlsym(handle, "fi_getinfo");
        *(void **)&library.freeinfo = dlsym(handle, "fi_freeinfo");
        *(void **)&library.dupinfo = dlsym(handle, "fi_dupinfo");
        *(void **)&library.fabric = dlsym(handle, "fi_fabric");
        *(void **)&library.strerror = dlsym(handle, "fi_strerror");
        if (library.getinfo && library.freeinfo && library.dupinfo && library.fabric && library.strerror)
            return;
        library.getinfo = NULL;
    }
    const char *reason = dlerror();
    snprintf(load_error, sizeof load_error, "libfabric can't be loaded: %s", reason ? reason : "it lacks a function");
}

/* An operation's context is the provider's until the operation has ended, and they end in any order. */
struct operation {
    struct fi_context2 context;
    int is_busy;
};

struct terrace_endpoint {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *peers;
    struct fid_cq *completions;
    struct fid_ep *endpoint;
    uint64_t next_key;
    /* Of a move that failed: it may still be written to until the endpoint is closed. */
    struct terrace_memory *stuck;
    struct operation operations[PARTS_AT_ONCE];
};

struct terrace_memory {
    struct fid_mr *region;
};

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static int is_for_one_machine(const char *provider) {
    static const char *const none[] = {"shm", "sockets", "udp", "UDP", "ofi_rxd", "net", "tcp;ofi_rxd"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (strstr(provider, none[i]))
            return 1;
    return 0;
}

static struct fi_info *find(const char *provider, const char *host, int *code) {
    struct fi_info *hints = library.dupinfo(NULL), *found = NULL, *chosen = NULL;
    if (!hints) {
        *code = -FI_ENOMEM;
        return NULL;
    }
    hints->caps = FI_MSG | FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    if (provider)
        hints->fabric_attr->prov_name = strdup(provider);
    *code = library.getinfo(FI_VERSION(1, 14), host, NULL, host ? FI_SOURCE | FI_NUMERICHOST : 0, hints, &found);
    library.freeinfo(hints);
    if (*code)
        return NULL;
    for (struct fi_info *one = found; one && !chosen; one = one->next)
        if (provider || !is_for_one_machine(one->fabric_attr->prov_name))
            chosen = library.dupinfo(one);
    library.freeinfo(found);
    *code = chosen ? 0 : -FI_ENODATA;
    return chosen;
}

const char *terrace_fabric_reason(long code) {
    return library.strerror ? library.strerror((int)-code) : "libfabric is not loaded";
}

struct terrace_endpoint *terrace_fabric_open(const char *provider, const char *host, char *error, size_t error_size) {
    pthread_once(&loading, load);
    if (!library.getinfo) {
        snprintf(error, error_size, "%s", load_error);
        return NULL;
    }
    int code;
    const char *step = "find a provider";
    struct terrace_endpoint *self = calloc(1, sizeof *self);
    if (!self) {
        snprintf(error, error_size, "out of memory");
        return NULL;
    }
    self->info = find(provider, host, &code);
    if (!self->info)
        goto failed;
    struct fi_av_attr av = {.type = FI_AV_UNSPEC, .count = 1};
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_NONE, .size = 4 * PARTS_AT_ONCE};
    step = "open the provider";
    if ((code = library.fabric(self->info->fabric_attr, &self->fabric, NULL)))
        goto failed;
    step = "open a domain";
    if ((code = fi_domain(self->fabric, self->info, &self->domain, NULL)))
        goto failed;
    step = "open an endpoint";
    if ((code = fi_av_open(self->domain, &av, &self->peers, NULL)) || (code = fi_cq_open(self->domain, &cq, &self->completions, NULL)) ||
        (code = fi_endpoint(self->domain, self->info, &self->endpoint, NULL)) ||
        (code = fi_ep_bind(self->endpoint, &self->peers->fid, 0)) ||
        (code = fi_ep_bind(self->endpoint, &self->completions->fid, FI_TRANSMIT | FI_RECV)) || (code = fi_enable(self->endpoint)))
        goto failed;
    return self;
failed:
    snprintf(error, error_size, "libfabric can't %s%s%s: %s", step, provider ? " " : "", provider ? provider : "",
             terrace_fabric_reason(code));
    terrace_fabric_close(self);
    return NULL;
}

void terrace_fabric_close(struct terrace_endpoint *self) {
    if (self->endpoint)
        fi_close(&self->endpoint->fid);
    if (self->stuck)
        terrace_fabric_unregister(self->stuck);
    if (self->completions)
        fi_close(&self->completions->fid);
    if (self->peers)
        fi_close(&self->peers->fid);
    if (self->domain)
        fi_close(&self->domain->fid);
    if (self->fabric)
        fi_close(&self->fabric->fid);
    if (self->info)
        library.freeinfo(self->info);
    free(self);
}

const char *terrace_fabric_provider(const struct terrace_endpoint *self) { return self->info->fabric_attr->prov_name; }

size_t terrace_fabric_address(const struct terrace_endpoint *self, void *buffer, size_t size) {
    return fi_getname(&self->endpoint->fid, buffer, &size) ? 0 : size;
}

int terrace_fabric_peer(struct terrace_endpoint *self, const void *address, uint64_t *peer) {
    fi_addr_t found;
    int inserted = fi_av_insert(self->peers, address, 1, &found, 0, NULL);
    *peer = found;
    return inserted == 1 ? 0 : -FI_EADDRNOTAVAIL;
}

int terrace_fabric_register(struct terrace_endpoint *self, void *start, size_t bytes, int access, struct terrace_memory **memory,
                            uint64_t *at, uint64_t *key) {
    uint64_t flags = access ? (access & 1 ? FI_REMOTE_READ : 0) | (access & 2 ? FI_REMOTE_WRITE : 0) : FI_READ | FI_WRITE;
    *memory = calloc(1, sizeof **memory);
    if (!*memory)
        return -FI_ENOMEM;
    int code = fi_mr_reg(self->domain, start, bytes, flags, 0, self->next_key++, 0, &(*memory)->region, NULL);
    if (code) {
        free(*memory);
        *memory = NULL;
        return code;
    }
    *at = self->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uint64_t)(uintptr_t)start : 0;
    *key = fi_mr_key((*memory)->region);
    return 0;
}

void terrace_fabric_unregister(struct terrace_memory *memory) {
    fi_close(&memory->region->fid);
    free(memory);
}

/* How many operations have ended; an error of one is the error of all. */
static long completed(struct terrace_endpoint *self) {
    struct fi_cq_entry entries[PARTS_AT_ONCE];
    ssize_t count = fi_cq_read(self->completions, entries, PARTS_AT_ONCE);
    if (count == -FI_EAGAIN)
        return 0;
    for (ssize_t i = 0; i < count; i++)
        if (entries[i].op_context)
            ((struct operation *)entries[i].op_context)->is_busy = 0;
    if (count == -FI_EAVAIL) {
        struct fi_cq_err_entry failure = {0};
        fi_cq_readerr(self->completions, &failure, 0);
        return failure.err ? -(long)failure.err : -FI_EIO;
    }
    return count;
}

static int is_gone(int socket) {
    struct pollfd looked = {.fd = socket, .events = POLLRDHUP};
    return socket >= 0 && poll(&looked, 1, 0) == 1 && looked.revents & (POLLRDHUP | POLLHUP | POLLERR);
}

int terrace_fabric_move(struct terrace_endpoint *self, int is_write, uint64_t peer, void *start, size_t bytes, uint64_t at, uint64_t key,
                        int watched, unsigned patience_ms) {
    struct terrace_memory *own = NULL;
    uint64_t unused_at, unused_key, heard = now_ms();
    size_t part_max = PART_BYTES < self->info->ep_attr->max_msg_size ? PART_BYTES : self->info->ep_attr->max_msg_size;
    size_t begun = 0, parts_begun = 0, parts_done = 0;
    long code = 0;
    if (self->info->domain_attr->mr_mode & FI_MR_LOCAL)
        if ((code = terrace_fabric_register(self, start, bytes, 0, &own, &unused_at, &unused_key)))
            return (int)code;
    void *descriptor = own ? fi_mr_desc(own->region) : NULL;
    for (unsigned looks = 0; begun < bytes || parts_done < parts_begun; looks++) {
        if (begun < bytes && parts_begun - parts_done < PARTS_AT_ONCE) {
            size_t part = bytes - begun < part_max ? bytes - begun : part_max;
            struct operation *free_one = self->operations;
            while (free_one->is_busy)
                free_one++;
            struct iovec from = {.iov_base = (char *)start + begun, .iov_len = part};
            struct fi_rma_iov to = {.addr = at + begun, .len = part, .key = key};
            struct fi_msg_rma message = {.msg_iov = &from,
                                         .desc = descriptor ? &descriptor : NULL,
                                         .iov_count = 1,
                                         .addr = peer,
                                         .rma_iov = &to,
                                         .rma_iov_count = 1,
                                         .context = free_one};
            code = is_write ? fi_writemsg(self->endpoint, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE)
                            : fi_readmsg(self->endpoint, &message, FI_COMPLETION);
            if (code == 0) {
                free_one->is_busy = 1;
                begun += part;
                parts_begun++;
                continue;
            }
            if (code != -FI_EAGAIN)
                break;
        }
        if ((code = completed(self)) < 0)
            break;
        if (code > 0) {
            parts_done += (size_t)code;
            heard = now_ms();
            code = 0;
        } else if (looks % LOOKS == 0) {
            if (is_gone(watched)) {
                code = -FI_ECONNRESET;
                break;
            }
            if (now_ms() - heard > patience_ms) {
                code = -FI_ETIMEDOUT;
                break;
            }
        }
    }
    if (own && !code)
        terrace_fabric_unregister(own);
    else
        self->stuck = own;
    return (int)code;
}

int terrace_fabric_attend(struct terrace_endpoint *self, int descriptor, unsigned patience_ms) {
    struct pollfd looked = {.fd = descriptor, .events = POLLIN};
    uint64_t begun = now_ms();
    for (unsigned looks = 1;; looks++) {
        long code = completed(self);
        if (code < 0)
            return (int)code;
        if (looks % LOOKS)
            continue;
        int ready = poll(&looked, 1, 0);
        if (ready < 0 && errno != EINTR)
            return -errno;
        if (ready > 0)
            return 0;
        if (now_ms() - begun > patience_ms)
            return -FI_ETIMEDOUT;
    }
}
