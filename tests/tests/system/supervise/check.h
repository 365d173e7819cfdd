// A claim of a test program: what is not true is said, and ends it.
#pragma once
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                                        \
    do {                                                                                   \
        errno = 0;                                                                         \
        if (!(what)) {                                                                     \
            fprintf(stderr, "line %d: not true: %s (%s)\n", __LINE__, #what, strerror(errno)); \
            exit(1);                                                                       \
        }                                                                                  \
    } while (0)
