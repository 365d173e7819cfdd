/* Measures file operations, on request, in whatever way this process was started (natively, or under `terrace run`).
 *
 *   compare.py ──"open_close 2000 /path"──▶ worker ──"48213377"──▶ compare.py          (nanoseconds for 2000 operations)
 *
 * compare.py keeps one native worker and one under Terrace, and asks them in turn: both see the same machine at the same
 * time, and starting them is not part of any number. A worker blocks in read(2) while it is not asked.
 * An operation that fails ends the worker with a message: a number is never made from failed calls.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SMALL_BYTES 4096
#define LARGE_BYTES (1 << 20)
#define FILE_BYTES (16 << 20) /* the file that reads and writes go to; pre-touched */

extern char **environ;
static char *buffer; /* LARGE_BYTES, aligned and touched */

static void fail(const char *what, const char *path) {
    fprintf(stderr, "worker: %s %s: %s\n", what, path, strerror(errno));
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Offsets of small reads and writes: a fixed pseudo-random walk, the same in each worker. */
static off_t small_offset(long i) {
    uint32_t x = (uint32_t)i * 2654435761u;
    return (off_t)(x % (FILE_BYTES / SMALL_BYTES)) * SMALL_BYTES;
}

static uint64_t open_close(long count, const char *path) {
    uint64_t start = now_ns();
    for (long i = 0; i < count; i++) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) fail("open", path);
        close(fd);
    }
    return now_ns() - start;
}

static uint64_t stat_path(long count, const char *path) {
    struct stat info;
    uint64_t start = now_ns();
    for (long i = 0; i < count; i++)
        if (stat(path, &info) != 0) fail("stat", path);
    return now_ns() - start;
}

static uint64_t lstat_path(long count, const char *path) {
    struct stat info;
    uint64_t start = now_ns();
    for (long i = 0; i < count; i++)
        if (lstat(path, &info) != 0) fail("lstat", path);
    uint64_t elapsed = now_ns() - start;
    if (!S_ISREG(info.st_mode)) { errno = EINVAL; fail("lstat shows no regular file:", path); }
    return elapsed;
}

static uint64_t create_unlink(long count, const char *directory) {
    char path[4096];
    uint64_t start = now_ns();
    for (long i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/new-%ld", directory, i);
        int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
        if (fd < 0) fail("create", path);
        close(fd);
        if (unlink(path) != 0) fail("unlink", path);
    }
    return now_ns() - start;
}

/* What lstat of a file behind a link costs at least: a look at the link, and one at the file. */
static uint64_t lstat_linked(long count, const char *path) {
    char target[4096];
    ssize_t len = readlink(path, target, sizeof target - 1);
    if (len < 0) fail("readlink", path);
    target[len] = '\0';
    struct stat info;
    uint64_t start = now_ns();
    for (long i = 0; i < count; i++)
        if (lstat(path, &info) != 0 || lstat(target, &info) != 0) fail("lstat", path);
    return now_ns() - start;
}

/* What making and removing a file behind a link costs at least: the file and the link. `arguments`: "DIRECTORY OBJECTS". */
static uint64_t create_unlink_linked(long count, const char *arguments) {
    char directory[2048], objects[2048], path[4096], object[4096];
    if (sscanf(arguments, "%2047s %2047s", directory, objects) != 2) { errno = EINVAL; fail("arguments", arguments); }
    uint64_t start = now_ns();
    for (long i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/new-%ld", directory, i);
        snprintf(object, sizeof object, "%s/%014ld", objects, i);
        int fd = open(object, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
        if (fd < 0) fail("create", object);
        if (symlink(object, path) != 0) fail("link", path);
        close(fd);
        if (unlink(path) != 0 || unlink(object) != 0) fail("unlink", path);
    }
    return now_ns() - start;
}

/* Reads or writes `size` bytes a time in a file that exists, is allocated and cached. */
static uint64_t in_place(long count, const char *path, size_t size, int writing) {
    int fd = open(path, (writing ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
    if (fd < 0) fail("open", path);
    uint64_t start = now_ns();
    for (long i = 0; i < count; i++) {
        off_t offset = size == SMALL_BYTES ? small_offset(i) : (off_t)(i % (FILE_BYTES / LARGE_BYTES)) * LARGE_BYTES;
        ssize_t done = writing ? pwrite(fd, buffer, size, offset) : pread(fd, buffer, size, offset);
        if (done != (ssize_t)size) fail(writing ? "write" : "read", path);
    }
    uint64_t elapsed = now_ns() - start;
    close(fd);
    return elapsed;
}

static uint64_t read_4k(long count, const char *path) { return in_place(count, path, SMALL_BYTES, 0); }
static uint64_t write_4k(long count, const char *path) { return in_place(count, path, SMALL_BYTES, 1); }
static uint64_t write_1m(long count, const char *path) { return in_place(count, path, LARGE_BYTES, 1); }

/* Appends 4 KiB a time to a new file, 1024 times at most before the file is made anew (not timed). */
static uint64_t append_4k(long count, const char *directory) {
    char path[4096];
    snprintf(path, sizeof path, "%s/appended", directory);
    uint64_t elapsed = 0;
    while (count > 0) {
        long part = count < 1024 ? count : 1024;
        int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
        if (fd < 0) fail("create", path);
        uint64_t start = now_ns();
        for (long i = 0; i < part; i++)
            if (write(fd, buffer, SMALL_BYTES) != SMALL_BYTES) fail("write", path);
        elapsed += now_ns() - start;
        close(fd);
        if (unlink(path) != 0) fail("unlink", path);
        count -= part;
    }
    return elapsed;
}

static uint64_t read_directory(long count, const char *path) {
    uint64_t start = now_ns();
    for (long i = 0; i < count; i++) {
        DIR *directory = opendir(path);
        if (!directory) fail("opendir", path);
        long names = 0;
        for (struct dirent *entry; (entry = readdir(directory));)
            names += entry->d_type == DT_REG;
        closedir(directory);
        if (names != 1000) { errno = EINVAL; fail("readdir did not show 1,000 regular files in", path); }
    }
    return now_ns() - start;
}

static void run_program(char *const arguments[]) {
    pid_t child = fork();
    if (child < 0) fail("fork", arguments[0]);
    if (child == 0) {
        execve(arguments[0], arguments, environ);
        _exit(127);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) fail("waitpid", arguments[0]);
    if (status != 0) {
        fprintf(stderr, "worker: %s %s ended with status %d\n", arguments[0], arguments[1] ? arguments[2] : "", status);
        exit(1);
    }
}

/* fork + exec + wait, with `directory` as the working directory. */
static uint64_t fork_exec(long count, const char *directory) {
    if (chdir(directory) != 0) fail("chdir", directory);
    char *arguments[] = {"/bin/true", NULL};
    uint64_t start = now_ns();
    for (long i = 0; i < count; i++) run_program(arguments);
    uint64_t elapsed = now_ns() - start;
    if (chdir("/") != 0) fail("chdir", "/");
    return elapsed;
}

/* A shell command line: git, tar, and what prepares the files. */
static uint64_t shell(long count, const char *command) {
    char *arguments[] = {"/bin/sh", "-c", (char *)command, NULL};
    uint64_t start = now_ns();
    for (long i = 0; i < count; i++) run_program(arguments);
    return now_ns() - start;
}

static const struct {
    const char *name;
    uint64_t (*measure)(long count, const char *argument);
} operations[] = {
    {"open_close", open_close}, {"stat", stat_path},       {"lstat", lstat_path}, {"create_unlink", create_unlink},
    {"lstat_linked", lstat_linked}, {"create_unlink_linked", create_unlink_linked},
    {"read_4k", read_4k},       {"write_4k", write_4k},    {"write_1m", write_1m}, {"append_4k", append_4k},
    {"readdir", read_directory}, {"fork_exec", fork_exec}, {"shell", shell},
};

/* A seccomp(2) filter that lets every call pass: the kernel knows that it need not run it, and looks for one at each call. */
static void filter_nothing(void) {
    struct sock_filter pass[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {.len = 1, .filter = pass};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) fail("set", "filter");
}

int main(int argc, char **argv) {
    if (argc < 2 || argc > 3 || (argc == 3 && strcmp(argv[2], "filtered") != 0)) {
        fprintf(stderr, "usage: worker CPU [filtered]   (requests `OPERATION COUNT ARGUMENT` on stdin, nanoseconds on stdout)\n");
        return 2;
    }
    if (argc == 3) filter_nothing();
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(atoi(argv[1]), &cpus);
    if (sched_setaffinity(0, sizeof cpus, &cpus) != 0) fail("pin to CPU", argv[1]);
    if (posix_memalign((void **)&buffer, 4096, LARGE_BYTES) != 0) fail("allocate", "buffer");
    memset(buffer, 'x', LARGE_BYTES);

    char *line = NULL;
    size_t space = 0;
    while (getline(&line, &space, stdin) > 0) {
        line[strcspn(line, "\n")] = '\0';
        char name[64];
        long count;
        int used = 0;
        if (sscanf(line, "%63s %ld %n", name, &count, &used) != 2 || used == 0) { errno = EINVAL; fail("request", line); }
        size_t i = 0;
        while (i < sizeof operations / sizeof *operations && strcmp(operations[i].name, name) != 0) i++;
        if (i == sizeof operations / sizeof *operations) { errno = EINVAL; fail("operation", name); }
        printf("%llu\n", (unsigned long long)operations[i].measure(count, line + used));
        fflush(stdout);
    }
    free(line);
    free(buffer);
    return 0;
}
