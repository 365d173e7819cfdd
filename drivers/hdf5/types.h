/* What of HDF5's types, extents and selections arrays can have. */
#ifndef TERRACE_HDF5_TYPES_H
#define TERRACE_HDF5_TYPES_H

#include "calls.h"

#define RANK_MAX TERRACE_RANK_MAX

/* One array of a dataset: all of its cells, or one member of each. */
struct field {
    char *member; /* NULL: the dataset has no members */
    hid_t type; /* of one cell in memory; of a member: a compound that has nothing else */
    size_t bytes; /* of one cell of the array */
    bool is_text; /* of any length: in memory a pointer, in the array filled up with zeroes */
    char data_type[24];
    void *fill; /* one cell; NULL: zeroes */
    bool is_exact; /* but for the order of bytes the file has just this type */
    terrace_array *array;
};

/* What a dataset's arrays are to be. */
struct plan {
    int rank; /* of the arrays; a single cell is an array of one */
    bool is_single;
    hsize_t shape[RANK_MAX];
    bool grows[RANK_MAX];
    bool is_chunked;
    hsize_t chunks[RANK_MAX];
    hid_t file_type;
    int field_count;
    struct field *fields;
    bool is_compound;
};

/* NULL, or why a dataset can't be arrays; "" if it has nothing to ask for. `text_bytes`: what a text of any length gets. */
const char *plan_dataset(void *dataset, struct plan *plan, size_t text_bytes);
/* Of one cell of a field in a program's memory. */
size_t memory_bytes(const struct field *field);
void plan_close(struct plan *plan);

struct block {
    hsize_t start[RANK_MAX];
    hsize_t count[RANK_MAX];
    hsize_t stride[RANK_MAX];
};

void whole_block(const struct plan *plan, struct block *block);
hsize_t block_cells(const struct plan *plan, const struct block *block);
/* True if a selection in the file is one block. `space`: H5S_ALL for all. */
bool block_of_selection(const struct plan *plan, hid_t space, struct block *block);
/* True if what is written by this type may be converted straight to the arrays' types. */
bool is_direct(const struct plan *plan, hid_t memory_type);

#endif
