/* The bare loop that an I/O tool's own cost is measured against: pwrite of 4 KiB, one after the other, nothing else.
 * Usage: pwrite FILE BYTES REQUEST. Prints nanoseconds for each request. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    long bytes = atol(argv[2]), request = atol(argv[3]);
    char *buffer = aligned_alloc(4096, request);
    int file = open(argv[1], O_CREAT | O_RDWR | O_TRUNC, 0644);
    if (file < 0 || !buffer || request <= 0)
        return perror(argv[1]), 1;
    memset(buffer, 0x5a, request);
    double began = now();
    for (long at = 0; at < bytes; at += request)
        if (pwrite(file, buffer, request, at) != request)
            return perror("pwrite"), 1;
    double ended = now();
    printf("%.1f\n", (ended - began) / (bytes / request));
    close(file);
    unlink(argv[1]);
    return 0;
}
