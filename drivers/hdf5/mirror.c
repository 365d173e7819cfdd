/* Arrays beside an HDF5 file, which say at any time what the file says.
 *
 *   H5Fcreate, H5Fopen ─▶ file: ROOT/a/b.h5 has the container .hdf5/a/b.h5 (.zarr/a/b.h5 if it stays)
 *   H5Dcreate          ─▶ an array there; of a compound: a container with an array of each member
 *   H5Dwrite           ─▶ the native connector writes ─▶ the same cells are put: from memory, or as they are read from the file
 *   last close         ─▶ the container's tag says which size and time of the file it belongs to
 *
 * Invariant: an array is there only while it says what the file says. Whatever can't be kept so is removed: what failed, what arrays
 * can't hold, what another program has changed (the tag tells, at the next open for writing). The file needs none of this: nothing here
 * fails a call of the program.
 *
 * HDF5 has one lock around all its calls; so there is none here. */

#define _GNU_SOURCE
#include "mirror.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* What is read from the file in one piece. */
#define SLAB_BYTES ((size_t)64 << 20)
/* What is read from a file at most to make good what was written without us, or in a way that is no block. */
#define CATCH_UP_BYTES ((uint64_t)256 << 20)
#define BLOCKS_MAX 4096
/* Arrays of a process: each takes a quarter of a mebibyte of the fastest tier at least. TERRACE_HDF5_ARRAYS says another number. */
#define ARRAYS_MAX 1000
#define STAMP "hdf5.file"
#define HIDDEN ", with cells beyond extents"

struct handle {
    struct handle *next;
    void *object;
    struct file *file;
    struct dataset *dataset;
};

#define BUCKETS 4096
static struct handle *handles[BUCKETS];
static struct dataset *datasets[BUCKETS];
static struct file *files;

void quiet_begin(struct quiet *quiet) {
    /* It fails where a program has set its handler by the calls of HDF5 1.6: that one is left alone. */
    quiet->is_set = hdf5.H5Eget_auto2(H5E_DEFAULT, &quiet->print, &quiet->data) >= 0;
    if (quiet->is_set) hdf5.H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

void quiet_end(const struct quiet *quiet) {
    if (quiet->is_set) hdf5.H5Eset_auto2(H5E_DEFAULT, quiet->print, quiet->data);
}

/* ---- handles ---- */

static struct handle **handle_at(void *object) {
    struct handle **place = &handles[((uintptr_t)object >> 4) * 2654435761u % BUCKETS];
    while (*place && (*place)->object != object) place = &(*place)->next;
    return place;
}

static struct dataset **dataset_at(const struct file *file, const H5O_token_t *token) {
    uint64_t address;
    memcpy(&address, token, sizeof address);
    struct dataset **place = &datasets[((address >> 3) ^ file->number) * 2654435761u % BUCKETS];
    while (*place && ((*place)->file != file || memcmp(&(*place)->token, token, sizeof *token))) place = &(*place)->next;
    return place;
}

static void keep(void *object, struct file *file, struct dataset *dataset) {
    struct handle **place = handle_at(object);
    struct handle *handle = *place ? *place : calloc(1, sizeof *handle);
    if (!handle) {
        if (file) mirror_off(file, "no memory");
        return;
    }
    *place = handle;
    handle->object = object;
    handle->file = file;
    handle->dataset = dataset;
    if (file) file->handles++;
    if (dataset) dataset->handles++;
}

struct file *file_of(void *object) {
    struct handle *handle = *handle_at(object);
    return handle ? handle->file : NULL;
}

static struct file *file_numbered(unsigned long number) {
    struct file *file = files;
    while (file && file->number != number) file = file->next;
    return file;
}

static bool info_of(void *object, H5I_type_t type, H5O_info2_t *info) {
    H5VL_loc_params_t self = {.obj_type = type, .type = H5VL_OBJECT_BY_SELF};
    H5VL_object_get_args_t get = {.op_type = H5VL_OBJECT_GET_INFO};
    get.args.get_info.fields = H5O_INFO_BASIC;
    get.args.get_info.oinfo = info;
    return hdf5.H5VLobject_get(object, &self, native, &get, *hdf5.H5P_LST_DATASET_XFER_ID_g, NULL) >= 0;
}

/* ---- names ---- */

/* What the containers of files are in: the run drops what is in one of them, and keeps the other. */
static const char *mirrors(void) {
    const char *keep = getenv("TERRACE_HDF5");
    return keep && strcmp(keep, "both") == 0 ? ".zarr" : ".hdf5";
}

static bool is_part(const char *part, size_t length) {
    if (length > NAME_MAX || (length == 2 && memcmp(part, "..", 2) == 0)) return false;
    return !(length == 9 && memcmp(part, "zarr.json", 9) == 0) && !(length >= 7 && memcmp(part, ".staged", 7) == 0);
}

/* Adds the parts of an HDF5 name to one of ours; parts that say nothing are left out. */
static bool add_parts(char *name, size_t room, const char *parts) {
    while (*parts) {
        size_t length = strcspn(parts, "/");
        if (length && !(length == 1 && *parts == '.')) {
            size_t have = strlen(name);
            if (!is_part(parts, length) || have + length + 2 > room) return false;
            name[have] = '/';
            memcpy(name + have + 1, parts, length);
            name[have + 1 + length] = 0;
        }
        parts += length + (parts[length] == '/');
    }
    return true;
}

/* An object's path in its file. */
static bool path_of(void *object, H5I_type_t type, char *path, size_t room) {
    size_t length = 0;
    H5VL_loc_params_t self = {.obj_type = type, .type = H5VL_OBJECT_BY_SELF};
    H5VL_object_get_args_t get = {.op_type = H5VL_OBJECT_GET_NAME};
    get.args.get_name.buf_size = room;
    get.args.get_name.buf = path;
    get.args.get_name.name_len = &length;
    *path = 0;
    return hdf5.H5VLobject_get(object, &self, native, &get, *hdf5.H5P_LST_DATASET_XFER_ID_g, NULL) >= 0 && length > 0
        && length < room && *path == '/';
}

/* Whether all links on a path are hard ones: an object has one such name that we know it by. */
static bool is_hard_path(void *object, H5I_type_t type, char *path) {
    for (char *end = path; *end;) {
        end += 1 + strcspn(end + 1, "/");
        char after = *end;
        *end = 0;
        H5L_info2_t info;
        H5VL_loc_params_t location = {.obj_type = type, .type = H5VL_OBJECT_BY_NAME};
        location.loc_data.loc_by_name.name = path;
        location.loc_data.loc_by_name.lapl_id = *hdf5.H5P_LST_LINK_ACCESS_ID_g;
        H5VL_link_get_args_t get = {.op_type = H5VL_LINK_GET_INFO};
        get.args.get_info.linfo = &info;
        bool is_hard = (path[1] == 0)
            || (hdf5.H5VLlink_get(object, &location, native, &get, *hdf5.H5P_LST_DATASET_XFER_ID_g, NULL) >= 0
                && info.type == H5L_TYPE_HARD);
        *end = after;
        if (!is_hard) return false;
    }
    return true;
}

char *mirror_name(void *object, const H5VL_loc_params_t *location, struct file **file) {
    char path[2 * PATH_MAX], name[2 * PATH_MAX];
    H5O_info2_t info;
    *file = file_of(object);
    if (!*file && files && info_of(object, location->obj_type, &info)) *file = file_numbered(info.fileno);
    if (!*file || (*file)->is_off) return NULL;
    strcpy(name, (*file)->container);
    bool is_named = true;
    if (location->type == H5VL_OBJECT_BY_NAME) {
        const char *below = location->loc_data.loc_by_name.name;
        if (*below != '/')
            is_named = path_of(object, location->obj_type, path, sizeof path) && add_parts(name, sizeof name, path);
        is_named = is_named && add_parts(name, sizeof name, below);
    } else if (location->type == H5VL_OBJECT_BY_SELF) {
        is_named = path_of(object, location->obj_type, path, sizeof path) && add_parts(name, sizeof name, path);
    } else {
        return NULL;
    }
    return is_named ? strdup(name) : NULL;
}

/* ---- files ---- */

static bool count_arrays(const char *container, long change);

void mirror_off(struct file *file, const char *why) {
    if (file->is_off) return;
    file->is_off = true;
    if (why) tell(file->path, why);
}

/* What an earlier call could not remove is removed later: no array stays that says something else than the file. */
static bool remove_all(const char *name) {
    int code = terrace.terrace_remove(session, name, true);
    return code == TERRACE_OK || code == TERRACE_NOT_FOUND;
}

bool mirror_container(struct file *file, const char *name) {
    if (file->parent && strcmp(file->parent, name) == 0) return true;
    /* Tags of an earlier file of this name may be there without its container: they go with one. */
    if (!file->has_container
        && (terrace.terrace_container_create(session, file->container, TERRACE_IF_MISSING) || !remove_all(file->container)))
        return false;
    if (!file->has_container) count_arrays(file->container, LONG_MIN);
    if (terrace.terrace_container_create(session, name, TERRACE_IF_MISSING)) return false;
    free(file->parent);
    file->parent = strdup(name);
    file->has_container = true;
    return true;
}

bool stamp_of(const char *path, char *stamp) {
    struct stat found;
    if (stat(path, &found)) return false;
    snprintf(stamp, STAMP_MAX, "%lld bytes, %lld.%09ld", (long long)found.st_size, (long long)found.st_mtim.tv_sec,
             found.st_mtim.tv_nsec);
    return true;
}

/* Whether the container says of itself that it belongs to the file as it was. */
static bool is_stamped(const char *container, const char *stamp, bool *has_hidden_cells) {
    char then[STAMP_MAX + sizeof HIDDEN];
    struct terrace_tag tag;
    size_t length = strlen(stamp);
    if (!length || terrace.terrace_tag_get(session, container, STAMP, &tag, then, sizeof then) || tag.tag_type != TERRACE_TAG_TEXT
        || strncmp(tag.text, stamp, length) != 0)
        return false;
    *has_hidden_cells = strcmp(tag.text + length, HIDDEN) == 0;
    return *has_hidden_cells || !tag.text[length];
}

/* Files of a parallel, split or in-memory driver are no files of one program that lie where they are named. */
static bool is_plain_driver(hid_t access) {
    const char *chosen = getenv("HDF5_DRIVER");
    if (chosen && *chosen && strcmp(chosen, "sec2") != 0) return false;
    hid_t usual = hdf5.H5Pcreate(*hdf5.H5P_CLS_FILE_ACCESS_ID_g);
    bool is_plain = usual >= 0 && (access == H5P_DEFAULT || hdf5.H5Pget_driver(access) == hdf5.H5Pget_driver(usual));
    if (usual >= 0) hdf5.H5Pclose(usual);
    return is_plain;
}

static bool number_of(void *file, unsigned long *number) {
    H5VL_file_get_args_t get = {.op_type = H5VL_FILE_GET_FILENO};
    get.args.get_fileno.fileno = number;
    return hdf5.H5VLfile_get(file, native, &get, *hdf5.H5P_LST_DATASET_XFER_ID_g, NULL) >= 0;
}

void mirror_file(void *object, const char *name, hid_t access, const char *stamp) {
    bool is_new = !stamp;
    char below[PATH_MAX], container[PATH_MAX + 8];
    unsigned long number;
    if (connect_terrace() || !below_root(name, below) || !number_of(object, &number)) return;
    struct file *file = file_numbered(number);
    if (file) {
        keep(object, file, NULL);
        return;
    }
    snprintf(container, sizeof container, "%s/%s", mirrors(), below);
    struct terrace_info info;
    /* What another program has written beyond an extent is not known. */
    bool has_hidden_cells = !is_new;
    bool is_kept = !is_new && is_stamped(container, stamp, &has_hidden_cells);
    bool is_removed = is_kept || terrace.terrace_stat(session, container, &info) == TERRACE_NOT_FOUND || remove_all(container);
    if (!(file = calloc(1, sizeof *file))) return;
    file->number = number;
    file->path = realpath(name, NULL);
    if (file->path && strstr(file->path, "/terrace-")) {
        free(file->path);
        file->path = strdup(name);
    }
    file->container = strdup(container);
    file->has_container = is_kept;
    file->has_hidden_cells = has_hidden_cells;
    file->next = files;
    files = file;
    keep(object, file, NULL);
    if (!file->path || !file->container)
        mirror_off(file, "it has no path");
    else if (!is_removed)
        mirror_off(file, terrace.terrace_error());
    else if (!is_plain_driver(access))
        mirror_off(file, "its driver is another than HDF5's usual one");
    else if (is_new && !mirror_container(file, container))
        mirror_off(file, terrace.terrace_error());
}

void mirror_forget(const char *path) {
    char below[PATH_MAX], container[PATH_MAX + 8];
    struct terrace_info info;
    if (!session || !below_root(path, below)) return;
    snprintf(container, sizeof container, "%s/%s", mirrors(), below);
    if (terrace.terrace_stat(session, container, &info) == TERRACE_OK) remove_all(container);
}

void mirror_closed(struct file *file) {
    char stamp[STAMP_MAX + sizeof HIDDEN];
    if (!file || --file->handles > 0) return;
    for (struct file **place = &files; *place; place = &(*place)->next) {
        if (*place != file) continue;
        *place = file->next;
        break;
    }
    if (file->is_off) {
        if (file->container) remove_all(file->container);
    } else if (file->has_container && stamp_of(file->path, stamp)) {
        if (file->has_hidden_cells) strcat(stamp, HIDDEN);
        struct terrace_tag tag = {.tag_type = TERRACE_TAG_TEXT, .text = stamp};
        if (terrace.terrace_tag_put(session, file->container, STAMP, &tag)) remove_all(file->container);
    }
    free(file->path);
    free(file->container);
    free(file->parent);
    free(file);
}

/* ---- how many arrays there are ---- */

struct tally {
    struct tally *next;
    char *container;
    long arrays;
};
static struct tally *tallies;
static long arrays_made;

/* Arrays of a file that were made by this process: `change` more, or (LONG_MIN) none any more. False: these would be too many. */
static bool count_arrays(const char *container, long change) {
    static long most;
    const char *wanted = getenv("TERRACE_HDF5_ARRAYS");
    if (!most) most = wanted && atol(wanted) > 0 ? atol(wanted) : ARRAYS_MAX;
    struct tally *tally = tallies;
    while (tally && strcmp(tally->container, container)) tally = tally->next;
    if (!tally && change > 0) {
        if (!(tally = calloc(1, sizeof *tally)) || !(tally->container = strdup(container))) return false;
        tally->next = tallies;
        tallies = tally;
    }
    if (!tally) return true;
    if (change == LONG_MIN) change = -tally->arrays;
    if (change > 0 && arrays_made + change > most) return false;
    tally->arrays += change;
    arrays_made += change;
    return true;
}

/* ---- datasets ---- */

static void close_arrays(struct dataset *dataset) {
    for (int number = 0; number < dataset->plan.field_count; number++) {
        if (dataset->plan.fields[number].array) terrace.terrace_array_close(dataset->plan.fields[number].array);
        dataset->plan.fields[number].array = NULL;
    }
}

/* The dataset has no arrays any more. */
static void leave(struct dataset *dataset, const char *why) {
    bool had_arrays = dataset->state != LEFT;
    if (dataset->state == CURRENT) count_arrays(dataset->file->container, -dataset->plan.field_count);
    dataset->state = LEFT;
    if (why && *why) tell(dataset->name ? dataset->name + strlen(mirrors()) + 1 : dataset->file->path, why);
    close_arrays(dataset);
    if (had_arrays && dataset->name && !remove_all(dataset->name)) mirror_off(dataset->file, NULL);
}

static void fail(struct dataset *dataset) {
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

static bool same_as_planned(const struct plan *plan, const struct field *field) {
    char type[24];
    int rank;
    uint64_t shape[RANK_MAX];
    if (terrace.terrace_array_type(field->array, type, sizeof type, NULL) || strcmp(type, field->data_type)
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

static bool put(struct dataset *dataset, struct field *field, const struct block *block, const void *cells) {
    struct terrace_region region = {.rank = dataset->plan.rank};
    for (int axis = 0; axis < region.rank; axis++) {
        region.offset[axis] = block->start[axis];
        region.count[axis] = block->count[axis];
        region.stride[axis] = block->stride[axis];
    }
    size_t bytes = block_cells(&dataset->plan, block) * field->bytes;
    if (terrace.terrace_array_put(field->array, &region, cells, bytes) == TERRACE_OK) return true;
    fail(dataset);
    return false;
}

/* Reads a block of one field from the file; to be freed. */
static void *read_block(struct dataset *dataset, void *object, const struct field *field, const struct block *block) {
    const struct plan *plan = &dataset->plan;
    hsize_t cells = block_cells(plan, block);
    hid_t memory = H5S_ALL, space = H5S_ALL;
    void *buffer = malloc(cells * field->bytes);
    bool is_read = buffer;
    if (!plan->is_single) {
        memory = hdf5.H5Screate_simple(1, &cells, NULL);
        space = hdf5.H5Screate_simple(plan->rank, plan->shape, NULL);
        is_read = is_read && memory >= 0 && space >= 0
            && hdf5.H5Sselect_hyperslab(space, H5S_SELECT_SET, block->start, block->stride, block->count, NULL) >= 0;
    }
    hid_t type = field->type;
    is_read = is_read
        && hdf5.H5VLdataset_read(1, &object, native, &type, &memory, &space, *hdf5.H5P_LST_DATASET_XFER_ID_g, &buffer, NULL) >= 0;
    if (!plan->is_single && memory >= 0) hdf5.H5Sclose(memory);
    if (!plan->is_single && space >= 0) hdf5.H5Sclose(space);
    if (is_read) return buffer;
    free(buffer);
    leave(dataset, "it can't be read again");
    return NULL;
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
static bool put_from_file(struct dataset *dataset, void *object, const struct block *block) {
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
    return plan_dataset(object, &dataset->plan);
}

/* Makes the arrays; `fills`: with what the file has. */
static void begin(struct dataset *dataset, void *object, bool fills) {
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
static bool is_current(struct dataset *dataset, void *object) {
    if (dataset->file->is_off) return false;
    if (dataset->state != UNKNOWN) return dataset->state == CURRENT;
    begin(dataset, object, true);
    return false;
}

void mirror_handle(void *object, H5I_type_t type, bool is_new) {
    if (!files) return;
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

/* ---- what changes cells ---- */

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

/* Puts cells that lie in a program's memory, which is of the type that is_direct has seen. */
static void put_direct(struct dataset *dataset, hid_t type, hid_t space, const struct block *block, const void *cells) {
    const struct plan *plan = &dataset->plan;
    hsize_t count = block_cells(plan, block);
    size_t from = hdf5.H5Tget_size(type);
    bool is_packed = space == H5S_ALL || space == H5S_BLOCK || hdf5.H5Sget_select_type(space) == H5S_SEL_ALL;
    for (int number = 0; number < plan->field_count && dataset->state == CURRENT; number++) {
        struct field *field = &plan->fields[number];
        bool is_same = hdf5.H5Tequal(type, field->type) > 0;
        if (is_packed && is_same) {
            put(dataset, field, block, cells);
            continue;
        }
        size_t width = from > field->bytes ? from : field->bytes;
        void *buffer = malloc(count * width), *background = is_same ? NULL : calloc(count, width);
        bool is_there = buffer && (is_same || background);
        if (is_there && is_packed)
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
    /* Selections that are kept in the transfer's properties. */
    bool is_elsewhere = space != H5S_ALL && space < 16;
    if (!is_plain_transfer(transfer) || is_elsewhere) {
        leave(dataset, "it is written by a transformation, or by a selection that is kept elsewhere");
    } else if (!block_of_selection(plan, space, &block)) {
        put_selected(dataset, object, space);
    } else if (block_cells(plan, &block) == 0) {
        return;
    } else if (cells && is_direct(plan, type)) {
        /* Without a selection of its own the memory is laid out as the dataset is, and has the dataset's selection. */
        hid_t laid_out = memory == H5S_ALL && space != H5S_ALL ? space : memory;
        put_direct(dataset, type, laid_out, &block, cells);
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
        close_arrays(dataset);
        count_arrays(dataset->file->container, -dataset->plan.field_count);
        begin(dataset, object, true);
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

/* ---- names that come, go and move ---- */

/* A dataset that was made without a name, as h5py does, has got one. */
void mirror_linked(void *object) {
    struct handle *handle = object ? *handle_at(object) : NULL;
    if (handle && handle->dataset && !handle->dataset->name && !handle->file->is_off) begin(handle->dataset, object, true);
}

void mirror_link(void *object, const H5VL_loc_params_t *location, struct link *link) {
    memset(link, 0, sizeof *link);
    if (!files) return;
    H5L_info2_t info;
    H5VL_link_get_args_t get = {.op_type = H5VL_LINK_GET_INFO};
    get.args.get_info.linfo = &info;
    if (hdf5.H5VLlink_get(object, location, native, &get, *hdf5.H5P_LST_DATASET_XFER_ID_g, NULL) < 0) return;
    link->is_hard = info.type == H5L_TYPE_HARD;
    if (!link->is_hard) return;
    link->token = info.u.token;
    if (location->type != H5VL_OBJECT_BY_IDX) {
        link->name = mirror_name(object, location, &link->file);
        return;
    }
    /* By its place in an order: the name is asked for first. */
    char part[NAME_MAX + 1];
    size_t length = 0;
    H5VL_link_get_args_t named = {.op_type = H5VL_LINK_GET_NAME};
    named.args.get_name.name_size = sizeof part;
    named.args.get_name.name = part;
    named.args.get_name.name_len = &length;
    H5VL_loc_params_t group = {.obj_type = location->obj_type, .type = H5VL_OBJECT_BY_NAME};
    group.loc_data.loc_by_name.name = location->loc_data.loc_by_idx.name;
    char *above = mirror_name(object, &group, &link->file);
    if (above && length <= NAME_MAX
        && hdf5.H5VLlink_get(object, location, native, &named, *hdf5.H5P_LST_DATASET_XFER_ID_g, NULL) >= 0
        && asprintf(&link->name, "%s/%s", above, part) < 0)
        link->name = NULL;
    free(above);
}

static bool is_at_or_below(const char *name, const char *above) {
    size_t length = strlen(above);
    return strncmp(name, above, length) == 0 && (name[length] == 0 || name[length] == '/');
}

/* Closes the arrays of all open datasets at or below a name, which goes (LEFT) or becomes another (UNKNOWN). */
static void close_below(struct file *file, const char *name, enum state state) {
    for (int bucket = 0; bucket < BUCKETS; bucket++) {
        for (struct dataset *dataset = datasets[bucket]; dataset; dataset = dataset->next) {
            if (dataset->file != file || !dataset->name || !is_at_or_below(dataset->name, name)) continue;
            close_arrays(dataset);
            dataset->state = state;
        }
    }
    free(file->parent);
    file->parent = NULL;
}

void mirror_removed(struct link *link) {
    if (!link->file || !link->is_hard) return;
    struct dataset *dataset = *dataset_at(link->file, &link->token);
    if (dataset && dataset->state != LEFT) leave(dataset, NULL);
    if (!link->name) {
        mirror_off(link->file, "a name went that is no name of an array");
        return;
    }
    close_below(link->file, link->name, LEFT);
    struct terrace_info info;
    bool is_array = terrace.terrace_stat(session, link->name, &info) == TERRACE_OK && info.kind == TERRACE_ARRAY;
    if (is_array) count_arrays(link->file->container, -1);
    if (link->file->has_container && !remove_all(link->name)) mirror_off(link->file, terrace.terrace_error());
}

void mirror_moved(struct link *link, void *object, const H5VL_loc_params_t *location) {
    if (!link->file || !link->is_hard) return;
    struct file *file = NULL;
    char *to = mirror_name(object, location, &file);
    struct dataset *dataset = *dataset_at(link->file, &link->token);
    /* Open datasets at or below it are looked at again when they are next written to. */
    close_below(link->file, link->name ? link->name : link->file->container, UNKNOWN);
    bool is_moved = false;
    if (link->name && to && file == link->file) {
        char *parent = strdup(to);
        if (parent) *strrchr(parent, '/') = 0;
        is_moved = parent && mirror_container(file, parent) && terrace.terrace_rename(session, link->name, to) == TERRACE_OK;
        free(parent);
    }
    if (!is_moved && (!link->name || !remove_all(link->name))) mirror_off(link->file, terrace.terrace_error());
    if (dataset) {
        close_arrays(dataset);
        dataset->state = UNKNOWN;
    }
    free(to);
}

void link_close(struct link *link) { free(link->name); }
