/* A program with whatever HDF5 the system has: 1.10 knows of no connectors. */
#include <hdf5.h>
#include <stdio.h>

int main(void) {
    int cells[] = {1, 2, 3};
    hsize_t extent = 3;
    hid_t file = H5Fcreate("old.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t space = H5Screate_simple(1, &extent, NULL);
    hid_t dataset = H5Dcreate2(file, "x", H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    if (H5Dwrite(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, cells) < 0) return 1;
    H5Dclose(dataset);
    if (H5Fclose(file) < 0) return 1;
    printf("%d.%d\n", H5_VERS_MAJOR, H5_VERS_MINOR);
    return 0;
}
