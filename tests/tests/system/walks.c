// ftw and nftw over trees that are hard to walk: what is called, with what type, level and base, and what is returned.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char lines[400][256];
static int count, answer_at, answer;

static int say(const char *path, const struct stat *status, int type, int base, int level) {
    char what[32] = "";
    if (type != FTW_NS) {
        snprintf(what, sizeof what, "%o", status->st_mode);
    }
    char name[4096];
    snprintf(name, sizeof name, "%s", path);
    // Which of the two is met first is the directory's order.
    if (!strncmp(name, "twice/2", 7)) {
        name[6] = '1';
    }
    snprintf(lines[count], sizeof *lines, "%s type %d mode %s base %d level %d", name, type, what, base, level);
    return count++ == answer_at ? answer : 0;
}

static int of_nftw(const char *path, const struct stat *status, int type, struct FTW *position) {
    return say(path, status, type, position->base, position->level);
}

static int of_ftw(const char *path, const struct stat *status, int type) {
    return say(path, status, type, -1, -1);
}

static int in_order(const void *one, const void *other) {
    return strcmp(one, other);
}

// Directories are listed in any order: lines are sorted.
static void show(const char *name, const char *path, int flags, int result) {
    qsort(lines, count, sizeof *lines, in_order);
    printf("%s %s flags %d: %d %s\n", name, path, flags, result, result == -1 && answer_at == -1 ? strerrorname_np(errno) : "");
    for (int i = 0; i < count; i++) {
        printf("  %s\n", lines[i]);
    }
    count = 0;
}

static void make_file(const char *path, int mode) {
    close(open(path, O_CREAT | O_WRONLY, 0666));
    chmod(path, mode);
}

static int make(void) {
    mkdir("top", 0777), mkdir("top/a", 0777), mkdir("top/a/b", 0777), mkdir("top/shut", 0777), mkdir("top/shut/in", 0777);
    mkdir("top/blind", 0777), mkdir("alone", 0777), mkdir("alone/one", 0777);
    make_file("top/file", 0644), make_file("top/a/b/deep", 0600), make_file("top/none", 0), make_file("top/blind/f", 0644);
    make_file("top/shut/f", 0644), make_file("alone/one/f", 0644);
    mkdir("real", 0777), mkdir("real/in", 0777), mkdir("twice", 0777);
    make_file("real/f", 0644);
    symlink("../real", "twice/1"), symlink("../real", "twice/2");
    symlink("../..", "top/a/b/up"), symlink("nowhere", "top/dangling"), symlink("file", "top/to_file");
    symlink("top", "to_top");
    // Searched but not read; read but not searched.
    chmod("top/shut", 0311), chmod("top/blind", 0444);
    return 0;
}

int main(int argc, char **argv) {
    mkdir("walks", 0777);
    if (chdir("walks")) {
        return 1;
    }
    if (argc > 1 && !strcmp(argv[1], "make")) {
        return make();
    }
    // Root reads everything.
    if (geteuid() == 0 && (setegid(65534) || seteuid(65534))) {
        return 1;
    }
    const char *paths[] = {"top", "./top", "top/", "top/a", "top/shut", "top/file", "to_top", "top/dangling", "twice", "missing", "top/file/x", "", "."};
    for (int i = 0; i < (int)(sizeof paths / sizeof *paths); i++) {
        answer_at = -1;
        show("ftw", paths[i], 0, ftw(paths[i], of_ftw, 8));
        for (int flags = 0; flags < 16; flags++) {
            // A walk that changes directories fails where it may not: that is left out.
            if (!(flags & FTW_CHDIR)) {
                show("nftw", paths[i], flags, nftw(paths[i], of_nftw, 8, flags));
            }
        }
    }
    for (answer = -1; answer <= 7; answer++) {
        answer_at = 1;
        show("answer", "alone", 0, nftw("alone", of_nftw, 8, FTW_PHYS));
        show("answer", "alone", FTW_ACTIONRETVAL, nftw("alone", of_nftw, 8, FTW_PHYS | FTW_ACTIONRETVAL));
    }
    return 0;
}
