/* The calls of the native connector that ours replaces: each lets the native one do it, and, when that has succeeded, tells the mirror.
 *
 * Invariant: what a program gets is what the native connector gives, its failures as they are. After a failure no call of HDF5 is made,
 * because it would clear the reason that the program looks for. */

#include "mirror.h"
#include "plugin.h"
#include <stdlib.h>
#include <string.h>

static const H5VL_class_t *under;

#define MIRROR(...) \
    do { \
        struct quiet quiet; \
        quiet_begin(&quiet); \
        __VA_ARGS__; \
        quiet_end(&quiet); \
    } while (0)

/* ---- files ---- */

static void *file_create(const char *name, unsigned flags, hid_t creation, hid_t access, hid_t transfer, void **request) {
    void *file = under->file_cls.create(name, flags, creation, access, transfer, request);
    if (file) MIRROR(mirror_file(file, name, access, NULL));
    return file;
}

static void *file_open(const char *name, unsigned flags, hid_t access, hid_t transfer, void **request) {
    char stamp[STAMP_MAX] = "";
    if (flags & H5F_ACC_RDWR) stamp_of(name, stamp);
    void *file = under->file_cls.open(name, flags, access, transfer, request);
    if (file && (flags & H5F_ACC_RDWR)) MIRROR(mirror_file(file, name, access, stamp));
    return file;
}

static herr_t file_specific(void *file, H5VL_file_specific_args_t *args, hid_t transfer, void **request) {
    herr_t result = under->file_cls.specific(file, args, transfer, request);
    if (result < 0) return result;
    if (args->op_type == H5VL_FILE_REOPEN && *args->args.reopen.file)
        MIRROR(mirror_handle(*args->args.reopen.file, H5I_FILE, false));
    if (args->op_type == H5VL_FILE_DELETE) mirror_forget(args->args.del.filename);
    return result;
}

static herr_t file_close(void *file, hid_t transfer, void **request) {
    struct file *closing;
    MIRROR(closing = mirror_closing(file));
    herr_t result = under->file_cls.close(file, transfer, request);
    mirror_closed(closing);
    return result;
}

/* ---- groups ---- */

static void *group_create(void *object, const H5VL_loc_params_t *location, const char *name, hid_t links, hid_t creation,
                          hid_t access, hid_t transfer, void **request) {
    void *group = under->group_cls.create(object, location, name, links, creation, access, transfer, request);
    if (group) MIRROR(mirror_handle(group, H5I_GROUP, true));
    return group;
}

static void *group_open(void *object, const H5VL_loc_params_t *location, const char *name, hid_t access, hid_t transfer,
                        void **request) {
    void *group = under->group_cls.open(object, location, name, access, transfer, request);
    if (group) MIRROR(mirror_handle(group, H5I_GROUP, false));
    return group;
}

static herr_t group_specific(void *object, H5VL_group_specific_args_t *args, hid_t transfer, void **request) {
    herr_t result = under->group_cls.specific(object, args, transfer, request);
    if (result >= 0 && args->op_type == H5VL_GROUP_MOUNT) {
        /* From now on objects of both have names of the other one. */
        struct file *files[] = {file_of(object), file_of(args->args.mount.child_file)};
        for (int number = 0; number < 2; number++)
            if (files[number]) mirror_off(files[number], "another file is mounted");
    }
    return result;
}

static herr_t group_close(void *group, hid_t transfer, void **request) {
    struct file *closing;
    MIRROR(closing = mirror_closing(group));
    herr_t result = under->group_cls.close(group, transfer, request);
    mirror_closed(closing);
    return result;
}

/* ---- datasets ---- */

static void *dataset_create(void *object, const H5VL_loc_params_t *location, const char *name, hid_t links, hid_t type, hid_t space,
                            hid_t creation, hid_t access, hid_t transfer, void **request) {
    void *dataset =
        under->dataset_cls.create(object, location, name, links, type, space, creation, access, transfer, request);
    if (dataset) MIRROR(mirror_handle(dataset, H5I_DATASET, name != NULL));
    return dataset;
}

static void *dataset_open(void *object, const H5VL_loc_params_t *location, const char *name, hid_t access, hid_t transfer,
                          void **request) {
    void *dataset = under->dataset_cls.open(object, location, name, access, transfer, request);
    if (dataset) MIRROR(mirror_handle(dataset, H5I_DATASET, false));
    return dataset;
}

static herr_t dataset_write(size_t count, void *datasets[], hid_t types[], hid_t memories[], hid_t spaces[], hid_t transfer,
                            const void *cells[], void **request) {
    terrace_transfer *put = NULL;
    MIRROR(for (size_t number = 0; number < count; number++) mirror_look(datasets[number]);
           if (count == 1) put = mirror_write_begin(datasets[0], types[0], memories[0], spaces[0], transfer, cells[0]));
    herr_t result = under->dataset_cls.write(count, datasets, types, memories, spaces, transfer, cells, request);
    bool is_put = mirror_write_end(put);
    if (result < 0)
        for (size_t number = 0; number < count; number++) mirror_failed(datasets[number]);
    else if (!is_put)
        MIRROR(for (size_t number = 0; number < count; number++) mirror_write(datasets[number], types[number], memories[number],
                                                                             spaces[number], transfer, cells[number]));
    return result;
}

static herr_t dataset_specific(void *dataset, H5VL_dataset_specific_args_t *args, hid_t transfer, void **request) {
    bool is_extent = args->op_type == H5VL_DATASET_SET_EXTENT;
    if (is_extent) MIRROR(mirror_look(dataset));
    herr_t result = under->dataset_cls.specific(dataset, args, transfer, request);
    if (result >= 0 && is_extent) MIRROR(mirror_extent(dataset, args->args.set_extent.size));
    return result;
}

static herr_t dataset_optional(void *dataset, H5VL_optional_args_t *args, hid_t transfer, void **request) {
    bool is_chunk = args->op_type == H5VL_NATIVE_DATASET_CHUNK_WRITE;
    if (is_chunk) MIRROR(mirror_look(dataset));
    herr_t result = under->dataset_cls.optional(dataset, args, transfer, request);
    if (!is_chunk) return result;
    const H5VL_native_dataset_optional_args_t *chunk = args->args;
    if (result < 0)
        mirror_failed(dataset);
    else
        MIRROR(mirror_chunk(dataset, chunk->chunk_write.offset));
    return result;
}

static herr_t dataset_close(void *dataset, hid_t transfer, void **request) {
    struct file *closing;
    MIRROR(closing = mirror_closing(dataset));
    herr_t result = under->dataset_cls.close(dataset, transfer, request);
    mirror_closed(closing);
    return result;
}

static void *object_open(void *object, const H5VL_loc_params_t *location, H5I_type_t *type, hid_t transfer, void **request) {
    void *opened = under->object_cls.open(object, location, type, transfer, request);
    if (opened && (*type == H5I_DATASET || *type == H5I_GROUP)) MIRROR(mirror_handle(opened, *type, false));
    return opened;
}

/* ---- names ---- */

static herr_t link_create(H5VL_link_create_args_t *args, void *object, const H5VL_loc_params_t *location, hid_t links, hid_t access,
                          hid_t transfer, void **request) {
    herr_t result = under->link_cls.create(args, object, location, links, access, transfer, request);
    if (result >= 0 && args->op_type == H5VL_LINK_CREATE_HARD
        && args->args.hard.curr_loc_params.type == H5VL_OBJECT_BY_SELF)
        MIRROR(mirror_linked(args->args.hard.curr_obj));
    return result;
}

static herr_t link_specific(void *object, const H5VL_loc_params_t *location, H5VL_link_specific_args_t *args, hid_t transfer,
                            void **request) {
    if (args->op_type != H5VL_LINK_DELETE) return under->link_cls.specific(object, location, args, transfer, request);
    struct link link;
    MIRROR(mirror_link(object, location, &link));
    herr_t result = under->link_cls.specific(object, location, args, transfer, request);
    if (result >= 0) MIRROR(mirror_removed(&link));
    link_close(&link);
    return result;
}

static herr_t link_move(void *from, const H5VL_loc_params_t *from_location, void *to, const H5VL_loc_params_t *to_location,
                        hid_t links, hid_t access, hid_t transfer, void **request) {
    struct link link;
    MIRROR(mirror_link(from ? from : to, from_location, &link));
    herr_t result = under->link_cls.move(from, from_location, to, to_location, links, access, transfer, request);
    if (result >= 0) MIRROR(mirror_moved(&link, to ? to : from, to_location));
    link_close(&link);
    return result;
}

/* ---- attributes ---- */

static herr_t attribute_write(void *attribute, hid_t type, const void *value, hid_t transfer, void **request) {
    herr_t result = under->attr_cls.write(attribute, type, value, transfer, request);
    if (result >= 0) MIRROR(mirror_attribute(attribute));
    return result;
}

static herr_t attribute_specific(void *object, const H5VL_loc_params_t *location, H5VL_attr_specific_args_t *args, hid_t transfer,
                                 void **request) {
    char by_index[256] = "";
    size_t length = 0;
    if (args->op_type == H5VL_ATTR_DELETE_BY_IDX) {
        H5VL_attr_get_args_t get = {.op_type = H5VL_ATTR_GET_NAME};
        H5VL_loc_params_t *place = &get.args.get_name.loc_params;
        place->obj_type = location->obj_type;
        place->type = H5VL_OBJECT_BY_IDX;
        place->loc_data.loc_by_idx.name = location->type == H5VL_OBJECT_BY_NAME ? location->loc_data.loc_by_name.name : ".";
        place->loc_data.loc_by_idx.idx_type = args->args.delete_by_idx.idx_type;
        place->loc_data.loc_by_idx.order = args->args.delete_by_idx.order;
        place->loc_data.loc_by_idx.n = args->args.delete_by_idx.n;
        place->loc_data.loc_by_idx.lapl_id = *hdf5.H5P_LST_LINK_ACCESS_ID_g;
        get.args.get_name.buf = by_index;
        get.args.get_name.buf_size = sizeof by_index;
        get.args.get_name.attr_name_len = &length;
        MIRROR(if (hdf5.H5VLattr_get(object, native, &get, transfer, NULL) < 0) * by_index = 0);
    }
    herr_t result = under->attr_cls.specific(object, location, args, transfer, request);
    if (result < 0) return result;
    if (args->op_type == H5VL_ATTR_DELETE) MIRROR(mirror_attribute_deleted(object, location, args->args.del.name));
    if (args->op_type == H5VL_ATTR_DELETE_BY_IDX && *by_index) MIRROR(mirror_attribute_deleted(object, location, by_index));
    if (args->op_type == H5VL_ATTR_RENAME)
        MIRROR(mirror_attribute_renamed(object, location, args->args.rename.old_name, args->args.rename.new_name));
    return result;
}

const H5VL_class_t *connector_class(const H5VL_class_t *from) {
    static H5VL_class_t ours;
    if (under == from) return &ours;
    under = from;
    ours = *from;
    ours.name = "terrace";
    /* Of the numbers that The HDF Group has given to nobody. */
    ours.value = 27414;
    ours.conn_version = 1;
    ours.initialize = NULL;
    ours.terminate = NULL;
    ours.file_cls.create = file_create;
    ours.file_cls.open = file_open;
    ours.file_cls.specific = file_specific;
    ours.file_cls.close = file_close;
    ours.group_cls.create = group_create;
    ours.group_cls.open = group_open;
    ours.group_cls.specific = group_specific;
    ours.group_cls.close = group_close;
    ours.dataset_cls.create = dataset_create;
    ours.dataset_cls.open = dataset_open;
    ours.dataset_cls.write = dataset_write;
    ours.dataset_cls.specific = dataset_specific;
    ours.dataset_cls.optional = dataset_optional;
    ours.dataset_cls.close = dataset_close;
    ours.object_cls.open = object_open;
    ours.link_cls.create = link_create;
    ours.link_cls.specific = link_specific;
    ours.link_cls.move = link_move;
    ours.attr_cls.write = attribute_write;
    ours.attr_cls.specific = attribute_specific;
    return &ours;
}
