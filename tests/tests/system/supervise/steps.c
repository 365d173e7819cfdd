// Steps each of which fails if an earlier one was done twice, or not at all; argv[1] times.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DO(what)                                                                  \
    if ((what) < 0) {                                                             \
        fprintf(stderr, "%s, turn %d: %s\n", #what, turn, strerror(errno)); \
        return 1;                                                                 \
    }

int main(int count, char **args) {
    struct stat status;
    mkdir("listed", 0755);
    for (int turn = 0; turn < 40; turn++) {
        char name[64];
        snprintf(name, sizeof name, "listed/%d", turn);
        DO(close(open(name, O_CREAT | O_WRONLY, 0600)));
    }
    for (int turn = 0; turn < atoi(args[1]); turn++) {
        int fd = open("made", O_CREAT | O_EXCL | O_WRONLY, 0600);
        DO(fd);
        DO(write(fd, "data", 4));
        DO(close(fd));
        DO(rename("made", "named"));
        DO(stat("named", &status));
        if (status.st_size != 4)
            return fprintf(stderr, "turn %d: %ld bytes\n", turn, (long)status.st_size), 1;
        DO(unlink("named"));
        if (turn % 20 == 0) {
            int entries = 0;
            DIR *directory = opendir("listed");
            while (readdir(directory))
                entries++;
            closedir(directory);
            if (entries != 42)
                return fprintf(stderr, "turn %d: %d entries\n", turn, entries), 1;
        }
    }
    return 0;
}
