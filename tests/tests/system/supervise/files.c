// What a program sees of its own files; says what is wrong.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "check.h"

int main(void) {
    struct stat by_name, by_link, by_descriptor, moved, outside;
    struct statx extended;
    char text[4096], cwd[4096];

    unlink("a"), unlink("b"), unlink("l"), unlink("d/c"), rmdir("d");
    CHECK(getcwd(cwd, sizeof cwd));
    int fd = open("a", O_CREAT | O_EXCL | O_RDWR, 0640);
    CHECK(fd >= 0);
    CHECK(write(fd, "hello", 5) == 5);
    CHECK(open("a", O_CREAT | O_EXCL | O_RDWR, 0640) == -1 && errno == EEXIST);

    CHECK(stat("a", &by_name) == 0 && lstat("a", &by_link) == 0 && fstat(fd, &by_descriptor) == 0);
    CHECK(S_ISREG(by_link.st_mode) && (by_link.st_mode & 07777) == 0640 && by_link.st_size == 5);
    CHECK(by_name.st_ino == by_link.st_ino && by_name.st_ino == by_descriptor.st_ino);
    CHECK(by_name.st_dev == by_link.st_dev && by_name.st_dev == by_descriptor.st_dev);
    CHECK(stat(".", &outside) == 0 && outside.st_dev == by_name.st_dev);
    CHECK(syscall(SYS_statx, AT_FDCWD, "a", AT_SYMLINK_NOFOLLOW, STATX_ALL, &extended) == 0);
    CHECK(S_ISREG(extended.stx_mode) && extended.stx_ino == by_name.st_ino);
    CHECK(fstatat(fd, "", &by_descriptor, AT_EMPTY_PATH) == 0 && by_descriptor.st_ino == by_name.st_ino);

    CHECK(readlink("a", text, sizeof text) == -1 && errno == EINVAL);
    int followed = open("a", O_RDONLY | O_NOFOLLOW);
    CHECK(followed >= 0 && read(followed, text, 10) == 5 && memcmp(text, "hello", 5) == 0);
    CHECK(close(followed) == 0);
    sprintf(text, "/proc/self/fd/%d", fd);
    char named[4096] = {0};
    CHECK(readlink(text, named, sizeof named - 1) > 0);
    CHECK(strncmp(named, cwd, strlen(cwd)) == 0 && strcmp(named + strlen(cwd), "/a") == 0);

    CHECK(mkdir("d", 0755) == 0);
    CHECK(rename("a", "d/c") == 0 && stat("d/c", &moved) == 0 && moved.st_ino == by_name.st_ino);
    CHECK(lstat("a", &moved) == -1 && errno == ENOENT);
    DIR *directory = opendir("d");
    CHECK(directory);
    int found = 0;
    for (struct dirent *entry; (entry = readdir(directory));) {
        CHECK(strcmp(entry->d_name, ".terrace"));
        if (!strcmp(entry->d_name, "c")) {
            CHECK(entry->d_type == DT_REG && entry->d_ino == by_name.st_ino);
            found = 1;
        }
    }
    CHECK(found && closedir(directory) == 0);
    directory = opendir(".");
    for (struct dirent *entry; (entry = readdir(directory));)
        CHECK(strcmp(entry->d_name, ".terrace"));
    closedir(directory);

    CHECK(truncate("d/c", 2) == 0 && fstat(fd, &by_descriptor) == 0 && by_descriptor.st_size == 2);
    CHECK(lchown("d/c", getuid(), getgid()) == 0);
    struct timespec times[2] = {{1000, 0}, {2000, 5}};
    CHECK(utimensat(AT_FDCWD, "d/c", times, AT_SYMLINK_NOFOLLOW) == 0);
    CHECK(stat("d/c", &moved) == 0 && moved.st_mtime == 2000 && moved.st_mtim.tv_nsec == 5);
    CHECK(lsetxattr("d/c", "user.k", "v", 1, 0) == 0 || errno == ENOTSUP);
    CHECK(lgetxattr("d/c", "user.k", text, 10) == 1 || errno == ENOTSUP || errno == ENODATA);
    struct statfs of_root, of_file;
    CHECK(statfs(".", &of_root) == 0 && statfs("d/c", &of_file) == 0 && of_root.f_type == of_file.f_type);

    CHECK(symlink("d/c", "l") == 0 && lstat("l", &moved) == 0 && S_ISLNK(moved.st_mode));
    CHECK(readlink("l", text, sizeof text) == 3);
    CHECK(stat("l", &moved) == 0 && moved.st_ino == by_name.st_ino);
    CHECK(close(fd) == 0);
    CHECK(link("d/c", "b") == 0 && stat("b", &moved) == 0 && moved.st_nlink == 2);
    CHECK(unlink("b") == 0 && unlink("l") == 0 && unlink("d/c") == 0);
    CHECK(stat("d/c", &moved) == -1 && errno == ENOENT);
    CHECK(rmdir("d") == 0);
    CHECK(open("/dev/null", O_WRONLY | O_CREAT, 0600) >= 0);
    CHECK(stat((char *)16, &moved) == -1 && errno == EFAULT);
    CHECK(open((char *)16, O_CREAT | O_WRONLY, 0600) == -1 && errno == EFAULT);
    return 0;
}
