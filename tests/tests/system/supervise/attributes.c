// Attributes of flushed files: what changes by descriptor is seen by name at once, and the other way round.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

#define FILES 6

static struct stat by_name(const char *name) {
    struct stat s = {0};
    CHECK(stat(name, &s) == 0);
    return s;
}

static struct stat by_descriptor(int fd) {
    struct stat s = {0};
    CHECK(fstat(fd, &s) == 0);
    return s;
}

static void are_equal(const char *name, int fd, const char *after) {
    struct stat a = by_name(name), b = by_descriptor(fd);
    if (a.st_mode != b.st_mode || a.st_uid != b.st_uid || a.st_gid != b.st_gid || a.st_ino != b.st_ino ||
        a.st_mtim.tv_sec != b.st_mtim.tv_sec || a.st_mtim.tv_nsec != b.st_mtim.tv_nsec)
        fprintf(stderr, "%s after %s: mode %o %o, mtime %ld %ld\n", name, after, a.st_mode, b.st_mode, a.st_mtim.tv_sec,
                b.st_mtim.tv_sec), exit(1);
    char one[16] = "", other[16] = "";
    ssize_t n = getxattr(name, "user.t", one, sizeof one), m = fgetxattr(fd, "user.t", other, sizeof other);
    if (n != m || memcmp(one, other, sizeof one))
        fprintf(stderr, "%s after %s: attribute %s, %s\n", name, after, one, other), exit(1);
}

int main(void) {
    char name[16];
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "f%d", i);
        int fd = open(name, O_CREAT | O_WRONLY | O_TRUNC, 0644);
        CHECK(write(fd, name, 2) == 2);
        CHECK(close(fd) == 0);
    }
    sleep(2); // until they are flushed
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "f%d", i);
        int fd = open(name, O_RDONLY), keeps = setxattr(name, "user.t", "1", 1, 0) == 0 || errno != EOPNOTSUPP;
        struct timespec times[2] = {{1000, 5}, {2000, 7}};
        struct timeval old[2] = {{3000, 5}, {4000, 7}};
        struct utimbuf seconds = {5000, 6000};
        are_equal(name, fd, "setxattr");
        switch (i) {
        case 0:
            CHECK(fchmod(fd, 0600) == 0);
            CHECK((by_name(name).st_mode & 0777) == 0600);
            CHECK(chmod(name, 0640) == 0);
            CHECK((by_descriptor(fd).st_mode & 0777) == 0640);
            break;
        case 1:
            CHECK(futimens(fd, times) == 0);
            CHECK(by_name(name).st_mtim.tv_sec == 2000 && by_name(name).st_mtim.tv_nsec == 7);
            CHECK(utimensat(AT_FDCWD, name, NULL, 0) == 0);
            CHECK(by_descriptor(fd).st_mtim.tv_sec > 1000000000);
            break;
        case 2:
            CHECK(utimes(name, old) == 0);
            CHECK(by_descriptor(fd).st_mtim.tv_sec == 4000 && by_descriptor(fd).st_mtim.tv_nsec == 7000);
            old[1].tv_usec = 1000000;
            CHECK(utimes(name, old) == -1 && errno == EINVAL);
            CHECK(utime(name, &seconds) == 0);
            CHECK(by_descriptor(fd).st_mtim.tv_sec == 6000);
            break;
        case 3:
            CHECK(futimesat(AT_FDCWD, name, old) == 0);
            CHECK(by_descriptor(fd).st_mtim.tv_sec == 4000);
            old[1].tv_sec = 4001;
            CHECK(futimes(fd, old) == 0);
            CHECK(by_name(name).st_mtim.tv_sec == 4001);
            break;
        case 4:
            if (keeps) {
                CHECK(fsetxattr(fd, "user.t", "22", 2, 0) == 0);
                are_equal(name, fd, "fsetxattr");
                CHECK(fremovexattr(fd, "user.t") == 0);
                are_equal(name, fd, "fremovexattr");
            }
            break;
        case 5:
            if (geteuid() == 0) {
                CHECK(fchown(fd, 12, 34) == 0);
                CHECK(by_name(name).st_uid == 12 && by_name(name).st_gid == 34);
                CHECK(chown(name, 56, -1) == 0);
                CHECK(by_descriptor(fd).st_uid == 56);
            }
            break;
        }
        are_equal(name, fd, "all");
        CHECK(fchmod(-1, 0600) == -1 && errno == EBADF);
        CHECK(futimens(-1, times) == -1 && errno == EBADF);
        CHECK(chmod("nothing", 0600) == -1 && errno == ENOENT);
        CHECK(close(fd) == 0);
        are_equal(name, (fd = open(name, O_RDONLY)), "opening it again");
        close(fd);
    }
    return 0;
}
