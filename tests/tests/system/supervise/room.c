// A program without a descriptor left is told so before anything is made or cut.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

int main(void) {
    struct stat status;
    unlink("made"), unlink("cut");
    int fd = open("cut", O_CREAT | O_WRONLY, 0600);
    CHECK(fd >= 0 && write(fd, "precious", 8) == 8 && close(fd) == 0);
    struct rlimit limit = {20, 20};
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    while (dup(0) >= 0) {
    }
    CHECK(dup(0) < 0 && errno == EMFILE);
    CHECK(open("made", O_CREAT | O_WRONLY, 0600) < 0 && errno == EMFILE);
    CHECK(open("cut", O_TRUNC | O_WRONLY) < 0 && errno == EMFILE);
    CHECK(creat("cut", 0600) < 0 && errno == EMFILE);
    CHECK(stat("made", &status) < 0 && errno == ENOENT);
    CHECK(stat("cut", &status) == 0 && status.st_size == 8);
    // Its highest number is taken, and another one is not.
    CHECK(close(7) == 0);
    CHECK(open("made", O_CREAT | O_WRONLY, 0600) == 7);
    CHECK(open("cut", O_TRUNC | O_WRONLY) < 0 && errno == EMFILE);
    CHECK(stat("cut", &status) == 0 && status.st_size == 8);
    return 0;
}
