/* What MPI programs do with files, on several nodes. WAY is one of:
 *   own         each rank writes a file of its own, and reads it again
 *   neighbour   each rank writes a file of its own; a barrier; each reads its neighbour's, which another node wrote
 *   shared      rank 0 makes one file; a barrier; each rank opens it to make it or write it, and writes its blocks; a barrier; each reads another's
 * Prints one line for a rank that read other bytes than were written, and ends with 1. */
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 100003, BLOCKS = 7 };

static char block[BLOCK], found[BLOCK];

static void fill(int rank, int number)
{
    for (int i = 0; i < BLOCK; i++)
        block[i] = (char)(rank * 31 + number * 7 + i % 251);
}

static void fail(int rank, const char *what)
{
    printf("rank %d: %s: %s\n", rank, what, errno ? strerror(errno) : "other bytes");
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void put(int rank, int fd, int number, off_t at)
{
    errno = 0;
    fill(rank, number);
    if (pwrite(fd, block, BLOCK, at) != BLOCK)
        fail(rank, "pwrite");
}

static void check(int rank, int fd, int writer, int number, off_t at)
{
    errno = 0;
    fill(writer, number);
    if (pread(fd, found, BLOCK, at) != BLOCK || memcmp(found, block, BLOCK) != 0)
        fail(rank, "pread");
}

int main(int count, char **words)
{
    int rank, ranks, fd;
    char name[64];
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int is_shared = strcmp(words[1], "shared") == 0, is_own = strcmp(words[1], "own") == 0;
    int other = is_own ? rank : (rank + 1) % ranks;
    if (is_shared) {
        if (rank == 0 && ((fd = open("shared", O_RDWR | O_CREAT | O_TRUNC, 0644)) < 0 || close(fd) != 0))
            fail(rank, "create");
        MPI_Barrier(MPI_COMM_WORLD);
    }
    snprintf(name, sizeof name, is_shared ? "shared" : "own-%d", rank);
    if ((fd = open(name, is_shared ? O_RDWR | O_CREAT : O_RDWR | O_CREAT | O_TRUNC, 0644)) < 0)
        fail(rank, name);
    for (int i = 0; i < BLOCKS; i++)
        put(rank, fd, i, is_shared ? (off_t)(i * ranks + rank) * BLOCK : (off_t)i * BLOCK);
    if (fsync(fd) != 0 || close(fd) != 0)
        fail(rank, "close");
    MPI_Barrier(MPI_COMM_WORLD);
    snprintf(name, sizeof name, is_shared ? "shared" : "own-%d", other);
    if ((fd = open(name, O_RDONLY)) < 0)
        fail(rank, name);
    for (int i = 0; i < BLOCKS; i++)
        check(rank, fd, other, i, is_shared ? (off_t)(i * ranks + other) * BLOCK : (off_t)i * BLOCK);
    close(fd);
    MPI_Finalize();
    return 0;
}
