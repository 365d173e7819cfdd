/* Attributes as tags: numbers, truth values, texts, and lists of numbers. What no tag can be is in the file only. */

#define _GNU_SOURCE
#include "mirror.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define KEY_MAX 255
#define LIST_MAX 4096

static bool attribute_name(void *attribute, char *key) {
    size_t length = 0;
    H5VL_attr_get_args_t get = {.op_type = H5VL_ATTR_GET_NAME};
    get.args.get_name.loc_params.obj_type = H5I_ATTR;
    get.args.get_name.loc_params.type = H5VL_OBJECT_BY_SELF;
    get.args.get_name.buf_size = KEY_MAX + 1;
    get.args.get_name.buf = key;
    get.args.get_name.attr_name_len = &length;
    return hdf5.H5VLattr_get(attribute, native, &get, *hdf5.H5P_LST_DATASET_XFER_ID_g, NULL) >= 0 && length > 0
        && length <= KEY_MAX;
}

static hid_t attribute_part(void *attribute, H5VL_attr_get_t what) {
    H5VL_attr_get_args_t get = {.op_type = what};
    get.args.get_type.type_id = -1;
    if (hdf5.H5VLattr_get(attribute, native, &get, *hdf5.H5P_LST_DATASET_XFER_ID_g, NULL) < 0) return -1;
    return what == H5VL_ATTR_GET_SPACE ? get.args.get_space.space_id : get.args.get_type.type_id;
}

static bool read_as(void *attribute, hid_t type, void *into) {
    return hdf5.H5VLattr_read(attribute, native, type, into, *hdf5.H5P_LST_DATASET_XFER_ID_g, NULL) >= 0;
}

/* A text of fixed or of any length; to be freed. */
static char *read_text(void *attribute, hid_t type) {
    size_t bytes = hdf5.H5Tget_size(type);
    if (hdf5.H5Tis_variable_str(type) > 0) {
        char *theirs = NULL;
        if (!read_as(attribute, type, &theirs)) return NULL;
        char *text = theirs ? strdup(theirs) : NULL;
        hdf5.H5free_memory(theirs);
        return text;
    }
    char *text = calloc(1, bytes + 1);
    if (text && !read_as(attribute, type, text)) {
        free(text);
        return NULL;
    }
    return text;
}

/* Reads an attribute of `count` values as a tag; what it leads to is `memory`, to be freed. */
static bool read_tag(void *attribute, hid_t type, hssize_t count, struct terrace_tag *tag, void **memory) {
    memset(tag, 0, sizeof *tag);
    *memory = NULL;
    H5T_class_t class = hdf5.H5Tget_class(type);
    if (class == H5T_STRING) {
        if (count != 1 || !(*memory = read_text(attribute, type))) return false;
        tag->tag_type = TERRACE_TAG_TEXT;
        tag->text = *memory;
        return true;
    }
    if (class != H5T_INTEGER && class != H5T_FLOAT && class != H5T_ENUM) return false;
    /* Integers of more than 63 bits, and floats of more than 64, would become other numbers. */
    if (hdf5.H5Tget_size(type) > 8) return false;
    bool is_real = class == H5T_FLOAT;
    if (!(*memory = calloc(count, 8))) return false;
    if (!read_as(attribute, is_real ? *hdf5.H5T_NATIVE_DOUBLE_g : *hdf5.H5T_NATIVE_INT64_g, *memory)) return false;
    if (class == H5T_INTEGER && hdf5.H5Tget_size(type) == 8 && hdf5.H5Tget_sign(type) == H5T_SGN_NONE) {
        for (hssize_t number = 0; number < count; number++)
            if (((int64_t *)*memory)[number] == INT64_MAX) return false;
    }
    tag->count = count;
    if (is_real) {
        tag->tag_type = count == 1 ? TERRACE_TAG_FLOAT : TERRACE_TAG_FLOATS;
        tag->real = *(double *)*memory;
        tag->reals = *memory;
    } else {
        tag->tag_type = count == 1 ? TERRACE_TAG_INT : TERRACE_TAG_INTS;
        tag->integer = *(int64_t *)*memory;
        tag->integers = *memory;
        if (class == H5T_ENUM && count == 1 && hdf5.H5Tget_size(type) == 1 && hdf5.H5Tget_member_index(type, "TRUE") >= 0) {
            tag->tag_type = TERRACE_TAG_BOOL;
            tag->boolean = tag->integer != 0;
        }
    }
    return true;
}

void mirror_attribute(void *attribute) {
    H5VL_loc_params_t self = {.obj_type = H5I_ATTR, .type = H5VL_OBJECT_BY_SELF};
    struct file *file;
    char key[KEY_MAX + 1];
    char *name = mirror_name(attribute, &self, &file);
    if (!name) return;
    hid_t type = attribute_part(attribute, H5VL_ATTR_GET_TYPE), space = attribute_part(attribute, H5VL_ATTR_GET_SPACE);
    hssize_t count = space >= 0 ? hdf5.H5Sget_select_npoints(space) : 0;
    bool is_named = attribute_name(attribute, key);
    struct terrace_info info;
    if (is_named && type >= 0 && count > 0 && count <= LIST_MAX && terrace.terrace_stat(session, name, &info) == TERRACE_OK) {
        struct terrace_tag tag;
        void *memory;
        bool is_tag = read_tag(attribute, type, count, &tag, &memory)
            && terrace.terrace_tag_put(session, name, key, &tag) == TERRACE_OK;
        /* No tag stays that says something else than the attribute. */
        if (!is_tag) terrace.terrace_tag_delete(session, name, key);
        free(memory);
    }
    if (type >= 0) hdf5.H5Tclose(type);
    if (space >= 0) hdf5.H5Sclose(space);
    free(name);
}

void mirror_attribute_deleted(void *object, const H5VL_loc_params_t *location, const char *attribute) {
    struct file *file;
    char *name = mirror_name(object, location, &file);
    if (name) terrace.terrace_tag_delete(session, name, attribute);
    free(name);
}

void mirror_attribute_renamed(void *object, const H5VL_loc_params_t *location, const char *from, const char *to) {
    struct file *file;
    struct terrace_tag tag;
    const size_t room = LIST_MAX * 8 + 65536;
    char *name = mirror_name(object, location, &file), *memory = malloc(room);
    if (name && memory) {
        bool is_there = terrace.terrace_tag_get(session, name, from, &tag, memory, room) == TERRACE_OK;
        if (!is_there || terrace.terrace_tag_put(session, name, to, &tag)) terrace.terrace_tag_delete(session, name, to);
        if (is_there) terrace.terrace_tag_delete(session, name, from);
    }
    free(name);
    free(memory);
}
