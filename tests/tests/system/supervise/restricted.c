// openat2(2): what restricts links and places does not restrict a file that lies in a tier.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int how_opened(int directory, const char *path, int flags, int mode, unsigned resolve) {
    struct open_how how = {.flags = flags, .mode = mode, .resolve = resolve};
    return syscall(SYS_openat2, directory, path, &how, sizeof how);
}

static int holds(int fd) {
    char bytes[9] = "";
    struct stat status;
    int good = fd >= 0 && read(fd, bytes, 9) == 8 && strcmp(bytes, "precious") == 0;
    good = good && fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
    return close(fd) == 0 && good;
}

static void make(const char *name) {
    unlink(name);
    int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0600);
    CHECK(fd >= 0 && write(fd, "precious", 8) == 8 && close(fd) == 0);
}

int main(void) {
    char text[512];
    unsigned all[] = {RESOLVE_NO_XDEV, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH, RESOLVE_IN_ROOT,
                      RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV | RESOLVE_NO_MAGICLINKS};
    mkdir("d", 0700), make("top"), make("d/file");
    unlink("d/link"), unlink("d/up"), unlink("d/away");
    CHECK(symlink("file", "d/link") == 0 && symlink("../top", "d/up") == 0 && symlink("/top", "d/away") == 0);
    int here = open(".", O_PATH | O_DIRECTORY), d = open("d", O_RDONLY | O_DIRECTORY);
    CHECK(here >= 0 && d >= 0);
    for (int i = 0; i < 6; i++) {
        CHECK(holds(how_opened(here, "d/file", O_RDONLY, 0, all[i])));
        CHECK(holds(how_opened(d, "file", O_RDONLY | O_NOFOLLOW, 0, all[i])));
        CHECK(holds(how_opened(d, "./../d//file", O_RDONLY, 0, all[i] & ~(RESOLVE_BENEATH | RESOLVE_IN_ROOT))));
        unlink("d/new");
        int fd = how_opened(d, "new", O_CREAT | O_EXCL | O_WRONLY, 0640, all[i]);
        CHECK(fd >= 0 && write(fd, "precious", 8) == 8 && close(fd) == 0);
        CHECK(holds(how_opened(d, "new", O_RDWR, 0, all[i])));
        CHECK(how_opened(d, "new", O_CREAT | O_EXCL | O_WRONLY, 0640, all[i]) < 0 && errno == EEXIST);
        CHECK(how_opened(d, "none", O_RDONLY, 0, all[i]) < 0 && errno == ENOENT);
    }
    // The program's own links are links, and what is outside is outside.
    CHECK(holds(how_opened(here, "d/link", O_RDONLY, 0, RESOLVE_BENEATH)));
    CHECK(holds(how_opened(here, "d/up", O_RDONLY, 0, RESOLVE_BENEATH)));
    CHECK(how_opened(d, "up", O_RDONLY, 0, RESOLVE_BENEATH) < 0 && errno == EXDEV);
    CHECK(how_opened(d, "../top", O_RDONLY, 0, RESOLVE_BENEATH) < 0 && errno == EXDEV);
    CHECK(how_opened(here, "d/link", O_RDONLY, 0, RESOLVE_NO_SYMLINKS) < 0 && errno == ELOOP);
    CHECK(how_opened(here, "d/link", O_RDONLY | O_NOFOLLOW, 0, RESOLVE_BENEATH) < 0 && errno == ELOOP);
    CHECK(how_opened(here, "d/away", O_RDONLY, 0, RESOLVE_BENEATH) < 0 && errno == EXDEV);
    CHECK(holds(how_opened(here, "d/away", O_RDONLY, 0, RESOLVE_IN_ROOT)));
    CHECK(holds(how_opened(d, "/file", O_RDONLY, 0, RESOLVE_IN_ROOT)));
    CHECK(holds(how_opened(d, "../../file", O_RDONLY, 0, RESOLVE_IN_ROOT)));
    CHECK(how_opened(d, "/top", O_RDONLY, 0, RESOLVE_IN_ROOT) < 0 && errno == ENOENT);
    CHECK(getcwd(text, sizeof text) != NULL && strcat(text, "/d/file") != NULL);
    CHECK(holds(how_opened(-1, text, O_RDONLY, 0, RESOLVE_NO_SYMLINKS)));
    CHECK(how_opened(d, text, O_RDONLY, 0, RESOLVE_BENEATH) < 0 && errno == EXDEV);
    CHECK(how_opened(d, "file", O_RDONLY, 0, RESOLVE_CACHED) >= 0 || errno == EAGAIN);
    // What openat2 alone refuses.
    CHECK(how_opened(d, "file", O_RDONLY, 0600, RESOLVE_BENEATH) < 0 && errno == EINVAL);
    CHECK(how_opened(d, "file", O_RDONLY, 0600, 0) < 0 && errno == EINVAL);
    CHECK(how_opened(d, "file", O_RDONLY, 0, 0x4000) < 0 && errno == EINVAL);
    CHECK(syscall(SYS_openat2, d, "file", NULL, sizeof(struct open_how)) < 0 && errno == EFAULT);
    return 0;
}
