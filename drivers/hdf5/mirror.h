/* Files that are asked for while they are written: arrays beside them that say what they say. */
#ifndef TERRACE_HDF5_MIRROR_H
#define TERRACE_HDF5_MIRROR_H

#include "types.h"

enum state {
    UNKNOWN, /* nobody has looked yet whether it has arrays */
    CURRENT, /* its arrays say what the file says */
    LEFT, /* it has none */
};

struct file {
    struct file *next;
    unsigned long number; /* HDF5's, while the file is open */
    char *path;
    char *container;
    long handles; /* of the file, and of groups and datasets in it */
    bool is_off; /* nothing more is mirrored */
    bool has_container;
    bool has_hidden_cells; /* beyond an extent there may be other cells than the fill value */
    char *parent; /* the container that was last seen to be there */
};

struct dataset {
    struct dataset *next;
    struct file *file;
    H5O_token_t token;
    long handles;
    enum state state;
    char *name; /* of its array, or of the container of its members' arrays */
    size_t text_bytes; /* what a text of any length gets in its arrays; 0: none was too long for the usual */
    struct plan plan;
};

/* While HDF5 is asked on behalf of nobody, failures are not printed. */
struct quiet {
    H5E_auto2_t print;
    void *data;
    bool is_set;
};
void quiet_begin(struct quiet *quiet);
void quiet_end(const struct quiet *quiet);

#define STAMP_MAX 80
/* What tells whether a file has changed, into room for STAMP_MAX characters. */
bool stamp_of(const char *path, char *stamp);
/* A file that was opened for writing; NULL: created. HDF5 changes a file's time when it opens it, so its stamp is from before. */
void mirror_file(void *file, const char *name, hid_t access, const char *stamp);
/* Another handle of a file, or of an object in one. `is_new`: this call has made it. */
void mirror_handle(void *object, H5I_type_t type, bool is_new);
/* A handle that is closed; what is returned goes to mirror_closed when HDF5 has closed it. */
struct file *mirror_closing(void *object);
void mirror_closed(struct file *file);

/* Before a dataset changes. */
void mirror_look(void *dataset);
/* A put that goes on while HDF5 writes the same cells: from the program's memory, as it is, and worth a thread. NULL: there is none. */
terrace_transfer *mirror_write_begin(void *dataset, hid_t memory_type, hid_t memory_space, hid_t file_space, hid_t transfer,
                                     const void *cells);
/* Waits for it. False: the cells are still to be put. */
bool mirror_write_end(terrace_transfer *put);
/* After it has changed. */
void mirror_write(void *dataset, hid_t memory_type, hid_t memory_space, hid_t file_space, hid_t transfer, const void *cells);
void mirror_chunk(void *dataset, const hsize_t *offset);
void mirror_extent(void *dataset, const hsize_t *extent);
/* What the program tried to write may be there in part. */
void mirror_failed(void *dataset);

/* The name of an object in Terrace: of `object` itself, or of what lies below it by this name. NULL: it has none. To be freed. */
char *mirror_name(void *object, const H5VL_loc_params_t *location, struct file **file);
/* The object of a link that is to go or to move. */
struct link {
    struct file *file;
    char *name;
    bool is_hard;
    H5O_token_t token;
};
void mirror_link(void *object, const H5VL_loc_params_t *location, struct link *link);
void mirror_removed(struct link *link);
void mirror_moved(struct link *link, void *object, const H5VL_loc_params_t *location);
void mirror_linked(void *object);
void link_close(struct link *link);

/* Makes a container with those above it, once. */
bool mirror_container(struct file *file, const char *name);
/* A file is not mirrored any more. */
void mirror_off(struct file *file, const char *why);
struct file *file_of(void *object);
/* What a file has had, by its path. */
void mirror_forget(const char *path);

/* attributes.c */
void mirror_attribute(void *attribute);
void mirror_attribute_deleted(void *object, const H5VL_loc_params_t *location, const char *attribute);
void mirror_attribute_renamed(void *object, const H5VL_loc_params_t *location, const char *from, const char *to);

#endif
