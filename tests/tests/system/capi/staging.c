/* Staging and steps through the C ABI. */
#include "claim.h"
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEPS = 200, CELLS = 64 };

static terrace_region step_of(uint64_t step) {
    return (terrace_region){.rank = 2, .offset = {step, 0}, .count = {1, CELLS}};
}

int main(void) {
    terrace_session *s;
    terrace_array *p, *v, *reader;
    terrace_stager *stager;
    terrace_steps *steps;
    double cells[CELLS], back[CELLS];
    bool queued = false;
    uint64_t step;
    CLAIM(terrace_connect("", &s) == TERRACE_OK);
    CLAIM(terrace_container_create(s, "run", TERRACE_NEW) == TERRACE_OK);
    terrace_array_spec spec = {.data_type = "float64", .rank = 2, .shape = {0, CELLS}, .unlimited = {true}};
    CLAIM(terrace_array_create(s, "run/p", &spec, TERRACE_NEW, &p) == TERRACE_OK);
    CLAIM(terrace_array_create(s, "run/v", &spec, TERRACE_NEW, &v) == TERRACE_OK);
    CLAIM(terrace_array_open(s, "run/p", false, &reader) == TERRACE_OK);

    terrace_stager_spec bad = {.threads = 65};
    CLAIM(terrace_stager_create(s, &bad, &stager) == TERRACE_INVALID && SAYS("65"));
    CLAIM(terrace_stager_create(NULL, NULL, &stager) == TERRACE_BAD_HANDLE);
    terrace_stager_spec wanted = {.queue_bytes = 1 << 20, .threads = 2};
    CLAIM(terrace_stager_create(s, &wanted, &stager) == TERRACE_OK);
    const char *names[] = {"p", "v"};
    CLAIM(terrace_steps_open(s, "run", 0, names, 2, &steps) == TERRACE_OK);
    CLAIM(terrace_steps_next(steps, 0, &step) == TERRACE_BUSY);

    for (uint64_t at = 0; at < STEPS; at++) {
        terrace_region region = step_of(at);
        CLAIM(terrace_stager_begin_step(stager, 2 * sizeof cells, &queued) == TERRACE_OK && queued);
        for (int x = 0; x < CELLS; x++) cells[x] = at + x / 100.;
        /* A copy may be overwritten at once, borrowed memory after a sync. */
        CLAIM(terrace_stager_put(stager, p, &region, cells, sizeof cells, true, &queued) == TERRACE_OK && queued);
        for (int x = 0; x < CELLS; x++) cells[x] = -cells[x];
        CLAIM(terrace_stager_put(stager, v, &region, cells, sizeof cells, false, NULL) == TERRACE_OK);
        if (at == 0) CLAIM(terrace_stager_put(stager, p, &region, cells, 7, true, NULL) == TERRACE_INVALID);
        CLAIM(terrace_stager_sync(stager, TERRACE_STAGED, -1) == TERRACE_OK);
        for (int x = 0; x < CELLS; x++) cells[x] = 1e9;
        CLAIM(terrace_steps_next(steps, 60, &step) == TERRACE_OK && step == at);
        CLAIM(terrace_array_get(reader, &region, back, sizeof back) == TERRACE_OK && back[3] == at + .03);
        CLAIM(terrace_array_get(v, &region, back, sizeof back) == TERRACE_OK && back[3] == -(at + .03));
    }
    /* What fails is told once; all else is put. */
    terrace_region outside = {.rank = 2, .offset = {0, 1}, .count = {1, CELLS}};
    CLAIM(terrace_stager_put(stager, p, &outside, cells, sizeof cells, true, &queued) == TERRACE_OK && queued);
    CLAIM(terrace_stager_sync(stager, TERRACE_DURABLE, -1) == TERRACE_OUT_OF_BOUNDS);
    CLAIM(terrace_stager_sync(stager, TERRACE_DURABLE, -1) == TERRACE_OK);
    CLAIM(terrace_stager_sync(stager, TERRACE_ANALYSIS, -1) == TERRACE_INVALID && SAYS("forward"));
    CLAIM(terrace_stager_sync(stager, 3, -1) == TERRACE_INVALID);
    terrace_stager_counters counters;
    CLAIM(terrace_stager_count(stager, &counters) == TERRACE_OK);
    CLAIM(counters.done_puts == 2 * STEPS && counters.failed_puts == 1 && counters.queued_bytes == 0);
    CLAIM(counters.done_bytes == 2 * STEPS * sizeof cells && counters.dropped_puts == 0);

    CLAIM(terrace_stager_publish(stager, "run", STEPS + 1) == TERRACE_OK);
    CLAIM(terrace_stager_sync(stager, TERRACE_STAGED, -1) == TERRACE_OK);
    CLAIM(terrace_steps_next(steps, 60, &step) == TERRACE_OK && step == STEPS);

    pid_t child = fork();
    if (child == 0) {
        terrace_region region = step_of(0);
        /* The queue is the parent's. */
        bool refused = terrace_stager_put(stager, p, &region, cells, sizeof cells, true, NULL) == TERRACE_INVALID;
        _exit(refused ? 0 : 1);
    }
    int status;
    CLAIM(waitpid(child, &status, 0) == child && status == 0);
    CLAIM(terrace_steps_close(steps) == TERRACE_OK && terrace_steps_close(steps) == TERRACE_BAD_HANDLE);
    CLAIM(terrace_stager_close(stager) == TERRACE_OK && terrace_stager_close(stager) == TERRACE_BAD_HANDLE);
    CLAIM(terrace_array_close(p) == TERRACE_OK && terrace_array_close(v) == TERRACE_OK);
    CLAIM(terrace_array_close(reader) == TERRACE_OK && terrace_disconnect(s) == TERRACE_OK);
    puts("all claims hold");
    return 0;
}
