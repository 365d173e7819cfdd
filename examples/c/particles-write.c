/* Particles in the manner of VPIC: each rank puts eight properties of its particles into its region of shared arrays. The transfers
 * of a step run while the next step is computed; a tag of the step's container says that it is complete.
 *
 *   mpicc -O2 particles-write.c $(pkg-config --cflags --libs terrace) -o particles-write
 *   terrace run -- mpirun -n 4 ./particles-write [PARTICLES] */
#include "particles.h"

int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    uint64_t total = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;
    uint64_t first = share(total, rank, ranks), count = share(total, rank + 1, ranks) - first;
    size_t bytes = count * sizeof(cell);
    terrace_region mine = {.rank = 1, .offset = {first}, .count = {count}};

    terrace_session *session;
    check(terrace_connect("", &session), "connect");
    /* Two sets of buffers: one is being put while the other is computed. */
    cell *cells[2][PROPERTIES];
    for (int set = 0; set < 2; set++)
        for (int what = 0; what < PROPERTIES; what++) cells[set][what] = malloc(bytes ? bytes : 1);
    terrace_transfer *transfers[PROPERTIES];
    double seconds_computing = 0, seconds_writing = 0;

    /* The turn after the last step only waits for that step's transfers. */
    for (int step = 0; step <= STEPS; step++) {
        double begun = MPI_Wtime();
        for (int what = 0; step < STEPS && what < PROPERTIES; what++)
            for (uint64_t i = 0; i < count; i++) cells[step % 2][what][i] = particle(what, first + i, step);
        double computed = MPI_Wtime();
        char name[64];
        if (step > 0) {
            check(terrace_transfers_wait(transfers, PROPERTIES, -1), "wait");
            for (int what = 0; what < PROPERTIES; what++) check(terrace_transfer_close(transfers[what]), "close");
            MPI_Barrier(MPI_COMM_WORLD);
            if (rank == 0) {
                snprintf(name, sizeof name, "vpic/step%d", step - 1);
                terrace_tag complete = {.tag_type = TERRACE_TAG_BOOL, .boolean = true};
                check(terrace_tag_put(session, name, "complete", &complete), "tag");
            }
        }
        if (step < STEPS) {
            snprintf(name, sizeof name, "vpic/step%d", step);
            check(terrace_container_create(session, name, TERRACE_IF_MISSING), "make the container");
            for (int what = 0; what < PROPERTIES; what++) {
                terrace_array *array;
                terrace_array_spec spec = {.data_type = what < 6 ? "float32" : "int32", .rank = 1, .shape = {total},
                                           .dimensions = {"particle"}};
                array_name(name, sizeof name, step, what);
                /* Whichever rank comes first makes it. */
                check(terrace_array_create(session, name, &spec, TERRACE_IF_MISSING, &array), "create");
                check(terrace_transfer_create(array, TERRACE_PUT, &mine, cells[step % 2][what], bytes, &transfers[what]),
                      "plan a transfer");
                check(terrace_array_close(array), "close");
            }
            check(terrace_transfers_start(transfers, PROPERTIES), "start");
        }
        seconds_computing += computed - begun;
        seconds_writing += MPI_Wtime() - computed;
    }
    double slowest[2], own[2] = {seconds_computing, seconds_writing};
    MPI_Reduce(own, slowest, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        fprintf(stderr, "%.3f s of computing, %.3f s of writing\n", slowest[0], slowest[1]);
        printf("%d ranks wrote %d steps of %llu particles\n", ranks, STEPS, (unsigned long long)total);
    }
    check(terrace_disconnect(session), "disconnect");
    MPI_Finalize();
    return 0;
}
