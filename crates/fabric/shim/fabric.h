/* One endpoint of libfabric that reads and writes another's registered memory. All calls of one endpoint by one thread at a time.
 * Numbers below zero are libfabric's errors (fi_errno(3)), as it returns them. */
#include <stddef.h>
#include <stdint.h>

struct terrace_endpoint;
struct terrace_memory;

/* `provider`: its name (fi_provider(7)), or NULL: the best that is none of those for one machine alone. `host`: the numeric address
 * to be reached at, or NULL. NULL with a text in `error`. */
struct terrace_endpoint *terrace_fabric_open(const char *provider, const char *host, char *error, size_t error_size);
void terrace_fabric_close(struct terrace_endpoint *endpoint);
const char *terrace_fabric_provider(const struct terrace_endpoint *endpoint);
const char *terrace_fabric_reason(long code);
/* The endpoint's own address; how long it is. */
size_t terrace_fabric_address(const struct terrace_endpoint *endpoint, void *buffer, size_t size);
int terrace_fabric_peer(struct terrace_endpoint *endpoint, const void *address, uint64_t *peer);

/* `access`: 0 for own moves; the sum of what others may do, by `*at` and `*key`: 1 read, 2 write. */
int terrace_fabric_register(struct terrace_endpoint *endpoint, void *start, size_t bytes, int access, struct terrace_memory **memory,
                            uint64_t *at, uint64_t *key);
void terrace_fabric_unregister(struct terrace_memory *memory);

/* Moves all bytes, and returns when they have arrived. Ends with an error when the other end of the socket `watched` is gone, or
 * when nothing moved for so long. */
int terrace_fabric_move(struct terrace_endpoint *endpoint, int is_write, uint64_t peer, void *start, size_t bytes, uint64_t at, uint64_t key,
                        int watched, unsigned patience_ms);
/* Lets others move, until something can be read from `descriptor`. */
int terrace_fabric_attend(struct terrace_endpoint *endpoint, int descriptor, unsigned patience_ms);
