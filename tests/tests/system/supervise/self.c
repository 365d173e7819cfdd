// Paths that mean who reads them mean this program, however they are spelt.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static struct stat own;
static char program[4096];

static void leads_to_us(const char *path) {
    char text[4096] = "";
    struct stat found;
    CHECK(readlink(path, text, sizeof text - 1) > 0 && strcmp(text, program) == 0);
    CHECK(stat(path, &found) == 0 && found.st_ino == own.st_ino && found.st_dev == own.st_dev);
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && fstat(fd, &found) == 0 && found.st_ino == own.st_ino && close(fd) == 0);
}

int main(int count, char **args) {
    const char *spelt[] = {"/proc/self/exe", "/proc//self/exe", "//proc/./self//exe", "/proc/thread-self/exe",
                           "/proc/1/../self/exe", "/dev/../proc/self/exe"};
    char text[4096], root[4096];
    struct stat found, here;
    CHECK(count > 0 && realpath(args[0], program) != NULL && stat(program, &own) == 0 && getcwd(root, sizeof root) != NULL);
    for (int i = 0; i < 6; i++)
        leads_to_us(spelt[i]);
    CHECK(chdir("/proc") == 0);
    leads_to_us("self/exe");
    leads_to_us("./thread-self/exe");
    leads_to_us("1/../self/exe");
    CHECK(chdir(root) == 0 && stat(".", &here) == 0);

    // By links of its own, too.
    unlink("exe"), unlink("cwd"), unlink("words"), unlink("said"), unlink("fifth");
    CHECK(symlink("/proc/self/exe", "exe") == 0 && symlink("/proc/self/cwd", "cwd") == 0);
    CHECK(stat("exe", &found) == 0 && found.st_ino == own.st_ino);
    CHECK(stat("cwd", &found) == 0 && found.st_ino == here.st_ino);
    int fd = open("cwd/said", O_CREAT | O_RDWR, 0600);
    CHECK(fd >= 0 && dup2(fd, 2) == 2 && dup2(fd, 5) == 5 && symlink("/dev/stderr", "words") == 0);
    CHECK(symlink("/proc/self/fd/5", "fifth") == 0);
    int words = open("words", O_WRONLY | O_APPEND), fifth = open("fifth", O_WRONLY | O_APPEND);
    CHECK(words >= 0 && fifth >= 0 && write(words, "one ", 4) == 4 && write(fifth, "two", 3) == 3);
    CHECK(pread(fd, text, sizeof text, 0) == 7 && memcmp(text, "one two", 7) == 0);
    CHECK(lstat("said", &found) == 0 && S_ISREG(found.st_mode) && found.st_size == 7);
    return 0;
}
