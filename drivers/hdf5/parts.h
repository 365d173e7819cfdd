/* What the parts of the mirror say to each other. */
#ifndef TERRACE_HDF5_PARTS_H
#define TERRACE_HDF5_PARTS_H

#include "mirror.h"

/* handles.c */

struct handle {
    struct handle *next;
    void *object;
    struct file *file;
    struct dataset *dataset;
};

extern struct file *mirrored_files;

/* Where an object's handle is, or would be. */
struct handle **handle_at(void *object);
struct dataset **dataset_at(const struct file *file, const H5O_token_t *token);
void keep(void *object, struct file *file, struct dataset *dataset);
struct file *file_numbered(unsigned long number);
bool info_of(void *object, H5I_type_t type, H5O_info2_t *info);
/* All open datasets of a file that `does` is true of. */
void each_dataset(const struct file *file, void (*does)(struct dataset *dataset, const void *context), const void *context);
/* What the containers of files are in. */
const char *mirrors(void);
bool is_part(const char *part, size_t length);
bool add_parts(char *name, size_t room, const char *parts);
bool path_of(void *object, H5I_type_t type, char *path, size_t room);
bool is_hard_path(void *object, H5I_type_t type, char *path);

/* mirror.c */

/* Arrays of a file that were made by this process: `change` more, or (LONG_MIN) none any more. False: these would be too many. */
bool count_arrays(const char *container, long change);
bool remove_all(const char *name);
bool number_of(void *file, unsigned long *number);

/* datasets.c */

void close_arrays(struct dataset *dataset);
/* The dataset has no arrays any more. */
void leave(struct dataset *dataset, const char *why);
void fail(struct dataset *dataset);
/* Makes the arrays; `fills`: with what the file has. */
void begin(struct dataset *dataset, void *object, bool fills);
/* Makes them again where those that are there don't fit any more. */
void make_anew(struct dataset *dataset, void *object);
bool is_current(struct dataset *dataset, void *object);
bool put(struct dataset *dataset, struct field *field, const struct block *block, const void *cells);
/* Begins a put; `cells` stay until it was waited for. NULL: it can't be begun, and nothing was put. */
terrace_transfer *start_put(struct dataset *dataset, struct field *field, const struct block *block, const void *cells);
/* Reads a block of one field from the file; to be freed. */
void *read_block(struct dataset *dataset, void *object, const struct field *field, const struct block *block);
/* Puts a block as the file has it. */
bool put_from_file(struct dataset *dataset, void *object, const struct block *block);

#endif
