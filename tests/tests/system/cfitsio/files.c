/* CFITSIO in a root, with the driver: argv[1] is a directory outside the root. */
#include "fits.h"
#include <sys/stat.h>
#include <unistd.h>

enum { WIDTH = 100 };

static long size_of(const char *path) {
    struct stat found;
    return stat(path, &found) ? -1 : (long)found.st_size;
}

/* An image of so many rows; `flush` before it is closed. */
static void write_image(const char *name, long rows) {
    fitsfile *file;
    int status = 0;
    long axes[2] = {WIDTH, rows};
    float row[WIDTH];
    CLAIM(ffinit(&file, name, &status) == 0 && ffcrim(file, -32, 2, axes, &status) == 0);
    for (long y = 0; y < rows; y++) {
        for (int x = 0; x < WIDTH; x++) row[x] = y * 1000.0f + x;
        CLAIM(ffppre(file, 1, y * WIDTH + 1, WIDTH, row, &status) == 0);
    }
    CLAIM(ffclos(file, &status) == 0);
}

static void read_image(const char *name, long rows) {
    fitsfile *file;
    int status = 0, any;
    float row[WIDTH];
    CLAIM(ffopen(&file, name, READONLY, &status) == 0);
    for (long y = rows - 1; y >= 0; y--) {
        CLAIM(ffgpve(file, 1, y * WIDTH + 1, WIDTH, 0, row, &any, &status) == 0);
        for (int x = 0; x < WIDTH; x++) CLAIM(row[x] == y * 1000.0f + x);
    }
    CLAIM(ffgpve(file, 1, rows * WIDTH + 1, 1, 0, row, &any, &status) != 0);
    status = 0;
    CLAIM(ffclos(file, &status) == 0);
}

static void plain_paths(const char *outside) {
    fitsfile *file;
    int status = 0;
    char path[4096];
    write_image("plain.fits", 500);
    CLAIM(size_of("plain.fits") > 200000 && size_of("plain.fits") % 2880 == 0);
    read_image("plain.fits", 500);
    /* What the file driver refuses is refused. */
    CLAIM(ffinit(&file, "plain.fits", &status) == 105);
    status = 0;
    CLAIM(ffopen(&file, "none.fits", READONLY, &status) == 104);
    status = 0;
    /* A second run over existing outputs, as programs do it. */
    CLAIM(remove("plain.fits") == 0 && size_of("plain.fits") == -1);
    CLAIM(ffopen(&file, "plain.fits", READONLY, &status) == 104);
    write_image("plain.fits", 20);
    read_image("plain.fits", 20);
    write_image("!plain.fits", 30);
    read_image("plain.fits", 30);
    /* By other ways to the same place. */
    CLAIM(mkdir("sub", 0755) == 0 && symlink("sub", "way") == 0);
    write_image("sub/../dots.fits", 3);
    write_image("way/linked.fits", 3);
    CLAIM(getcwd(path, 4000) && strcat(path, "/sub/linked.fits"));
    read_image(path, 3);
    read_image("dots.fits", 3);
    /* Outside the root the file driver is at work. */
    snprintf(path, sizeof path, "%s/outside.fits", outside);
    write_image(path, 40);
    read_image(path, 40);
    CLAIM(remove(path) == 0);
}

static void names_of_objects(void) {
    fitsfile *file;
    int status = 0;
    write_image("terrace://deep/er/object.fits", 200);
    long size = size_of("deep/er/object.fits");
    CLAIM(size > 80000);
    read_image("deep/er/object.fits", 200);
    /* Creating empties what is there: nothing of the longer one is left. */
    write_image("terrace://deep/er/object.fits", 10);
    CLAIM(size_of("deep/er/object.fits") < size);
    read_image("terrace://deep/er/object.fits", 10);
    CLAIM(ffopen(&file, "terrace://deep/er/object.fits", READWRITE, &status) == 0 && ffdelt(file, &status) == 0);
    CLAIM(size_of("deep/er/object.fits") == -1);
    CLAIM(ffopen(&file, "terrace://deep/er/object.fits", READONLY, &status) == 104);
    CLAIM(ffinit(&file, "terrace://../escape.fits", &status) != 0);
}

static void what_is_written_and_not_closed(void) {
    fitsfile *file;
    int status = 0;
    long axes[2] = {WIDTH, 100};
    float row[WIDTH] = {0};
    CLAIM(ffinit(&file, "open.fits", &status) == 0 && ffcrim(file, -32, 2, axes, &status) == 0);
    for (long y = 0; y < 100; y++) CLAIM(ffppre(file, 1, y * WIDTH + 1, WIDTH, row, &status) == 0);
    /* Gathered: the file driver would have written most of it by now. */
    CLAIM(size_of("open.fits") == 0);
    CLAIM(ffflus(file, &status) == 0 && size_of("open.fits") > 40000);
    row[0] = 7;
    CLAIM(ffppre(file, 1, 1, WIDTH, row, &status) == 0 && ffflus(file, &status) == 0);
    /* A change in place, by another handle. */
    fitsfile *same;
    CLAIM(ffopen(&same, "left.fits", READWRITE, &status) == 104);
    status = 0;
    axes[1] = 1000;
    CLAIM(ffinit(&same, "left.fits", &status) == 0 && ffcrim(same, -32, 2, axes, &status) == 0);
    /* The program ends here: what CFITSIO has handed over (all but its last 40 pieces) is not lost. */
    for (long y = 0; y < 1000; y++) CLAIM(ffppre(same, 1, y * WIDTH + 1, WIDTH, row, &status) == 0);
}

int main(int count, char **arguments) {
    CLAIM(count == 2);
    plain_paths(arguments[1]);
    names_of_objects();
    what_is_written_and_not_closed();
    puts("all claims hold");
    return 0;
}
