// Less common ways to look at a file in a tier: O_PATH | O_NOFOLLOW, getdents, the xattrat family.
#define _GNU_SOURCE
#include "check.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

struct entry {
    unsigned long ino, next;
    unsigned short size;
    char name[];
};

struct value {
    uint64_t address;
    uint32_t size, flags;
};

int main(void) {
    struct stat shown, found;
    char link[64], bytes[4096], name[64];
    mkdir("d", 0700), unlink("d/file"), unlink("d/link");
    int fd = open("d/file", O_WRONLY | O_CREAT | O_EXCL, 0600);
    CHECK(fd >= 0 && write(fd, "precious", 8) == 8 && close(fd) == 0 && symlink("file", "d/link") == 0);
    CHECK(lstat("d/file", &shown) == 0 && S_ISREG(shown.st_mode));

    fd = open("d/file", O_PATH | O_NOFOLLOW | O_CLOEXEC);
    CHECK(fd >= 0 && fstat(fd, &found) == 0 && S_ISREG(found.st_mode));
    CHECK(found.st_ino == shown.st_ino && found.st_dev == shown.st_dev && (fcntl(fd, F_GETFD) & FD_CLOEXEC));
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    CHECK(chmod(link, 0640) == 0 && stat("d/file", &found) == 0 && (found.st_mode & 07777) == 0640 && close(fd) == 0);
    fd = open("d/link", O_PATH | O_NOFOLLOW);
    CHECK(fd >= 0 && fstat(fd, &found) == 0 && S_ISLNK(found.st_mode) && close(fd) == 0);

    int seen = 0;
    fd = open("d", O_RDONLY | O_DIRECTORY);
    for (long size; (size = syscall(SYS_getdents, fd, bytes, sizeof bytes)) > 0;)
        for (long at = 0; at < size;) {
            struct entry *entry = (struct entry *)(bytes + at);
            char kind = bytes[at + entry->size - 1];
            if (strcmp(entry->name, "file") == 0)
                seen |= kind == DT_REG && entry->ino == shown.st_ino ? 1 : 8;
            if (strcmp(entry->name, "link") == 0)
                seen |= kind == DT_LNK ? 2 : 8;
            if (strcmp(entry->name, ".") == 0)
                seen |= kind == DT_DIR ? 4 : 8;
            at += entry->size;
        }
    CHECK(seen == 7);

    struct value value = {(uint64_t) "bytes", 5, 0};
    long set = syscall(463, fd, "file", AT_SYMLINK_NOFOLLOW, "user.name", &value, sizeof value);
    if (set < 0 && errno == ENOSYS)
        return 0; // a kernel before 6.13
    CHECK(set == 0 && getxattr("d/file", "user.name", name, sizeof name) == 5);
    value = (struct value){(uint64_t)name, sizeof name, 0};
    CHECK(syscall(464, fd, "file", AT_SYMLINK_NOFOLLOW, "user.name", &value, sizeof value) == 5 && memcmp(name, "bytes", 5) == 0);
    long listed = syscall(465, fd, "file", AT_SYMLINK_NOFOLLOW, bytes, sizeof bytes);
    CHECK(listed >= 10 && memmem(bytes, listed, "user.name", 10) != NULL);
    CHECK(syscall(466, fd, "file", AT_SYMLINK_NOFOLLOW, "user.name") == 0);
    CHECK(syscall(464, fd, "file", AT_SYMLINK_NOFOLLOW, "user.name", &value, sizeof value) < 0 && errno == ENODATA);
    return 0;
}
