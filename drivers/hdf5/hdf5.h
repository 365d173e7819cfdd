/* Declarations of HDF5 1.14.6 that the connector uses, taken from its public headers without their comments. HDF5 keeps
 * them as they are as long as H5VL_VERSION is 3: in 1.14, 2.0, 2.1 and 2.2.
 *
 * Copyright by The HDF Group. All rights reserved. This is part of HDF5. The full copyright notice, including terms governing
 * use, modification, and redistribution, is contained in the file COPYING beside this one, or in
 * https://www.hdfgroup.org/licenses. */
#ifndef TERRACE_HDF5_H
#define TERRACE_HDF5_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#define H5VL_VERSION 3
#define H5P_DEFAULT ((hid_t)0)
#define H5T_VARIABLE ((size_t)-1)
#define H5E_DEFAULT ((hid_t)0)
#define H5S_ALL ((hid_t)0)
#define H5S_BLOCK ((hid_t)1)
#define H5S_UNLIMITED ((hsize_t)-1)
#define H5F_ACC_RDWR 1u
#define H5O_INFO_BASIC 1u
#define H5VL_NATIVE_DATASET_CHUNK_WRITE 7
#define H5T_COMPLEX 11 /* from 2.0 on */

typedef int herr_t;
typedef bool hbool_t;
typedef int htri_t;
typedef uint64_t hsize_t;
typedef int64_t hssize_t;
typedef uint64_t haddr_t;
typedef enum {
    H5_ITER_UNKNOWN = -1,
    H5_ITER_INC,
    H5_ITER_DEC,
    H5_ITER_NATIVE,
    H5_ITER_N
} H5_iter_order_t;
typedef enum H5_index_t {
    H5_INDEX_UNKNOWN = -1,
    H5_INDEX_NAME,
    H5_INDEX_CRT_ORDER,
    H5_INDEX_N
} H5_index_t;
typedef struct H5O_token_t {
    uint8_t __data[(16)];
} H5O_token_t;
typedef enum H5I_type_t {
    H5I_UNINIT = (-2),
    H5I_BADID = (-1),
    H5I_FILE = 1,
    H5I_GROUP,
    H5I_DATATYPE,
    H5I_DATASPACE,
    H5I_DATASET,
    H5I_MAP,
    H5I_ATTR,
    H5I_VFL,
    H5I_VOL,
    H5I_GENPROP_CLS,
    H5I_GENPROP_LST,
    H5I_ERROR_CLASS,
    H5I_ERROR_MSG,
    H5I_ERROR_STACK,
    H5I_SPACE_SEL_ITER,
    H5I_EVENTSET,
    H5I_NTYPES
} H5I_type_t;
typedef int64_t hid_t;
typedef enum H5O_type_t {
    H5O_TYPE_UNKNOWN = -1,
    H5O_TYPE_GROUP,
    H5O_TYPE_DATASET,
    H5O_TYPE_NAMED_DATATYPE,
    H5O_TYPE_MAP,
    H5O_TYPE_NTYPES
} H5O_type_t;
typedef struct H5O_info2_t {
    unsigned long fileno;
    H5O_token_t token;
    H5O_type_t type;
    unsigned rc;
    time_t atime;
    time_t mtime;
    time_t ctime;
    time_t btime;
    hsize_t num_attrs;
} H5O_info2_t;
typedef uint32_t H5O_msg_crt_idx_t;
typedef herr_t (*H5O_iterate2_t)(hid_t obj, const char *name, const H5O_info2_t *info, void *op_data);
typedef enum H5T_class_t {
    H5T_NO_CLASS = -1,
    H5T_INTEGER = 0,
    H5T_FLOAT = 1,
    H5T_TIME = 2,
    H5T_STRING = 3,
    H5T_BITFIELD = 4,
    H5T_OPAQUE = 5,
    H5T_COMPOUND = 6,
    H5T_REFERENCE = 7,
    H5T_ENUM = 8,
    H5T_VLEN = 9,
    H5T_ARRAY = 10,
    H5T_NCLASSES
} H5T_class_t;
typedef enum H5T_sign_t {
    H5T_SGN_ERROR = -1,
    H5T_SGN_NONE = 0,
    H5T_SGN_2 = 1,
    H5T_NSGN = 2
} H5T_sign_t;
typedef enum H5T_cset_t {
    H5T_CSET_ERROR = -1,
    H5T_CSET_ASCII = 0,
    H5T_CSET_UTF8 = 1,
} H5T_cset_t;
typedef enum H5T_str_t {
    H5T_STR_ERROR = -1,
    H5T_STR_NULLTERM = 0,
    H5T_STR_NULLPAD = 1,
    H5T_STR_SPACEPAD = 2,
} H5T_str_t;
typedef enum H5T_conv_except_t {
    H5T_CONV_EXCEPT_RANGE_HI = 0,
    H5T_CONV_EXCEPT_RANGE_LOW = 1,
    H5T_CONV_EXCEPT_PRECISION = 2,
    H5T_CONV_EXCEPT_TRUNCATE = 3,
    H5T_CONV_EXCEPT_PINF = 4,
    H5T_CONV_EXCEPT_NINF = 5,
    H5T_CONV_EXCEPT_NAN = 6
} H5T_conv_except_t;
typedef enum H5T_conv_ret_t {
    H5T_CONV_ABORT = -1,
    H5T_CONV_UNHANDLED = 0,
    H5T_CONV_HANDLED = 1
} H5T_conv_ret_t;
typedef H5T_conv_ret_t (*H5T_conv_except_func_t)(H5T_conv_except_t except_type, hid_t src_id, hid_t dst_id,
                                                 void *src_buf, void *dst_buf, void *user_data);
typedef struct {
    hbool_t corder_valid;
    H5O_msg_crt_idx_t corder;
    H5T_cset_t cset;
    hsize_t data_size;
} H5A_info_t;
typedef herr_t (*H5A_operator2_t)(hid_t location_id , const char *attr_name ,
                                  const H5A_info_t *ainfo , void *op_data );
typedef enum H5D_layout_t {
    H5D_LAYOUT_ERROR = -1,
    H5D_COMPACT = 0,
    H5D_CONTIGUOUS = 1,
    H5D_CHUNKED = 2,
    H5D_VIRTUAL = 3,
    H5D_NLAYOUTS = 4
} H5D_layout_t;
typedef enum H5D_chunk_index_t {
    H5D_CHUNK_IDX_BTREE = 0,
    H5D_CHUNK_IDX_SINGLE =
        1,
    H5D_CHUNK_IDX_NONE = 2,
    H5D_CHUNK_IDX_FARRAY = 3,
    H5D_CHUNK_IDX_EARRAY = 4,
    H5D_CHUNK_IDX_BT2 = 5,
    H5D_CHUNK_IDX_NTYPES
} H5D_chunk_index_t;
typedef enum H5D_space_status_t {
    H5D_SPACE_STATUS_ERROR = -1,
    H5D_SPACE_STATUS_NOT_ALLOCATED = 0,
    H5D_SPACE_STATUS_PART_ALLOCATED = 1,
    H5D_SPACE_STATUS_ALLOCATED = 2
} H5D_space_status_t;
typedef enum H5D_fill_value_t {
    H5D_FILL_VALUE_ERROR = -1,
    H5D_FILL_VALUE_UNDEFINED = 0,
    H5D_FILL_VALUE_DEFAULT = 1,
    H5D_FILL_VALUE_USER_DEFINED = 2
} H5D_fill_value_t;
typedef herr_t (*H5D_gather_func_t)(const void *dst_buf, size_t dst_buf_bytes_used, void *op_data);
typedef int (*H5D_chunk_iter_op_t)(const hsize_t *offset, unsigned filter_mask, haddr_t addr, hsize_t size,
                                   void *op_data);
typedef enum H5F_scope_t {
    H5F_SCOPE_LOCAL = 0,
    H5F_SCOPE_GLOBAL = 1
} H5F_scope_t;
typedef enum {
    H5L_TYPE_ERROR = (-1),
    H5L_TYPE_HARD = 0,
    H5L_TYPE_SOFT = 1,
    H5L_TYPE_EXTERNAL = 64,
    H5L_TYPE_MAX = 255
} H5L_type_t;
typedef struct {
    H5L_type_t type;
    hbool_t corder_valid;
    int64_t corder;
    H5T_cset_t cset;
    union {
        H5O_token_t token;
        size_t val_size;
    } u;
} H5L_info2_t;
typedef herr_t (*H5L_iterate2_t)(hid_t group, const char *name, const H5L_info2_t *info, void *op_data);
typedef enum H5G_storage_type_t {
    H5G_STORAGE_TYPE_UNKNOWN = -1,
    H5G_STORAGE_TYPE_SYMBOL_TABLE,
    H5G_STORAGE_TYPE_COMPACT,
    H5G_STORAGE_TYPE_DENSE
} H5G_storage_type_t;
typedef struct H5G_info_t {
    H5G_storage_type_t storage_type;
    hsize_t nlinks;
    int64_t max_corder;
    hbool_t mounted;
} H5G_info_t;
typedef int H5VL_class_value_t;
typedef enum H5VL_subclass_t {
    H5VL_SUBCLS_NONE,
    H5VL_SUBCLS_INFO,
    H5VL_SUBCLS_WRAP,
    H5VL_SUBCLS_ATTR,
    H5VL_SUBCLS_DATASET,
    H5VL_SUBCLS_DATATYPE,
    H5VL_SUBCLS_FILE,
    H5VL_SUBCLS_GROUP,
    H5VL_SUBCLS_LINK,
    H5VL_SUBCLS_OBJECT,
    H5VL_SUBCLS_REQUEST,
    H5VL_SUBCLS_BLOB,
    H5VL_SUBCLS_TOKEN
} H5VL_subclass_t;
typedef enum H5VL_loc_type_t {
    H5VL_OBJECT_BY_SELF,
    H5VL_OBJECT_BY_NAME,
    H5VL_OBJECT_BY_IDX,
    H5VL_OBJECT_BY_TOKEN
} H5VL_loc_type_t;
typedef struct H5VL_loc_by_name {
    const char *name;
    hid_t lapl_id;
} H5VL_loc_by_name_t;
typedef struct H5VL_loc_by_idx {
    const char *name;
    H5_index_t idx_type;
    H5_iter_order_t order;
    hsize_t n;
    hid_t lapl_id;
} H5VL_loc_by_idx_t;
typedef struct H5VL_loc_by_token {
    H5O_token_t *token;
} H5VL_loc_by_token_t;
typedef struct H5VL_loc_params_t {
    H5I_type_t obj_type;
    H5VL_loc_type_t type;
    union {
        H5VL_loc_by_token_t loc_by_token;
        H5VL_loc_by_name_t loc_by_name;
        H5VL_loc_by_idx_t loc_by_idx;
    } loc_data;
} H5VL_loc_params_t;
typedef struct H5VL_optional_args_t {
    int op_type;
    void *args;
} H5VL_optional_args_t;
typedef enum H5VL_attr_get_t {
    H5VL_ATTR_GET_ACPL,
    H5VL_ATTR_GET_INFO,
    H5VL_ATTR_GET_NAME,
    H5VL_ATTR_GET_SPACE,
    H5VL_ATTR_GET_STORAGE_SIZE,
    H5VL_ATTR_GET_TYPE
} H5VL_attr_get_t;
typedef struct H5VL_attr_get_name_args_t {
    H5VL_loc_params_t loc_params;
    size_t buf_size;
    char *buf;
    size_t *attr_name_len;
} H5VL_attr_get_name_args_t;
typedef struct H5VL_attr_get_info_args_t {
    H5VL_loc_params_t loc_params;
    const char *attr_name;
    H5A_info_t *ainfo;
} H5VL_attr_get_info_args_t;
typedef struct H5VL_attr_get_args_t {
    H5VL_attr_get_t op_type;
    union {
        struct {
            hid_t acpl_id;
        } get_acpl;
        H5VL_attr_get_info_args_t get_info;
        H5VL_attr_get_name_args_t get_name;
        struct {
            hid_t space_id;
        } get_space;
        struct {
            hsize_t *data_size;
        } get_storage_size;
        struct {
            hid_t type_id;
        } get_type;
    } args;
} H5VL_attr_get_args_t;
typedef enum H5VL_attr_specific_t {
    H5VL_ATTR_DELETE,
    H5VL_ATTR_DELETE_BY_IDX,
    H5VL_ATTR_EXISTS,
    H5VL_ATTR_ITER,
    H5VL_ATTR_RENAME
} H5VL_attr_specific_t;
typedef struct H5VL_attr_iterate_args_t {
    H5_index_t idx_type;
    H5_iter_order_t order;
    hsize_t *idx;
    H5A_operator2_t op;
    void *op_data;
} H5VL_attr_iterate_args_t;
typedef struct H5VL_attr_delete_by_idx_args_t {
    H5_index_t idx_type;
    H5_iter_order_t order;
    hsize_t n;
} H5VL_attr_delete_by_idx_args_t;
typedef struct H5VL_attr_specific_args_t {
    H5VL_attr_specific_t op_type;
    union {
        struct {
            const char *name;
        } del;
        H5VL_attr_delete_by_idx_args_t delete_by_idx;
        struct {
            const char *name;
            hbool_t *exists;
        } exists;
        H5VL_attr_iterate_args_t iterate;
        struct {
            const char *old_name;
            const char *new_name;
        } rename;
    } args;
} H5VL_attr_specific_args_t;
typedef enum H5VL_dataset_get_t {
    H5VL_DATASET_GET_DAPL,
    H5VL_DATASET_GET_DCPL,
    H5VL_DATASET_GET_SPACE,
    H5VL_DATASET_GET_SPACE_STATUS,
    H5VL_DATASET_GET_STORAGE_SIZE,
    H5VL_DATASET_GET_TYPE
} H5VL_dataset_get_t;
typedef struct H5VL_dataset_get_args_t {
    H5VL_dataset_get_t op_type;
    union {
        struct {
            hid_t dapl_id;
        } get_dapl;
        struct {
            hid_t dcpl_id;
        } get_dcpl;
        struct {
            hid_t space_id;
        } get_space;
        struct {
            H5D_space_status_t *status;
        } get_space_status;
        struct {
            hsize_t *storage_size;
        } get_storage_size;
        struct {
            hid_t type_id;
        } get_type;
    } args;
} H5VL_dataset_get_args_t;
typedef enum H5VL_dataset_specific_t {
    H5VL_DATASET_SET_EXTENT,
    H5VL_DATASET_FLUSH,
    H5VL_DATASET_REFRESH
} H5VL_dataset_specific_t;
typedef struct H5VL_dataset_specific_args_t {
    H5VL_dataset_specific_t op_type;
    union {
        struct {
            const hsize_t *size;
        } set_extent;
        struct {
            hid_t dset_id;
        } flush;
        struct {
            hid_t dset_id;
        } refresh;
    } args;
} H5VL_dataset_specific_args_t;
typedef enum H5VL_datatype_get_t {
    H5VL_DATATYPE_GET_BINARY_SIZE,
    H5VL_DATATYPE_GET_BINARY,
    H5VL_DATATYPE_GET_TCPL
} H5VL_datatype_get_t;
typedef struct H5VL_datatype_get_args_t {
    H5VL_datatype_get_t op_type;
    union {
        struct {
            size_t *size;
        } get_binary_size;
        struct {
            void *buf;
            size_t buf_size;
        } get_binary;
        struct {
            hid_t tcpl_id;
        } get_tcpl;
    } args;
} H5VL_datatype_get_args_t;
typedef enum H5VL_datatype_specific_t {
    H5VL_DATATYPE_FLUSH,
    H5VL_DATATYPE_REFRESH
} H5VL_datatype_specific_t;
typedef struct H5VL_datatype_specific_args_t {
    H5VL_datatype_specific_t op_type;
    union {
        struct {
            hid_t type_id;
        } flush;
        struct {
            hid_t type_id;
        } refresh;
    } args;
} H5VL_datatype_specific_args_t;
typedef struct H5VL_file_cont_info_t {
    unsigned version;
    uint64_t feature_flags;
    size_t token_size;
    size_t blob_id_size;
} H5VL_file_cont_info_t;
typedef enum H5VL_file_get_t {
    H5VL_FILE_GET_CONT_INFO,
    H5VL_FILE_GET_FAPL,
    H5VL_FILE_GET_FCPL,
    H5VL_FILE_GET_FILENO,
    H5VL_FILE_GET_INTENT,
    H5VL_FILE_GET_NAME,
    H5VL_FILE_GET_OBJ_COUNT,
    H5VL_FILE_GET_OBJ_IDS
} H5VL_file_get_t;
typedef struct H5VL_file_get_name_args_t {
    H5I_type_t type;
    size_t buf_size;
    char *buf;
    size_t *file_name_len;
} H5VL_file_get_name_args_t;
typedef struct H5VL_file_get_obj_ids_args_t {
    unsigned types;
    size_t max_objs;
    hid_t *oid_list;
    size_t *count;
} H5VL_file_get_obj_ids_args_t;
typedef struct H5VL_file_get_args_t {
    H5VL_file_get_t op_type;
    union {
        struct {
            H5VL_file_cont_info_t *info;
        } get_cont_info;
        struct {
            hid_t fapl_id;
        } get_fapl;
        struct {
            hid_t fcpl_id;
        } get_fcpl;
        struct {
            unsigned long *fileno;
        } get_fileno;
        struct {
            unsigned *flags;
        } get_intent;
        H5VL_file_get_name_args_t get_name;
        struct {
            unsigned types;
            size_t *count;
        } get_obj_count;
        H5VL_file_get_obj_ids_args_t get_obj_ids;
    } args;
} H5VL_file_get_args_t;
typedef enum H5VL_file_specific_t {
    H5VL_FILE_FLUSH,
    H5VL_FILE_REOPEN,
    H5VL_FILE_IS_ACCESSIBLE,
    H5VL_FILE_DELETE,
    H5VL_FILE_IS_EQUAL
} H5VL_file_specific_t;
typedef struct H5VL_file_specific_args_t {
    H5VL_file_specific_t op_type;
    union {
        struct {
            H5I_type_t obj_type;
            H5F_scope_t scope;
        } flush;
        struct {
            void **file;
        } reopen;
        struct {
            const char *filename;
            hid_t fapl_id;
            hbool_t *accessible;
        } is_accessible;
        struct {
            const char *filename;
            hid_t fapl_id;
        } del;
        struct {
            void *obj2;
            hbool_t *same_file;
        } is_equal;
    } args;
} H5VL_file_specific_args_t;
typedef enum H5VL_group_get_t {
    H5VL_GROUP_GET_GCPL,
    H5VL_GROUP_GET_INFO
} H5VL_group_get_t;
typedef struct H5VL_group_get_info_args_t {
    H5VL_loc_params_t loc_params;
    H5G_info_t *ginfo;
} H5VL_group_get_info_args_t;
typedef struct H5VL_group_get_args_t {
    H5VL_group_get_t op_type;
    union {
        struct {
            hid_t gcpl_id;
        } get_gcpl;
        H5VL_group_get_info_args_t get_info;
    } args;
} H5VL_group_get_args_t;
typedef enum H5VL_group_specific_t {
    H5VL_GROUP_MOUNT,
    H5VL_GROUP_UNMOUNT,
    H5VL_GROUP_FLUSH,
    H5VL_GROUP_REFRESH
} H5VL_group_specific_t;
typedef struct H5VL_group_spec_mount_args_t {
    const char *name;
    void *child_file;
    hid_t fmpl_id;
} H5VL_group_spec_mount_args_t;
typedef struct H5VL_group_specific_args_t {
    H5VL_group_specific_t op_type;
    union {
        H5VL_group_spec_mount_args_t mount;
        struct {
            const char *name;
        } unmount;
        struct {
            hid_t grp_id;
        } flush;
        struct {
            hid_t grp_id;
        } refresh;
    } args;
} H5VL_group_specific_args_t;
typedef enum H5VL_link_create_t {
    H5VL_LINK_CREATE_HARD,
    H5VL_LINK_CREATE_SOFT,
    H5VL_LINK_CREATE_UD
} H5VL_link_create_t;
typedef struct H5VL_link_create_args_t {
    H5VL_link_create_t op_type;
    union {
        struct {
            void *curr_obj;
            H5VL_loc_params_t curr_loc_params;
        } hard;
        struct {
            const char *target;
        } soft;
        struct {
            H5L_type_t type;
            const void *buf;
            size_t buf_size;
        } ud;
    } args;
} H5VL_link_create_args_t;
typedef enum H5VL_link_get_t {
    H5VL_LINK_GET_INFO,
    H5VL_LINK_GET_NAME,
    H5VL_LINK_GET_VAL
} H5VL_link_get_t;
typedef struct H5VL_link_get_args_t {
    H5VL_link_get_t op_type;
    union {
        struct {
            H5L_info2_t *linfo;
        } get_info;
        struct {
            size_t name_size;
            char *name;
            size_t *name_len;
        } get_name;
        struct {
            size_t buf_size;
            void *buf;
        } get_val;
    } args;
} H5VL_link_get_args_t;
typedef enum H5VL_link_specific_t {
    H5VL_LINK_DELETE,
    H5VL_LINK_EXISTS,
    H5VL_LINK_ITER
} H5VL_link_specific_t;
typedef struct H5VL_link_iterate_args_t {
    hbool_t recursive;
    H5_index_t idx_type;
    H5_iter_order_t order;
    hsize_t *idx_p;
    H5L_iterate2_t op;
    void *op_data;
} H5VL_link_iterate_args_t;
typedef struct H5VL_link_specific_args_t {
    H5VL_link_specific_t op_type;
    union {
        struct {
            hbool_t *exists;
        } exists;
        H5VL_link_iterate_args_t iterate;
    } args;
} H5VL_link_specific_args_t;
typedef enum H5VL_object_get_t {
    H5VL_OBJECT_GET_FILE,
    H5VL_OBJECT_GET_NAME,
    H5VL_OBJECT_GET_TYPE,
    H5VL_OBJECT_GET_INFO
} H5VL_object_get_t;
typedef struct H5VL_object_get_args_t {
    H5VL_object_get_t op_type;
    union {
        struct {
            void **file;
        } get_file;
        struct {
            size_t buf_size;
            char *buf;
            size_t *name_len;
        } get_name;
        struct {
            H5O_type_t *obj_type;
        } get_type;
        struct {
            unsigned fields;
            H5O_info2_t *oinfo;
        } get_info;
    } args;
} H5VL_object_get_args_t;
typedef enum H5VL_object_specific_t {
    H5VL_OBJECT_CHANGE_REF_COUNT,
    H5VL_OBJECT_EXISTS,
    H5VL_OBJECT_LOOKUP,
    H5VL_OBJECT_VISIT,
    H5VL_OBJECT_FLUSH,
    H5VL_OBJECT_REFRESH
} H5VL_object_specific_t;
typedef struct H5VL_object_visit_args_t {
    H5_index_t idx_type;
    H5_iter_order_t order;
    unsigned fields;
    H5O_iterate2_t op;
    void *op_data;
} H5VL_object_visit_args_t;
typedef struct H5VL_object_specific_args_t {
    H5VL_object_specific_t op_type;
    union {
        struct {
            int delta;
        } change_rc;
        struct {
            hbool_t *exists;
        } exists;
        struct {
            H5O_token_t *token_ptr;
        } lookup;
        H5VL_object_visit_args_t visit;
        struct {
            hid_t obj_id;
        } flush;
        struct {
            hid_t obj_id;
        } refresh;
    } args;
} H5VL_object_specific_args_t;
typedef enum H5VL_request_status_t {
    H5VL_REQUEST_STATUS_IN_PROGRESS,
    H5VL_REQUEST_STATUS_SUCCEED,
    H5VL_REQUEST_STATUS_FAIL,
    H5VL_REQUEST_STATUS_CANT_CANCEL,
    H5VL_REQUEST_STATUS_CANCELED
} H5VL_request_status_t;
typedef enum H5VL_request_specific_t {
    H5VL_REQUEST_GET_ERR_STACK,
    H5VL_REQUEST_GET_EXEC_TIME
} H5VL_request_specific_t;
typedef struct H5VL_request_specific_args_t {
    H5VL_request_specific_t op_type;
    union {
        struct {
            hid_t err_stack_id;
        } get_err_stack;
        struct {
            uint64_t *exec_ts;
            uint64_t *exec_time;
        } get_exec_time;
    } args;
} H5VL_request_specific_args_t;
typedef enum H5VL_blob_specific_t {
    H5VL_BLOB_DELETE,
    H5VL_BLOB_ISNULL,
    H5VL_BLOB_SETNULL
} H5VL_blob_specific_t;
typedef struct H5VL_blob_specific_args_t {
    H5VL_blob_specific_t op_type;
    union {
        struct {
            hbool_t *isnull;
        } is_null;
    } args;
} H5VL_blob_specific_args_t;
typedef struct H5VL_info_class_t {
    size_t size;
    void *(*copy)(const void *info);
    herr_t (*cmp)(int *cmp_value, const void *info1, const void *info2);
    herr_t (*free)(void *info);
    herr_t (*to_str)(const void *info, char **str);
    herr_t (*from_str)(const char *str,
                       void **info);
} H5VL_info_class_t;
typedef struct H5VL_wrap_class_t {
    void *(*get_object)(const void *obj);
    herr_t (*get_wrap_ctx)(
        const void *obj,
        void **wrap_ctx);
    void *(*wrap_object)(void *obj, H5I_type_t obj_type,
                         void *wrap_ctx);
    void *(*unwrap_object)(void *obj);
    herr_t (*free_wrap_ctx)(
        void *wrap_ctx);
} H5VL_wrap_class_t;
typedef struct H5VL_attr_class_t {
    void *(*create)(void *obj, const H5VL_loc_params_t *loc_params, const char *attr_name, hid_t type_id,
                    hid_t space_id, hid_t acpl_id, hid_t aapl_id, hid_t dxpl_id, void **req);
    void *(*open)(void *obj, const H5VL_loc_params_t *loc_params, const char *attr_name, hid_t aapl_id,
                  hid_t dxpl_id, void **req);
    herr_t (*read)(void *attr, hid_t mem_type_id, void *buf, hid_t dxpl_id, void **req);
    herr_t (*write)(void *attr, hid_t mem_type_id, const void *buf, hid_t dxpl_id, void **req);
    herr_t (*get)(void *obj, H5VL_attr_get_args_t *args, hid_t dxpl_id, void **req);
    herr_t (*specific)(void *obj, const H5VL_loc_params_t *loc_params, H5VL_attr_specific_args_t *args,
                       hid_t dxpl_id, void **req);
    herr_t (*optional)(void *obj, H5VL_optional_args_t *args, hid_t dxpl_id, void **req);
    herr_t (*close)(void *attr, hid_t dxpl_id, void **req);
} H5VL_attr_class_t;
typedef struct H5VL_dataset_class_t {
    void *(*create)(void *obj, const H5VL_loc_params_t *loc_params, const char *name, hid_t lcpl_id,
                    hid_t type_id, hid_t space_id, hid_t dcpl_id, hid_t dapl_id, hid_t dxpl_id, void **req);
    void *(*open)(void *obj, const H5VL_loc_params_t *loc_params, const char *name, hid_t dapl_id,
                  hid_t dxpl_id, void **req);
    herr_t (*read)(size_t count, void *dset[], hid_t mem_type_id[], hid_t mem_space_id[],
                   hid_t file_space_id[], hid_t dxpl_id, void *buf[], void **req);
    herr_t (*write)(size_t count, void *dset[], hid_t mem_type_id[], hid_t mem_space_id[],
                    hid_t file_space_id[], hid_t dxpl_id, const void *buf[], void **req);
    herr_t (*get)(void *obj, H5VL_dataset_get_args_t *args, hid_t dxpl_id, void **req);
    herr_t (*specific)(void *obj, H5VL_dataset_specific_args_t *args, hid_t dxpl_id, void **req);
    herr_t (*optional)(void *obj, H5VL_optional_args_t *args, hid_t dxpl_id, void **req);
    herr_t (*close)(void *dset, hid_t dxpl_id, void **req);
} H5VL_dataset_class_t;
typedef struct H5VL_datatype_class_t {
    void *(*commit)(void *obj, const H5VL_loc_params_t *loc_params, const char *name, hid_t type_id,
                    hid_t lcpl_id, hid_t tcpl_id, hid_t tapl_id, hid_t dxpl_id, void **req);
    void *(*open)(void *obj, const H5VL_loc_params_t *loc_params, const char *name, hid_t tapl_id,
                  hid_t dxpl_id, void **req);
    herr_t (*get)(void *obj, H5VL_datatype_get_args_t *args, hid_t dxpl_id, void **req);
    herr_t (*specific)(void *obj, H5VL_datatype_specific_args_t *args, hid_t dxpl_id, void **req);
    herr_t (*optional)(void *obj, H5VL_optional_args_t *args, hid_t dxpl_id, void **req);
    herr_t (*close)(void *dt, hid_t dxpl_id, void **req);
} H5VL_datatype_class_t;
typedef struct H5VL_file_class_t {
    void *(*create)(const char *name, unsigned flags, hid_t fcpl_id, hid_t fapl_id, hid_t dxpl_id,
                    void **req);
    void *(*open)(const char *name, unsigned flags, hid_t fapl_id, hid_t dxpl_id, void **req);
    herr_t (*get)(void *obj, H5VL_file_get_args_t *args, hid_t dxpl_id, void **req);
    herr_t (*specific)(void *obj, H5VL_file_specific_args_t *args, hid_t dxpl_id, void **req);
    herr_t (*optional)(void *obj, H5VL_optional_args_t *args, hid_t dxpl_id, void **req);
    herr_t (*close)(void *file, hid_t dxpl_id, void **req);
} H5VL_file_class_t;
typedef struct H5VL_group_class_t {
    void *(*create)(void *obj, const H5VL_loc_params_t *loc_params, const char *name, hid_t lcpl_id,
                    hid_t gcpl_id, hid_t gapl_id, hid_t dxpl_id, void **req);
    void *(*open)(void *obj, const H5VL_loc_params_t *loc_params, const char *name, hid_t gapl_id,
                  hid_t dxpl_id, void **req);
    herr_t (*get)(void *obj, H5VL_group_get_args_t *args, hid_t dxpl_id, void **req);
    herr_t (*specific)(void *obj, H5VL_group_specific_args_t *args, hid_t dxpl_id, void **req);
    herr_t (*optional)(void *obj, H5VL_optional_args_t *args, hid_t dxpl_id, void **req);
    herr_t (*close)(void *grp, hid_t dxpl_id, void **req);
} H5VL_group_class_t;
typedef struct H5VL_link_class_t {
    herr_t (*create)(H5VL_link_create_args_t *args, void *obj, const H5VL_loc_params_t *loc_params,
                     hid_t lcpl_id, hid_t lapl_id, hid_t dxpl_id, void **req);
    herr_t (*copy)(void *src_obj, const H5VL_loc_params_t *loc_params1, void *dst_obj,
                   const H5VL_loc_params_t *loc_params2, hid_t lcpl_id, hid_t lapl_id, hid_t dxpl_id,
                   void **req);
    herr_t (*move)(void *src_obj, const H5VL_loc_params_t *loc_params1, void *dst_obj,
                   const H5VL_loc_params_t *loc_params2, hid_t lcpl_id, hid_t lapl_id, hid_t dxpl_id,
                   void **req);
    herr_t (*get)(void *obj, const H5VL_loc_params_t *loc_params, H5VL_link_get_args_t *args, hid_t dxpl_id,
                  void **req);
    herr_t (*specific)(void *obj, const H5VL_loc_params_t *loc_params, H5VL_link_specific_args_t *args,
                       hid_t dxpl_id, void **req);
    herr_t (*optional)(void *obj, const H5VL_loc_params_t *loc_params, H5VL_optional_args_t *args,
                       hid_t dxpl_id, void **req);
} H5VL_link_class_t;
typedef struct H5VL_object_class_t {
    void *(*open)(void *obj, const H5VL_loc_params_t *loc_params, H5I_type_t *opened_type, hid_t dxpl_id,
                  void **req);
    herr_t (*copy)(void *src_obj, const H5VL_loc_params_t *loc_params1, const char *src_name, void *dst_obj,
                   const H5VL_loc_params_t *loc_params2, const char *dst_name, hid_t ocpypl_id, hid_t lcpl_id,
                   hid_t dxpl_id, void **req);
    herr_t (*get)(void *obj, const H5VL_loc_params_t *loc_params, H5VL_object_get_args_t *args, hid_t dxpl_id,
                  void **req);
    herr_t (*specific)(void *obj, const H5VL_loc_params_t *loc_params, H5VL_object_specific_args_t *args,
                       hid_t dxpl_id, void **req);
    herr_t (*optional)(void *obj, const H5VL_loc_params_t *loc_params, H5VL_optional_args_t *args,
                       hid_t dxpl_id, void **req);
} H5VL_object_class_t;
typedef herr_t (*H5VL_request_notify_t)(void *ctx, H5VL_request_status_t status);
typedef enum H5VL_get_conn_lvl_t {
    H5VL_GET_CONN_LVL_CURR,
    H5VL_GET_CONN_LVL_TERM
} H5VL_get_conn_lvl_t;
struct H5VL_class_t;
typedef struct H5VL_introspect_class_t {
    herr_t (*get_conn_cls)(void *obj, H5VL_get_conn_lvl_t lvl, const struct H5VL_class_t **conn_cls);
    herr_t (*get_cap_flags)(const void *info, uint64_t *cap_flags);
    herr_t (*opt_query)(void *obj, H5VL_subclass_t cls, int opt_type, uint64_t *flags);
} H5VL_introspect_class_t;
typedef struct H5VL_request_class_t {
    herr_t (*wait)(void *req, uint64_t timeout, H5VL_request_status_t *status);
    herr_t (*notify)(void *req, H5VL_request_notify_t cb, void *ctx);
    herr_t (*cancel)(void *req, H5VL_request_status_t *status);
    herr_t (*specific)(void *req, H5VL_request_specific_args_t *args);
    herr_t (*optional)(void *req, H5VL_optional_args_t *args);
    herr_t (*free)(void *req);
} H5VL_request_class_t;
typedef struct H5VL_blob_class_t {
    herr_t (*put)(void *obj, const void *buf, size_t size, void *blob_id, void *ctx);
    herr_t (*get)(void *obj, const void *blob_id, void *buf, size_t size, void *ctx);
    herr_t (*specific)(void *obj, void *blob_id, H5VL_blob_specific_args_t *args);
    herr_t (*optional)(void *obj, void *blob_id, H5VL_optional_args_t *args);
} H5VL_blob_class_t;
typedef struct H5VL_token_class_t {
    herr_t (*cmp)(void *obj, const H5O_token_t *token1, const H5O_token_t *token2, int *cmp_value);
    herr_t (*to_str)(void *obj, H5I_type_t obj_type, const H5O_token_t *token, char **token_str);
    herr_t (*from_str)(void *obj, H5I_type_t obj_type, const char *token_str, H5O_token_t *token);
} H5VL_token_class_t;
typedef struct H5VL_class_t {
    unsigned version;
    H5VL_class_value_t value;
    const char *name;
    unsigned conn_version;
    uint64_t cap_flags;
    herr_t (*initialize)(hid_t vipl_id);
    herr_t (*terminate)(void);
    H5VL_info_class_t info_cls;
    H5VL_wrap_class_t wrap_cls;
    H5VL_attr_class_t attr_cls;
    H5VL_dataset_class_t dataset_cls;
    H5VL_datatype_class_t datatype_cls;
    H5VL_file_class_t file_cls;
    H5VL_group_class_t group_cls;
    H5VL_link_class_t link_cls;
    H5VL_object_class_t object_cls;
    H5VL_introspect_class_t introspect_cls;
    H5VL_request_class_t request_cls;
    H5VL_blob_class_t blob_cls;
    H5VL_token_class_t token_cls;
    herr_t (*optional)(void *obj, H5VL_optional_args_t *args, hid_t dxpl_id,
                       void **req);
} H5VL_class_t;
typedef enum H5PL_type_t {
    H5PL_TYPE_ERROR = -1,
    H5PL_TYPE_FILTER = 0,
    H5PL_TYPE_VOL = 1,
    H5PL_TYPE_VFD = 2,
    H5PL_TYPE_NONE = 3
} H5PL_type_t;
typedef enum H5S_class_t {
    H5S_NO_CLASS = -1,
    H5S_SCALAR = 0,
    H5S_SIMPLE = 1,
    H5S_NULL = 2
} H5S_class_t;
typedef enum H5S_seloper_t {
    H5S_SELECT_NOOP = -1,
    H5S_SELECT_SET = 0,
    H5S_SELECT_OR,
    H5S_SELECT_AND,
    H5S_SELECT_XOR,
    H5S_SELECT_NOTB,
    H5S_SELECT_NOTA,
    H5S_SELECT_APPEND,
    H5S_SELECT_PREPEND,
    H5S_SELECT_INVALID
} H5S_seloper_t;
typedef enum {
    H5S_SEL_ERROR = -1,
    H5S_SEL_NONE = 0,
    H5S_SEL_POINTS = 1,
    H5S_SEL_HYPERSLABS = 2,
    H5S_SEL_ALL = 3,
    H5S_SEL_N
} H5S_sel_type;
typedef int H5Z_filter_t;
typedef struct H5VL_native_dataset_chunk_read_t {
    const hsize_t *offset;
    uint32_t filters;
    void *buf;
} H5VL_native_dataset_chunk_read_t;
typedef struct H5VL_native_dataset_chunk_write_t {
    const hsize_t *offset;
    uint32_t filters;
    uint32_t size;
    const void *buf;
} H5VL_native_dataset_chunk_write_t;
typedef struct H5VL_native_dataset_get_vlen_buf_size_t {
    hid_t type_id;
    hid_t space_id;
    hsize_t *size;
} H5VL_native_dataset_get_vlen_buf_size_t;
typedef struct H5VL_native_dataset_get_chunk_storage_size_t {
    const hsize_t *offset;
    hsize_t *size;
} H5VL_native_dataset_get_chunk_storage_size_t;
typedef struct H5VL_native_dataset_get_num_chunks_t {
    hid_t space_id;
    hsize_t *nchunks;
} H5VL_native_dataset_get_num_chunks_t;
typedef struct H5VL_native_dataset_get_chunk_info_by_idx_t {
    hid_t space_id;
    hsize_t chk_index;
    hsize_t *offset;
    unsigned *filter_mask;
    haddr_t *addr;
    hsize_t *size;
} H5VL_native_dataset_get_chunk_info_by_idx_t;
typedef struct H5VL_native_dataset_get_chunk_info_by_coord_t {
    const hsize_t *offset;
    unsigned *filter_mask;
    haddr_t *addr;
    hsize_t *size;
} H5VL_native_dataset_get_chunk_info_by_coord_t;
typedef union H5VL_native_dataset_optional_args_t {
    struct {
        H5D_chunk_index_t *idx_type;
    } get_chunk_idx_type;
    H5VL_native_dataset_get_chunk_storage_size_t get_chunk_storage_size;
    H5VL_native_dataset_get_num_chunks_t get_num_chunks;
    H5VL_native_dataset_get_chunk_info_by_idx_t get_chunk_info_by_idx;
    H5VL_native_dataset_get_chunk_info_by_coord_t get_chunk_info_by_coord;
    H5VL_native_dataset_chunk_read_t chunk_read;
    H5VL_native_dataset_chunk_write_t chunk_write;
    H5VL_native_dataset_get_vlen_buf_size_t get_vlen_buf_size;
    struct {
        haddr_t *offset;
    } get_offset;
    struct {
        H5D_chunk_iter_op_t op;
        void *op_data;
    } chunk_iter;
} H5VL_native_dataset_optional_args_t;
typedef herr_t (*H5E_auto2_t)(hid_t estack, void *client_data);

herr_t H5free_memory(void *mem);
hid_t H5Tcreate(H5T_class_t type, size_t size);
hid_t H5Tcopy(hid_t type_id);
herr_t H5Tclose(hid_t type_id);
htri_t H5Tequal(hid_t type1_id, hid_t type2_id);
herr_t H5Tinsert(hid_t parent_id, const char *name, size_t offset, hid_t member_id);
hid_t H5Tget_super(hid_t type);
H5T_class_t H5Tget_class(hid_t type_id);
size_t H5Tget_size(hid_t type_id);
H5T_sign_t H5Tget_sign(hid_t type_id);
int H5Tget_nmembers(hid_t type_id);
char *H5Tget_member_name(hid_t type_id, unsigned membno);
int H5Tget_member_index(hid_t type_id, const char *name);
hid_t H5Tget_member_type(hid_t type_id, unsigned membno);
herr_t H5Tget_member_value(hid_t type_id, unsigned membno, void *value );
H5T_cset_t H5Tget_cset(hid_t type_id);
htri_t H5Tis_variable_str(hid_t type_id);
herr_t H5Treclaim(hid_t type_id, hid_t space_id, hid_t plist_id, void *buf);
herr_t H5Tset_size(hid_t type_id, size_t size);
herr_t H5Tset_cset(hid_t type_id, H5T_cset_t cset);
herr_t H5Tset_strpad(hid_t type_id, H5T_str_t strpad);
herr_t H5Tconvert(hid_t src_id, hid_t dst_id, size_t nelmts, void *buf, void *background, hid_t plist_id);
herr_t H5Dgather(hid_t src_space_id, const void *src_buf, hid_t type_id, size_t dst_buf_size, void *dst_buf, H5D_gather_func_t op, void *op_data);
hid_t H5VLget_connector_id_by_name(const char *name);
herr_t H5VLattr_read(void *attr, hid_t connector_id, hid_t dtype_id, void *buf, hid_t dxpl_id, void **req);
herr_t H5VLattr_get(void *obj, hid_t connector_id, H5VL_attr_get_args_t *args, hid_t dxpl_id, void **req);
herr_t H5VLdataset_read(size_t count, void *dset[], hid_t connector_id, hid_t mem_type_id[], hid_t mem_space_id[], hid_t file_space_id[], hid_t plist_id, void *buf[], void **req);
herr_t H5VLdataset_get(void *dset, hid_t connector_id, H5VL_dataset_get_args_t *args, hid_t dxpl_id, void **req);
herr_t H5VLfile_get(void *file, hid_t connector_id, H5VL_file_get_args_t *args, hid_t dxpl_id, void **req);
herr_t H5VLlink_get(void *obj, const H5VL_loc_params_t *loc_params, hid_t connector_id, H5VL_link_get_args_t *args, hid_t dxpl_id, void **req);
herr_t H5VLobject_get(void *obj, const H5VL_loc_params_t *loc_params, hid_t connector_id, H5VL_object_get_args_t *args, hid_t dxpl_id, void **req);
herr_t H5VLintrospect_get_conn_cls(void *obj, hid_t connector_id, H5VL_get_conn_lvl_t lvl, const H5VL_class_t **conn_cls);
herr_t H5Sclose(hid_t space_id);
hid_t H5Screate_simple(int rank, const hsize_t dims[], const hsize_t maxdims[]);
htri_t H5Sget_regular_hyperslab(hid_t spaceid, hsize_t start[], hsize_t stride[], hsize_t count[], hsize_t block[]);
herr_t H5Sget_select_bounds(hid_t spaceid, hsize_t start[], hsize_t end[]);
herr_t H5Sget_select_hyper_blocklist(hid_t spaceid, hsize_t startblock, hsize_t numblocks, hsize_t buf[ ]);
hssize_t H5Sget_select_hyper_nblocks(hid_t spaceid);
hssize_t H5Sget_select_npoints(hid_t spaceid);
H5S_sel_type H5Sget_select_type(hid_t spaceid);
int H5Sget_simple_extent_dims(hid_t space_id, hsize_t dims[], hsize_t maxdims[]);
int H5Sget_simple_extent_ndims(hid_t space_id);
H5S_class_t H5Sget_simple_extent_type(hid_t space_id);
htri_t H5Sis_regular_hyperslab(hid_t spaceid);
herr_t H5Sselect_hyperslab(hid_t space_id, H5S_seloper_t op, const hsize_t start[], const hsize_t stride[], const hsize_t count[], const hsize_t block[]);
herr_t H5Pclose(hid_t plist_id);
hid_t H5Pcreate(hid_t cls_id);
H5Z_filter_t H5Pget_filter2(hid_t plist_id, unsigned idx, unsigned int *flags , size_t *cd_nelmts , unsigned cd_values[] , size_t namelen, char name[], unsigned *filter_config );
int H5Pget_nfilters(hid_t plist_id);
hid_t H5Pget_driver(hid_t plist_id);
herr_t H5Pfill_value_defined(hid_t plist, H5D_fill_value_t *status);
int H5Pget_chunk(hid_t plist_id, int max_ndims, hsize_t dim[] );
int H5Pget_external_count(hid_t plist_id);
herr_t H5Pget_fill_value(hid_t plist_id, hid_t type_id, void *value );
H5D_layout_t H5Pget_layout(hid_t plist_id);
ssize_t H5Pget_data_transform(hid_t plist_id, char *expression , size_t size);
herr_t H5Pget_type_conv_cb(hid_t dxpl_id, H5T_conv_except_func_t *op, void **operate_data);
herr_t H5Eget_auto2(hid_t estack_id, H5E_auto2_t *func, void **client_data);
herr_t H5Eset_auto2(hid_t estack_id, H5E_auto2_t func, void *client_data);
size_t H5Tget_precision(hid_t type_id);
htri_t H5Pisa_class(hid_t plist_id, hid_t pclass_id);
#endif
