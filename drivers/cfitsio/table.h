/* What CFITSIO 4.x keeps for each of its drivers, and codes that drivers return. Its own header of this is not installed. */
#ifndef TERRACE_CFITSIO_TABLE_H
#define TERRACE_CFITSIO_TABLE_H

typedef long long LONGLONG;

struct fits_driver {
    char prefix[20];
    int (*init)(void);
    int (*shutdown)(void);
    int (*setoptions)(int options);
    int (*getoptions)(int *options);
    int (*getversion)(int *version);
    int (*checkfile)(char *urltype, char *infile, char *outfile);
    int (*open)(char *filename, int rwmode, int *handle);
    int (*create)(char *filename, int *handle);
    int (*truncate)(int handle, LONGLONG size);
    int (*close)(int handle);
    int (*remove)(char *filename);
    int (*size)(int handle, LONGLONG *size);
    int (*flush)(int handle);
    int (*seek)(int handle, LONGLONG offset);
    int (*read)(int handle, void *buffer, long count);
    int (*write)(int handle, void *buffer, long count);
};

typedef int register_driver(
    char *prefix, int (*init)(void), int (*shutdown)(void), int (*setoptions)(int), int (*getoptions)(int *),
    int (*getversion)(int *), int (*checkfile)(char *, char *, char *), int (*open)(char *, int, int *),
    int (*create)(char *, int *), int (*truncate)(int, LONGLONG), int (*close)(int), int (*remove)(char *),
    int (*size)(int, LONGLONG *), int (*flush)(int), int (*seek)(int, LONGLONG), int (*read)(int, void *, long),
    int (*write)(int, void *, long));

enum {
    FILE_NOT_OPENED = 104,
    FILE_NOT_CREATED = 105,
    WRITE_ERROR = 106,
    END_OF_FILE = 107,
    READ_ERROR = 108,
    FILE_NOT_CLOSED = 110,
    BAD_FILEPTR = 114,
    READWRITE = 1,
};

#endif
