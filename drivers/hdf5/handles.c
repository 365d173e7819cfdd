/* Which file and which dataset an object of HDF5's belongs to, and what they are called in Terrace. */

#define _GNU_SOURCE
#include "parts.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 4096
static struct handle *handles[BUCKETS];
static struct dataset *datasets[BUCKETS];
struct file *mirrored_files;

void quiet_begin(struct quiet *quiet) {
    /* It fails where a program has set its handler by the calls of HDF5 1.6: that one is left alone. */
    quiet->is_set = hdf5.H5Eget_auto2(H5E_DEFAULT, &quiet->print, &quiet->data) >= 0;
    if (quiet->is_set) hdf5.H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

void quiet_end(const struct quiet *quiet) {
    if (quiet->is_set) hdf5.H5Eset_auto2(H5E_DEFAULT, quiet->print, quiet->data);
}

/* ---- handles ---- */

struct handle **handle_at(void *object) {
    struct handle **place = &handles[((uintptr_t)object >> 4) * 2654435761u % BUCKETS];
    while (*place && (*place)->object != object) place = &(*place)->next;
    return place;
}

struct dataset **dataset_at(const struct file *file, const H5O_token_t *token) {
    uint64_t address;
    memcpy(&address, token, sizeof address);
    struct dataset **place = &datasets[((address >> 3) ^ file->number) * 2654435761u % BUCKETS];
    while (*place && ((*place)->file != file || memcmp(&(*place)->token, token, sizeof *token))) place = &(*place)->next;
    return place;
}

void each_dataset(const struct file *file, void (*does)(struct dataset *dataset, const void *context), const void *context) {
    for (int bucket = 0; bucket < BUCKETS; bucket++)
        for (struct dataset *dataset = datasets[bucket]; dataset; dataset = dataset->next)
            if (dataset->file == file) does(dataset, context);
}

void keep(void *object, struct file *file, struct dataset *dataset) {
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

struct file *file_numbered(unsigned long number) {
    struct file *file = mirrored_files;
    while (file && file->number != number) file = file->next;
    return file;
}

bool info_of(void *object, H5I_type_t type, H5O_info2_t *info) {
    H5VL_loc_params_t self = {.obj_type = type, .type = H5VL_OBJECT_BY_SELF};
    H5VL_object_get_args_t get = {.op_type = H5VL_OBJECT_GET_INFO};
    get.args.get_info.fields = H5O_INFO_BASIC;
    get.args.get_info.oinfo = info;
    return hdf5.H5VLobject_get(object, &self, native, &get, *hdf5.H5P_LST_DATASET_XFER_ID_g, NULL) >= 0;
}

/* ---- names ---- */

/* What the containers of files are in: the run drops what is in one of them, and keeps the other. */
const char *mirrors(void) {
    const char *keep = getenv("TERRACE_HDF5");
    return keep && strcmp(keep, "both") == 0 ? ".zarr" : ".hdf5";
}

bool is_part(const char *part, size_t length) {
    if (length > NAME_MAX || (length == 2 && memcmp(part, "..", 2) == 0)) return false;
    return !(length == 9 && memcmp(part, "zarr.json", 9) == 0) && !(length >= 7 && memcmp(part, ".staged", 7) == 0);
}

/* Adds the parts of an HDF5 name to one of ours; parts that say nothing are left out. */
bool add_parts(char *name, size_t room, const char *parts) {
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
bool path_of(void *object, H5I_type_t type, char *path, size_t room) {
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
bool is_hard_path(void *object, H5I_type_t type, char *path) {
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
    if (!*file && mirrored_files && info_of(object, location->obj_type, &info)) *file = file_numbered(info.fileno);
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
