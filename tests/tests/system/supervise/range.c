// Copies argv[1] to argv[2] by copy_file_range, with the descriptors' offsets, then parts of it with offsets of its own.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int count, char **args) {
    struct stat status;
    int from = open(args[1], O_RDONLY), to = open(args[2], O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(from >= 0 && to >= 0 && fstat(from, &status) == 0);
    for (off_t left = status.st_size; left > 0;) {
        ssize_t copied = copy_file_range(from, NULL, to, NULL, left, 0);
        CHECK(copied > 0);
        left -= copied;
        CHECK(lseek(from, 0, SEEK_CUR) == status.st_size - left && lseek(to, 0, SEEK_CUR) == status.st_size - left);
    }
    CHECK(copy_file_range(from, NULL, to, NULL, 10, 0) == 0);
    off_t at = 3, behind = status.st_size + 5;
    CHECK(copy_file_range(from, &at, to, &behind, 4, 0) == 4 && at == 7 && behind == status.st_size + 9);
    CHECK(lseek(from, 0, SEEK_CUR) == status.st_size);
    char part[4], copy[4];
    CHECK(pread(from, part, 4, 3) == 4 && pread(to, copy, 4, status.st_size + 5) == 4 && memcmp(part, copy, 4) == 0);
    CHECK(ftruncate(to, status.st_size) == 0);
    CHECK(copy_file_range(to, NULL, from, NULL, 1, 0) < 0 && errno == EBADF);
    return 0;
}
