/* The calls of libterrace.so that the driver makes, found when the first file is opened. */
#ifndef TERRACE_CFITSIO_CALLS_H
#define TERRACE_CFITSIO_CALLS_H

#include <terrace.h>

#define TERRACE_CALLS(DO) \
    DO(terrace_error) \
    DO(terrace_connect) \
    DO(terrace_root) \
    DO(terrace_container_create) \
    DO(terrace_remove) \
    DO(terrace_stat) \
    DO(terrace_bytes_create) \
    DO(terrace_bytes_open) \
    DO(terrace_bytes_read) \
    DO(terrace_bytes_write) \
    DO(terrace_bytes_length) \
    DO(terrace_bytes_set_length) \
    DO(terrace_bytes_flush) \
    DO(terrace_bytes_close)

struct terrace_calls {
#define FIELD(NAME) __typeof__(&NAME) NAME;
    TERRACE_CALLS(FIELD)
#undef FIELD
};

#endif
