// Times calls on one file of a directory: worker DIRECTORY TURNS. A line for each kind of call: its name, a tab, microseconds.
// `durable` is there before; `fresh` is made here, so under Terrace it is in a tier.
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "timed.h"

#define TIME(name, turns, call)                                        \
    do {                                                               \
        double begun = now();                                          \
        for (int turn = 0; turn < (turns); turn++)                     \
            call;                                                      \
        printf("%s\t%.3f\n", name, (now() - begun) / (turns));         \
    } while (0)

int main(int count, char **args) {
    if (count != 3)
        return fprintf(stderr, "worker DIRECTORY TURNS\n"), 2;
    int turns = atoi(args[2]), fd;
    char durable[4096], fresh[4096], name[4096];
    struct stat status;
    snprintf(durable, sizeof durable, "%s/durable", args[1]);
    snprintf(fresh, sizeof fresh, "%s/fresh", args[1]);
    unlink(fresh);
    check(fd = open(fresh, O_CREAT | O_WRONLY, 0644), fresh);
    check(write(fd, "data", 4), fresh);
    check(close(fd), fresh);
    TIME("stat, durable", turns, check(stat(durable, &status), durable));
    TIME("open + close, durable", turns, check(close(open(durable, O_RDONLY)), durable));
    TIME("stat, in a tier", turns, check(stat(fresh, &status), fresh));
    TIME("lstat, in a tier", turns, check(lstat(fresh, &status), fresh));
    TIME("open + close, in a tier", turns, check(close(open(fresh, O_RDONLY)), fresh));
    TIME("open to write + close, in a tier", turns, check(close(open(fresh, O_WRONLY)), fresh));
    check(fd = open(fresh, O_RDONLY), fresh);
    TIME("fstat, in a tier", turns, check(fstat(fd, &status), fresh));
    check(close(fd), fresh);
    static char bytes[1 << 20];
    check(fd = open(fresh, O_RDWR), fresh);
    TIME("write 4 KiB, in a tier", turns, check(pwrite(fd, bytes, 4096, 0), fresh));
    TIME("read 4 KiB, in a tier", turns, check(pread(fd, bytes, 4096, 0), fresh));
    TIME("write 1 MiB, in a tier", turns / 10, check(pwrite(fd, bytes, sizeof bytes, 0), fresh));
    TIME("read 1 MiB, opened anew, in a tier", turns / 10, {
        close(fd);
        check(fd = open(fresh, O_RDWR), fresh);
        check(pread(fd, bytes, sizeof bytes, 0), fresh);
    });
    close(fd);
    TIME("stat, outside the root", turns, check(stat("/usr/bin/env", &status), "/usr/bin/env"));
    TIME("open + close, outside the root", turns, check(close(open("/usr/bin/env", O_RDONLY)), "/usr/bin/env"));
    TIME("mkdir + rmdir", turns / 10, {
        snprintf(name, sizeof name, "%s/made", args[1]);
        check(mkdir(name, 0700), name);
        check(rmdir(name), name);
    });
    TIME("create + unlink", turns / 10, {
        snprintf(name, sizeof name, "%s/made", args[1]);
        check(close(open(name, O_CREAT | O_EXCL | O_WRONLY, 0600)), name);
        check(unlink(name), name);
    });
    return 0;
}
