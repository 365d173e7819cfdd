/* The arrays of one dataset: made, opened, filled with what the file has, and removed when they can't say what it says. */

#define _GNU_SOURCE
#include "parts.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is read from the file in one piece. */
#define SLAB_BYTES ((size_t)64 << 20)
/* What is read from a file at most to make good what was written without us, or in a way that is no block. */
#define CATCH_UP_BYTES ((uint64_t)256 << 20)
/* What texts of any length get in an array at first, and at most. */
#define TEXT_BYTES 32
#define TEXT_BYTES_MAX 4096

/* ---- datasets ---- */

void close_arrays(struct dataset *dataset) {
    for (int number = 0; number < dataset->plan.field_count; number++) {
        if (dataset->plan.fields[number].array) terrace.terrace_array_close(dataset->plan.fields[number].array);
        dataset->plan.fields[number].array = NULL;
    }
}

/* The dataset has no arrays any more. */
void leave(struct dataset *dataset, const char *why) {
    bool had_arrays = dataset->state != LEFT;
    if (dataset->state == CURRENT) count_arrays(dataset->file->container, -dataset->plan.field_count);
    dataset->state = LEFT;
    if (why && *why) tell(dataset->name ? dataset->name + strlen(mirrors()) + 1 : dataset->file->path, why);
    close_arrays(dataset);
    if (had_arrays && dataset->name && !remove_all(dataset->name)) mirror_off(dataset->file, NULL);
}

void fail(struct dataset *dataset) {
    char why[512];
    snprintf(why, sizeof why, "%s", terrace.terrace_error());
    leave(dataset, why);
}

static char *array_name(const struct dataset *dataset, const struct field *field) {
    char *name = NULL;
    if (!field->member) return strdup(dataset->name);
    if (!is_part(field->member, strlen(field->member)) || strchr(field->member, '/') || !strcmp(field->member, ".")) return NULL;
    return asprintf(&name, "%s/%s", dataset->name, field->member) < 0 ? NULL : name;
}

static bool same_as_planned(const struct plan *plan, struct field *field) {
    char type[sizeof field->data_type];
    int rank;
    uint64_t shape[RANK_MAX];
    if (terrace.terrace_array_type(field->array, type, sizeof type, NULL)) return false;
    /* Texts of any length have what they had before. */
    if (field->is_text && sscanf(type, "S%zu", &field->bytes) == 1) strcpy(field->data_type, type);
    if (strcmp(type, field->data_type)
        || terrace.terrace_array_shape(field->array, &rank, shape) || rank != plan->rank)
        return false;
    for (int axis = 0; axis < rank; axis++)
        if (shape[axis] != plan->shape[axis]) return false;
    return true;
}

/* Opens the arrays that an earlier handle, or an earlier program, has left. */
static bool open_arrays(struct dataset *dataset) {
    if (!dataset->file->has_container) return false;
    for (int number = 0; number < dataset->plan.field_count; number++) {
        struct field *field = &dataset->plan.fields[number];
        char *name = array_name(dataset, field);
        bool is_open = name && terrace.terrace_array_open(session, name, true, &field->array) == TERRACE_OK;
        free(name);
        if (!is_open || !same_as_planned(&dataset->plan, field)) {
            if (!is_open) field->array = NULL;
            close_arrays(dataset);
            return false;
        }
    }
    return true;
}

static bool create_arrays(struct dataset *dataset) {
    const struct plan *plan = &dataset->plan;
    struct terrace_array_spec spec = {.rank = plan->rank};
    for (int axis = 0; axis < plan->rank; axis++) {
        spec.shape[axis] = plan->shape[axis];
        spec.unlimited[axis] = plan->grows[axis];
        if (plan->is_chunked) spec.chunks[axis] = plan->chunks[axis];
    }
    if (!count_arrays(dataset->file->container, plan->field_count)) {
        dataset->state = LEFT;
        tell(dataset->name + strlen(mirrors()) + 1, "this program has made so many arrays (TERRACE_HDF5_ARRAYS)");
        return false;
    }
    char *parent = strdup(dataset->name);
    if (!parent) return false;
    if (!plan->is_compound) *strrchr(parent, '/') = 0;
    bool is_made = mirror_container(dataset->file, parent);
    free(parent);
    for (int number = 0; is_made && number < plan->field_count; number++) {
        struct field *field = &plan->fields[number];
        char *name = array_name(dataset, field);
        if (!name) {
            leave(dataset, "a member's name is no name of an array");
            return false;
        }
        spec.data_type = field->data_type;
        spec.fill = field->fill;
        is_made = terrace.terrace_array_create(session, name, &spec, TERRACE_REPLACE, &field->array) == TERRACE_OK;
        if (!is_made) field->array = NULL;
        free(name);
    }
    if (!is_made) fail(dataset);
    return is_made;
}

static struct terrace_region region_of(const struct plan *plan, const struct block *block) {
    struct terrace_region region = {.rank = plan->rank};
    for (int axis = 0; axis < region.rank; axis++) {
        region.offset[axis] = block->start[axis];
        region.count[axis] = block->count[axis];
        region.stride[axis] = block->stride[axis];
    }
    return region;
}

terrace_transfer *start_put(struct dataset *dataset, struct field *field, const struct block *block, const void *cells) {
    struct terrace_region region = region_of(&dataset->plan, block);
    size_t bytes = block_cells(&dataset->plan, block) * field->bytes;
    terrace_transfer *transfer = NULL;
    /* A put only reads the cells. */
    if (terrace.terrace_transfer_create(field->array, TERRACE_PUT, &region, (void *)cells, bytes, &transfer) != TERRACE_OK) return NULL;
    if (terrace.terrace_transfer_start(transfer) == TERRACE_OK) return transfer;
    terrace.terrace_transfer_close(transfer);
    return NULL;
}

bool put(struct dataset *dataset, struct field *field, const struct block *block, const void *cells) {
    struct terrace_region region = region_of(&dataset->plan, block);
    size_t bytes = block_cells(&dataset->plan, block) * field->bytes;
    if (terrace.terrace_array_put(field->array, &region, cells, bytes) == TERRACE_OK) return true;
    fail(dataset);
    return false;
}

/* Texts of any length as cells of one width. A longer one makes the arrays anew, with what the file has. NULL: that was done, or failed. */
static void *pack_texts(struct dataset *dataset, void *object, const struct field *field, hsize_t cells, char *const *texts) {
    size_t longest = 0;
    for (hsize_t cell = 0; cell < cells; cell++) {
        size_t length = texts[cell] ? strlen(texts[cell]) : 0;
        if (length > longest) longest = length;
    }
    if (longest > TEXT_BYTES_MAX) {
        leave(dataset, "a text of it has more than 4,096 bytes");
        return NULL;
    }
    if (longest > field->bytes) {
        for (dataset->text_bytes = field->bytes; dataset->text_bytes < longest;) dataset->text_bytes *= 2;
        make_anew(dataset, object);
        return NULL;
    }
    char *packed = calloc(cells, field->bytes);
    if (!packed) leave(dataset, "no memory");
    for (hsize_t cell = 0; packed && cell < cells; cell++)
        if (texts[cell]) memcpy(packed + cell * field->bytes, texts[cell], strlen(texts[cell]));
    return packed;
}

/* Reads a block of one field from the file; to be freed. */
void *read_block(struct dataset *dataset, void *object, const struct field *field, const struct block *block) {
    const struct plan *plan = &dataset->plan;
    hsize_t cells = block_cells(plan, block);
    hid_t memory = hdf5.H5Screate_simple(1, &cells, NULL), space = H5S_ALL;
    void *buffer = calloc(cells, memory_bytes(field));
    bool is_read = buffer && memory >= 0;
    if (!plan->is_single) {
        space = hdf5.H5Screate_simple(plan->rank, plan->shape, NULL);
        is_read = is_read && space >= 0
            && hdf5.H5Sselect_hyperslab(space, H5S_SELECT_SET, block->start, block->stride, block->count, NULL) >= 0;
    }
    hid_t type = field->type;
    is_read = is_read
        && hdf5.H5VLdataset_read(1, &object, native, &type, &memory, &space, *hdf5.H5P_LST_DATASET_XFER_ID_g, &buffer, NULL) >= 0;
    if (!plan->is_single && space >= 0) hdf5.H5Sclose(space);
    if (!is_read) {
        free(buffer);
        buffer = NULL;
        leave(dataset, "it can't be read again");
    } else if (field->is_text) {
        /* It may make the arrays anew, and the field another one. */
        hid_t type = hdf5.H5Tcopy(field->type);
        void *packed = pack_texts(dataset, object, field, cells, buffer);
        hdf5.H5Treclaim(type, memory, *hdf5.H5P_LST_DATASET_XFER_ID_g, buffer);
        hdf5.H5Tclose(type);
        free(buffer);
        buffer = packed;
    }
    if (memory >= 0) hdf5.H5Sclose(memory);
    return buffer;
}

/* Puts a block as the file has it. */
static bool put_slab(struct dataset *dataset, void *object, const struct block *block) {
    for (int number = 0; number < dataset->plan.field_count; number++) {
        struct field *field = &dataset->plan.fields[number];
        void *cells = read_block(dataset, object, field, block);
        bool is_put = cells && put(dataset, field, block, cells);
        free(cells);
        if (!is_put) return false;
    }
    return true;
}

static size_t widest(const struct plan *plan) {
    size_t bytes = 1;
    for (int number = 0; number < plan->field_count; number++)
        if (plan->fields[number].bytes > bytes) bytes = plan->fields[number].bytes;
    return bytes;
}

/* Puts a block as the file has it, in slabs along the first dimension. */
bool put_from_file(struct dataset *dataset, void *object, const struct block *block) {
    const struct plan *plan = &dataset->plan;
    hsize_t cells = block_cells(plan, block);
    if (!cells) return true;
    size_t width = widest(plan);
    if ((uint64_t)cells * width > CATCH_UP_BYTES) {
        leave(dataset, "more than 256 MiB of it would have to be read again");
        return false;
    }
    hsize_t row_bytes = cells / block->count[0] * width;
    hsize_t rows = row_bytes >= SLAB_BYTES ? 1 : SLAB_BYTES / row_bytes;
    struct block slab = *block;
    for (hsize_t done = 0; done < block->count[0]; done += slab.count[0]) {
        slab.start[0] = block->start[0] + done * block->stride[0];
        slab.count[0] = block->count[0] - done < rows ? block->count[0] - done : rows;
        if (!put_slab(dataset, object, &slab)) return false;
    }
    return true;
}

static const char *plan_once(struct dataset *dataset, void *object) {
    char path[2 * PATH_MAX], name[2 * PATH_MAX];
    strcpy(name, dataset->file->container);
    free(dataset->name);
    dataset->name = NULL;
    /* One without a name is looked at when it gets one. */
    if (!path_of(object, H5I_DATASET, path, sizeof path)) return "";
    bool is_named = add_parts(name, sizeof name, path);
    if (is_named && !(dataset->name = strdup(name))) return "no memory";
    if (!is_named) return "its name can't be that of an array";
    if (!is_hard_path(object, H5I_DATASET, path)) return "it is reached by a soft link";
    plan_close(&dataset->plan);
    return plan_dataset(object, &dataset->plan, dataset->text_bytes ? dataset->text_bytes : TEXT_BYTES);
}

/* Makes the arrays; `fills`: with what the file has. */
void begin(struct dataset *dataset, void *object, bool fills) {
    dataset->state = LEFT;
    const char *why = plan_once(dataset, object);
    struct block whole;
    if (!why) whole_block(&dataset->plan, &whole);
    if (!why && fills && block_cells(&dataset->plan, &whole) * widest(&dataset->plan) > CATCH_UP_BYTES)
        why = "more than 256 MiB of it were there before";
    if (why) {
        if (*why) tell(dataset->name ? dataset->name + strlen(mirrors()) + 1 : dataset->file->path, why);
    } else {
        dataset->state = CURRENT;
        if (create_arrays(dataset) && fills) put_from_file(dataset, object, &whole);
    }
}

void make_anew(struct dataset *dataset, void *object) {
    char *name = strdup(dataset->name);
    close_arrays(dataset);
    count_arrays(dataset->file->container, -dataset->plan.field_count);
    begin(dataset, object, true);
    /* Those that could not be made again say something else than the file. */
    if (dataset->state != CURRENT && (!name || !remove_all(name))) mirror_off(dataset->file, NULL);
    free(name);
}

static bool plan_and_open(struct dataset *dataset, void *object) {
    if (plan_once(dataset, object) || !open_arrays(dataset)) return false;
    dataset->state = CURRENT;
    return true;
}

/* Opens the arrays of a dataset that was there before: they say what the file says before it changes. */
void mirror_look(void *object) {
    struct handle *handle = *handle_at(object);
    struct dataset *dataset = handle ? handle->dataset : NULL;
    if (dataset && dataset->state == UNKNOWN && !dataset->file->is_off) plan_and_open(dataset, object);
}

/* True if the dataset has arrays that say what the file said before this change, which is still to be put. */
bool is_current(struct dataset *dataset, void *object) {
    if (dataset->file->is_off) return false;
    if (dataset->state != UNKNOWN) return dataset->state == CURRENT;
    begin(dataset, object, true);
    return false;
}

void mirror_handle(void *object, H5I_type_t type, bool is_new) {
    if (!mirrored_files) return;
    struct file *file = NULL;
    struct dataset *dataset = NULL;
    H5O_info2_t info;
    unsigned long number;
    if (type == H5I_FILE)
        file = number_of(object, &number) ? file_numbered(number) : NULL;
    else if (info_of(object, type, &info))
        file = file_numbered(info.fileno);
    if (!file) return;
    if (type == H5I_GROUP && is_new && !file->is_off) {
        H5VL_loc_params_t self = {.obj_type = type, .type = H5VL_OBJECT_BY_SELF};
        char path[2 * PATH_MAX];
        char *name = mirror_name(object, &self, &file);
        if (name && path_of(object, type, path, sizeof path) && is_hard_path(object, type, path)) mirror_container(file, name);
        free(name);
    }
    if (type == H5I_DATASET) {
        struct dataset **place = dataset_at(file, &info.token);
        if (!*place && (*place = calloc(1, sizeof **place))) {
            (*place)->file = file;
            (*place)->token = info.token;
            (*place)->plan.file_type = -1;
        }
        dataset = *place;
    }
    keep(object, file, dataset);
    if (dataset && is_new && !file->is_off) begin(dataset, object, false);
}

static void forget_dataset(struct dataset *dataset) {
    struct dataset **place = dataset_at(dataset->file, &dataset->token);
    if (*place == dataset) *place = dataset->next;
    close_arrays(dataset);
    plan_close(&dataset->plan);
    free(dataset->name);
    free(dataset);
}

struct file *mirror_closing(void *object) {
    struct handle **place = handle_at(object), *handle = *place;
    if (!handle) return NULL;
    struct file *file = handle->file;
    *place = handle->next;
    if (handle->dataset && --handle->dataset->handles == 0) forget_dataset(handle->dataset);
    free(handle);
    return file;
}
