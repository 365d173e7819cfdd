/* The particles of the two examples: a rank's share of a step is computed from its numbers alone, so that the reader can say what
 * the writers must have written. */
#ifndef PARTICLES_H
#define PARTICLES_H

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <terrace.h>

enum { PROPERTIES = 8, STEPS = 3 };
static const char *const property[PROPERTIES] = {"x", "y", "z", "px", "py", "pz", "id1", "id2"};

/* All properties have cells of four bytes: the first six are floats, the others whole numbers. */
typedef union {
    float real;
    int32_t whole;
} cell;

static void check(int code, const char *what) {
    if (code == TERRACE_OK) return;
    fprintf(stderr, "%s: %s\n", what, terrace_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* From 0 to 1, the same on every machine. */
static inline float draw(uint64_t particle, int what, int step) {
    uint64_t bits = particle * 64 + (uint64_t)what * 8 + (uint64_t)step + 1;
    bits = (bits ^ bits >> 31) * 0x9e3779b97f4a7c15u;
    bits = (bits ^ bits >> 29) * 0xbf58476d1ce4e5b9u;
    return (float)((bits ^ bits >> 32) & 0xffffff) / 16777216.0f;
}

static inline cell particle(int what, uint64_t number, int step) {
    if (what == 6) return (cell){.whole = (int32_t)(number >> 16)};
    if (what == 7) return (cell){.whole = (int32_t)(number & 0xffff)};
    float drawn = draw(number, what, step);
    return (cell){.real = what < 3 ? drawn : 4 * drawn - 2};
}

/* The first particle of a rank's share; that of the rank after the last is the end. */
static inline uint64_t share(uint64_t total, int rank, int ranks) { return total * (uint64_t)rank / (uint64_t)ranks; }

static void array_name(char *name, size_t size, int step, int what) {
    snprintf(name, size, "vpic/step%d/%s", step, property[what]);
}

#endif
