/* Writes one small image to the path given. */
#include "fits.h"

int main(int count, char **arguments) {
    fitsfile *file;
    int status = 0;
    long axes[2] = {10, 10};
    float values[100];
    for (int at = 0; at < 100; at++) values[at] = at;
    CLAIM(count == 2 && ffinit(&file, arguments[1], &status) == 0);
    CLAIM(ffcrim(file, -32, 2, axes, &status) == 0 && ffppre(file, 1, 1, 100, values, &status) == 0);
    CLAIM(ffclos(file, &status) == 0);
    return 0;
}
