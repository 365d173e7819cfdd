/* One process renames new files to "y", another renames "y" away to "z/N" as fast as it can. Nothing that got away may be lost. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    volatile int *counts = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char name[64], text[64];
    mkdir("x", 0755);
    mkdir("z", 0755);
    pid_t taker = fork();
    if (!taker) {
        while (!counts[0]) {
            snprintf(name, sizeof name, "z/%d", counts[1]);
            if (rename("y", name) == 0) counts[1]++;
        }
        _exit(0);
    }
    for (int i = 0; i < 6000; i++) {
        snprintf(name, sizeof name, "x/%d", i);
        int fd = open(name, O_CREAT | O_WRONLY | O_EXCL, 0644);
        int len = snprintf(text, sizeof text, "content %d\n", i);
        if (write(fd, text, len) != len || close(fd) || rename(name, "y")) return 1;
    }
    counts[0] = 1;
    waitpid(taker, 0, 0);
    for (int i = 0; i < counts[1]; i++) {
        snprintf(name, sizeof name, "z/%d", i);
        int fd = open(name, O_RDONLY);
        ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text);
        if (got < 10 || memcmp(text, "content ", 8)) {
            printf("%s is lost: %s\n", name, strerror(errno));
            return 1;
        }
        close(fd);
    }
    return counts[1] > 100 ? 0 : 2;
}
