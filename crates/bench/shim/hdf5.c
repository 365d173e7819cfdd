/* HDF5: variables as datasets `v0`, `v1`, …, other workloads as one dataset `data` of bytes; MPI-IO below, contiguous layout. */
#include "shim.h"
#include <hdf5.h>
#include <unistd.h>

struct file {
    hid_t file, transfer;
    int shared;
    unsigned count;
    hid_t sets[1024];
};

int tb_start(char *message)
{
    if (tb_start_mpi(message))
        return 1;
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    return 0;
}
void tb_finish(void)
{
    H5close();
    tb_finish_mpi();
}

static herr_t deepest(unsigned depth, const H5E_error2_t *error, void *text)
{
    (void)depth;
    snprintf(text, TB_MESSAGE / 2, "%s", error->desc ? error->desc : "unknown");
    return 0;
}

static int failed(char *message, const char *doing)
{
    char reason[TB_MESSAGE / 2] = "HDF5 gives no reason";
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, deepest, reason);
    return tb_said(message, doing, reason);
}

static hid_t type_of(uint64_t bytes)
{
    switch (bytes) {
    case 2: return H5T_NATIVE_UINT16;
    case 4: return H5T_NATIVE_UINT32;
    case 8: return H5T_NATIVE_UINT64;
    default: return H5T_NATIVE_UINT8;
    }
}

/* Opens dataset `name`, or makes it where there is none. */
static hid_t dataset(struct file *file, int make, const char *name, unsigned dimensions, const uint64_t *sizes, uint64_t element)
{
    hsize_t extent[TB_DIMENSIONS];
    if (!make)
        return H5Dopen2(file->file, name, H5P_DEFAULT);
    for (unsigned at = 0; at < dimensions; at++)
        extent[at] = sizes[at];
    hid_t space = H5Screate_simple((int)dimensions, extent, NULL), list = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_alloc_time(list, H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(list, H5D_FILL_TIME_NEVER);
    hid_t made = H5Dcreate2(file->file, name, type_of(element), space, H5P_DEFAULT, list, H5P_DEFAULT);
    H5Pclose(list);
    H5Sclose(space);
    return made;
}

void *tb_open(const struct tb_open *arguments, char *message)
{
    struct file *file = calloc(1, sizeof *file);
    if (!file)
        return NULL;
    file->shared = arguments->shared;
    MPI_Comm comm = arguments->shared ? MPI_COMM_WORLD : MPI_COMM_SELF;
    int there = access(arguments->path, F_OK) == 0;
    /* All must do the same; what rank 0 sees decides, before anybody creates the file. */
    MPI_Bcast(&there, 1, MPI_INT, 0, comm);
    hid_t access_list = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fapl_mpio(access_list, comm, MPI_INFO_NULL);
    const char *alignment = strstr(arguments->hints, "alignment=");
    if (alignment)
        H5Pset_alignment(access_list, 0, (hsize_t)strtoull(alignment + strlen("alignment="), NULL, 10));
    int make = arguments->write && !there;
    file->file = make ? H5Fcreate(arguments->path, H5F_ACC_EXCL, H5P_DEFAULT, access_list)
                      : H5Fopen(arguments->path, arguments->write ? H5F_ACC_RDWR : H5F_ACC_RDONLY, access_list);
    H5Pclose(access_list);
    if (file->file < 0) {
        failed(message, make ? "H5Fcreate" : "H5Fopen");
        free(file);
        return NULL;
    }
    file->transfer = H5Pcreate(H5P_DATASET_XFER);
    H5Pset_dxpl_mpio(file->transfer, arguments->collective ? H5FD_MPIO_COLLECTIVE : H5FD_MPIO_INDEPENDENT);
    file->count = arguments->block_count ? arguments->block_count : 1;
    if (file->count > 1024) {
        tb_said(message, "H5Dcreate", "more than 1024 variables");
        file->count = 0;
        tb_close(file, (char[TB_MESSAGE]){0});
        return NULL;
    }
    for (unsigned at = 0; at < file->count; at++) {
        char name[32] = "data";
        const struct tb_block *block = arguments->blocks + at;
        if (arguments->block_count)
            snprintf(name, sizeof name, "v%u", at);
        file->sets[at] = arguments->block_count
            ? dataset(file, make, name, block->dimensions, block->sizes, block->element_bytes)
            : dataset(file, make, name, 1, &arguments->file_bytes, 1);
        if (file->sets[at] < 0) {
            failed(message, "H5Dcreate or H5Dopen");
            file->count = at;
            tb_close(file, (char[TB_MESSAGE]){0});
            return NULL;
        }
    }
    return file;
}

static int move(struct file *file, int write, unsigned set, unsigned dimensions, const uint64_t *starts, const uint64_t *counts,
                uint64_t element, void *buffer, char *message)
{
    hsize_t from[TB_DIMENSIONS], extent[TB_DIMENSIONS];
    int nothing = 0;
    if (set >= file->count)
        return tb_said(message, "HDF5", "no such variable");
    for (unsigned at = 0; at < dimensions; at++) {
        from[at] = starts[at];
        extent[at] = counts[at];
        nothing |= counts[at] == 0;
    }
    hid_t in_file = H5Dget_space(file->sets[set]);
    hid_t in_memory = H5Screate_simple((int)dimensions, extent, NULL);
    herr_t code = nothing ? H5Sselect_none(in_file) : H5Sselect_hyperslab(in_file, H5S_SELECT_SET, from, NULL, extent, NULL);
    if (nothing)
        H5Sselect_none(in_memory);
    if (code >= 0)
        code = write ? H5Dwrite(file->sets[set], type_of(element), in_memory, in_file, file->transfer, buffer)
                     : H5Dread(file->sets[set], type_of(element), in_memory, in_file, file->transfer, buffer);
    H5Sclose(in_memory);
    H5Sclose(in_file);
    return code < 0 ? failed(message, write ? "H5Dwrite" : "H5Dread") : 0;
}

int tb_transfer(void *handle, int write, uint64_t offset, void *buffer, uint64_t bytes, char *message)
{
    return move(handle, write, 0, 1, &offset, &bytes, 1, buffer, message);
}

int tb_transfer_block(void *handle, int write, const struct tb_block *block, void *buffer, char *message)
{
    return move(handle, write, block->variable, block->dimensions, block->starts, block->counts, block->element_bytes, buffer, message);
}

int tb_join(void *handle, int write, char *message)
{
    uint64_t none = 0;
    char nothing;
    return move(handle, write, 0, 1, &none, &none, 1, &nothing, message);
}

int tb_flush(void *handle, char *message)
{
    return H5Fflush(((struct file *)handle)->file, H5F_SCOPE_GLOBAL) < 0 ? failed(message, "H5Fflush") : 0;
}

int tb_close(void *handle, char *message)
{
    struct file *file = handle;
    int wrong = 0;
    for (unsigned at = 0; at < file->count; at++)
        wrong |= H5Dclose(file->sets[at]) < 0;
    H5Pclose(file->transfer);
    wrong |= H5Fclose(file->file) < 0;
    free(file);
    return wrong ? failed(message, "H5Fclose") : 0;
}
