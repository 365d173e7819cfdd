/* What changes cells: writes, raw chunks and extents. Each comes here when the file has it. */

#define _GNU_SOURCE
#include "parts.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS_MAX 4096
/* From so many bytes on a put is done by another thread. TERRACE_HDF5_OVERLAP_BYTES says another number. */
#define OVERLAP_BYTES ((size_t)256 << 10)

/* A dataset of a file that was opened by the way of another one: what an earlier program has left of it goes. */
static void foreign_changed(void *object) {
    char path[PATH_MAX];
    size_t length = 0;
    H5VL_file_get_args_t get = {.op_type = H5VL_FILE_GET_NAME};
    get.args.get_name.type = H5I_DATASET;
    get.args.get_name.buf_size = sizeof path;
    get.args.get_name.buf = path;
    get.args.get_name.file_name_len = &length;
    if (hdf5.H5VLfile_get(object, native, &get, *hdf5.H5P_LST_DATASET_XFER_ID_g, NULL) >= 0 && length < sizeof path)
        mirror_forget(path);
    keep(object, NULL, NULL);
}

static struct dataset *changed(void *object) {
    struct handle *handle = *handle_at(object);
    if (handle) return handle->dataset;
    if (session) foreign_changed(object);
    return NULL;
}

static bool is_plain_transfer(hid_t transfer) {
    if (transfer == H5P_DEFAULT || transfer == *hdf5.H5P_LST_DATASET_XFER_ID_g) return true;
    H5T_conv_except_func_t converts = NULL;
    void *data = NULL;
    return hdf5.H5Pget_data_transform(transfer, NULL, 0) <= 0 && hdf5.H5Pget_type_conv_cb(transfer, &converts, &data) >= 0
        && !converts;
}

static bool is_packed(hid_t space) {
    return space == H5S_ALL || space == H5S_BLOCK || hdf5.H5Sget_select_type(space) == H5S_SEL_ALL;
}

/* Without a selection of its own the memory is laid out as the dataset is, and has the dataset's selection. */
static hid_t laid_out(hid_t memory, hid_t space) { return memory == H5S_ALL && space != H5S_ALL ? space : memory; }

/* Selections that are kept in the transfer's properties. */
static bool is_kept_elsewhere(hid_t space) { return space != H5S_ALL && space < 16; }

static size_t overlap_bytes(void) {
    static size_t bytes;
    const char *wanted = getenv("TERRACE_HDF5_OVERLAP_BYTES");
    if (!bytes) bytes = wanted && atol(wanted) > 0 ? (size_t)atol(wanted) : OVERLAP_BYTES;
    return bytes;
}

terrace_transfer *mirror_write_begin(void *object, hid_t type, hid_t memory, hid_t space, hid_t transfer, const void *cells) {
    struct handle *handle = *handle_at(object);
    struct dataset *dataset = handle ? handle->dataset : NULL;
    if (!dataset || dataset->file->is_off || dataset->state != CURRENT || dataset->plan.field_count != 1) return NULL;
    struct field *field = &dataset->plan.fields[0];
    struct block block;
    if (!cells || !is_plain_transfer(transfer) || is_kept_elsewhere(space) || !is_packed(laid_out(memory, space))) return NULL;
    if (!is_direct(&dataset->plan, type) || hdf5.H5Tequal(type, field->type) <= 0) return NULL;
    if (!block_of_selection(&dataset->plan, space, &block)) return NULL;
    hsize_t count = block_cells(&dataset->plan, &block);
    if (!count || count * field->bytes < overlap_bytes()) return NULL;
    /* HDF5 has not compared the two selections yet. */
    if (memory >= 16 && (hsize_t)hdf5.H5Sget_select_npoints(memory) != count) return NULL;
    return start_put(dataset, field, &block, cells);
}

bool mirror_write_end(terrace_transfer *put) {
    if (!put) return false;
    bool is_put = terrace.terrace_transfer_wait(put, -1) == TERRACE_OK;
    terrace.terrace_transfer_close(put);
    return is_put;
}

/* Puts cells that lie in a program's memory, which is of the type that is_direct has seen. */
static void put_direct(struct dataset *dataset, hid_t type, hid_t space, const struct block *block, const void *cells) {
    const struct plan *plan = &dataset->plan;
    hsize_t count = block_cells(plan, block);
    size_t from = hdf5.H5Tget_size(type);
    bool is_whole = is_packed(space);
    for (int number = 0; number < plan->field_count && dataset->state == CURRENT; number++) {
        struct field *field = &plan->fields[number];
        bool is_same = hdf5.H5Tequal(type, field->type) > 0;
        if (is_whole && is_same) {
            put(dataset, field, block, cells);
            continue;
        }
        size_t width = from > field->bytes ? from : field->bytes;
        void *buffer = malloc(count * width), *background = is_same ? NULL : calloc(count, width);
        bool is_there = buffer && (is_same || background);
        if (is_there && is_whole)
            memcpy(buffer, cells, count * from);
        else if (is_there)
            is_there = hdf5.H5Dgather(space, cells, type, count * from, buffer, NULL, NULL) >= 0;
        if (is_there && !is_same)
            is_there = hdf5.H5Tconvert(type, field->type, count, buffer, background, *hdf5.H5P_LST_DATASET_XFER_ID_g) >= 0;
        if (is_there)
            put(dataset, field, block, buffer);
        else
            leave(dataset, "its cells can't be converted");
        free(buffer);
        free(background);
    }
}

/* A selection that is no block: as the blocks that it is made of, or as the block around it. */
static void put_selected(struct dataset *dataset, void *object, hid_t space) {
    int rank = dataset->plan.rank;
    struct block block;
    hsize_t low[RANK_MAX], high[RANK_MAX], least[RANK_MAX];
    if (hdf5.H5Sget_select_bounds(space, low, high) < 0) {
        leave(dataset, "what was written is not known");
        return;
    }
    whole_block(&dataset->plan, &block);
    hssize_t count = hdf5.H5Sget_select_type(space) == H5S_SEL_HYPERSLABS ? hdf5.H5Sget_select_hyper_nblocks(space) : 0;
    hsize_t *corners = count > 0 && count <= BLOCKS_MAX ? malloc(count * 2 * rank * sizeof *corners) : NULL;
    if (corners && hdf5.H5Sget_select_hyper_blocklist(space, 0, count, corners) >= 0) {
        /* The list says nothing of a shift by H5Soffset_simple; the bounds do. */
        memcpy(least, corners, rank * sizeof *least);
        for (hssize_t number = 0; number < count; number++)
            for (int axis = 0; axis < rank; axis++)
                if (corners[number * 2 * rank + axis] < least[axis]) least[axis] = corners[number * 2 * rank + axis];
        for (hssize_t number = 0; number < count; number++) {
            const hsize_t *first = corners + number * 2 * rank, *last = first + rank;
            for (int axis = 0; axis < rank; axis++) {
                block.start[axis] = first[axis] - least[axis] + low[axis];
                block.count[axis] = last[axis] - first[axis] + 1;
            }
            if (!put_from_file(dataset, object, &block)) break;
        }
    } else {
        for (int axis = 0; axis < rank; axis++) {
            block.start[axis] = low[axis];
            block.count[axis] = high[axis] - low[axis] + 1;
        }
        put_from_file(dataset, object, &block);
    }
    free(corners);
}

void mirror_write(void *object, hid_t type, hid_t memory, hid_t space, hid_t transfer, const void *cells) {
    struct dataset *dataset = changed(object);
    if (!dataset || !is_current(dataset, object)) return;
    struct plan *plan = &dataset->plan;
    struct block block;
    if (space >= 16 && hdf5.H5Sget_select_npoints(space) == 0) return;
    if (!is_plain_transfer(transfer) || is_kept_elsewhere(space)) {
        leave(dataset, "it is written by a transformation, or by a selection that is kept elsewhere");
    } else if (!block_of_selection(plan, space, &block)) {
        put_selected(dataset, object, space);
    } else if (block_cells(plan, &block) == 0) {
        return;
    } else if (cells && is_direct(plan, type)) {
        put_direct(dataset, type, laid_out(memory, space), &block, cells);
    } else {
        put_from_file(dataset, object, &block);
    }
}

void mirror_chunk(void *object, const hsize_t *offset) {
    struct dataset *dataset = changed(object);
    if (!dataset) return;
    bool puts = is_current(dataset, object);
    const struct plan *plan = &dataset->plan;
    if (dataset->state != CURRENT) dataset->file->has_hidden_cells = true;
    struct block block;
    whole_block(plan, &block);
    for (int axis = 0; dataset->state == CURRENT && axis < plan->rank; axis++) {
        hsize_t extent = plan->shape[axis], end = offset[axis] + plan->chunks[axis];
        /* What a chunk has beyond the extent is seen when the dataset grows; nobody but the file knows it. */
        if (end > extent) dataset->file->has_hidden_cells = true;
        if (offset[axis] >= extent) puts = false;
        block.start[axis] = offset[axis];
        block.count[axis] = (end > extent ? extent : end) - offset[axis];
    }
    if (puts) put_from_file(dataset, object, &block);
}

static bool is_fill(const struct field *field, const unsigned char *cells, hsize_t count) {
    static const unsigned char zeroes[256];
    const unsigned char *fill = field->fill;
    for (hsize_t cell = 0; cell < count; cell++) {
        for (size_t done = 0; done < field->bytes;) {
            size_t bytes = field->bytes - done < sizeof zeroes ? field->bytes - done : sizeof zeroes;
            if (memcmp(cells + cell * field->bytes + done, fill ? fill + done : zeroes, bytes)) return false;
            done += bytes;
        }
    }
    return true;
}

static bool file_has_fill(struct dataset *dataset, void *object, const struct block *block) {
    bool has_fill = true;
    for (int number = 0; has_fill && number < dataset->plan.field_count; number++) {
        struct field *field = &dataset->plan.fields[number];
        void *cells = read_block(dataset, object, field, block);
        if (!cells) return true;
        has_fill = is_fill(field, cells, block_cells(&dataset->plan, block));
        free(cells);
    }
    return has_fill;
}

/* Cells of chunks at the old edge that the new extent shows, if the file has other than fill values there. */
static void put_revealed(struct dataset *dataset, void *object, const hsize_t *before) {
    const struct plan *plan = &dataset->plan;
    for (int axis = 0; axis < plan->rank && dataset->state == CURRENT; axis++) {
        struct block block;
        hsize_t size = plan->chunks[axis], edge = (before[axis] + size - 1) / size * size;
        if (plan->shape[axis] < edge) edge = plan->shape[axis];
        if (edge <= before[axis]) continue;
        whole_block(plan, &block);
        block.start[axis] = before[axis];
        block.count[axis] = edge - before[axis];
        if (block_cells(plan, &block) && !file_has_fill(dataset, object, &block)) put_from_file(dataset, object, &block);
    }
}

void mirror_extent(void *object, const hsize_t *extent) {
    struct dataset *dataset = changed(object);
    if (!dataset || dataset->state == LEFT || dataset->file->is_off) return;
    if (dataset->state == UNKNOWN) {
        begin(dataset, object, true);
        return;
    }
    uint64_t shape[RANK_MAX];
    bool shrinks = false;
    for (int axis = 0; axis < dataset->plan.rank; axis++) {
        shrinks |= extent[axis] < dataset->plan.shape[axis];
        shape[axis] = extent[axis];
    }
    if (shrinks) {
        make_anew(dataset, object);
        return;
    }
    for (int number = 0; number < dataset->plan.field_count; number++) {
        if (terrace.terrace_array_grow(dataset->plan.fields[number].array, dataset->plan.rank, shape) == TERRACE_OK) continue;
        fail(dataset);
        return;
    }
    hsize_t before[RANK_MAX];
    memcpy(before, dataset->plan.shape, sizeof before);
    for (int axis = 0; axis < dataset->plan.rank; axis++) dataset->plan.shape[axis] = extent[axis];
    if (dataset->file->has_hidden_cells && dataset->plan.is_chunked) put_revealed(dataset, object, before);
}

void mirror_failed(void *object) {
    struct handle *handle = *handle_at(object);
    if (!handle || !handle->dataset || handle->dataset->state == LEFT) return;
    /* No call of HDF5 here: the reason of the failure must stay where the program looks for it. */
    struct dataset *dataset = handle->dataset;
    if (dataset->name) leave(dataset, "a write failed");
}
