/* Each rank writes its rows of one file by MPI-IO: collectively, into groups and chunks, and reads all of it. Argument: the file. */

#include <hdf5.h>
#include <mpi.h>
#include <stdio.h>

#define CHECK(CALL) \
    do { \
        if ((CALL) < 0) { \
            fprintf(stderr, "line %d failed\n", __LINE__); \
            MPI_Abort(MPI_COMM_WORLD, 1); \
        } \
    } while (0)

enum { ROWS = 4, COLUMNS = 1000 };

int main(int count, char **arguments) {
    MPI_Init(&count, &arguments);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), file, group, space, chunks, dataset, memory, transfer;
    CHECK(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL));
    CHECK(file = H5Fcreate(arguments[1], H5F_ACC_TRUNC, H5P_DEFAULT, access));
    CHECK(group = H5Gcreate2(file, "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    hsize_t shape[2] = {(hsize_t)ranks * ROWS, COLUMNS}, chunk[2] = {ROWS, COLUMNS}, start[2] = {(hsize_t)rank * ROWS, 0};
    CHECK(space = H5Screate_simple(2, shape, NULL));
    CHECK(chunks = H5Pcreate(H5P_DATASET_CREATE));
    CHECK(H5Pset_chunk(chunks, 2, chunk));
    CHECK(dataset = H5Dcreate2(group, "x", H5T_STD_I32LE, space, H5P_DEFAULT, chunks, H5P_DEFAULT));
    CHECK(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, chunk, NULL));
    CHECK(memory = H5Screate_simple(2, chunk, NULL));
    CHECK(transfer = H5Pcreate(H5P_DATASET_XFER));
    CHECK(H5Pset_dxpl_mpio(transfer, H5FD_MPIO_COLLECTIVE));
    static int cells[ROWS][COLUMNS];
    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < COLUMNS; column++) cells[row][column] = (rank * ROWS + row) * COLUMNS + column;
    CHECK(H5Dwrite(dataset, H5T_NATIVE_INT, memory, space, transfer, cells));
    CHECK(H5Dclose(dataset));
    CHECK(H5Gclose(group));
    CHECK(H5Fclose(file));

    CHECK(file = H5Fopen(arguments[1], H5F_ACC_RDWR, access));
    CHECK(dataset = H5Dopen2(file, "g/x", H5P_DEFAULT));
    /* The rows of the next rank. */
    start[0] = (hsize_t)((rank + 1) % ranks) * ROWS;
    CHECK(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, chunk, NULL));
    CHECK(H5Dread(dataset, H5T_NATIVE_INT, memory, space, transfer, cells));
    for (int column = 0; column < COLUMNS; column++) CHECK(cells[0][column] == (int)start[0] * COLUMNS + column ? 0 : -1);
    CHECK(H5Dclose(dataset));
    CHECK(H5Fclose(file));
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("all claims hold\n");
    MPI_Finalize();
    return 0;
}
