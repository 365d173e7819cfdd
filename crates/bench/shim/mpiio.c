/* MPI-IO: independent and collective calls, at offsets or after a seek, and file views of a worker's part of an array. */
#include "shim.h"

struct file {
    MPI_File file;
    int collective, view, seek;
};

int tb_start(char *message) { return tb_start_mpi(message); }
void tb_finish(void) { tb_finish_mpi(); }

void *tb_open(const struct tb_open *arguments, char *message)
{
    struct file *file = calloc(1, sizeof *file);
    MPI_Info info = MPI_INFO_NULL;
    int mode = arguments->write ? MPI_MODE_CREATE | MPI_MODE_RDWR : MPI_MODE_RDONLY;
    MPI_Comm comm = arguments->shared ? MPI_COMM_WORLD : MPI_COMM_SELF;
    if (!file || tb_info(arguments->hints, &info, message)) {
        free(file);
        return NULL;
    }
    file->collective = arguments->collective;
    file->view = arguments->view;
    file->seek = arguments->seek;
    int code = MPI_File_open(comm, (char *)arguments->path, mode, info, &file->file);
    MPI_Info_free(&info);
    if (tb_mpi(code, "MPI_File_open", message)) {
        free(file);
        return NULL;
    }
    return file;
}

/* MPI counts in int. More elements than that are a type: whole chunks and what is left of them. */
#define CHUNK ((uint64_t)1 << 30)

static int elements(uint64_t count, MPI_Datatype of, MPI_Datatype *type, int *number, char *message)
{
    MPI_Datatype chunk, parts[2];
    MPI_Aint lower, extent, places[2];
    int lengths[2] = {(int)(count / CHUNK), (int)(count % CHUNK)};
    if (count < CHUNK) {
        *number = (int)count;
        return tb_mpi(MPI_Type_dup(of, type), "MPI_Type_dup", message) || tb_mpi(MPI_Type_commit(type), "MPI_Type_commit", message);
    }
    *number = 1;
    MPI_Type_get_extent(of, &lower, &extent);
    if (tb_mpi(MPI_Type_contiguous((int)CHUNK, of, &chunk), "MPI_Type_contiguous", message))
        return 1;
    parts[0] = chunk;
    parts[1] = of;
    places[0] = 0;
    places[1] = (MPI_Aint)(count / CHUNK * CHUNK) * extent;
    int failed = tb_mpi(MPI_Type_create_struct(2, lengths, places, parts, type), "MPI_Type_create_struct", message)
        || tb_mpi(MPI_Type_commit(type), "MPI_Type_commit", message);
    MPI_Type_free(&chunk);
    return failed;
}

static int move(struct file *file, int write, MPI_Offset offset, void *buffer, uint64_t count, MPI_Datatype of, char *message)
{
    MPI_File handle = file->file;
    MPI_Datatype type;
    MPI_Status status;
    MPI_Count moved = 0, wanted;
    int number, code, size;
    if (elements(count, of, &type, &number, message))
        return 1;
    if (file->seek) {
        code = MPI_File_seek(handle, offset, MPI_SEEK_SET);
        if (code == MPI_SUCCESS && file->collective)
            code = write ? MPI_File_write_all(handle, buffer, number, type, &status) : MPI_File_read_all(handle, buffer, number, type, &status);
        else if (code == MPI_SUCCESS)
            code = write ? MPI_File_write(handle, buffer, number, type, &status) : MPI_File_read(handle, buffer, number, type, &status);
    } else if (file->collective) {
        code = write ? MPI_File_write_at_all(handle, offset, buffer, number, type, &status)
                     : MPI_File_read_at_all(handle, offset, buffer, number, type, &status);
    } else {
        code = write ? MPI_File_write_at(handle, offset, buffer, number, type, &status)
                     : MPI_File_read_at(handle, offset, buffer, number, type, &status);
    }
    MPI_Type_free(&type);
    if (tb_mpi(code, write ? "MPI_File_write" : "MPI_File_read", message))
        return 1;
    MPI_Type_size(of, &size);
    wanted = (MPI_Count)count * size;
    MPI_Get_elements_x(&status, MPI_BYTE, &moved);
    if (moved != wanted) {
        snprintf(message, TB_MESSAGE, "%lld of %lld bytes were moved", (long long)moved, (long long)wanted);
        return 1;
    }
    return 0;
}

int tb_transfer(void *handle, int write, uint64_t offset, void *buffer, uint64_t bytes, char *message)
{
    return move(handle, write, (MPI_Offset)offset, buffer, bytes, MPI_BYTE, message);
}

int tb_join(void *handle, int write, char *message)
{
    char nothing;
    return move(handle, write, 0, &nothing, 0, MPI_BYTE, message);
}

int tb_transfer_block(void *handle, int write, const struct tb_block *block, void *buffer, char *message)
{
    struct file *file = handle;
    int sizes[TB_DIMENSIONS], counts[TB_DIMENSIONS], starts[TB_DIMENSIONS];
    uint64_t count = 1;
    MPI_Datatype element, part;
    for (uint32_t at = 0; at < block->dimensions; at++) {
        if (at >= TB_DIMENSIONS || block->sizes[at] > INT32_MAX)
            return tb_said(message, "MPI_Type_create_subarray", "a dimension has more than 2147483647 cells");
        sizes[at] = (int)block->sizes[at];
        counts[at] = (int)block->counts[at];
        starts[at] = (int)block->starts[at];
        count *= block->counts[at];
    }
    if (tb_mpi(MPI_Type_contiguous((int)block->element_bytes, MPI_BYTE, &element), "MPI_Type_contiguous", message))
        return 1;
    MPI_Type_commit(&element);
    int failed = tb_mpi(MPI_Type_create_subarray((int)block->dimensions, sizes, counts, starts, MPI_ORDER_C, element, &part),
                        "MPI_Type_create_subarray", message);
    if (!failed) {
        MPI_Type_commit(&part);
        failed = tb_mpi(MPI_File_set_view(file->file, (MPI_Offset)block->base, element, part, "native", MPI_INFO_NULL),
                        "MPI_File_set_view", message)
            || move(file, write, 0, buffer, count, element, message);
        MPI_Type_free(&part);
    }
    MPI_Type_free(&element);
    return failed;
}

int tb_flush(void *handle, char *message)
{
    return tb_mpi(MPI_File_sync(((struct file *)handle)->file), "MPI_File_sync", message);
}

int tb_close(void *handle, char *message)
{
    struct file *file = handle;
    int failed = tb_mpi(MPI_File_close(&file->file), "MPI_File_close", message);
    free(file);
    return failed;
}
