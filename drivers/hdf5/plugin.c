/* What HDF5 finds in this library: a connector whose class is the native connector's, but for the calls of connector.c.
 *
 *   HDF5 ─H5PLget_plugin_info▶ which library asks? ─▶ its calls by name ─▶ its native class ─copy, replace some calls▶ `terrace`
 *
 * So objects are the native connector's own, and everything that is not replaced is native code without anything in between.
 *
 * A process may have several HDF5 libraries (the wheels of h5py and netCDF4 bring one each), and none may be where the loader looks
 * for names: the address that a call comes from tells which one it is. Calls and native class are of one library, so a second one
 * gets a copy of this library. */

#define _GNU_SOURCE
#include "plugin.h"
#include "calls.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

struct hdf5_calls hdf5;
hid_t native = -1;

static char home[PATH_MAX];
static void *owner; /* the HDF5 library that this copy serves */

const char *plugin_path(void) {
    Dl_info self;
    if (!home[0] && dladdr((void *)plugin_path, &self)) snprintf(home, sizeof home, "%s", self.dli_fname);
    return home;
}

static void complain(const char *what, const char *why) {
    fprintf(stderr, "terrace: the HDF5 connector can't serve this HDF5 library: %s%s\n", what, why);
    fprintf(stderr, "hint: leave out --hdf5; files are in the tiers without it, too\n");
}

static int find_calls(void *library) {
#define FIND(NAME) \
    if (!(hdf5.NAME = (__typeof__(hdf5.NAME))dlsym(library, #NAME))) { \
        complain("it lacks ", #NAME); \
        return -1; \
    }
    HDF5_CALLS(FIND)
#undef FIND
    /* A program that is linked to the library may have the variables of its own (copy relocations), which the library then uses, too. */
    void *home_of_variables = dlsym(RTLD_DEFAULT, "H5VLget_connector_id_by_name") == (void *)hdf5.H5VLget_connector_id_by_name
        ? RTLD_DEFAULT
        : library;
#define FIND(NAME) \
    if (!(hdf5.NAME = (hid_t *)dlsym(home_of_variables, #NAME))) { \
        complain("it lacks ", #NAME); \
        return -1; \
    }
    HDF5_IDENTIFIERS(FIND)
#undef FIND
    return 0;
}

/* Asks for the class in a copy of this library, which has variables of its own. */
static const void *info_of_copy(void *library) {
    int from = open(plugin_path(), O_RDONLY | O_CLOEXEC);
    int to = memfd_create("terrace_hdf5", MFD_CLOEXEC);
    struct stat found;
    const void *info = NULL;
    if (from >= 0 && to >= 0 && fstat(from, &found) == 0) {
        off_t position = 0;
        while (position < found.st_size && sendfile(to, from, &position, found.st_size - position) > 0) continue;
        char name[40];
        snprintf(name, sizeof name, "/proc/self/fd/%d", to);
        void *copy = position == found.st_size ? dlopen(name, RTLD_NOW | RTLD_LOCAL) : NULL;
        const void *(*serve)(void *, const char *) =
            copy ? (const void *(*)(void *, const char *))dlsym(copy, "terrace_hdf5_serve") : NULL;
        if (serve)
            info = serve(library, plugin_path());
        else
            complain("a second one in this process can't be served: ", copy ? "no memory" : dlerror());
    }
    if (from >= 0) close(from);
    if (to >= 0) close(to);
    return info;
}

EXPORTED const void *terrace_hdf5_serve(void *library, const char *path) {
    if (path) snprintf(home, sizeof home, "%s", path);
    if (find_calls(library)) return NULL;
    const H5VL_class_t *from = NULL;
    native = hdf5.H5VLget_connector_id_by_name("native");
    /* The native connector looks at no object for this, but one has to be given. */
    if (native < 0 || hdf5.H5VLintrospect_get_conn_cls(&native, native, H5VL_GET_CONN_LVL_TERM, &from) < 0 || !from) {
        complain("its native connector is not to be had", "");
        return NULL;
    }
    if (from->version != H5VL_VERSION) {
        complain("it is another version than 1.14, 2.0, 2.1 or 2.2", "");
        return NULL;
    }
    owner = library;
    return connector_class(from);
}

EXPORTED H5PL_type_t H5PLget_plugin_type(void) { return H5PL_TYPE_VOL; }

EXPORTED const void *H5PLget_plugin_info(void) {
    Dl_info caller;
    if (!dladdr(__builtin_return_address(0), &caller)) return NULL;
    void *library = dlopen(caller.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    /* HDF5 linked statically into a program. */
    if (!library) library = dlopen(NULL, RTLD_NOW);
    if (!library) return NULL;
    return owner && owner != library ? info_of_copy(library) : terrace_hdf5_serve(library, NULL);
}
