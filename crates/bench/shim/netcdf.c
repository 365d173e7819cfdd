/* NetCDF-4 over MPI-IO: variables `v0`, `v1`, …, other workloads one variable `data` of bytes; no fill values. */
#include "shim.h"
#include <netcdf.h>
#include <netcdf_par.h>
#include <unistd.h>

struct file {
    int file;
    unsigned count;
    int variables[1024];
    MPI_Comm comm;
};

int tb_start(char *message) { return tb_start_mpi(message); }
void tb_finish(void) { tb_finish_mpi(); }

static int failed(int code, const char *doing, char *message)
{
    return code == NC_NOERR ? 0 : tb_said(message, doing, nc_strerror(code));
}

static nc_type type_of(uint64_t bytes)
{
    switch (bytes) {
    case 2: return NC_USHORT;
    case 4: return NC_UINT;
    case 8: return NC_UINT64;
    default: return NC_UBYTE;
    }
}

static int define(struct file *file, unsigned at, const char *name, unsigned dimensions, const uint64_t *sizes, uint64_t element,
                  char *message)
{
    int ids[TB_DIMENSIONS];
    char dimension[64];
    for (unsigned i = 0; i < dimensions; i++) {
        snprintf(dimension, sizeof dimension, "%s_d%u", name, i);
        if (failed(nc_def_dim(file->file, dimension, sizes[i], &ids[i]), "nc_def_dim", message))
            return 1;
    }
    if (failed(nc_def_var(file->file, name, type_of(element), (int)dimensions, ids, &file->variables[at]), "nc_def_var", message))
        return 1;
    return failed(nc_def_var_fill(file->file, file->variables[at], NC_NOFILL, NULL), "nc_def_var_fill", message);
}

void *tb_open(const struct tb_open *arguments, char *message)
{
    struct file *file = calloc(1, sizeof *file);
    if (!file)
        return NULL;
    file->comm = arguments->shared ? MPI_COMM_WORLD : MPI_COMM_SELF;
    int there = access(arguments->path, F_OK) == 0;
    MPI_Bcast(&there, 1, MPI_INT, 0, file->comm);
    int make = arguments->write && !there, wrong;
    wrong = make
        ? failed(nc_create_par(arguments->path, NC_NETCDF4 | NC_NOCLOBBER, file->comm, MPI_INFO_NULL, &file->file), "nc_create_par", message)
        : failed(nc_open_par(arguments->path, arguments->write ? NC_WRITE : NC_NOWRITE, file->comm, MPI_INFO_NULL, &file->file),
                 "nc_open_par", message);
    if (wrong) {
        free(file);
        return NULL;
    }
    file->count = arguments->block_count ? arguments->block_count : 1;
    if (file->count > 1024)
        wrong = tb_said(message, "nc_def_var", "more than 1024 variables");
    for (unsigned at = 0; !wrong && at < file->count; at++) {
        char name[32] = "data";
        const struct tb_block *block = arguments->blocks + at;
        if (arguments->block_count)
            snprintf(name, sizeof name, "v%u", at);
        if (!make)
            wrong = failed(nc_inq_varid(file->file, name, &file->variables[at]), "nc_inq_varid", message);
        else if (arguments->block_count)
            wrong = define(file, at, name, block->dimensions, block->sizes, block->element_bytes, message);
        else
            wrong = define(file, at, name, 1, &arguments->file_bytes, 1, message);
    }
    if (!wrong && make)
        wrong = failed(nc_enddef(file->file), "nc_enddef", message);
    for (unsigned at = 0; !wrong && at < file->count; at++)
        wrong = failed(nc_var_par_access(file->file, file->variables[at], arguments->collective ? NC_COLLECTIVE : NC_INDEPENDENT),
                       "nc_var_par_access", message);
    if (wrong) {
        nc_close(file->file);
        free(file);
        return NULL;
    }
    return file;
}

static int move(struct file *file, int write, unsigned at, unsigned dimensions, const uint64_t *starts, const uint64_t *counts,
                void *buffer, char *message)
{
    size_t from[TB_DIMENSIONS], extent[TB_DIMENSIONS];
    if (at >= file->count)
        return tb_said(message, "NetCDF", "no such variable");
    for (unsigned i = 0; i < dimensions; i++) {
        from[i] = starts[i];
        extent[i] = counts[i];
    }
    int code = write ? nc_put_vara(file->file, file->variables[at], from, extent, buffer)
                     : nc_get_vara(file->file, file->variables[at], from, extent, buffer);
    return failed(code, write ? "nc_put_vara" : "nc_get_vara", message);
}

int tb_transfer(void *handle, int write, uint64_t offset, void *buffer, uint64_t bytes, char *message)
{
    return move(handle, write, 0, 1, &offset, &bytes, buffer, message);
}

int tb_transfer_block(void *handle, int write, const struct tb_block *block, void *buffer, char *message)
{
    return move(handle, write, block->variable, block->dimensions, block->starts, block->counts, buffer, message);
}

int tb_join(void *handle, int write, char *message)
{
    uint64_t none = 0;
    char nothing;
    return move(handle, write, 0, 1, &none, &none, &nothing, message);
}

int tb_flush(void *handle, char *message)
{
    return failed(nc_sync(((struct file *)handle)->file), "nc_sync", message);
}

int tb_close(void *handle, char *message)
{
    struct file *file = handle;
    int wrong = failed(nc_close(file->file), "nc_close", message);
    free(file);
    return wrong;
}
