/* The way to the agent: libterrace.so is loaded, and a session begun, when the first file is opened for writing. */

#define _GNU_SOURCE
#include "calls.h"
#include "plugin.h"
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct terrace_calls terrace;
terrace_session *session;

static char root[PATH_MAX];
static size_t root_length;
static int is_connected;

/* libterrace.so lies in a directory above this library's: one as it is built, two as it is installed. */
static void *load_terrace(void) {
    char path[PATH_MAX + 20];
    if (realpath(plugin_path(), path)) {
        for (int level = 0; level < 4; level++) {
            char *slash = strrchr(path, '/');
            if (!slash) break;
            strcpy(slash, "/libterrace.so");
            void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
            if (library) return library;
            *slash = 0;
        }
    }
    return dlopen("libterrace.so", RTLD_NOW | RTLD_LOCAL);
}

static void complain(const char *what, const char *why) {
    fprintf(stderr, "terrace: the HDF5 connector does nothing, files are read and written as usual: %s%s\n", what, why);
}

static int try_to_connect(void) {
    void *library = load_terrace();
    if (!library) {
        complain("libterrace.so can't be loaded: ", dlerror());
        return -1;
    }
#define FIND(NAME) \
    if (!(terrace.NAME = (__typeof__(terrace.NAME))dlsym(library, #NAME))) { \
        complain("libterrace.so is of another version: it lacks ", #NAME); \
        return -1; \
    }
    TERRACE_CALLS(FIND)
#undef FIND
    if (terrace.terrace_connect("", &session) || terrace.terrace_root(session, root, sizeof root)) {
        complain("", terrace.terrace_error());
        return -1;
    }
    root_length = strlen(root);
    return 0;
}

static void connect_now(void) { is_connected = try_to_connect() == 0; }

int connect_terrace(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, connect_now);
    return is_connected ? 0 : -1;
}

/* Whether a resolved path lies below the root; `rest` is what follows the root. */
static int is_below(const char *path, const char **rest) {
    if (strcmp(root, "/") == 0) {
        *rest = path + 1;
        return 1;
    }
    if (strncmp(path, root, root_length) != 0 || path[root_length] != '/') return 0;
    *rest = path + root_length + 1;
    return 1;
}

int below_root(const char *name, char *below) {
    char path[PATH_MAX], directory[PATH_MAX];
    const char *rest;
    if (!realpath(name, path)) return 0;
    if (is_below(path, &rest)) {
        strcpy(below, rest);
        return 1;
    }
    /* A file in a tier is a link that leads there: then its directory is resolved and its name stays. */
    if (!strstr(path, "/terrace-") || strlen(name) >= sizeof directory) return 0;
    strcpy(directory, name);
    char *slash = strrchr(directory, '/');
    const char *last = slash ? name + (slash - directory) + 1 : name;
    strcpy(slash ? slash + (slash == directory) : directory, slash ? "" : ".");
    if (!realpath(directory, path) || strlen(path) + strlen(last) + 2 > sizeof path) return 0;
    if (path[1]) strcat(path, "/");
    strcat(path, last);
    if (!is_below(path, &rest)) return 0;
    strcpy(below, rest);
    return 1;
}

void tell(const char *what, const char *why) {
    static bool has_told;
    if (has_told) return;
    has_told = true;
    const char *end = strchr(why, '\n');
    fprintf(stderr, "terrace: HDF5: %s is in its file only, and can't be asked for while it is written: %.*s (no more is said of others)\n",
            what, (int)(end ? end - why : (long)strlen(why)), why);
}
