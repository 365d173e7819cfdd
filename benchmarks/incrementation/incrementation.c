/* The incrementation application: a program that does little but read and write files, and knows nothing of tiers.
 *
 *   for each block, in parallel processes:
 *       chunk = read(INPUT/block)
 *       for i in 1..n:   chunk += 1;  write(WORK/i/block, chunk)   (the last iteration: FINAL/block)
 *                        chunk = read(what was just written)       (not after the last)
 *
 * It is Algorithm 1 of the Sea paper (arXiv:2207.01737), in C so that input and output, not computing, take the time.
 * Blocks are arrays of unsigned 16-bit numbers.
 *
 *   incrementation make    INPUT BLOCKS BLOCK_MIB
 *   incrementation run     INPUT WORK FINAL BLOCKS BLOCK_MIB ITERATIONS PROCESSES    prints the seconds it took
 *   incrementation verify  INPUT WORK FINAL BLOCKS BLOCK_MIB ITERATIONS all|final    every number is what it must be
 *   incrementation measure DIRECTORY BLOCK_MIB BLOCKS PROCESSES                      prints bandwidths: write, read, read again (MiB/s)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CALL_BYTES (4u << 20) /* one read or write call */

typedef uint16_t voxel;

static void fail(const char *what, const char *path) {
    fprintf(stderr, "incrementation: %s %s: %s\n", what, path, strerror(errno));
    exit(1);
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static long number(const char *text) {
    char *end;
    long value = strtol(text, &end, 10);
    if (*end || value < 0) {
        fprintf(stderr, "incrementation: `%s` is not a number\n", text);
        exit(2);
    }
    return value;
}

/* A block's memory, touched, so that the first iteration costs no more than the others. */
static voxel *new_block(size_t bytes) {
    voxel *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (block == MAP_FAILED) fail("allocate", "a block");
    return block;
}

static void read_block(const char *path, void *block, size_t bytes) {
    int fd = open(path, O_RDONLY);
    if (fd < 0) fail("open", path);
    for (size_t done = 0; done < bytes;) {
        size_t part = bytes - done < CALL_BYTES ? bytes - done : CALL_BYTES;
        ssize_t got = read(fd, (char *)block + done, part);
        if (got == 0) errno = ENODATA;
        if (got <= 0) fail("read", path);
        done += (size_t)got;
    }
    close(fd);
}

static void write_block(const char *path, const void *block, size_t bytes) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0) fail("create", path);
    for (size_t done = 0; done < bytes;) {
        size_t part = bytes - done < CALL_BYTES ? bytes - done : CALL_BYTES;
        ssize_t put = write(fd, (const char *)block + done, part);
        if (put <= 0) fail("write", path);
        done += (size_t)put;
    }
    if (close(fd) != 0) fail("close", path);
}

static void make_directory(const char *path) {
    if (mkdir(path, 0755) != 0 && errno != EEXIST) fail("mkdir", path);
}

/* Where iteration `i` of block `b` is saved. */
static void saved_path(char *path, const char *work, const char *final, long i, long iterations, long b) {
    if (i == iterations) snprintf(path, 4096, "%s/block-%04ld.raw", final, b);
    else snprintf(path, 4096, "%s/iteration-%02ld/block-%04ld.raw", work, i, b);
}

/* Runs `body(rank)` in `processes` processes at once; seconds from the moment that all are ready to the end of the last. */
static double in_parallel(long processes, void (*body)(long rank, void *), void *argument) {
    int ready[2], start[2];
    if (pipe(ready) != 0 || pipe(start) != 0) fail("create", "a pipe");
    for (long rank = 0; rank < processes; rank++) {
        pid_t child = fork();
        if (child < 0) fail("fork", "a process");
        if (child == 0) {
            close(start[1]);
            body(-1, argument); /* prepare */
            char byte = 0;
            if (write(ready[1], &byte, 1) != 1 || read(start[0], &byte, 1) < 0) fail("wait for", "the start");
            body(rank, argument);
            _exit(0);
        }
    }
    close(start[0]);
    close(ready[1]);
    for (long rank = 0; rank < processes; rank++) {
        char byte;
        if (read(ready[0], &byte, 1) != 1) exit(1); /* a child has told why */
    }
    double begin = now_s();
    close(start[1]);
    int failed = 0;
    for (long rank = 0; rank < processes; rank++) {
        int status;
        if (wait(&status) < 0 || status != 0) failed = 1;
    }
    double elapsed = now_s() - begin;
    close(ready[0]);
    if (failed) exit(1);
    return elapsed;
}

struct job {
    const char *input, *work, *final;
    long blocks, iterations, processes;
    size_t bytes;
    voxel *block;
    enum { WRITE, READ } direction;
};

static void increment(long rank, void *argument) {
    struct job *job = argument;
    if (rank < 0) {
        job->block = new_block(job->bytes);
        return;
    }
    char path[4096];
    for (long b = rank; b < job->blocks; b += job->processes) {
        snprintf(path, sizeof path, "%s/block-%04ld.raw", job->input, b);
        read_block(path, job->block, job->bytes);
        for (long i = 1; i <= job->iterations; i++) {
            for (size_t v = 0; v < job->bytes / sizeof(voxel); v++) job->block[v]++;
            saved_path(path, job->work, job->final, i, job->iterations, b);
            write_block(path, job->block, job->bytes);
            if (i < job->iterations) read_block(path, job->block, job->bytes);
        }
    }
}

static void move_blocks(long rank, void *argument) {
    struct job *job = argument;
    if (rank < 0) {
        job->block = new_block(job->bytes);
        return;
    }
    char path[4096];
    for (long b = rank; b < job->blocks; b += job->processes) {
        snprintf(path, sizeof path, "%s/measure-%04ld.raw", job->work, b);
        if (job->direction == WRITE) write_block(path, job->block, job->bytes);
        else read_block(path, job->block, job->bytes);
    }
}

static void make_input(const char *input, long blocks, size_t bytes) {
    voxel *block = new_block(bytes);
    char path[4096];
    make_directory(input);
    for (long b = 0; b < blocks; b++) {
        uint32_t x = 2463534242u + (uint32_t)b;
        for (size_t v = 0; v < bytes / sizeof(voxel); v++) {
            x ^= x << 13, x ^= x >> 17, x ^= x << 5;
            block[v] = (voxel)x;
        }
        snprintf(path, sizeof path, "%s/block-%04ld.raw", input, b);
        write_block(path, block, bytes);
    }
}

static void verify(struct job *job, int all) {
    voxel *input = new_block(job->bytes), *saved = new_block(job->bytes);
    char path[4096];
    for (long b = 0; b < job->blocks; b++) {
        snprintf(path, sizeof path, "%s/block-%04ld.raw", job->input, b);
        read_block(path, input, job->bytes);
        for (long i = all ? 1 : job->iterations; i <= job->iterations; i++) {
            struct stat info;
            saved_path(path, job->work, job->final, i, job->iterations, b);
            if (lstat(path, &info) != 0) fail("find", path);
            if (!S_ISREG(info.st_mode) || (size_t)info.st_size != job->bytes) {
                errno = EINVAL;
                fail("not a whole file of the durable storage:", path);
            }
            read_block(path, saved, job->bytes);
            for (size_t v = 0; v < job->bytes / sizeof(voxel); v++)
                if (saved[v] != (voxel)(input[v] + i)) {
                    errno = EBADMSG;
                    fail("wrong number in", path);
                }
        }
    }
}

static void measure(struct job *job) {
    char path[4096];
    double mib = (double)job->blocks * (double)job->bytes / (1 << 20);
    double seconds[3];
    /* Twice: what is written first only touches the memory that files will have. */
    for (int pass = 0; pass < 2; pass++) {
        job->direction = WRITE;
        seconds[0] = in_parallel(job->processes, move_blocks, job);
        for (int again = 0; again < 2; again++) {
            if (again == 0)
                for (long b = 0; b < job->blocks; b++) {
                    snprintf(path, sizeof path, "%s/measure-%04ld.raw", job->work, b);
                    int fd = open(path, O_RDWR);
                    if (fd < 0) fail("open", path);
                    fsync(fd);
                    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
                    close(fd);
                }
            job->direction = READ;
            seconds[1 + again] = in_parallel(job->processes, move_blocks, job);
        }
        for (long b = 0; b < job->blocks; b++) {
            snprintf(path, sizeof path, "%s/measure-%04ld.raw", job->work, b);
            if (unlink(path) != 0) fail("unlink", path);
        }
    }
    printf("%.1f %.1f %.1f\n", mib / seconds[0], mib / seconds[1], mib / seconds[2]);
}

int main(int argc, char **argv) {
    const char *command = argc > 1 ? argv[1] : "";
    if (strcmp(command, "make") == 0 && argc == 5) {
        make_input(argv[2], number(argv[3]), (size_t)number(argv[4]) << 20);
        return 0;
    }
    if (strcmp(command, "measure") == 0 && argc == 6) {
        struct job job = {.work = argv[2], .bytes = (size_t)number(argv[3]) << 20, .blocks = number(argv[4]), .processes = number(argv[5])};
        measure(&job);
        return 0;
    }
    if (argc == 9 && (strcmp(command, "run") == 0 || strcmp(command, "verify") == 0)) {
        struct job job = {.input = argv[2], .work = argv[3], .final = argv[4], .blocks = number(argv[5]),
                          .bytes = (size_t)number(argv[6]) << 20, .iterations = number(argv[7])};
        if (strcmp(command, "verify") == 0) {
            verify(&job, strcmp(argv[8], "all") == 0);
            return 0;
        }
        job.processes = number(argv[8]);
        char path[4096];
        make_directory(job.work);
        make_directory(job.final);
        for (long i = 1; i < job.iterations; i++) {
            snprintf(path, sizeof path, "%s/iteration-%02ld", job.work, i);
            make_directory(path);
        }
        printf("%.4f\n", in_parallel(job.processes, increment, &job));
        return 0;
    }
    fprintf(stderr, "usage: incrementation make|run|verify|measure ... (the head of incrementation.c says how)\n");
    return 2;
}
