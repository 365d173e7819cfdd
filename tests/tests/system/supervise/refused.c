// Asks for what a run refuses, by the C library's syscall(); argv[1] says what. It does without, as programs do.
#define _GNU_SOURCE
#include "check.h"
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int count, char **args) {
    char room[256] = "";
    CHECK(count == 2);
    if (strcmp(args[1], "io_uring") == 0)
        CHECK(syscall(SYS_io_uring_setup, 8, room) < 0 && errno == EPERM);
    if (strcmp(args[1], "landlock") == 0)
        CHECK(syscall(444, NULL, 0, 1) < 0 && errno == EOPNOTSUPP);
    if (strcmp(args[1], "inotify") == 0) {
        int watch = inotify_init();
        CHECK(watch >= 0 && inotify_add_watch(watch, ".", IN_CREATE | IN_MODIFY) >= 0);
    }
    return 0;
}
