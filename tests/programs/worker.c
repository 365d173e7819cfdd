// The behaviour of README.md in C. With RAW every system call is an instruction of this file, past the C library.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#ifdef RAW
static long raw(long number, long a, long b, long c, long d) {
    long result;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    if (result < 0 && result > -4096) {
        errno = (int)-result;
        return -1;
    }
    return result;
}
#define CALL(number, a, b, c, d) raw(number, (long)(a), (long)(b), (long)(c), (long)(d))
static int do_open(const char *path, int flags, int mode) { return (int)CALL(SYS_openat, AT_FDCWD, path, flags, mode); }
static ssize_t do_read(int fd, void *to, size_t n) { return CALL(SYS_read, fd, to, n, 0); }
static ssize_t do_write(int fd, const void *from, size_t n) { return CALL(SYS_write, fd, from, n, 0); }
static int do_close(int fd) { return (int)CALL(SYS_close, fd, 0, 0, 0); }
static int do_lstat(const char *path, struct stat *to) { return (int)CALL(SYS_newfstatat, AT_FDCWD, path, to, AT_SYMLINK_NOFOLLOW); }
static int do_rename(const char *from, const char *to) { return (int)CALL(SYS_rename, from, to, 0, 0); }
static int do_unlink(const char *path) { return (int)CALL(SYS_unlink, path, 0, 0, 0); }
static int do_mkdir(const char *path, int mode) { return (int)CALL(SYS_mkdir, path, mode, 0, 0); }
static int do_rmdir(const char *path) { return (int)CALL(SYS_rmdir, path, 0, 0, 0); }
static int do_chmod(const char *path, int mode) { return (int)CALL(SYS_chmod, path, mode, 0, 0); }
static int do_truncate(const char *path, off_t size) { return (int)CALL(SYS_truncate, path, size, 0, 0); }
static int do_symlink(const char *text, const char *path) { return (int)CALL(SYS_symlink, text, path, 0, 0); }
static ssize_t do_readlink(const char *path, char *to, size_t n) { return CALL(SYS_readlink, path, to, n, 0); }
static int do_chdir(const char *path) { return (int)CALL(SYS_chdir, path, 0, 0, 0); }
static void do_exec(const char *path, char **arguments) { CALL(SYS_execve, path, arguments, environ, 0); }
#else
static int do_open(const char *path, int flags, int mode) { return open(path, flags, mode); }
#define do_read read
#define do_write write
#define do_close close
#define do_lstat lstat
#define do_rename rename
#define do_unlink unlink
#define do_mkdir mkdir
#define do_rmdir rmdir
#define do_chmod chmod
#define do_truncate truncate
#define do_symlink symlink
#define do_readlink readlink
#define do_chdir chdir
static void do_exec(const char *path, char **arguments) { execve(path, arguments, environ); }
#endif

static void fail(const char *what) {
    printf("%s: %s\n", what, strerror(errno));
    fflush(stdout);
    _exit(1);
}
#define MUST(call) ((call) < 0 ? fail(#call) : (void)0)

static void put(const char *path, int flags, int mode, const char *bytes, size_t n) {
    int fd = do_open(path, O_WRONLY | O_CREAT | flags, mode);
    MUST(fd);
    while (n > 0) {
        ssize_t done = do_write(fd, bytes, n);
        MUST(done);
        bytes += done, n -= (size_t)done;
    }
    MUST(do_close(fd));
}

static size_t get(const char *path, char **bytes) {
    int fd = do_open(path, O_RDONLY, 0);
    MUST(fd);
    size_t n = 0, room = 8 << 20;
    *bytes = malloc(room);
    for (ssize_t done; (done = do_read(fd, *bytes + n, room - n - 1)) != 0; n += (size_t)done) MUST(done);
    (*bytes)[n] = 0;
    MUST(do_close(fd));
    return n;
}

static const char *kind_of(unsigned mode) { return S_ISDIR(mode) ? "directory" : S_ISLNK(mode) ? "link" : S_ISREG(mode) ? "file" : "other"; }

static void run(const char *path, const char *first, const char *second) {
    char *arguments[] = {(char *)path, (char *)first, (char *)second, NULL};
    fflush(stdout);
    pid_t child = fork();
    MUST(child);
    if (child == 0) {
        do_exec(path, arguments);
        fail(path);
    }
    int status;
    MUST(waitpid(child, &status, 0));
    if (status != 0) printf("%s ended with %d\n", path, status);
}

static int by_name(const void *a, const void *b) { return strcmp((const char *)a, (const char *)b); }

static void list(const char *path) {
    static char names[64][96];
    size_t count = 0;
#ifdef RAW
    struct entry { uint64_t ino; int64_t offset; unsigned short length; unsigned char type; char name[]; };
    static char buffer[4096] __attribute__((aligned(8)));
    int fd = do_open(path, O_RDONLY | O_DIRECTORY, 0);
    MUST(fd);
    for (long n; (n = CALL(SYS_getdents64, fd, buffer, sizeof buffer, 0)) != 0;) {
        MUST(n);
        for (long at = 0; at < n;) {
            struct entry *e = (struct entry *)(buffer + at);
            at += e->length;
            const char *name = e->name;
            unsigned char type = e->type;
#else
    DIR *directory = opendir(path);
    if (!directory) fail(path);
    {
        for (struct dirent *e; (e = readdir(directory));) {
            const char *name = e->d_name;
            unsigned char type = e->d_type;
#endif
            if (name[0] != '.') snprintf(names[count++], sizeof names[0], "%.60s %s", name, kind_of(DTTOIF(type)));
        }
    }
#ifdef RAW
    do_close(fd);
#else
    closedir(directory);
#endif
    qsort(names, count, sizeof names[0], by_name);
    printf("list:");
    for (size_t i = 0; i < count; i++) printf("%s %s", i ? "," : "", names[i]);
    printf("\n");
}

int main(int argc, char **argv) {
    const char *echo = argc > 1 ? argv[1] : "/bin/echo";
    struct stat before, after;
    char *bytes, text[256];

    MUST(do_mkdir("work", 0777));
    MUST(do_mkdir("work/dir", 0777));
    char *lines = malloc(64 << 10), *end = lines;
    for (int i = 1; i <= 3000; i++) end += sprintf(end, "line %d\n", i);
    put("work/data", O_TRUNC, 0666, lines, (size_t)(end - lines));
    put("work/data", O_APPEND, 0666, "the end\n", 8);
    strcpy(end, "the end\n");

    size_t n = get("work/data", &bytes), count = 0;
    for (size_t i = 0; i < n; i++) count += bytes[i] == '\n';
    printf("read back: %zu bytes, %zu lines%s\n", n, count, strcmp(bytes, lines) ? ", others" : "");

    int fd = do_open("work/data", O_WRONLY | O_CREAT | O_EXCL, 0666);
    printf("exclusive: %s\n", fd < 0 && errno == EEXIST ? "exists" : "made");

    MUST(do_chmod("work/data", 0640));
    MUST(do_lstat("work/data", &before));
    printf("lstat data: %s %ld %o\n", kind_of(before.st_mode), (long)before.st_size, before.st_mode & 07777);

    MUST(do_rename("work/data", "work/renamed"));
    MUST(do_lstat("work/renamed", &after));
    int is_gone = do_lstat("work/data", &before) < 0 && errno == ENOENT;
    // `before` is left as it was by the call that failed.
    printf("renamed: %s inode, data is %s\n", before.st_ino == after.st_ino ? "same" : "other", is_gone ? "gone" : "there");

    put("work/kept", O_TRUNC, 0666, "old\n", 4);
    put("work/other", O_TRUNC, 0666, "other\n", 6);
    MUST(do_rename("work/other", "work/kept"));
    get("work/kept", &bytes);
    printf("replaced: %s", bytes);

    MUST(do_symlink("renamed", "work/link"));
    MUST(do_lstat("work/link", &after));
    ssize_t length = do_readlink("work/link", text, sizeof text - 1);
    MUST(length);
    text[length] = 0;
    printf("lstat link: %s to %s\n", kind_of(after.st_mode), text);
    printf("readlink renamed: %s\n", do_readlink("work/renamed", text, sizeof text) < 0 && errno == EINVAL ? "not a link" : "a link");

    n = get(echo, &bytes);
    put("work/echo", O_TRUNC, 0777, bytes, n);
    put("work/run", O_TRUNC, 0666, "#!/bin/sh\necho script $1\n", 25);
    MUST(do_chmod("work/echo", 0755));
    MUST(do_chmod("work/run", 0755));
    run("work/echo", "ran", "well");
    run("work/run", "well", NULL);

    list("work");

    MUST(do_truncate("work/renamed", 6));
    get("work/renamed", &bytes);
    printf("truncated: %s\n", bytes);

    MUST(do_unlink("work/renamed"));
    printf("removed: %s\n", do_lstat("work/renamed", &after) < 0 && errno == ENOENT ? "gone" : "there");
    printf("rmdir work: %s\n", do_rmdir("work") < 0 && errno == ENOTEMPTY ? "not empty" : "removed");

    MUST(do_chdir("work/dir"));
    put("deep", O_TRUNC, 0666, "deep\n", 5);
    get("../kept", &bytes);
    printf("below: ../kept is %s", bytes);
    MUST(do_chdir("../.."));

    fd = do_open("work/big", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    MUST(fd);
    char block[1000];
    memset(block, 'k', sizeof block);
    for (int i = 0; i < 300; i++) MUST(do_write(fd, block, sizeof block));
    MUST(do_close(fd));
    MUST(do_lstat("work/big", &after));
    printf("big: %ld\n", (long)after.st_size);
    return 0;
}
