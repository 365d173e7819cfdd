/* An analysis in the manner of BD-CATS, of what particles-write puts, while it is written or afterwards: each rank gets its share of
 * the particles of each step, counts them by cells of a grid, and takes the energetic ones. The shares are the reader's own, whatever
 * the number of writers was. In the end one rank computes the same from scratch.
 *
 *   mpicc -O2 particles-read.c $(pkg-config --cflags --libs terrace) -o particles-read
 *   terrace run -- mpirun -n 3 ./particles-read */
#include "particles.h"
#include <string.h>

enum { GRID = 8, COUNTS = GRID * GRID * GRID + 2 };
static const float ENERGETIC = 4;

/* Adds a particle: to its cell of the grid, to the energetic ones, and to a checksum of the numbers. */
static void count(uint64_t *counts, const cell *all) {
    int at[3];
    for (int d = 0; d < 3; d++) at[d] = (int)(all[d].real * GRID);
    counts[(at[0] * GRID + at[1]) * GRID + at[2]] += 1;
    float energy = all[3].real * all[3].real + all[4].real * all[4].real + all[5].real * all[5].real;
    counts[COUNTS - 2] += energy > ENERGETIC;
    counts[COUNTS - 1] += ((uint64_t)all[6].whole << 16 | (uint64_t)all[7].whole) * 2654435761u;
}

static void wait_until_complete(terrace_session *session, int step) {
    char name[64];
    snprintf(name, sizeof name, "vpic/step%d", step);
    check(terrace_wait_for(session, name, 60, NULL), "wait for the step");
    terrace_tag complete = {0};
    int code;
    double begun = MPI_Wtime();
    while ((code = terrace_tag_get(session, name, "complete", &complete, NULL, 0)) == TERRACE_NOT_FOUND)
        if (MPI_Wtime() - begun > 60) break;
    check(code, "see that the step is complete");
}

int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    terrace_session *session;
    check(terrace_connect("", &session), "connect");

    for (int step = 0; step < STEPS; step++) {
        wait_until_complete(session, step);
        uint64_t shape[TERRACE_RANK_MAX], total = 0, first = 0, number = 0;
        int dimensions;
        cell *cells[PROPERTIES];
        terrace_transfer *transfers[PROPERTIES];
        for (int what = 0; what < PROPERTIES; what++) {
            char name[64];
            terrace_array *array;
            array_name(name, sizeof name, step, what);
            check(terrace_array_open(session, name, false, &array), "open");
            check(terrace_array_shape(array, &dimensions, shape), "look at the shape");
            total = shape[0];
            first = share(total, rank, ranks);
            number = share(total, rank + 1, ranks) - first;
            terrace_region mine = {.rank = 1, .offset = {first}, .count = {number}};
            size_t bytes = number * sizeof(cell);
            cells[what] = malloc(bytes ? bytes : 1);
            check(terrace_transfer_create(array, TERRACE_GET, &mine, cells[what], bytes, &transfers[what]), "plan a transfer");
            check(terrace_array_close(array), "close");
        }
        check(terrace_transfers_start(transfers, PROPERTIES), "start");
        check(terrace_transfers_wait(transfers, PROPERTIES, -1), "wait");

        uint64_t own[COUNTS] = {0}, found[COUNTS];
        for (uint64_t i = 0; i < number; i++) {
            cell all[PROPERTIES];
            for (int what = 0; what < PROPERTIES; what++) all[what] = cells[what][i];
            count(own, all);
        }
        MPI_Reduce(own, found, COUNTS, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
        for (int what = 0; what < PROPERTIES; what++) {
            check(terrace_transfer_close(transfers[what]), "close");
            free(cells[what]);
        }
        if (rank > 0) continue;
        uint64_t expected[COUNTS] = {0};
        for (uint64_t i = 0; i < total; i++) {
            cell all[PROPERTIES];
            for (int what = 0; what < PROPERTIES; what++) all[what] = particle(what, i, step);
            count(expected, all);
        }
        if (memcmp(found, expected, sizeof found) != 0) {
            fprintf(stderr, "step %d: what was read is not what one process computes\n", step);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        printf("step %d: %llu of %llu particles are energetic, as one process computes\n", step,
               (unsigned long long)found[COUNTS - 2], (unsigned long long)total);
    }
    check(terrace_disconnect(session), "disconnect");
    MPI_Finalize();
    return 0;
}
