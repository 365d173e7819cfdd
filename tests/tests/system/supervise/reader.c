// Opens and reads "data" argv[1] times: it must always be there, whole, and of one version (one letter throughout).
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIZE = 20000 };

int main(int count, char **args) {
    static char bytes[SIZE + 1];
    for (int turn = 0; turn < atoi(args[1]); turn++) {
        struct stat status;
        int fd = open("data", O_RDONLY);
        if (fd < 0) return fprintf(stderr, "turn %d: open: %s\n", turn, strerror(errno)), 1;
        ssize_t size = read(fd, bytes, sizeof bytes);
        close(fd);
        if (size != SIZE) return fprintf(stderr, "turn %d: %zd bytes\n", turn, size), 1;
        if (memcmp(bytes, bytes + 1, SIZE - 1) != 0) return fprintf(stderr, "turn %d: two versions\n", turn), 1;
        if (stat("data", &status) < 0) return fprintf(stderr, "turn %d: stat: %s\n", turn, strerror(errno)), 1;
        if (!S_ISREG(status.st_mode) || status.st_size != SIZE) return fprintf(stderr, "turn %d: a wrong look\n", turn), 1;
    }
    return 0;
}
