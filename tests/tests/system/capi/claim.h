/* A claim that must hold; else the program says which, what Terrace said last, and ends. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <terrace.h>
#define CLAIM(CONDITION) \
    do { \
        if (!(CONDITION)) { \
            fprintf(stderr, "%s:%d: not so: %s\nterrace: %s\n", __FILE__, __LINE__, #CONDITION, terrace_error()); \
            exit(1); \
        } \
    } while (0)
#define SAYS(TEXT) (strstr(terrace_error(), TEXT) != NULL)
