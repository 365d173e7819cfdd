/* What the tests use of CFITSIO 4.2, so that its development package is not needed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef struct fitsfile fitsfile;
typedef long long LONGLONG;
int ffinit(fitsfile **file, const char *name, int *status);
int ffopen(fitsfile **file, const char *name, int mode, int *status);
int ffclos(fitsfile *file, int *status);
int ffflus(fitsfile *file, int *status);
int ffdelt(fitsfile *file, int *status);
int ffcrim(fitsfile *file, int bitpix, int naxis, long *naxes, int *status);
int ffppre(fitsfile *file, long group, LONGLONG first, LONGLONG count, float *values, int *status);
int ffgpve(fitsfile *file, long group, LONGLONG first, LONGLONG count, float null, float *values, int *any, int *status);
int ffgmsg(char *message);
enum { READONLY = 0, READWRITE = 1 };
#define CLAIM(CONDITION) \
    do { \
        if (!(CONDITION)) { \
            char message[81] = ""; \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #CONDITION); \
            while (ffgmsg(message)) fprintf(stderr, "cfitsio: %s\n", message); \
            exit(1); \
        } \
    } while (0)
