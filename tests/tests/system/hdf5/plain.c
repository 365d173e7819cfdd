/* A C program that is linked to an HDF5 library of 1.14 or later: writes by selections in memory and in the file, with conversions, waits
 * for a line, and ends without closing anything. Declares what it calls, because wheels bring no headers. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef int64_t hid_t;
typedef uint64_t hsize_t;
int H5open(void);
hid_t H5Fcreate(const char *name, unsigned flags, hid_t creation, hid_t access);
hid_t H5Screate_simple(int rank, const hsize_t *extents, const hsize_t *most);
int H5Sselect_hyperslab(hid_t space, int how, const hsize_t *start, const hsize_t *stride, const hsize_t *count, const hsize_t *block);
hid_t H5Dcreate2(hid_t at, const char *name, hid_t type, hid_t space, hid_t links, hid_t creation, hid_t access);
int H5Dwrite(hid_t dataset, hid_t type, hid_t memory, hid_t space, hid_t transfer, const void *cells);
hid_t H5Acreate2(hid_t at, const char *name, hid_t type, hid_t space, hid_t creation, hid_t access);
int H5Awrite(hid_t attribute, hid_t type, const void *value);
extern hid_t H5T_NATIVE_INT_g, H5T_NATIVE_DOUBLE_g, H5T_IEEE_F64BE_g, H5T_STD_I16BE_g;

#define CHECK(call) \
    if ((call) < 0) { \
        fprintf(stderr, "%s failed\n", #call); \
        exit(1); \
    }

int main(int count, char **words) {
    hid_t file, space, memory, real, whole, attribute;
    hsize_t extents[] = {6, 4}, wide[] = {6, 8}, start[] = {1, 0}, stride[] = {2, 1}, counts[] = {2, 4}, from[] = {0, 2};
    double cells[6][8];
    int numbers[6][4];
    for (int row = 0; row < 6; row++) {
        for (int column = 0; column < 8; column++) cells[row][column] = 10 * row + column;
        for (int column = 0; column < 4; column++) numbers[row][column] = 70000 * (row == 5) + row - column;
    }
    if (count != 2) return 2;
    CHECK(H5open());
    CHECK(file = H5Fcreate(words[1], 2, 0, 0));
    CHECK(space = H5Screate_simple(2, extents, NULL));
    CHECK(memory = H5Screate_simple(2, wide, NULL));
    /* Doubles to doubles of the other order of bytes, from the middle of memory to rows 1 and 3. */
    CHECK(real = H5Dcreate2(file, "real", H5T_IEEE_F64BE_g, space, 0, 0, 0));
    CHECK(H5Sselect_hyperslab(space, 0, start, stride, counts, NULL));
    CHECK(H5Sselect_hyperslab(memory, 0, from, NULL, counts, NULL));
    CHECK(H5Dwrite(real, H5T_NATIVE_DOUBLE_g, memory, space, 0, cells));
    /* Integers to doubles, and to integers that are too small for some. */
    start[0] = 5, counts[0] = 1;
    CHECK(H5Sselect_hyperslab(space, 0, start, NULL, counts, NULL));
    CHECK(H5Dwrite(real, H5T_NATIVE_INT_g, 0, space, 0, numbers));
    CHECK(whole = H5Dcreate2(file, "whole", H5T_STD_I16BE_g, space, 0, 0, 0));
    CHECK(H5Dwrite(whole, H5T_NATIVE_INT_g, 0, 0, 0, numbers));
    CHECK(attribute = H5Acreate2(whole, "rows", H5T_STD_I16BE_g, H5Screate_simple(1, (hsize_t[]){1}, NULL), 0, 0));
    CHECK(H5Awrite(attribute, H5T_NATIVE_INT_g, (int[]){6}));
    printf("written\n");
    fflush(stdout);
    getchar();
    return 0;
}
