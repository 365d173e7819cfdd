/* Makes, reads and removes COUNT files of 4 KiB in work/files, a directory that it makes; prints nanoseconds a file of each. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 1000;
    static char data[4096];
    char name[64];
    double at[5];
    memset(data, 'x', sizeof data);
    if (mkdir("work", 0755) || mkdir("work/files", 0755)) fail("mkdir");
    at[0] = now();
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "work/files/f%d", i);
        int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0644);
        if (fd < 0 || write(fd, data, sizeof data) != sizeof data || close(fd)) fail(name);
    }
    at[1] = now();
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "work/files/f%d", i);
        int fd = open(name, O_RDONLY);
        if (fd < 0 || read(fd, data, sizeof data) != sizeof data || close(fd)) fail(name);
    }
    at[2] = now();
    for (int i = 0; i < count; i++) {
        struct stat status;
        snprintf(name, sizeof name, "work/files/f%d", i);
        if (lstat(name, &status) || status.st_size != sizeof data) fail(name);
    }
    at[3] = now();
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "work/files/f%d", i);
        if (unlink(name)) fail(name);
    }
    at[4] = now();
    if (rmdir("work/files") || rmdir("work")) fail("rmdir");
    for (int i = 0; i < 4; i++) printf("%.0f\n", (at[i + 1] - at[i]) / count);
    return 0;
}
