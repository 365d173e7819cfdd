/* Terrace's objects for C programs: link with -lterrace (pkg-config terrace).
 *
 * Every call but those that return text returns 0 (TERRACE_OK) or one of the codes below; terrace_error() then says what
 * failed, on what, and what to do. Names are paths below the session's root. Handles that are NULL or closed are refused
 * with TERRACE_BAD_HANDLE. All calls may be made from several threads at once, and by a forked child.
 *
 * Written by cbindgen from crates/capi/src: edit it there. */

#ifndef TERRACE_H
#define TERRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Most dimensions of an array.
#define TERRACE_RANK_MAX 8

// What a call returns.
typedef enum terrace_code {
  TERRACE_OK = 0,
  // There is no object of this name.
  TERRACE_NOT_FOUND = 1,
  // The name is taken.
  TERRACE_EXISTS = 2,
  // Another kind of object than the call needs, or one that was opened for reading only.
  TERRACE_WRONG_KIND = 3,
  // A type, rank, count or option that makes no sense.
  TERRACE_INVALID = 4,
  // A region that does not lie inside the array, or a read past a file's end.
  TERRACE_OUT_OF_BOUNDS = 5,
  // The last tier is full.
  TERRACE_NO_SPACE = 6,
  // A lock or an object was not to be had in the time given.
  TERRACE_BUSY = 7,
  // No agent answers.
  TERRACE_NO_AGENT = 8,
  // The token is wrong, or the files belong to another user.
  TERRACE_DENIED = 9,
  // The agent does not speak this language, or sent something broken.
  TERRACE_PROTOCOL = 10,
  // The operating system said no.
  TERRACE_SYSTEM = 11,
  // The object's files are damaged.
  TERRACE_DAMAGED = 12,
  // A handle that is NULL, was closed, or never was one.
  TERRACE_BAD_HANDLE = 13,
  // A defect of Terrace itself.
  TERRACE_INTERNAL = 14,
} terrace_code;

// What becomes of an object that is there already.
typedef enum terrace_create {
  // It is an error.
  TERRACE_NEW = 0,
  // It is emptied, or made anew.
  TERRACE_REPLACE = 1,
  // It is used as it is (an array must have the same type and shape).
  TERRACE_IF_MISSING = 2,
} terrace_create;

// What a name leads to.
typedef enum terrace_kind {
  TERRACE_CONTAINER = 0,
  TERRACE_BYTES = 1,
  TERRACE_ARRAY = 2,
} terrace_kind;

// Which agents keep an array's regions, where there are several.
typedef enum terrace_placement {
  // Chunks are spread over all agents.
  TERRACE_SPREAD = 0,
  // All of the array is on the agent of the node that creates it.
  TERRACE_LOCAL = 1,
  // All of the array is on one agent, which is chosen.
  TERRACE_ONE = 2,
} terrace_placement;

// Which way a transfer goes.
typedef enum terrace_direction {
  // From the program's memory into the array.
  TERRACE_PUT = 0,
  // From the array into the program's memory.
  TERRACE_GET = 1,
} terrace_direction;

// What a lock allows.
typedef enum terrace_lock_mode {
  // Others may read, too.
  TERRACE_READ = 0,
  // Nobody else has an overlapping lock.
  TERRACE_WRITE = 1,
} terrace_lock_mode;

// What a tag says.
typedef enum terrace_tag_type {
  TERRACE_TAG_NONE = 0,
  TERRACE_TAG_BOOL = 1,
  TERRACE_TAG_INT = 2,
  TERRACE_TAG_FLOAT = 3,
  TERRACE_TAG_TEXT = 4,
  TERRACE_TAG_INTS = 5,
  TERRACE_TAG_FLOATS = 6,
} terrace_tag_type;

// Which values are meant.
typedef enum terrace_match {
  // The key is there, whatever its value.
  TERRACE_ANY = 0,
  // The value is `low`.
  TERRACE_EXACT = 1,
  // From `low` to `high`, both included; TERRACE_TAG_NONE: no bound.
  TERRACE_RANGE = 2,
  // A text that begins with that of `low`.
  TERRACE_PREFIX = 3,
  // A text that ends with that of `low`.
  TERRACE_SUFFIX = 4,
  // A text that has that of `low` in it.
  TERRACE_INFIX = 5,
  // One that, as it is written, fits the pattern of `low`: `*` is any text, `?` one character. The key is a pattern, too.
  TERRACE_LIKE = 6,
} terrace_match;

// Where puts are to have arrived.
typedef enum terrace_arrived {
  // The agent has them: all who ask it see them, and they survive a kill of any process.
  TERRACE_STAGED = 0,
  // All agents have them that they are forwarded to.
  TERRACE_ANALYSIS = 1,
  // The root's own storage has them.
  TERRACE_DURABLE = 2,
} terrace_arrived;

// When a function is applied.
typedef enum terrace_when {
  // To a copy of what is put, before anybody sees it.
  TERRACE_ON_PUT = 0,
  // To the buffer, after a get.
  TERRACE_ON_GET = 1,
} terrace_when;

// An open array.
typedef struct terrace_array terrace_array;

// An open bytes object.
typedef struct terrace_bytes terrace_bytes;

// A lock that is held.
typedef struct terrace_lock terrace_lock;

// Memory of the program, tied to a region.
typedef struct terrace_mapping terrace_mapping;

// A conversation in SAVIME's language.
typedef struct terrace_savime terrace_savime;

// Cells that have met a question.
typedef struct terrace_selection terrace_selection;

// One root, seen by one program.
typedef struct terrace_session terrace_session;

// A queue of puts, with threads that do them.
typedef struct terrace_stager terrace_stager;

// Where a reader of a container's steps is.
typedef struct terrace_steps terrace_steps;

// A put or a get that can be started.
typedef struct terrace_transfer terrace_transfer;

// A question that each cell answers with yes or no.
typedef struct terrace_where terrace_where;

// What is known of an object.
typedef struct terrace_info {
  // One of terrace_kind.
  int kind;
  // Nothing of it is in a faster tier only.
  bool is_durable;
  // A bytes object's length; an array's size when all cells are written; 0 for a container.
  uint64_t bytes;
  // The tiers that have its bytes, that of the newest first: "tier 0", "root", or "tier 0, root".
  char tier[32];
} terrace_info;

// What an array is to be. What is left zero is chosen.
typedef struct terrace_array_spec {
  // "bool", "int8" to "int64", "uint8" to "uint64", "float16", "float32", "float64", "complex64", "complex128"; "S12": strings of
  // 12 bytes; "U12": of 12 code points in 32 bits; "datetime64[s]", "timedelta64[s]" (D, h, m, s, ms, us, ns): 64-bit integers.
  const char *data_type;
  // Dimensions: up to TERRACE_RANK_MAX; 0: one cell. Cells lie in C order: the last dimension is the innermost.
  int rank;
  uint64_t shape[TERRACE_RANK_MAX];
  // Dimensions that grow with what is put.
  bool unlimited[TERRACE_RANK_MAX];
  // Cells of a chunk of the durable form.
  uint64_t chunks[TERRACE_RANK_MAX];
  // One cell, which is read where nothing was put; NULL: zeroes.
  const void *fill;
  // Names of the dimensions; arrays of a container that share names share dimensions.
  const char *dimensions[TERRACE_RANK_MAX];
  // One of terrace_placement.
  int placement;
} terrace_array_spec;

// Cells of an array: `count` of them in each dimension, from `offset` on, `stride` apart (0 is taken as 1).
typedef struct terrace_region {
  int rank;
  uint64_t offset[TERRACE_RANK_MAX];
  uint64_t count[TERRACE_RANK_MAX];
  uint64_t stride[TERRACE_RANK_MAX];
} terrace_region;

// What a stager is to be. What is left zero is chosen.
typedef struct terrace_stager_spec {
  // Bytes of cells that may be queued (256 MiB).
  uint64_t queue_bytes;
  // A put that the queue has no room for is not done; else it waits for room.
  bool drops;
  // Threads that put (1).
  int threads;
} terrace_stager_spec;

// Since the stager was made; what is queued: now.
typedef struct terrace_stager_counters {
  uint64_t queued_puts;
  uint64_t queued_bytes;
  uint64_t queued_bytes_max;
  uint64_t done_puts;
  uint64_t done_bytes;
  uint64_t dropped_puts;
  uint64_t dropped_bytes;
  uint64_t dropped_steps;
  uint64_t failed_puts;
  // How long the program waited for room.
  double blocked_s;
  // How long the threads were putting.
  double busy_s;
} terrace_stager_counters;

// A tag's value. `tag_type` says which of the others counts.
typedef struct terrace_tag {
  // One of terrace_tag_type.
  int tag_type;
  bool boolean;
  int64_t integer;
  double real;
  // Ends with a zero byte.
  const char *text;
  const int64_t *integers;
  const double *reals;
  // Of `integers` or `reals`.
  size_t count;
} terrace_tag;

// A question about tags.
typedef struct terrace_query {
  const char *key;
  // One of terrace_match.
  int matches;
  struct terrace_tag low;
  struct terrace_tag high;
  // Only objects below this container; NULL or "": all.
  const char *below;
} terrace_query;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// What the last call of this thread that failed says: what failed, on what, and (after "hint: " on a line of its own) what to
// do. "" when none has failed. Valid until the thread's next call that fails.
const char *terrace_error(void);

// The version of this library.
const char *terrace_version(void);

// Begins a session with the agent of a root. `target`: the root's path; or "" (or NULL) for the root of the run that this
// program belongs to, or that TERRACE_ROOT names.
int terrace_connect(const char *target,
                    struct terrace_session **session);

// Ends a session. Objects that were opened in it stay open.
int terrace_disconnect(struct terrace_session *session);

// The root's path, with a zero byte at its end, into `path`, which has room for `size` bytes.
int terrace_root(const struct terrace_session *session, char *path, size_t size);

// Makes a container (a directory), with those that it lies in. `how`: one of terrace_create.
int terrace_container_create(const struct terrace_session *session, const char *name, int how);

// Calls `visit` with the name (without its container) and the kind of all that a container holds, sorted by name, until
// it returns something else than 0; `context` is handed on to it.
int terrace_list(const struct terrace_session *session,
                 const char *container,
                 int (*visit)(const char *name, int kind, void *context),
                 void *context);

// Makes an array or a bytes object a member of one more container. One that is a member already stays so.
int terrace_member_add(const struct terrace_session *session, const char *container, const char *object);

// Ends what terrace_member_add began; the object stays. TERRACE_NOT_FOUND: it is no member.
int terrace_member_remove(const struct terrace_session *session, const char *container, const char *object);

// Calls `visit` with the name (from the root on) and the kind of each array and bytes object that lies in a container or was added to
// it, sorted by name, until it returns something else than 0; `context` is handed on to it.
int terrace_members(const struct terrace_session *session,
                    const char *container,
                    int (*visit)(const char *name, int kind, void *context),
                    void *context);

// Calls `visit` with the name of each container that an object is in, sorted, until it returns something else than 0; `context` is
// handed on to it. The root is "".
int terrace_containers_of(const struct terrace_session *session,
                          const char *object,
                          int (*visit)(const char *name, int kind, void *context),
                          void *context);

// What is known of an object; TERRACE_NOT_FOUND if there is none.
int terrace_stat(const struct terrace_session *session, const char *name, struct terrace_info *info);

// Removes an object; a container only when it is empty, unless `with_contents`.
int terrace_remove(const struct terrace_session *session, const char *name, bool with_contents);

// Waits until there is an object of this name, for so many seconds (less than 0: for as long as it takes). `info` may be NULL.
int terrace_wait_for(const struct terrace_session *session,
                     const char *name,
                     double seconds,
                     struct terrace_info *info);

// Makes durable in the root what lies at and below this name.
int terrace_flush(const struct terrace_session *session, const char *name);

// Frees the faster tiers of what lies at and below this name, flushing first what is not durable.
int terrace_evict(const struct terrace_session *session, const char *name);

// Brings what lies at and below this name into the faster tiers.
int terrace_prefetch(const struct terrace_session *session, const char *name);

// Gives an object another name, with its tags and all that lies below it. TERRACE_EXISTS if there is an object of that name. Arrays that
// are open are to be opened again.
int terrace_rename(const struct terrace_session *session,
                   const char *from,
                   const char *to);

// Makes a bytes object and opens it for reading and writing. `how`: one of terrace_create.
int terrace_bytes_create(const struct terrace_session *session,
                         const char *name,
                         int how,
                         struct terrace_bytes **bytes);

// Opens a bytes object (any file of the root is one).
int terrace_bytes_open(const struct terrace_session *session,
                       const char *name,
                       bool writable,
                       struct terrace_bytes **bytes);

// Reads `count` bytes from `position` on. `got` may be NULL: then fewer are TERRACE_OUT_OF_BOUNDS; else it says how many there
// were, which are fewer only at the end.
int terrace_bytes_read(const struct terrace_bytes *bytes,
                       uint64_t position,
                       void *buffer,
                       size_t count,
                       size_t *got);

// Writes `count` bytes at `position`. Past the end the object grows; what lies between reads as zero. Small writes are
// gathered: others see them after terrace_bytes_flush or terrace_bytes_close.
int terrace_bytes_write(const struct terrace_bytes *bytes,
                        uint64_t position,
                        const void *buffer,
                        size_t count);

// Writes at the end that this handle knows. `position`, which may be NULL, is where it went.
int terrace_bytes_append(const struct terrace_bytes *bytes,
                         const void *buffer,
                         size_t count,
                         uint64_t *position);

// The length, with what is gathered.
int terrace_bytes_length(const struct terrace_bytes *bytes, uint64_t *length);

// Cuts it off at `length`, or makes it longer; what is new is zero.
int terrace_bytes_set_length(const struct terrace_bytes *bytes, uint64_t length);

// Publishes what is gathered: every other program sees it.
int terrace_bytes_flush(const struct terrace_bytes *bytes);

// Publishes, and returns when it is as safe as its tier is.
int terrace_bytes_sync(const struct terrace_bytes *bytes);

// Publishes and closes. The handle is closed even when publishing fails.
int terrace_bytes_close(struct terrace_bytes *bytes);

// Makes an array and opens it for putting and getting. `how`: one of terrace_create.
int terrace_array_create(const struct terrace_session *session,
                         const char *name,
                         const struct terrace_array_spec *spec,
                         int how,
                         struct terrace_array **array);

// Opens an array: one that was created, or any Zarr v3 array below the root.
int terrace_array_open(const struct terrace_session *session,
                       const char *name,
                       bool writable,
                       struct terrace_array **array);

// The number of dimensions, and their extents as they are now.
int terrace_array_shape(const struct terrace_array *array, int *rank, uint64_t *shape);

// The type's name, with a zero byte at its end, into `name`, which has room for `size` bytes (16 are enough), and the bytes
// of one cell. Either place may be NULL.
int terrace_array_type(const struct terrace_array *array,
                       char *name,
                       size_t size,
                       size_t *cell_bytes);

// Makes unlimited dimensions larger without putting anything.
int terrace_array_grow(const struct terrace_array *array, int rank, const uint64_t *shape);

// Gives the array any shape of the same rank, also a smaller one, and also where dimensions are not unlimited: for all who have it open. What
// is cut off is gone. The array is made durable for it, and dropped from the tiers.
int terrace_array_resize(const struct terrace_array *array,
                         int rank,
                         const uint64_t *shape);

// Puts a region's cells, which lie packed in C order. When it returns every reader sees them.
int terrace_array_put(const struct terrace_array *array,
                      const struct terrace_region *region,
                      const void *cells,
                      size_t bytes);

// Gets a region's cells, packed in C order; those that were never put are the fill value.
int terrace_array_get(const struct terrace_array *array,
                      const struct terrace_region *region,
                      void *cells,
                      size_t bytes);

// Makes the array durable in the root.
int terrace_array_flush(const struct terrace_array *array);

// Closes it. Transfers, locks and mappings of it go on.
int terrace_array_close(struct terrace_array *array);

// Makes a transfer of a region. `direction`: one of terrace_direction. `cells` must stay where it is, and be left alone, from
// each start until it was waited for.
int terrace_transfer_create(const struct terrace_array *array,
                            int direction,
                            const struct terrace_region *region,
                            void *cells,
                            size_t bytes,
                            struct terrace_transfer **transfer);

// Starts it and returns at once. It needs no further call to go on.
int terrace_transfer_start(const struct terrace_transfer *transfer);

// Whether a started transfer is done, well or not. One that was waited for is.
int terrace_transfer_test(const struct terrace_transfer *transfer, bool *done);

// Waits until it is done, for so many seconds (less than 0: for as long as it takes), and says how it went; TERRACE_BUSY: it
// is not done yet. Afterwards the memory is the program's, and the transfer may be started again.
int terrace_transfer_wait(const struct terrace_transfer *transfer,
                          double seconds);

// Starts several. The first that can't be started ends it.
int terrace_transfers_start(struct terrace_transfer *const *transfers, size_t count);

// Waits for all of several, for so many seconds together, and gives the first failure. TERRACE_BUSY: some are not done yet.
int terrace_transfers_wait(struct terrace_transfer *const *transfers,
                           size_t count,
                           double seconds);

// Waits for it if it was started, and forgets it.
int terrace_transfer_close(struct terrace_transfer *transfer);

// Makes a stager. `spec`: NULL for what is chosen.
int terrace_stager_create(const struct terrace_session *session,
                          const struct terrace_stager_spec *spec,
                          struct terrace_stager **stager);

// Queues a put and returns. `copies`: the cells are copied, and the memory is the program's again at once; else it must stay and
// be left alone until terrace_stager_sync has returned. `queued` (or NULL): false if the queue was full and nothing will be put.
// Puts into arrays of one container take effect in their order.
int terrace_stager_put(const struct terrace_stager *stager,
                       const struct terrace_array *array,
                       const struct terrace_region *region,
                       const void *cells,
                       size_t bytes,
                       bool copies,
                       bool *queued);

// Takes room for a whole step of so many bytes: the puts that follow have it. `queued`: false if there is none (a stager that
// drops), and the step's puts are not to be made.
int terrace_stager_begin_step(const struct terrace_stager *stager,
                              uint64_t bytes,
                              bool *queued);

// Says, after all earlier puts of the container, that its first `steps` steps are whole: for readers that can't tell by its cells.
int terrace_stager_publish(const struct terrace_stager *stager,
                           const char *container,
                           uint64_t steps);

// Waits until all earlier puts have arrived (one of terrace_arrived), for so many seconds (less than 0: for as long as it takes);
// TERRACE_BUSY: they have not. Gives the first failure of the puts since the last call; all others were done.
int terrace_stager_sync(const struct terrace_stager *stager,
                        int arrived,
                        double seconds);

int terrace_stager_count(const struct terrace_stager *stager, struct terrace_stager_counters *counters);

// Waits until what is queued has been put, gives the failures that no sync has told, and forgets the stager.
int terrace_stager_close(struct terrace_stager *stager);

// The steps of a container from `from` on. `arrays`: names of those, in the container, that a step has to have (`count` of them;
// 0: all that are there and grow).
int terrace_steps_open(const struct terrace_session *session,
                       const char *container,
                       uint64_t from,
                       const char *const *arrays,
                       size_t count,
                       struct terrace_steps **steps);

// Waits for the next step that all its arrays have whole, for so many seconds (less than 0: for as long as it takes);
// TERRACE_BUSY: it has not come.
int terrace_steps_next(const struct terrace_steps *steps,
                       double seconds,
                       uint64_t *step);

int terrace_steps_close(struct terrace_steps *steps);

// Locks a region against overlapping locks of all programs. `mode`: one of terrace_lock_mode. Waits so many seconds (0: does
// not wait; less: for as long as it takes); TERRACE_BUSY: it was not to be had. A process that ends holds no lock any more.
int terrace_array_lock(const struct terrace_array *array,
                       const struct terrace_region *region,
                       int mode,
                       double seconds,
                       struct terrace_lock **lock);

// Lets others have the region.
int terrace_lock_release(struct terrace_lock *lock);

// Ties memory to a region; it must stay until terrace_unmap.
int terrace_map(const struct terrace_array *array,
                const struct terrace_region *region,
                void *buffer,
                size_t bytes,
                struct terrace_mapping **mapping);

// Locks the mapping's region and brings its cells into the memory.
int terrace_mapping_lock(const struct terrace_mapping *mapping, int mode, double seconds);

// Publishes the memory, if it was locked for writing, and lets others have the region.
int terrace_mapping_release(const struct terrace_mapping *mapping);

// Ends the tie. What was written under a lock that was not released is not published.
int terrace_unmap(struct terrace_mapping *mapping);

// Sets a tag of an object; one that is there is replaced.
int terrace_tag_put(const struct terrace_session *session,
                    const char *name,
                    const char *key,
                    const struct terrace_tag *tag);

// A tag of an object. A text, or numbers, are copied into `buffer`, which has room for `size` bytes, and `tag` leads there;
// TERRACE_OUT_OF_BOUNDS: there is not room enough.
int terrace_tag_get(const struct terrace_session *session,
                    const char *name,
                    const char *key,
                    struct terrace_tag *tag,
                    void *buffer,
                    size_t size);

// Removes a tag.
int terrace_tag_delete(const struct terrace_session *session, const char *name, const char *key);

// Calls `visit` with all tags of an object, by key, until it returns something else than 0. What `tag` leads to is there
// during that call only.
int terrace_tags(const struct terrace_session *session,
                 const char *name,
                 int (*visit)(const char *key, const struct terrace_tag *tag, void *context),
                 void *context);

// Calls `visit` with the names of all objects whose tag matches, sorted, until it returns something else than 0.
int terrace_find(const struct terrace_session *session,
                 const struct terrace_query *query,
                 int (*visit)(const char *name, void *context),
                 void *context);

// Asks for the cells of an array that meet a comparison: "> 3.5" (also <, <=, >=, =, !=). NaN meets nothing.
int terrace_where_new(const struct terrace_array *array,
                      const char *comparison,
                      struct terrace_where **question);

// Cells that meet both questions. Both stay what they are.
int terrace_where_and(const struct terrace_where *one,
                      const struct terrace_where *other,
                      struct terrace_where **both);

// Cells that meet one of the questions, or both. Both stay what they are.
int terrace_where_or(const struct terrace_where *one,
                     const struct terrace_where *other,
                     struct terrace_where **either);

// Forgets a question.
int terrace_where_close(struct terrace_where *question);

// Looks for the cells, in the whole arrays (`within`: NULL) or in a block of them. All arrays of the question have one shape.
int terrace_select(const struct terrace_where *question,
                   const struct terrace_region *within,
                   struct terrace_selection **selection);

// How many cells those are.
int terrace_selection_count(const struct terrace_selection *selection, uint64_t *count);

// Where they are: `room` (as many as the count, at least) positions in C order. Of the place [i, j] of an array of m columns: i m + j.
int terrace_selection_positions(const struct terrace_selection *selection,
                                uint64_t *positions,
                                size_t room);

// Their cells in an array of the same shape (one of the question's, or another), packed in the order of their positions.
int terrace_selection_get(const struct terrace_selection *selection,
                          const struct terrace_array *array,
                          void *cells,
                          size_t bytes);

// Forgets a selection.
int terrace_selection_close(struct terrace_selection *selection);

// How many cells lie in each of `bins` bins of one width from `low` to `high`; NaN, and what lies outside, is in none. `low` greater
// than `high`: from the least to the greatest cell, which are then said there. `within`: NULL for all cells.
int terrace_histogram(const struct terrace_array *array,
                      const struct terrace_region *within,
                      size_t bins,
                      double *low,
                      double *high,
                      uint64_t *counts);

// Puts cells that lie apart: in the region `memory` of a buffer of this shape (in cells, as many numbers as the region has dimensions). Both
// regions have as many cells, in C order.
int terrace_array_put_from(const struct terrace_array *array,
                           const struct terrace_region *region,
                           const uint64_t *shape,
                           const struct terrace_region *memory,
                           const void *buffer,
                           size_t bytes);

// Gets cells into the region `memory` of a buffer of this shape; all others there stay what they are.
int terrace_array_get_into(const struct terrace_array *array,
                           const struct terrace_region *region,
                           const uint64_t *shape,
                           const struct terrace_region *memory,
                           void *buffer,
                           size_t bytes);

// Begins a conversation in SAVIME's language with the agent of a root; `target` as for terrace_connect, or tcp://ADDRESS:PORT.
// The program `terrace-query` answers: on the path, beside `terrace`, or named by TERRACE_QUERY.
int terrace_savime_open(const char *target,
                        struct terrace_savime **savime);

// Runs commands, ended by semicolons, one after the other. `rows` (which may be NULL) is what the last one says: a line as
// `#x,d,int64|v,a,double:1`, then rows of values between commas; to be given back by terrace_text_free. At an error it stops.
int terrace_savime_run(const struct terrace_savime *savime,
                       const char *commands,
                       char **rows);

// Gives back a text that a call gave; NULL is nothing.
//
// # Safety
// `text` is NULL, or came from a call that says so and was not given back yet.
void terrace_text_free(char *text);

// Ends a conversation.
int terrace_savime_close(struct terrace_savime *savime);

// Applies a function to the cells of each region that is put, or got, by this handle, after those that were added before. It gets the region,
// the cells' type by name, the cells (packed, in C order; it may change them), their bytes, and `context`; if it does not return 0 the
// call fails, and nothing is put. Several threads may call it at once: those of the program, and those of transfers.
int terrace_array_hook(const struct terrace_array *array,
                       int when,
                       int (*function)(const struct terrace_region *region,
                                       const char *data_type,
                                       void *cells,
                                       size_t bytes,
                                       void *context),
                       void *context);

// As terrace_array_hook, with a function of a shared library, by its name. The library stays loaded.
int terrace_array_hook_library(const struct terrace_array *array,
                               int when,
                               const char *library,
                               const char *symbol,
                               void *context);

// No function is applied any more.
int terrace_array_unhook(const struct terrace_array *array);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TERRACE_H */
