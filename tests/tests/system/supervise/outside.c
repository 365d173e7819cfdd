// In the root: files of it, reached by argv[1], a link from outside to the root; some go to the directory argv[2] outside.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *outside, *elsewhere;

static const char *at(const char *directory, const char *name) {
    static char texts[4][4096];
    static int turn;
    char *text = texts[turn++ % 4];
    snprintf(text, 4096, "%s/%s", directory, name);
    return text;
}

static void make(const char *name) {
    unlink(name);
    int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0600);
    CHECK(fd >= 0 && write(fd, "precious", 8) == 8 && close(fd) == 0);
}

static void holds(const char *name, int flags) {
    char bytes[9] = "";
    int fd = open(name, O_RDONLY | flags);
    CHECK(fd >= 0 && read(fd, bytes, 9) == 8 && strcmp(bytes, "precious") == 0 && close(fd) == 0);
}

int main(int count, char **args) {
    char text[512];
    struct stat status;
    outside = args[1], elsewhere = args[2];
    const char *files[] = {"leaves", "follows", "linked", "renamed", "replaced", "removed"};
    for (int number = 0; number < 6; number++)
        make(files[number]);
    holds(at(outside, "linked"), O_NOFOLLOW);
    CHECK(readlink(at(outside, "linked"), text, sizeof text) < 0 && errno == EINVAL);

    CHECK(rename(at(outside, "leaves"), at(elsewhere, "leaves")) == 0);
    CHECK(stat("leaves", &status) < 0 && errno == ENOENT);
    holds(at(elsewhere, "leaves"), O_NOFOLLOW);
    CHECK(mkdir("directory", 0700) == 0);
    make("directory/file");
    CHECK(rename(at(outside, "directory"), at(elsewhere, "directory")) == 0);
    holds(at(elsewhere, "directory/file"), O_NOFOLLOW);

    unlink("second");
    CHECK(link(at(outside, "linked"), at(outside, "second")) == 0);
    CHECK(lstat("second", &status) == 0 && S_ISREG(status.st_mode) && status.st_nlink == 2);
    CHECK(rename(at(outside, "renamed"), at(outside, "replaced")) == 0);
    holds("replaced", O_NOFOLLOW);
    CHECK(unlink(at(outside, "removed")) == 0);
    CHECK(lstat("removed", &status) < 0 && errno == ENOENT);

    CHECK(chdir("/proc") == 0 && chdir(outside) == 0 && chdir("/dev") == 0);
    int directory = open(at(outside, "."), O_PATH | O_DIRECTORY);
    CHECK(directory >= 0);
    CHECK(renameat(directory, "follows", AT_FDCWD, at(elsewhere, "follows")) == 0);
    return 0;
}
