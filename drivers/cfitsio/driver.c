/* The CFITSIO driver: a library to preload into unmodified programs that use libcfitsio.so.
 *
 *   fits_init_cfitsio (ours, called through libcfitsio's own symbol table) ─▶ CFITSIO's ─▶ two drivers put in:
 *     terrace://name   into the free slot: a name below the root
 *     plain paths      into entry 0: a path below the root is served here, any other by the driver that was there
 *
 * Reason: CFITSIO calls a driver in pieces of 2,880 bytes. Here a piece that is written is a copy into the object's window, and one
 * that is read a call of the system, or a copy where the agent is elsewhere; by the file driver each is a share of a call of 4,096.
 *
 * With the agent on another node (TERRACE_AGENT) a file in its tier is, here, a link that leads nowhere; programs look for files
 * with stat, so stat asks the agent about such a link.
 *
 * Invariant: what can't be done here goes to the file driver, which the files door serves: the driver is never needed for a
 * right result. A process that makes no CFITSIO call runs nothing of this but, with TERRACE_AGENT, that look at links. */

#define _GNU_SOURCE
#include "table.h"
#include "terrace_calls.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Handles of the file driver are small numbers. */
#define FIRST_HANDLE (1 << 24)
#define FILES_MAX 10000

struct open_file {
    terrace_bytes *bytes;
    LONGLONG position;
};

static struct terrace_calls terrace;
static terrace_session *session;
static char root[PATH_MAX];
static size_t root_length;

static struct fits_driver files; /* entry 0 as it was */
static void (*push_message)(const char *text);

static struct open_file open_files[FILES_MAX];
static pthread_mutex_t open_files_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- libcfitsio and libterrace ---- */

static int find_cfitsio(struct dl_phdr_info *object, size_t size, void *name) {
    (void)size;
    const char *base = strrchr(object->dlpi_name, '/');
    if (!base || strncmp(base, "/libcfitsio.so", 14) != 0) return 0;
    *(const char **)name = object->dlpi_name;
    return 1;
}

/* A symbol of libcfitsio: next in the order of the program's libraries, or in one that was loaded for a plug-in. */
static void *cfitsio_symbol(const char *symbol) {
    void *found = dlsym(RTLD_NEXT, symbol);
    const char *name = NULL;
    if (found || !dl_iterate_phdr(find_cfitsio, &name)) return found;
    void *library = dlopen(name, RTLD_NOLOAD | RTLD_LAZY);
    if (!library) return NULL;
    found = dlsym(library, symbol);
    dlclose(library);
    return found;
}

/* libterrace.so lies beside this library, or one directory above (as it is installed), or where the loader looks. */
static void *load_terrace(void) {
    Dl_info self;
    char path[PATH_MAX + 20];
    if (dladdr((void *)load_terrace, &self) && realpath(self.dli_fname, path)) {
        for (int level = 0; level < 2; level++) {
            char *slash = strrchr(path, '/');
            if (!slash) break;
            strcpy(slash, "/libterrace.so");
            void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
            if (library) return library;
            *slash = 0;
        }
    }
    return dlopen("libterrace.so", RTLD_NOW | RTLD_LOCAL);
}

static void complain(const char *what, const char *why) {
    fprintf(stderr, "terrace: the CFITSIO driver is off, files are read and written as usual: %s%s\n", what, why);
}

static int is_connected;

static int try_to_connect(void) {
    void *library = load_terrace();
    if (!library) {
        complain("libterrace.so can't be loaded: ", dlerror());
        return -1;
    }
#define FIND(NAME) \
    if (!(terrace.NAME = (__typeof__(terrace.NAME))dlsym(library, #NAME))) { \
        complain("libterrace.so is of another version: it lacks ", #NAME); \
        return -1; \
    }
    TERRACE_CALLS(FIND)
#undef FIND
    if (terrace.terrace_connect("", &session) || terrace.terrace_root(session, root, sizeof root)) {
        complain("", terrace.terrace_error());
        return -1;
    }
    root_length = strlen(root);
    return 0;
}

static void connect_now(void) { is_connected = try_to_connect() == 0; }

/* 0 if there is an agent; it is looked for once. */
static int connect_terrace(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, connect_now);
    return is_connected ? 0 : -1;
}

/* Puts the reason of a failed call onto CFITSIO's stack of messages. */
static int failed(int status) {
    if (push_message) push_message(terrace.terrace_error());
    return status;
}

/* ---- names ---- */

static int is_below_root(const char *path) {
    return strncmp(path, root, root_length) == 0 && (path[root_length] == '/' || strcmp(root, "/") == 0);
}

/* The full path of a file name if it lies below the root. CFITSIO treats some names in ways of its own: those are not ours. */
static int below_root(const char *name, char *path) {
    if (!*name || *name == '~' || getenv("HERA_DATA_DIRECTORY")) return 0;
    char plain[PATH_MAX];
    size_t start = 0;
    if (*name != '/') {
        if (!getcwd(plain, sizeof plain)) return 0;
        start = strlen(plain);
        plain[start++] = '/';
    }
    size_t length = strlen(name);
    if (start + length >= sizeof plain) return 0;
    memcpy(plain + start, name, length + 1);
    if (is_below_root(plain) && !strstr(plain, "/../")) {
        strcpy(path, plain);
        return 1;
    }
    /* By way of links, or `..`: as the kernel takes it. */
    char *slash = strrchr(plain, '/');
    char last[NAME_MAX + 2];
    if (strlen(slash) >= sizeof last || strcmp(slash, "/..") == 0) return 0;
    strcpy(last, slash);
    *(slash == plain ? slash + 1 : slash) = 0;
    if (!realpath(plain, path) || strlen(path) + strlen(last) >= PATH_MAX) return 0;
    strcat(path, last);
    return is_below_root(path);
}

/* ---- open files ---- */

static int keep(terrace_bytes *bytes, int *handle) {
    pthread_mutex_lock(&open_files_lock);
    for (int number = 0; number < FILES_MAX; number++) {
        if (open_files[number].bytes) continue;
        open_files[number].bytes = bytes;
        open_files[number].position = 0;
        pthread_mutex_unlock(&open_files_lock);
        *handle = FIRST_HANDLE + number;
        return 0;
    }
    pthread_mutex_unlock(&open_files_lock);
    terrace.terrace_bytes_close(bytes);
    return 103; /* TOO_MANY_FILES */
}

static struct open_file *ours(int handle) {
    if (handle < FIRST_HANDLE || handle >= FIRST_HANDLE + FILES_MAX) return NULL;
    struct open_file *file = &open_files[handle - FIRST_HANDLE];
    return file->bytes ? file : NULL;
}

/* What a program did not close is not lost, as it would not be by the file driver's stdio. */
__attribute__((destructor)) static void flush_all(void) {
    for (int number = 0; number < FILES_MAX; number++)
        if (open_files[number].bytes && terrace.terrace_bytes_flush(open_files[number].bytes))
            fprintf(stderr, "terrace: what a program did not close is lost: %s\n", terrace.terrace_error());
}

/* ---- terrace://name ---- */

static int object_open(char *name, int rwmode, int *handle) {
    terrace_bytes *bytes;
    if (terrace.terrace_bytes_open(session, name, rwmode == READWRITE, &bytes)) return failed(FILE_NOT_OPENED);
    return keep(bytes, handle);
}

/* An object that is there is emptied; containers that its name has are made. */
static int object_create(char *name, int *handle) {
    terrace_bytes *bytes;
    int code = terrace.terrace_bytes_create(session, name, TERRACE_REPLACE, &bytes);
    char *slash = strrchr(name, '/');
    if (code == TERRACE_NOT_FOUND && slash && slash != name) {
        char *container = strndup(name, slash - name);
        if (container && !terrace.terrace_container_create(session, container, TERRACE_IF_MISSING))
            code = terrace.terrace_bytes_create(session, name, TERRACE_REPLACE, &bytes);
        free(container);
    }
    if (code) return failed(FILE_NOT_CREATED);
    return keep(bytes, handle);
}

static int object_remove(char *name) {
    return terrace.terrace_remove(session, name, false) ? failed(FILE_NOT_OPENED) : 0;
}

static int object_truncate(int handle, LONGLONG size) {
    struct open_file *file = ours(handle);
    if (!file || size < 0) return BAD_FILEPTR;
    if (terrace.terrace_bytes_set_length(file->bytes, size)) return failed(WRITE_ERROR);
    file->position = size;
    return 0;
}

static int object_close(int handle) {
    struct open_file *file = ours(handle);
    if (!file) return BAD_FILEPTR;
    terrace_bytes *bytes = file->bytes;
    pthread_mutex_lock(&open_files_lock);
    file->bytes = NULL;
    pthread_mutex_unlock(&open_files_lock);
    return terrace.terrace_bytes_close(bytes) ? failed(FILE_NOT_CLOSED) : 0;
}

static int object_size(int handle, LONGLONG *size) {
    struct open_file *file = ours(handle);
    uint64_t length;
    if (!file) return BAD_FILEPTR;
    if (terrace.terrace_bytes_length(file->bytes, &length)) return failed(READ_ERROR);
    *size = length;
    return 0;
}

static int object_flush(int handle) {
    struct open_file *file = ours(handle);
    if (!file) return BAD_FILEPTR;
    return terrace.terrace_bytes_flush(file->bytes) ? failed(WRITE_ERROR) : 0;
}

static int object_seek(int handle, LONGLONG offset) {
    struct open_file *file = ours(handle);
    if (!file || offset < 0) return BAD_FILEPTR;
    file->position = offset;
    return 0;
}

static int object_read(int handle, void *buffer, long count) {
    struct open_file *file = ours(handle);
    size_t got;
    if (!file || count < 0) return BAD_FILEPTR;
    if (terrace.terrace_bytes_read(file->bytes, file->position, buffer, count, &got)) return failed(READ_ERROR);
    file->position += got;
    if (got == (size_t)count) return 0;
    /* A last byte that editors add is no part of the file: the file driver says so in these words. */
    int is_filler = got == 1 && memchr("\0\n ", *(char *)buffer, 3);
    return is_filler ? END_OF_FILE : READ_ERROR;
}

static int object_write(int handle, void *buffer, long count) {
    struct open_file *file = ours(handle);
    if (!file || count < 0) return BAD_FILEPTR;
    if (terrace.terrace_bytes_write(file->bytes, file->position, buffer, count)) return failed(WRITE_ERROR);
    file->position += count;
    return 0;
}

/* ---- plain paths: ours below the root, else the file driver's ---- */

static int path_open(char *name, int rwmode, int *handle) {
    char path[PATH_MAX];
    terrace_bytes *bytes;
    if (below_root(name, path) && !terrace.terrace_bytes_open(session, path, rwmode == READWRITE, &bytes))
        return keep(bytes, handle);
    return files.open(name, rwmode, handle);
}

/* As the file driver does, this refuses a file that is there: programs count on it. */
static int path_create(char *name, int *handle) {
    char path[PATH_MAX];
    terrace_bytes *bytes;
    if (below_root(name, path) && !terrace.terrace_bytes_create(session, path, TERRACE_NEW, &bytes))
        return keep(bytes, handle);
    return files.create(name, handle);
}

static int path_remove(char *name) {
    char path[PATH_MAX];
    if (below_root(name, path) && !terrace.terrace_remove(session, path, false)) return 0;
    return files.remove(name);
}

static int path_truncate(int handle, LONGLONG size) {
    return ours(handle) ? object_truncate(handle, size) : files.truncate(handle, size);
}
static int path_close(int handle) { return ours(handle) ? object_close(handle) : files.close(handle); }
static int path_size(int handle, LONGLONG *size) {
    return ours(handle) ? object_size(handle, size) : files.size(handle, size);
}
static int path_flush(int handle) { return ours(handle) ? object_flush(handle) : files.flush(handle); }
static int path_seek(int handle, LONGLONG offset) {
    return ours(handle) ? object_seek(handle, offset) : files.seek(handle, offset);
}
static int path_read(int handle, void *buffer, long count) {
    return ours(handle) ? object_read(handle, buffer, count) : files.read(handle, buffer, count);
}
static int path_write(int handle, void *buffer, long count) {
    return ours(handle) ? object_write(handle, buffer, count) : files.write(handle, buffer, count);
}

/* ---- files in the tier of an agent on another node ---- */

/* A link into a tier's directory of objects: terrace-UID-ROOT, perhaps with an agent's number. */
static int leads_into_a_tier(const char *name) {
    char target[PATH_MAX];
    ssize_t length = readlink(name, target, sizeof target - 1);
    if (length <= 0) return 0;
    target[length] = 0;
    return strstr(target, "/terrace-") != NULL;
}

static int stat_elsewhere(const char *name, struct stat *found) {
    char path[PATH_MAX];
    struct terrace_info info;
    struct stat link;
    if (!getenv("TERRACE_AGENT") || !leads_into_a_tier(name) || lstat(name, &link)) return -1;
    if (connect_terrace() || !below_root(name, path) || terrace.terrace_stat(session, path, &info)) return -1;
    if (info.kind != TERRACE_BYTES) return -1;
    *found = link;
    found->st_mode = S_IFREG | 0644;
    found->st_size = info.bytes;
    found->st_blocks = (info.bytes + 511) / 512;
    return 0;
}

__attribute__((visibility("default"))) int stat(const char *name, struct stat *found) {
    int result = fstatat(AT_FDCWD, name, found, 0);
    if (result == 0 || errno != ENOENT) return result;
    if (stat_elsewhere(name, found) == 0) return 0;
    errno = ENOENT;
    return -1;
}

/* The same structure where off_t has 64 bits. */
_Static_assert(sizeof(off_t) == 8, "stat64 is stat");
__attribute__((visibility("default"), alias("stat"))) int stat64(const char *name, struct stat64 *found);

/* ---- into CFITSIO ---- */

static void install(void) {
    struct fits_driver *table = cfitsio_symbol("driverTable");
    register_driver *register_one = (register_driver *)cfitsio_symbol("fits_register_driver");
    /* The table's layout is known if the file driver's functions lie where we think; another tool may have put some of its own. */
    int is_known = table && register_one && strcmp(table->prefix, "file://") == 0
        && (void *)table->init == cfitsio_symbol("file_init") && (void *)table->close == cfitsio_symbol("file_close");
    if (!is_known) {
        complain("libcfitsio has another table of drivers than version 4.2", "");
        return;
    }
    if (connect_terrace()) return;
    push_message = (void (*)(const char *))cfitsio_symbol("ffpmsg");
    files = *table;
    table->open = path_open;
    table->create = path_create;
    table->truncate = path_truncate;
    table->close = path_close;
    table->remove = path_remove;
    table->size = path_size;
    table->flush = path_flush;
    table->seek = path_seek;
    table->read = path_read;
    table->write = path_write;
    char prefix[] = "terrace://";
    if (register_one(prefix, files.init, NULL, files.setoptions, files.getoptions, files.getversion, NULL, object_open,
                     object_create, object_truncate, object_close, object_remove, object_size, object_flush, object_seek,
                     object_read, object_write))
        fprintf(stderr, "terrace: CFITSIO has no slot left: names that begin with terrace:// can't be opened\n");
}

/* Every way into CFITSIO begins here, once. */
__attribute__((visibility("default"))) int fits_init_cfitsio(void) {
    static atomic_flag installed = ATOMIC_FLAG_INIT;
    int (*theirs)(void) = (int (*)(void))cfitsio_symbol("fits_init_cfitsio");
    if (!theirs) return FILE_NOT_OPENED;
    int status = theirs();
    if (status == 0 && !atomic_flag_test_and_set(&installed)) install();
    return status;
}
