/* Placed files are removed; files elsewhere on the tier's file system (argv[1]) get their inodes, and grow beyond the tier. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int argc, char **argv) {
    char name[4096], *block = calloc(1, 1 << 20);
    for (int i = 0; i < 50; i++) {
        snprintf(name, sizeof name, "p%d", i);
        int fd = open(name, O_CREAT | O_RDWR, 0644);
        if (write(fd, "abc", 3) != 3 || close(fd)) return 1;
    }
    for (int i = 0; i < 50; i++) {
        snprintf(name, sizeof name, "p%d", i);
        if (unlink(name)) return 2;
    }
    for (int i = 0; i < 60; i++) {
        snprintf(name, sizeof name, "%s/f%d", argv[1], i);
        struct stat status;
        int fd = open(name, O_CREAT | O_RDWR | O_TRUNC, 0644);
        if (fd < 0 || fstat(fd, &status)) return 3;
        if (status.st_ino >> 52) printf("%s has the inode number of a removed file\n", name);
        for (int k = 0; k < 6; k++)
            if (write(fd, block, 1 << 20) != 1 << 20) return 4;
        close(fd);
        if (stat(name, &status) || status.st_size != 6 << 20) printf("%s has %ld bytes\n", name, (long)status.st_size);
        unlink(name);
    }
    return 0;
}
