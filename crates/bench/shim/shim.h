/* What a backend in C offers. Each file beside this one is a library of its own; src/backend/shim.rs builds and loads it.
 *
 * A function returns 0, or writes a message of at most TB_MESSAGE bytes and returns something else. Sizes and offsets have
 * 64 bits everywhere; where a library counts in int, the shim makes a type of its own for the rest. */
#ifndef TB_SHIM_H
#define TB_SHIM_H

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TB_MESSAGE 1024
#define TB_DIMENSIONS 32

/* A part of an array that lies in the file from `base` on, in row-major order. */
struct tb_block {
    uint32_t variable;
    uint32_t dimensions;
    uint64_t element_bytes;
    uint64_t base;
    const uint64_t *sizes, *starts, *counts;
};

struct tb_open {
    const char *path;
    const char *hints; /* lines of key=value */
    uint64_t file_bytes;
    int write, shared, collective, view, seek;
    uint32_t block_count;
    const struct tb_block *blocks;
};

int tb_start(char *message);
void tb_finish(void);
void *tb_open(const struct tb_open *arguments, char *message);
int tb_transfer(void *handle, int write, uint64_t offset, void *buffer, uint64_t bytes, char *message);
int tb_transfer_block(void *handle, int write, const struct tb_block *block, void *buffer, char *message);
/* Takes part in a collective call without data. */
int tb_join(void *handle, int write, char *message);
int tb_flush(void *handle, char *message);
int tb_close(void *handle, char *message);

static inline int tb_said(char *message, const char *doing, const char *reason)
{
    snprintf(message, TB_MESSAGE, "%s: %s", doing, reason);
    return 1;
}

static inline int tb_mpi(int code, const char *doing, char *message)
{
    char reason[MPI_MAX_ERROR_STRING] = "";
    int length;
    if (code == MPI_SUCCESS)
        return 0;
    MPI_Error_string(code, reason, &length);
    return tb_said(message, doing, reason);
}

/* Several libraries may be loaded in one process: the first one starts MPI. */
static inline int tb_start_mpi(char *message)
{
    int there, provided;
    MPI_Initialized(&there);
    if (there)
        return 0;
    if (tb_mpi(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided), "MPI_Init", message))
        return 1;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    return 0;
}

static inline void tb_finish_mpi(void)
{
    int there, over;
    MPI_Initialized(&there);
    MPI_Finalized(&over);
    if (there && !over)
        MPI_Finalize();
}

static inline int tb_info(const char *hints, MPI_Info *info, char *message)
{
    char *copy = strdup(hints), *rest = copy;
    int failed = copy == NULL || tb_mpi(MPI_Info_create(info), "MPI_Info_create", message);
    for (char *line; !failed && (line = strsep(&rest, "\n"));) {
        char *value = strchr(line, '=');
        if (!value)
            continue;
        *value++ = 0;
        failed = tb_mpi(MPI_Info_set(*info, line, value), "MPI_Info_set", message);
    }
    free(copy);
    return failed;
}

#endif
