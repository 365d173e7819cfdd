/* The calls that the connector makes: of HDF5's library that loaded it, and of libterrace.so; each found when it is needed. */
#ifndef TERRACE_HDF5_CALLS_H
#define TERRACE_HDF5_CALLS_H

#include "hdf5.h"
#include <terrace.h>

#define HDF5_CALLS(DO) \
    DO(H5VLget_connector_id_by_name) \
    DO(H5VLintrospect_get_conn_cls) \
    DO(H5VLfile_get) \
    DO(H5VLdataset_get) \
    DO(H5VLdataset_read) \
    DO(H5VLobject_get) \
    DO(H5VLlink_get) \
    DO(H5VLattr_get) \
    DO(H5VLattr_read) \
    DO(H5Sclose) \
    DO(H5Screate_simple) \
    DO(H5Sget_simple_extent_ndims) \
    DO(H5Sget_simple_extent_dims) \
    DO(H5Sget_simple_extent_type) \
    DO(H5Sget_select_npoints) \
    DO(H5Sget_select_type) \
    DO(H5Sis_regular_hyperslab) \
    DO(H5Sget_regular_hyperslab) \
    DO(H5Sget_select_hyper_nblocks) \
    DO(H5Sget_select_hyper_blocklist) \
    DO(H5Sget_select_bounds) \
    DO(H5Sselect_hyperslab) \
    DO(H5Tcopy) \
    DO(H5Tclose) \
    DO(H5Tget_class) \
    DO(H5Tget_size) \
    DO(H5Tget_sign) \
    DO(H5Tget_precision) \
    DO(H5Tget_super) \
    DO(H5Tget_nmembers) \
    DO(H5Tget_member_name) \
    DO(H5Tget_member_type) \
    DO(H5Tget_member_index) \
    DO(H5Tget_member_value) \
    DO(H5Tcreate) \
    DO(H5Tinsert) \
    DO(H5Tset_size) \
    DO(H5Tset_strpad) \
    DO(H5Tset_cset) \
    DO(H5Tget_cset) \
    DO(H5Tis_variable_str) \
    DO(H5Tequal) \
    DO(H5Tconvert) \
    DO(H5Treclaim) \
    DO(H5Dgather) \
    DO(H5Pget_layout) \
    DO(H5Pget_chunk) \
    DO(H5Pget_fill_value) \
    DO(H5Pfill_value_defined) \
    DO(H5Pget_nfilters) \
    DO(H5Pget_filter2) \
    DO(H5Pget_external_count) \
    DO(H5Pget_driver) \
    DO(H5Pget_data_transform) \
    DO(H5Pget_type_conv_cb) \
    DO(H5Pcreate) \
    DO(H5Pclose) \
    DO(H5Eget_auto2) \
    DO(H5Eset_auto2) \
    DO(H5free_memory)

/* Identifiers that HDF5 keeps in variables. */
#define HDF5_IDENTIFIERS(DO) \
    DO(H5T_NATIVE_INT8_g) \
    DO(H5T_NATIVE_INT16_g) \
    DO(H5T_NATIVE_INT32_g) \
    DO(H5T_NATIVE_INT64_g) \
    DO(H5T_NATIVE_UINT8_g) \
    DO(H5T_NATIVE_UINT16_g) \
    DO(H5T_NATIVE_UINT32_g) \
    DO(H5T_NATIVE_UINT64_g) \
    DO(H5T_NATIVE_FLOAT_g) \
    DO(H5T_NATIVE_DOUBLE_g) \
    DO(H5T_IEEE_F32LE_g) \
    DO(H5T_IEEE_F32BE_g) \
    DO(H5T_IEEE_F64LE_g) \
    DO(H5T_IEEE_F64BE_g) \
    DO(H5T_C_S1_g) \
    DO(H5P_CLS_FILE_ACCESS_ID_g) \
    DO(H5P_LST_DATASET_XFER_ID_g) \
    DO(H5P_LST_LINK_ACCESS_ID_g)

struct hdf5_calls {
#define FIELD(NAME) __typeof__(&NAME) NAME;
    HDF5_CALLS(FIELD)
#undef FIELD
#define FIELD(NAME) hid_t *NAME;
    HDF5_IDENTIFIERS(FIELD)
#undef FIELD
};

#define TERRACE_CALLS(DO) \
    DO(terrace_error) \
    DO(terrace_connect) \
    DO(terrace_root) \
    DO(terrace_container_create) \
    DO(terrace_stat) \
    DO(terrace_remove) \
    DO(terrace_rename) \
    DO(terrace_array_create) \
    DO(terrace_array_open) \
    DO(terrace_array_shape) \
    DO(terrace_array_type) \
    DO(terrace_array_grow) \
    DO(terrace_array_put) \
    DO(terrace_array_close) \
    DO(terrace_transfer_create) \
    DO(terrace_transfer_start) \
    DO(terrace_transfer_wait) \
    DO(terrace_transfer_close) \
    DO(terrace_tag_put) \
    DO(terrace_tag_get) \
    DO(terrace_tag_delete)

struct terrace_calls {
#define FIELD(NAME) __typeof__(&NAME) NAME;
    TERRACE_CALLS(FIELD)
#undef FIELD
};

extern struct hdf5_calls hdf5;
extern struct terrace_calls terrace;
extern terrace_session *session;
/* The native connector, whose class ours is but for some calls. */
extern hid_t native;

/* 0 if there is an agent; it is looked for once. */
int connect_terrace(void);
/* The path of a file, if it lies below the root, without the root. */
int below_root(const char *name, char *below);
/* Says once that something of a file is in the file only, and why. */
void tell(const char *what, const char *why);

#endif
