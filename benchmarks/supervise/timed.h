// What both programs of this benchmark need: a clock in microseconds, and calls that must not fail.
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static void check(int result, const char *what) {
    if (result < 0) {
        perror(what);
        exit(1);
    }
}
