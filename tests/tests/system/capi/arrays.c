/* Arrays, transfers, locks and tags through the C ABI. */
#include "claim.h"
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROWS = 30, COLUMNS = 40 };
static float cells[ROWS][COLUMNS], back[ROWS][COLUMNS];

static terrace_region block(uint64_t y, uint64_t x, uint64_t rows, uint64_t columns) {
    return (terrace_region){.rank = 2, .offset = {y, x}, .count = {rows, columns}};
}

static void regions(terrace_session *s) {
    terrace_array *a, *reader;
    float fill = -1;
    terrace_array_spec spec = {.data_type = "float32", .rank = 2, .shape = {ROWS, COLUMNS}, .chunks = {8, 8}, .fill = &fill,
                               .dimensions = {"y", "x"}};
    /* With the container that it lies in. */
    CLAIM(terrace_array_create(s, "sky/image", &spec, TERRACE_NEW, &a) == TERRACE_OK);
    CLAIM(terrace_container_create(s, "sky", TERRACE_NEW) == TERRACE_EXISTS);
    CLAIM(terrace_array_create(s, "sky/image", &spec, TERRACE_NEW, &reader) == TERRACE_EXISTS);
    CLAIM(terrace_array_open(s, "sky/image", false, &reader) == TERRACE_OK);

    for (int y = 0; y < ROWS; y++)
        for (int x = 0; x < COLUMNS; x++) cells[y][x] = y * 100 + x;
    terrace_region rows = block(10, 0, 10, COLUMNS), all = block(0, 0, ROWS, COLUMNS);
    CLAIM(terrace_array_put(a, &rows, cells[10], 10 * sizeof cells[0]) == TERRACE_OK);
    CLAIM(terrace_array_get(reader, &all, back, sizeof back) == TERRACE_OK);
    CLAIM(back[9][39] == -1 && back[10][0] == 1000 && back[19][39] == 1939 && back[20][0] == -1);
    terrace_region sparse = {.rank = 2, .offset = {10, 1}, .count = {2, 3}, .stride = {5, 10}};
    float few[6];
    CLAIM(terrace_array_get(reader, &sparse, few, sizeof few) == TERRACE_OK);
    CLAIM(few[0] == 1001 && few[1] == 1011 && few[3] == 1501 && few[5] == 1521);

    CLAIM(terrace_array_put(reader, &rows, cells, 10 * sizeof cells[0]) != TERRACE_OK);
    CLAIM(terrace_array_put(a, &rows, cells, 7) == TERRACE_INVALID && SAYS("7"));
    terrace_region outside = block(25, 0, 10, COLUMNS), flat = {.rank = 1, .count = {10}}, none = {.rank = 9};
    CLAIM(terrace_array_put(a, &outside, cells, 10 * sizeof cells[0]) == TERRACE_OUT_OF_BOUNDS);
    CLAIM(terrace_array_put(a, &flat, cells, 40) == TERRACE_INVALID);
    CLAIM(terrace_array_put(a, &none, cells, 40) == TERRACE_INVALID && SAYS("9"));
    CLAIM(terrace_array_put(a, NULL, cells, 40) == TERRACE_INVALID);
    CLAIM(terrace_array_put(a, &rows, NULL, 10 * sizeof cells[0]) == TERRACE_INVALID);

    int rank;
    uint64_t shape[TERRACE_RANK_MAX];
    char type[16];
    size_t cell;
    CLAIM(terrace_array_shape(a, &rank, shape) == TERRACE_OK && rank == 2 && shape[0] == ROWS && shape[1] == COLUMNS);
    CLAIM(terrace_array_type(a, type, sizeof type, &cell) == TERRACE_OK && cell == 4 && strcmp(type, "float32") == 0);
    CLAIM(terrace_array_type(a, type, 3, &cell) == TERRACE_OUT_OF_BOUNDS);
    CLAIM(terrace_array_flush(a) == TERRACE_OK);
    terrace_info info;
    CLAIM(terrace_stat(s, "sky/image", &info) == TERRACE_OK && info.kind == TERRACE_ARRAY && info.is_durable);
    CLAIM(terrace_array_close(a) == TERRACE_OK && terrace_array_close(a) == TERRACE_BAD_HANDLE);
    CLAIM(terrace_array_put(a, &rows, cells, sizeof cells) == TERRACE_BAD_HANDLE);
    CLAIM(terrace_array_close(reader) == TERRACE_OK);

    spec.data_type = "float99";
    CLAIM(terrace_array_create(s, "sky/bad", &spec, TERRACE_NEW, &a) == TERRACE_INVALID && SAYS("hint:"));
    spec.data_type = NULL;
    CLAIM(terrace_array_create(s, "sky/bad", &spec, TERRACE_NEW, &a) == TERRACE_INVALID);
    CLAIM(terrace_array_create(s, "sky/bad", NULL, TERRACE_NEW, &a) == TERRACE_INVALID);
    terrace_array_spec grows = {.data_type = "S3", .rank = 1, .unlimited = {true}};
    CLAIM(terrace_array_create(s, "sky/names", &grows, TERRACE_NEW, &a) == TERRACE_OK);
    terrace_region third = {.rank = 1, .offset = {2}, .count = {1}};
    CLAIM(terrace_array_put(a, &third, "abc", 3) == TERRACE_OK);
    CLAIM(terrace_array_shape(a, &rank, shape) == TERRACE_OK && rank == 1 && shape[0] == 3);
    shape[0] = 7;
    CLAIM(terrace_array_grow(a, 1, shape) == TERRACE_OK && terrace_array_shape(a, &rank, shape) == TERRACE_OK && shape[0] == 7);
    CLAIM(terrace_array_close(a) == TERRACE_OK);

    /* One cell, without dimensions; a shape without a rank is a mistake. */
    terrace_array_spec single = {.data_type = "float64"}, forgotten = {.data_type = "float64", .shape = {ROWS}};
    terrace_region only = {.rank = 0};
    double value = 2.5, got = 0;
    CLAIM(terrace_array_create(s, "sky/forgotten", &forgotten, TERRACE_NEW, &a) == TERRACE_INVALID && SAYS("rank"));
    CLAIM(terrace_array_create(s, "sky/exposure", &single, TERRACE_NEW, &a) == TERRACE_OK);
    CLAIM(terrace_array_get(a, &only, &got, sizeof got) == TERRACE_OK && got == 0);
    CLAIM(terrace_array_put(a, &only, &value, sizeof value) == TERRACE_OK);
    CLAIM(terrace_array_put(a, &third, &value, sizeof value) == TERRACE_INVALID);
    CLAIM(terrace_array_get(a, &only, &got, sizeof got) == TERRACE_OK && got == value);
    CLAIM(terrace_array_shape(a, &rank, shape) == TERRACE_OK && rank == 0);
    CLAIM(terrace_array_flush(a) == TERRACE_OK && terrace_array_close(a) == TERRACE_OK);
}

static void transfers(terrace_session *s) {
    enum { COUNT = 8, LENGTH = 1 << 16 };
    static int32_t values[COUNT][LENGTH], got[COUNT][LENGTH];
    terrace_array *a;
    terrace_array_spec spec = {.data_type = "int32", .rank = 2, .shape = {COUNT, LENGTH}};
    terrace_transfer *puts[COUNT], *gets[COUNT];
    bool done = false;
    CLAIM(terrace_array_create(s, "steps", &spec, TERRACE_NEW, &a) == TERRACE_OK);
    for (int at = 0; at < COUNT; at++) {
        terrace_region row = block(at, 0, 1, LENGTH);
        for (int x = 0; x < LENGTH; x++) values[at][x] = at * LENGTH + x;
        CLAIM(terrace_transfer_create(a, TERRACE_PUT, &row, values[at], sizeof values[at], &puts[at]) == TERRACE_OK);
        CLAIM(terrace_transfer_create(a, TERRACE_GET, &row, got[at], sizeof got[at], &gets[at]) == TERRACE_OK);
    }
    CLAIM(terrace_transfer_test(puts[0], &done) == TERRACE_INVALID && terrace_transfer_wait(puts[0], -1) == TERRACE_INVALID);
    CLAIM(terrace_transfers_start(puts, COUNT) == TERRACE_OK);
    CLAIM(terrace_transfer_start(puts[0]) == TERRACE_INVALID);
    /* Progress needs no call: a test sees it done in time. */
    while (!done) CLAIM(terrace_transfer_test(puts[COUNT - 1], &done) == TERRACE_OK);
    CLAIM(terrace_transfers_wait(puts, COUNT, -1) == TERRACE_OK);
    /* One that was waited for is done, as MPI says. */
    done = false;
    CLAIM(terrace_transfer_test(puts[0], &done) == TERRACE_OK && done);
    CLAIM(terrace_transfers_start(gets, COUNT) == TERRACE_OK && terrace_transfers_wait(gets, COUNT, 60) == TERRACE_OK);
    CLAIM(memcmp(values, got, sizeof got) == 0);
    /* Again, with other values. */
    values[0][0] = -5;
    CLAIM(terrace_transfer_start(puts[0]) == TERRACE_OK && terrace_transfer_wait(puts[0], -1) == TERRACE_OK);
    CLAIM(terrace_transfer_start(gets[0]) == TERRACE_OK && terrace_transfer_wait(gets[0], -1) == TERRACE_OK && got[0][0] == -5);
    CLAIM(terrace_transfer_start(gets[1]) == TERRACE_OK);
    for (int at = 0; at < COUNT; at++)
        CLAIM(terrace_transfer_close(puts[at]) == TERRACE_OK && terrace_transfer_close(gets[at]) == TERRACE_OK);
    CLAIM(terrace_transfer_close(gets[1]) == TERRACE_BAD_HANDLE);
    terrace_region row = block(0, 0, 1, LENGTH);
    CLAIM(terrace_transfer_create(a, 2, &row, values, sizeof values[0], &puts[0]) == TERRACE_INVALID);
    CLAIM(terrace_transfer_create(a, TERRACE_GET, &row, NULL, sizeof values[0], &puts[0]) == TERRACE_INVALID);
    CLAIM(terrace_array_close(a) == TERRACE_OK);
}

static void locks(terrace_session *s) {
    terrace_array *a;
    terrace_lock *one, *two;
    terrace_mapping *m;
    CLAIM(terrace_array_open(s, "sky/image", true, &a) == TERRACE_OK);
    terrace_region left = block(0, 0, ROWS, 20), right = block(0, 20, ROWS, 20), row = block(5, 0, 1, COLUMNS);
    CLAIM(terrace_array_lock(a, &left, TERRACE_WRITE, 0, &one) == TERRACE_OK);
    CLAIM(terrace_array_lock(a, &right, TERRACE_WRITE, 0, &two) == TERRACE_OK && terrace_lock_release(two) == TERRACE_OK);
    CLAIM(terrace_array_lock(a, &row, TERRACE_READ, 0, &two) == TERRACE_BUSY);
    CLAIM(terrace_lock_release(one) == TERRACE_OK && terrace_lock_release(one) == TERRACE_BAD_HANDLE);
    CLAIM(terrace_array_lock(a, &left, TERRACE_READ, 0, &one) == TERRACE_OK);
    CLAIM(terrace_array_lock(a, &row, TERRACE_READ, 0, &two) == TERRACE_OK);
    CLAIM(terrace_lock_release(one) == TERRACE_OK && terrace_lock_release(two) == TERRACE_OK);
    CLAIM(terrace_array_lock(a, &left, 5, 0, &one) == TERRACE_INVALID);

    float memory[COLUMNS];
    CLAIM(terrace_map(a, &row, memory, sizeof memory, &m) == TERRACE_OK);
    CLAIM(terrace_mapping_release(m) == TERRACE_INVALID);
    CLAIM(terrace_mapping_lock(m, TERRACE_WRITE, 0) == TERRACE_OK && memory[7] == -1);
    CLAIM(terrace_mapping_lock(m, TERRACE_WRITE, 0) == TERRACE_INVALID);
    memory[7] = 77;
    float seen[COLUMNS];
    CLAIM(terrace_array_get(a, &row, seen, sizeof seen) == TERRACE_OK && seen[7] == -1);
    CLAIM(terrace_mapping_release(m) == TERRACE_OK);
    CLAIM(terrace_array_get(a, &row, seen, sizeof seen) == TERRACE_OK && seen[7] == 77);
    /* What a process wrote and did not release dies with it, and so does its lock. */
    pid_t child = fork();
    if (child == 0) {
        CLAIM(terrace_mapping_lock(m, TERRACE_WRITE, 10) == TERRACE_OK);
        memory[7] = 99;
        _exit(0);
    }
    int status;
    CLAIM(waitpid(child, &status, 0) == child && status == 0);
    CLAIM(terrace_mapping_lock(m, TERRACE_READ, 10) == TERRACE_OK && memory[7] == 77);
    CLAIM(terrace_unmap(m) == TERRACE_OK && terrace_unmap(m) == TERRACE_BAD_HANDLE);
    CLAIM(terrace_array_lock(a, &left, TERRACE_WRITE, 0, &one) == TERRACE_OK && terrace_lock_release(one) == TERRACE_OK);
    CLAIM(terrace_array_close(a) == TERRACE_OK);
}

static int collect(const char *name, void *context) {
    strcat(strcat(context, name), " ");
    return 0;
}

static int count_tags(const char *key, const terrace_tag *tag, void *context) {
    *(int *)context += key[0] * 1000 + tag->tag_type;
    return 0;
}

static void tags(terrace_session *s) {
    terrace_tag tag = {.tag_type = TERRACE_TAG_TEXT, .text = "M 101"}, got;
    int64_t numbers[] = {3, 1, 4};
    double buffer[8];
    CLAIM(terrace_tag_put(s, "sky/image", "object", &tag) == TERRACE_OK);
    tag = (terrace_tag){.tag_type = TERRACE_TAG_FLOAT, .real = 2.5};
    CLAIM(terrace_tag_put(s, "sky/image", "exposure", &tag) == TERRACE_OK);
    tag.real = 3.5;
    CLAIM(terrace_tag_put(s, "sky/image", "exposure", &tag) == TERRACE_OK);
    CLAIM(terrace_tag_get(s, "sky/image", "exposure", &got, NULL, 0) == TERRACE_OK);
    CLAIM(got.tag_type == TERRACE_TAG_FLOAT && got.real == 3.5);
    CLAIM(terrace_tag_get(s, "sky/image", "object", &got, buffer, sizeof buffer) == TERRACE_OK);
    CLAIM(got.text == (char *)buffer && strcmp(got.text, "M 101") == 0);
    CLAIM(terrace_tag_get(s, "sky/image", "object", &got, buffer, 5) == TERRACE_OUT_OF_BOUNDS && SAYS("6"));
    tag = (terrace_tag){.tag_type = TERRACE_TAG_INTS, .integers = numbers, .count = 3};
    CLAIM(terrace_tag_put(s, "sky/names", "digits", &tag) == TERRACE_OK);
    CLAIM(terrace_tag_get(s, "sky/names", "digits", &got, buffer, sizeof buffer) == TERRACE_OK);
    CLAIM(got.count == 3 && got.integers[2] == 4);
    CLAIM(terrace_tag_get(s, "sky/names", "none", &got, buffer, sizeof buffer) == TERRACE_NOT_FOUND);
    CLAIM(terrace_tag_put(s, "sky/none", "object", &tag) == TERRACE_NOT_FOUND);
    tag = (terrace_tag){0};
    CLAIM(terrace_tag_put(s, "sky/image", "object", &tag) == TERRACE_INVALID);
    int sum = 0;
    CLAIM(terrace_tags(s, "sky/image", count_tags, &sum) == TERRACE_OK && sum == 'e' * 1000 + 3 + 'o' * 1000 + 4);

    char found[200] = "";
    terrace_query query = {.key = "exposure", .matches = TERRACE_RANGE, .low = {.tag_type = TERRACE_TAG_INT, .integer = 3}};
    CLAIM(terrace_find(s, &query, collect, found) == TERRACE_OK && strcmp(found, "sky/image ") == 0);
    query.high = (terrace_tag){.tag_type = TERRACE_TAG_FLOAT, .real = 3.4};
    *found = 0;
    CLAIM(terrace_find(s, &query, collect, found) == TERRACE_OK && *found == 0);
    query = (terrace_query){.key = "object", .matches = TERRACE_PREFIX, .low = {.tag_type = TERRACE_TAG_TEXT, .text = "M 1"}};
    CLAIM(terrace_find(s, &query, collect, found) == TERRACE_OK && strcmp(found, "sky/image ") == 0);
    query.matches = 17;
    CLAIM(terrace_find(s, &query, collect, found) == TERRACE_INVALID);
    CLAIM(terrace_tag_delete(s, "sky/image", "object") == TERRACE_OK);
    CLAIM(terrace_tag_delete(s, "sky/image", "object") == TERRACE_NOT_FOUND);
}

int main(void) {
    terrace_session *s;
    CLAIM(terrace_connect("", &s) == TERRACE_OK);
    regions(s);
    transfers(s);
    locks(s);
    tags(s);
    CLAIM(terrace_flush(s, "") == TERRACE_OK && terrace_evict(s, "sky") == TERRACE_OK);
    CLAIM(terrace_disconnect(s) == TERRACE_OK);
    puts("all claims hold");
    return 0;
}
