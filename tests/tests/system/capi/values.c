/* Questions about values, histograms, and regions of memory. */
#include "claim.h"
enum { ROWS = 30, COLUMNS = 50 };

/* Adds what it is given; refuses a region of one cell. */
static int add(const terrace_region *region, const char *type, void *cells, size_t bytes, void *context) {
    float *of = cells;
    if (strcmp(type, "float32") != 0 || region->count[0] * region->count[1] * sizeof *of != bytes) return 1;
    for (size_t i = 0; i < bytes / sizeof *of; i++) of[i] += *(float *)context;
    return bytes == sizeof *of ? 9 : 0;
}

int main(void) {
    static float cells[ROWS][COLUMNS], halo[ROWS + 2][COLUMNS + 2], got[ROWS * COLUMNS];
    static uint64_t positions[ROWS * COLUMNS], counts[4];
    terrace_session *s;
    terrace_array *a, *b;
    terrace_where *high, *low, *both, *either;
    terrace_selection *found;
    uint64_t count = 0, shape[2] = {ROWS + 2, COLUMNS + 2};
    terrace_array_spec spec = {.data_type = "float32", .rank = 2, .shape = {ROWS, COLUMNS}};
    terrace_region whole = {.rank = 2, .count = {ROWS, COLUMNS}};
    terrace_region inside = {.rank = 2, .offset = {1, 1}, .count = {ROWS, COLUMNS}};
    CLAIM(terrace_connect("", &s) == TERRACE_OK);
    CLAIM(terrace_array_create(s, "run/a", &spec, TERRACE_NEW, &a) == TERRACE_OK);
    CLAIM(terrace_array_create(s, "run/b", &spec, TERRACE_NEW, &b) == TERRACE_OK);
    for (int y = 0; y < ROWS; y++)
        for (int x = 0; x < COLUMNS; x++) halo[y + 1][x + 1] = cells[y][x] = (float)(y * COLUMNS + x);

    /* The inside of a buffer with a halo. */
    CLAIM(terrace_array_put_from(a, &whole, shape, &inside, halo, sizeof halo) == TERRACE_OK);
    CLAIM(terrace_array_get(a, &whole, got, sizeof got) == TERRACE_OK && memcmp(got, cells, sizeof got) == 0);
    CLAIM(terrace_array_put(b, &whole, cells, sizeof cells) == TERRACE_OK);
    memset(halo, 0, sizeof halo);
    CLAIM(terrace_array_get_into(a, &whole, shape, &inside, halo, sizeof halo) == TERRACE_OK);
    CLAIM(halo[0][0] == 0 && halo[1][1] == 0 && halo[ROWS][COLUMNS] == cells[ROWS - 1][COLUMNS - 1] && halo[1][COLUMNS + 1] == 0);
    CLAIM(terrace_array_put_from(a, &whole, shape, &inside, halo, sizeof halo - 1) == TERRACE_INVALID);
    CLAIM(terrace_array_put_from(a, &whole, NULL, &inside, halo, sizeof halo) == TERRACE_INVALID);

    CLAIM(terrace_where_new(a, ">= 1490", &high) == TERRACE_OK && terrace_where_new(b, "< 1495", &low) == TERRACE_OK);
    CLAIM(terrace_where_and(high, low, &both) == TERRACE_OK && terrace_where_or(high, low, &either) == TERRACE_OK);
    CLAIM(terrace_select(both, NULL, &found) == TERRACE_OK);
    CLAIM(terrace_selection_count(found, &count) == TERRACE_OK && count == 5);
    CLAIM(terrace_selection_positions(found, positions, 4) == TERRACE_OUT_OF_BOUNDS);
    CLAIM(terrace_selection_positions(found, positions, 5) == TERRACE_OK && positions[0] == 1490 && positions[4] == 1494);
    CLAIM(terrace_selection_get(found, b, got, 5 * sizeof(float)) == TERRACE_OK && got[0] == 1490 && got[4] == 1494);
    CLAIM(terrace_selection_get(found, b, got, 4 * sizeof(float)) == TERRACE_INVALID);
    CLAIM(terrace_selection_close(found) == TERRACE_OK && terrace_selection_close(found) == TERRACE_BAD_HANDLE);
    CLAIM(terrace_select(either, NULL, &found) == TERRACE_OK && terrace_selection_count(found, &count) == TERRACE_OK);
    CLAIM(count == ROWS * COLUMNS && terrace_selection_close(found) == TERRACE_OK);
    terrace_region block = {.rank = 2, .offset = {29, 0}, .count = {1, 41}};
    CLAIM(terrace_select(high, &block, &found) == TERRACE_OK && terrace_selection_count(found, &count) == TERRACE_OK);
    CLAIM(count == 1 && terrace_selection_close(found) == TERRACE_OK);
    CLAIM(terrace_where_new(a, "about 3", &low) == TERRACE_INVALID);

    double from = 1, to = 0;
    CLAIM(terrace_histogram(a, NULL, 4, &from, &to, counts) == TERRACE_OK && from == 0 && to == 1499);
    CLAIM(counts[0] + counts[1] + counts[2] + counts[3] == ROWS * COLUMNS && counts[0] == 375);
    from = 0, to = 9;
    CLAIM(terrace_histogram(a, NULL, 2, &from, &to, counts) == TERRACE_OK && counts[0] == 5 && counts[1] == 5);
    CLAIM(terrace_histogram(a, NULL, 0, &from, &to, counts) == TERRACE_INVALID);

    /* Functions that are applied as cells are put and got. */
    static float one = 1;
    terrace_region row = {.rank = 2, .count = {1, COLUMNS}}, cell = {.rank = 2, .offset = {1, 1}, .count = {1, 1}};
    CLAIM(terrace_array_hook(b, TERRACE_ON_PUT, add, &one) == TERRACE_OK && terrace_array_hook(b, 5, add, &one) == TERRACE_INVALID);
    CLAIM(terrace_array_hook(b, TERRACE_ON_GET, NULL, NULL) == TERRACE_INVALID);
    CLAIM(terrace_array_put(b, &row, cells, COLUMNS * sizeof(float)) == TERRACE_OK && cells[0][3] == 3);
    CLAIM(terrace_array_get(b, &row, got, COLUMNS * sizeof(float)) == TERRACE_OK && got[3] == 4);
    CLAIM(terrace_array_hook(b, TERRACE_ON_GET, add, &one) == TERRACE_OK);
    CLAIM(terrace_array_get(b, &row, got, COLUMNS * sizeof(float)) == TERRACE_OK && got[3] == 5);
    CLAIM(terrace_array_put(b, &cell, &one, sizeof one) == TERRACE_INVALID && strstr(terrace_error(), "9"));
    CLAIM(terrace_array_unhook(b) == TERRACE_OK && terrace_array_get(b, &cell, got, sizeof one) == TERRACE_OK);
    CLAIM(got[0] == cells[1][1]);
    CLAIM(terrace_array_hook_library(b, TERRACE_ON_PUT, "/nothing.so", "add", NULL) == TERRACE_NOT_FOUND);

    /* Another shape, also a smaller one; another name. */
    int rank = 0;
    uint64_t smaller[2] = {3, 60}, now[TERRACE_RANK_MAX];
    CLAIM(terrace_array_resize(b, 2, smaller) == TERRACE_OK && terrace_array_shape(b, &rank, now) == TERRACE_OK);
    CLAIM(rank == 2 && now[0] == 3 && now[1] == 60);
    terrace_region last = {.rank = 2, .offset = {2, 49}, .count = {1, 2}};
    CLAIM(terrace_array_get(b, &last, got, 2 * sizeof(float)) == TERRACE_OK && got[0] == cells[2][49] && got[1] == 0);
    CLAIM(terrace_array_resize(b, 1, smaller) == TERRACE_INVALID);
    CLAIM(terrace_array_close(b) == TERRACE_OK && terrace_rename(s, "run/b", "run/a") == TERRACE_EXISTS);
    CLAIM(terrace_rename(s, "run/b", "other/c") == TERRACE_OK && terrace_rename(s, "run/b", "d") == TERRACE_NOT_FOUND);
    CLAIM(terrace_array_open(s, "other/c", true, &b) == TERRACE_OK);
    CLAIM(terrace_array_get(b, &last, got, 2 * sizeof(float)) == TERRACE_OK && got[0] == cells[2][49]);

    CLAIM(terrace_where_close(high) == TERRACE_OK && terrace_where_close(high) == TERRACE_BAD_HANDLE);
    CLAIM(terrace_where_close(both) == TERRACE_OK && terrace_where_close(either) == TERRACE_OK);
    CLAIM(terrace_array_close(a) == TERRACE_OK && terrace_array_close(b) == TERRACE_OK && terrace_disconnect(s) == TERRACE_OK);
    puts("all claims hold");
    return 0;
}
