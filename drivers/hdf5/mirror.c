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
#include "parts.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Arrays of a process: each takes a quarter of a mebibyte of the fastest tier at least. TERRACE_HDF5_ARRAYS says another number. */
#define ARRAYS_MAX 1000
#define STAMP "hdf5.file"
#define HIDDEN ", with cells beyond extents"

/* ---- how many arrays there are ---- */

struct tally {
    struct tally *next;
    char *container;
    long arrays;
};
static struct tally *tallies;
static long arrays_made;

/* Arrays of a file that were made by this process: `change` more, or (LONG_MIN) none any more. False: these would be too many. */
bool count_arrays(const char *container, long change) {
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

/* ---- files ---- */

void mirror_off(struct file *file, const char *why) {
    if (file->is_off) return;
    file->is_off = true;
    if (why) tell(file->path, why);
}

/* What an earlier call could not remove is removed later: no array stays that says something else than the file. */
bool remove_all(const char *name) {
    int code = terrace.terrace_remove(session, name, true);
    return code == TERRACE_OK || code == TERRACE_NOT_FOUND;
}

bool mirror_container(struct file *file, const char *name) {
    if (file->parent && strcmp(file->parent, name) == 0) return true;
    /* What another program may have made there since the file was opened. Tags of what is not there go when it is made. */
    struct terrace_info info;
    if (!file->has_container && terrace.terrace_stat(session, file->container, &info) != TERRACE_NOT_FOUND
        && !remove_all(file->container))
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

bool number_of(void *file, unsigned long *number) {
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
    file->next = mirrored_files;
    mirrored_files = file;
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
    for (struct file **place = &mirrored_files; *place; place = &(*place)->next) {
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

/* ---- names that come, go and move ---- */

/* A dataset that was made without a name, as h5py does, has got one. */
void mirror_linked(void *object) {
    struct handle *handle = object ? *handle_at(object) : NULL;
    if (handle && handle->dataset && !handle->dataset->name && !handle->file->is_off) begin(handle->dataset, object, true);
}

void mirror_link(void *object, const H5VL_loc_params_t *location, struct link *link) {
    memset(link, 0, sizeof *link);
    if (!mirrored_files) return;
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

struct closing {
    const char *name;
    enum state state;
};

static void close_one(struct dataset *dataset, const void *context) {
    const struct closing *closing = context;
    if (!dataset->name || !is_at_or_below(dataset->name, closing->name)) return;
    close_arrays(dataset);
    dataset->state = closing->state;
}

/* Closes the arrays of all open datasets at or below a name, which goes (LEFT) or becomes another (UNKNOWN). */
static void close_below(struct file *file, const char *name, enum state state) {
    each_dataset(file, close_one, &(struct closing){name, state});
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
