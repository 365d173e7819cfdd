/* Halo exchange through a shared array: each rank owns some rows of a field of heat. In each step it takes, under a read lock, its rows
 * and one row of each neighbour, computes, and publishes its rows with the release of a write lock. In the end one rank computes
 * the same alone.
 *
 *   mpicc -O2 halo.c $(pkg-config --cflags --libs terrace) -o halo && terrace run -- mpirun -n 4 ./halo */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <terrace.h>

enum { ROWS = 96, COLUMNS = 64, STEPS = 25 };
typedef double row[COLUMNS];

static void check(int code, const char *what) {
    if (code == TERRACE_OK) return;
    fprintf(stderr, "%s: %s\n", what, terrace_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void beginning(row *field) {
    for (int y = 0; y < ROWS; y++)
        for (int x = 0; x < COLUMNS; x++) field[y][x] = y >= ROWS / 3 && y < ROWS / 2 && x >= 16 && x < 32 ? 100 : 0;
}

/* Rows `first` to `last` of the whole field after a step; its outermost cells stay as they are. `seen` begins with row `top`. */
static void step(const row *seen, int top, row *after, int first, int last) {
    for (int y = first; y < last; y++)
        for (int x = 0; x < COLUMNS; x++) {
            const row *here = seen + (y - top);
            after[y - first][x] = here[0][x];
            if (y > 0 && y < ROWS - 1 && x > 0 && x < COLUMNS - 1)
                after[y - first][x] += 0.2 * (here[1][x] + here[-1][x] + here[0][x + 1] + here[0][x - 1] - 4 * here[0][x]);
        }
}

static terrace_region rows(int first, int last) {
    return (terrace_region){.rank = 2, .offset = {(uint64_t)first, 0}, .count = {(uint64_t)(last - first), COLUMNS}};
}

int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int first = ROWS * rank / ranks, last = ROWS * (rank + 1) / ranks;
    int top = first > 0 ? first - 1 : 0, bottom = last < ROWS ? last + 1 : ROWS;

    terrace_session *session;
    terrace_array *field;
    check(terrace_connect("", &session), "connect");
    row *whole = malloc(ROWS * sizeof(row)), *seen = malloc(ROWS * sizeof(row)), *own = malloc(ROWS * sizeof(row));
    if (rank == 0) {
        terrace_array_spec spec = {.data_type = "float64", .rank = 2, .shape = {ROWS, COLUMNS}, .dimensions = {"y", "x"}};
        check(terrace_array_create(session, "heat", &spec, TERRACE_REPLACE, &field), "create");
        terrace_region all = rows(0, ROWS);
        beginning(whole);
        check(terrace_array_put(field, &all, whole, ROWS * sizeof(row)), "put");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank > 0) check(terrace_array_open(session, "heat", true, &field), "open");

    terrace_region with_halo = rows(top, bottom), mine = rows(first, last);
    terrace_mapping *mapping_seen, *mapping_own;
    check(terrace_map(field, &with_halo, seen, (size_t)(bottom - top) * sizeof(row), &mapping_seen), "map");
    check(terrace_map(field, &mine, own, (size_t)(last - first) * sizeof(row), &mapping_own), "map");
    for (int number = 0; number < STEPS; number++) {
        check(terrace_mapping_lock(mapping_seen, TERRACE_READ, 60), "lock to read");
        check(terrace_mapping_release(mapping_seen), "release");
        /* All have this step's rows before anybody publishes the next one's. */
        MPI_Barrier(MPI_COMM_WORLD);
        check(terrace_mapping_lock(mapping_own, TERRACE_WRITE, 60), "lock to write");
        step((const row *)seen, top, own, first, last);
        check(terrace_mapping_release(mapping_own), "publish");
        MPI_Barrier(MPI_COMM_WORLD);
    }
    check(terrace_unmap(mapping_seen), "unmap");
    check(terrace_unmap(mapping_own), "unmap");

    if (rank == 0) {
        terrace_region all = rows(0, ROWS);
        row *expected = malloc(ROWS * sizeof(row)), *after = malloc(ROWS * sizeof(row));
        check(terrace_array_get(field, &all, whole, ROWS * sizeof(row)), "get");
        beginning(expected);
        for (int number = 0; number < STEPS; number++) {
            step((const row *)expected, 0, after, 0, ROWS);
            memcpy(expected, after, ROWS * sizeof(row));
        }
        if (memcmp(whole, expected, ROWS * sizeof(row)) != 0) {
            fprintf(stderr, "the field is not what one process computes\n");
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        printf("%d ranks, %d steps: the same as one process computes\n", ranks, STEPS);
    }
    check(terrace_array_close(field), "close");
    check(terrace_disconnect(session), "disconnect");
    MPI_Finalize();
    return 0;
}
