/* Which datasets can be arrays, and which selections blocks of them.
 *
 * Invariant: what is converted here straight from a program's memory is what a reader of the file would get. Where a conversion by way
 * of the file's type could differ (half floats, enumerations, padded strings), `is_direct` says so, and the cells are read from the file. */

#define _GNU_SOURCE
#include "types.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const NO_TYPE = "arrays have no such type";

/* A number of HDF5's as one of ours. */
static hid_t number_type(hid_t type, H5T_class_t class, const char **name, bool *is_exact) {
    size_t bytes = hdf5.H5Tget_size(type);
    *is_exact = hdf5.H5Tget_precision(type) == 8 * bytes;
    if (class == H5T_FLOAT) {
        if (bytes == 4) {
            *is_exact = hdf5.H5Tequal(type, *hdf5.H5T_IEEE_F32LE_g) > 0 || hdf5.H5Tequal(type, *hdf5.H5T_IEEE_F32BE_g) > 0;
            *name = "float32";
            return *hdf5.H5T_NATIVE_FLOAT_g;
        }
        if (bytes == 8) {
            *is_exact = hdf5.H5Tequal(type, *hdf5.H5T_IEEE_F64LE_g) > 0 || hdf5.H5Tequal(type, *hdf5.H5T_IEEE_F64BE_g) > 0;
            *name = "float64";
            return *hdf5.H5T_NATIVE_DOUBLE_g;
        }
        *is_exact = false;
        *name = "float32";
        return bytes < 4 ? *hdf5.H5T_NATIVE_FLOAT_g : -1;
    }
    bool is_signed = hdf5.H5Tget_sign(type) == H5T_SGN_2;
    switch (bytes) {
    case 1: *name = is_signed ? "int8" : "uint8"; return is_signed ? *hdf5.H5T_NATIVE_INT8_g : *hdf5.H5T_NATIVE_UINT8_g;
    case 2: *name = is_signed ? "int16" : "uint16"; return is_signed ? *hdf5.H5T_NATIVE_INT16_g : *hdf5.H5T_NATIVE_UINT16_g;
    case 4: *name = is_signed ? "int32" : "uint32"; return is_signed ? *hdf5.H5T_NATIVE_INT32_g : *hdf5.H5T_NATIVE_UINT32_g;
    case 8: *name = is_signed ? "int64" : "uint64"; return is_signed ? *hdf5.H5T_NATIVE_INT64_g : *hdf5.H5T_NATIVE_UINT64_g;
    default: return -1;
    }
}

/* h5py's truth values: an enumeration of FALSE and TRUE in one byte. */
static bool is_bool(hid_t type) {
    if (hdf5.H5Tget_nmembers(type) != 2 || hdf5.H5Tget_size(type) != 1) return false;
    for (unsigned number = 0; number < 2; number++) {
        signed char value = 9;
        char *name = hdf5.H5Tget_member_name(type, number);
        bool is_so = name && hdf5.H5Tget_member_value(type, number, &value) >= 0
            && strcmp(name, value ? "TRUE" : "FALSE") == 0 && (value == 0 || value == 1);
        hdf5.H5free_memory(name);
        if (!is_so) return false;
    }
    return true;
}

/* A compound of two equal floats r and i, as h5py writes complex numbers. */
static size_t complex_part(hid_t type) {
    if (hdf5.H5Tget_nmembers(type) != 2) return 0;
    size_t bytes = 0;
    for (unsigned number = 0; number < 2; number++) {
        char *name = hdf5.H5Tget_member_name(type, number);
        bool is_named = name && strcmp(name, number ? "i" : "r") == 0;
        hdf5.H5free_memory(name);
        hid_t part = hdf5.H5Tget_member_type(type, number);
        bool is_float = part >= 0 && hdf5.H5Tget_class(part) == H5T_FLOAT;
        size_t own = is_float ? hdf5.H5Tget_size(part) : 0;
        if (part >= 0) hdf5.H5Tclose(part);
        if (!is_named || !is_float || (number && own != bytes)) return 0;
        bytes = own;
    }
    return bytes == 4 || bytes == 8 ? bytes : 0;
}

static hid_t complex_type(size_t part_bytes, struct field *field) {
    hid_t part = part_bytes == 4 ? *hdf5.H5T_NATIVE_FLOAT_g : *hdf5.H5T_NATIVE_DOUBLE_g;
    hid_t type = hdf5.H5Tcreate(H5T_COMPOUND, 2 * part_bytes);
    if (type < 0 || hdf5.H5Tinsert(type, "r", 0, part) < 0 || hdf5.H5Tinsert(type, "i", part_bytes, part) < 0) return -1;
    strcpy(field->data_type, part_bytes == 4 ? "complex64" : "complex128");
    return type;
}

size_t memory_bytes(const struct field *field) { return field->is_text ? sizeof(char *) : field->bytes; }

/* Fills what a field's cells are; its `type` is the caller's to close. */
static const char *plan_type(hid_t type, struct field *field, size_t text_bytes) {
    H5T_class_t class = hdf5.H5Tget_class(type);
    const char *name = NULL;
    hid_t found = -1;
    field->is_exact = false;
    switch ((int)class) {
    case H5T_INTEGER:
    case H5T_FLOAT:
        found = number_type(type, class, &name, &field->is_exact);
        break;
    case H5T_ENUM: {
        hid_t base = hdf5.H5Tget_super(type);
        if (base < 0) return NO_TYPE;
        found = number_type(base, H5T_INTEGER, &name, &field->is_exact);
        hdf5.H5Tclose(base);
        field->is_exact = false;
        if (is_bool(type)) name = "bool";
        break;
    }
    case H5T_STRING: {
        field->is_text = hdf5.H5Tis_variable_str(type) > 0;
        field->bytes = field->is_text ? text_bytes : hdf5.H5Tget_size(type);
        field->type = hdf5.H5Tcopy(*hdf5.H5T_C_S1_g);
        if (field->type < 0 || hdf5.H5Tset_size(field->type, field->is_text ? H5T_VARIABLE : field->bytes) < 0
            || (!field->is_text && hdf5.H5Tset_strpad(field->type, H5T_STR_NULLPAD) < 0)
            || hdf5.H5Tset_cset(field->type, hdf5.H5Tget_cset(type)) < 0)
            return NO_TYPE;
        snprintf(field->data_type, sizeof field->data_type, "S%zu", field->bytes);
        return NULL;
    }
    case H5T_COMPOUND:
    case H5T_COMPLEX: {
        size_t part = class == H5T_COMPOUND ? complex_part(type) : hdf5.H5Tget_size(type) / 2;
        if (part != 4 && part != 8) return NO_TYPE;
        field->type = complex_type(part, field);
        field->bytes = 2 * part;
        return field->type < 0 ? NO_TYPE : NULL;
    }
    default: break;
    }
    if (found < 0) return NO_TYPE;
    field->type = hdf5.H5Tcopy(found);
    field->bytes = hdf5.H5Tget_size(found);
    snprintf(field->data_type, sizeof field->data_type, "%s", name);
    return field->type < 0 ? NO_TYPE : NULL;
}

/* A member of a compound: its type in memory is a compound that has only this member. */
static const char *plan_member(hid_t type, unsigned number, struct field *field, size_t text_bytes) {
    char *name = hdf5.H5Tget_member_name(type, number);
    field->member = name ? strdup(name) : NULL;
    hdf5.H5free_memory(name);
    hid_t own = hdf5.H5Tget_member_type(type, number);
    if (!field->member || own < 0) return NO_TYPE;
    const char *why = plan_type(own, field, text_bytes);
    hdf5.H5Tclose(own);
    if (why) return why;
    hid_t only = hdf5.H5Tcreate(H5T_COMPOUND, memory_bytes(field));
    bool is_made = only >= 0 && hdf5.H5Tinsert(only, field->member, 0, field->type) >= 0;
    hdf5.H5Tclose(field->type);
    field->type = only;
    return is_made ? NULL : NO_TYPE;
}

static const char *plan_fields(struct plan *plan, size_t text_bytes) {
    bool is_compound = hdf5.H5Tget_class(plan->file_type) == H5T_COMPOUND && !complex_part(plan->file_type);
    int count = is_compound ? hdf5.H5Tget_nmembers(plan->file_type) : 1;
    plan->is_compound = is_compound;
    if (count <= 0 || !(plan->fields = calloc(count, sizeof *plan->fields))) return NO_TYPE;
    for (int number = 0; number < count; number++) plan->fields[number].type = -1;
    plan->field_count = count;
    if (!is_compound) return plan_type(plan->file_type, plan->fields, text_bytes);
    for (int number = 0; number < count; number++) {
        const char *why = plan_member(plan->file_type, number, &plan->fields[number], text_bytes);
        if (why) return why;
    }
    return NULL;
}

static const char *plan_extent(void *dataset, struct plan *plan) {
    H5VL_dataset_get_args_t get = {.op_type = H5VL_DATASET_GET_SPACE};
    get.args.get_space.space_id = -1;
    if (hdf5.H5VLdataset_get(dataset, native, &get, *hdf5.H5P_LST_DATASET_XFER_ID_g, NULL) < 0) return NO_TYPE;
    hid_t space = get.args.get_space.space_id;
    H5S_class_t class = hdf5.H5Sget_simple_extent_type(space);
    int rank = hdf5.H5Sget_simple_extent_ndims(space);
    hsize_t extents[32], most[32];
    const char *why = NULL;
    if (class == H5S_NULL)
        why = "";
    else if (rank < 0 || rank > RANK_MAX)
        why = "arrays have 8 dimensions at most";
    else if (rank > 0 && hdf5.H5Sget_simple_extent_dims(space, extents, most) < 0)
        why = NO_TYPE;
    hdf5.H5Sclose(space);
    if (why) return why;
    plan->is_single = rank == 0;
    plan->rank = rank ? rank : 1;
    plan->shape[0] = 1;
    for (int axis = 0; axis < rank; axis++) {
        plan->shape[axis] = extents[axis];
        plan->grows[axis] = most[axis] > extents[axis];
        if (extents[axis] == 0 && !plan->grows[axis]) return "";
    }
    return NULL;
}

/* What cells are that nobody has written. */
static const char *plan_fill(struct plan *plan, hid_t properties) {
    static const char *const why = "its fill value can't be had";
    H5D_fill_value_t kind;
    if (hdf5.H5Pfill_value_defined(properties, &kind) < 0) return why;
    for (int number = 0; kind == H5D_FILL_VALUE_USER_DEFINED && number < plan->field_count; number++) {
        struct field *field = &plan->fields[number];
        if (field->is_text) return why;
        field->fill = calloc(1, field->bytes);
        if (!field->fill || hdf5.H5Pget_fill_value(properties, field->type, field->fill) < 0) return why;
    }
    return NULL;
}

/* Filters that give back what they got. */
static bool is_lossless(H5Z_filter_t filter) {
    static const int known[] = {1, 2, 3, 4, 32000, 32001, 32004, 32008, 32015};
    for (size_t number = 0; number < sizeof known / sizeof *known; number++)
        if (known[number] == filter) return true;
    return false;
}

static const char *plan_storage(struct plan *plan, hid_t properties) {
    H5D_layout_t layout = hdf5.H5Pget_layout(properties);
    if (layout == H5D_VIRTUAL) return "it is made of other datasets";
    if (layout != H5D_CHUNKED && hdf5.H5Pget_external_count(properties) > 0) return "its cells are in other files";
    if (layout != H5D_CHUNKED) return NULL;
    if (hdf5.H5Pget_chunk(properties, RANK_MAX, plan->chunks) != plan->rank) return NO_TYPE;
    plan->is_chunked = true;
    int filters = hdf5.H5Pget_nfilters(properties);
    for (int number = 0; number < filters; number++) {
        unsigned flags = 0;
        size_t values = 0;
        if (!is_lossless(hdf5.H5Pget_filter2(properties, number, &flags, &values, NULL, 0, NULL, NULL)))
            return "its filter may change values";
    }
    return NULL;
}

const char *plan_dataset(void *dataset, struct plan *plan, size_t text_bytes) {
    memset(plan, 0, sizeof *plan);
    plan->file_type = -1;
    const char *why = plan_extent(dataset, plan);
    if (why) return why;
    hid_t transfer = *hdf5.H5P_LST_DATASET_XFER_ID_g;
    H5VL_dataset_get_args_t get = {.op_type = H5VL_DATASET_GET_TYPE};
    get.args.get_type.type_id = -1;
    if (hdf5.H5VLdataset_get(dataset, native, &get, transfer, NULL) < 0) return NO_TYPE;
    plan->file_type = get.args.get_type.type_id;
    if ((why = plan_fields(plan, text_bytes))) return why;
    get.op_type = H5VL_DATASET_GET_DCPL;
    get.args.get_dcpl.dcpl_id = -1;
    if (hdf5.H5VLdataset_get(dataset, native, &get, transfer, NULL) < 0) return NO_TYPE;
    hid_t properties = get.args.get_dcpl.dcpl_id;
    why = plan_storage(plan, properties);
    if (!why) why = plan_fill(plan, properties);
    hdf5.H5Pclose(properties);
    return why;
}

void plan_close(struct plan *plan) {
    for (int number = 0; number < plan->field_count; number++) {
        if (plan->fields[number].type >= 0) hdf5.H5Tclose(plan->fields[number].type);
        free(plan->fields[number].member);
        free(plan->fields[number].fill);
    }
    free(plan->fields);
    if (plan->file_type >= 0) hdf5.H5Tclose(plan->file_type);
    memset(plan, 0, sizeof *plan);
    plan->file_type = -1;
}

/* ---- selections ---- */

void whole_block(const struct plan *plan, struct block *block) {
    for (int axis = 0; axis < plan->rank; axis++) {
        block->start[axis] = 0;
        block->count[axis] = plan->shape[axis];
        block->stride[axis] = 1;
    }
}

hsize_t block_cells(const struct plan *plan, const struct block *block) {
    hsize_t cells = 1;
    for (int axis = 0; axis < plan->rank; axis++) cells *= block->count[axis];
    return cells;
}

bool block_of_selection(const struct plan *plan, hid_t space, struct block *block) {
    whole_block(plan, block);
    if (space == H5S_ALL || plan->is_single) return true;
    H5S_sel_type kind = hdf5.H5Sget_select_type(space);
    if (kind == H5S_SEL_ALL) return true;
    if (kind != H5S_SEL_HYPERSLABS || hdf5.H5Sis_regular_hyperslab(space) <= 0) return false;
    hsize_t blocks[RANK_MAX], counts[RANK_MAX];
    if (hdf5.H5Sget_regular_hyperslab(space, block->start, block->stride, counts, blocks) < 0) return false;
    /* H5Soffset_simple shifts a selection, which only its bounds tell. */
    hsize_t low[RANK_MAX], high[RANK_MAX];
    if (hdf5.H5Sget_select_bounds(space, low, high) < 0) return false;
    for (int axis = 0; axis < plan->rank; axis++) {
        block->start[axis] = low[axis];
        if (blocks[axis] == 1) {
            block->count[axis] = counts[axis];
        } else if (counts[axis] == 1 || block->stride[axis] == blocks[axis]) {
            block->count[axis] = counts[axis] * blocks[axis];
            block->stride[axis] = 1;
        } else {
            return false;
        }
        if (block->count[axis] == 1) block->stride[axis] = 1;
    }
    return true;
}

bool is_direct(const struct plan *plan, hid_t memory_type) {
    bool is_exact = true;
    for (int number = 0; number < plan->field_count; number++) {
        if (plan->fields[number].is_text) return false;
        is_exact &= plan->fields[number].is_exact;
    }
    if (hdf5.H5Tequal(memory_type, plan->file_type) > 0) return true;
    return is_exact && !plan->is_compound && hdf5.H5Tget_class(memory_type) == hdf5.H5Tget_class(plan->file_type);
}
