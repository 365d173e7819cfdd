/* Every wrapped call with what it must refuse: bad addresses, flags and sizes, directories, links, missing names. One line for each,
 * with its result and errno; the test compares the lines of a native run with those of an accelerated one.
 *
 *   errors make    makes the files that the others look at (in the accelerated run: in a tier)
 *   errors check   prints the lines
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

static char *bad, *cut, long_name[300], long_path[5000];
static const char *root_path;

/* A call that hangs ends the program by the alarm. */
static void show(const char *what, const char *with, long result) {
    int error = errno;
    printf("%s(%s): %s\n", what, with, result < 0 ? strerrorname_np(error) : "done");
    fflush(stdout);
    alarm(20);
    errno = 0;
}

#define SHOW(what, with, call) (errno = 0, show(what, with, (long)(call)))

struct path {
    const char *name, *text;
};

static int opened(int fd) {
    if (fd >= 0)
        close(fd);
    return fd;
}

static void paths(const char *with, const char *p) {
    struct stat st;
    struct statfs fs;
    struct statx stx;
    char text[64];
    struct open_how how = {.flags = O_RDONLY};
    struct timespec times[2] = {{1, 0}, {1, 0}};
    char *none[] = {NULL};
    SHOW("open", with, opened(open(p, O_RDONLY)));
    SHOW("open O_RDONLY|O_CREAT", with, opened(open(p, O_RDONLY | O_CREAT, 0600)));
    unlink("missing"), unlink("nowhere");
    SHOW("open O_WRONLY", with, opened(open(p, O_WRONLY)));
    SHOW("open O_RDWR", with, opened(open(p, O_RDWR)));
    SHOW("open O_DIRECTORY", with, opened(open(p, O_RDONLY | O_DIRECTORY)));
    SHOW("open O_NOFOLLOW", with, opened(open(p, O_RDONLY | O_NOFOLLOW)));
    SHOW("open O_PATH", with, opened(open(p, O_PATH)));
    SHOW("open O_PATH|O_NOFOLLOW", with, opened(open(p, O_PATH | O_NOFOLLOW)));
    SHOW("open O_DIRECTORY|O_CREAT", with, opened(open(p, O_RDONLY | O_DIRECTORY | O_CREAT, 0600)));
    SHOW("open O_DIRECTORY|O_WRONLY", with, opened(open(p, O_WRONLY | O_DIRECTORY)));
    SHOW("open O_NONBLOCK", with, opened(open(p, O_RDONLY | O_NONBLOCK)));
    SHOW("open O_TMPFILE|O_RDONLY", with, opened(open(p, O_TMPFILE | O_RDONLY, 0600)));
    SHOW("openat", with, opened(openat(AT_FDCWD, p, O_RDONLY)));
    SHOW("openat closed directory", with, opened(openat(999, p, O_RDONLY)));
    SHOW("openat2", with, opened(syscall(SYS_openat2, AT_FDCWD, p, &how, sizeof how)));
    how.resolve = RESOLVE_NO_SYMLINKS;
    SHOW("openat2 NO_SYMLINKS", with, opened(syscall(SYS_openat2, AT_FDCWD, p, &how, sizeof how)));
    how.resolve = RESOLVE_BENEATH;
    SHOW("openat2 BENEATH", with, opened(syscall(SYS_openat2, AT_FDCWD, p, &how, sizeof how)));
    how.resolve = RESOLVE_NO_MAGICLINKS;
    SHOW("openat2 NO_MAGICLINKS", with, opened(syscall(SYS_openat2, AT_FDCWD, p, &how, sizeof how)));
    SHOW("syscall open", with, opened(syscall(SYS_open, p, O_RDONLY)));
    SHOW("stat", with, stat(p, &st));
    SHOW("lstat", with, lstat(p, &st));
    SHOW("fstatat bad flags", with, fstatat(AT_FDCWD, p, &st, 0x40000000));
    SHOW("stat to a bad address", with, syscall(SYS_stat, p, bad));
    SHOW("lstat to a bad address", with, syscall(SYS_lstat, p, bad));
    SHOW("statx", with, statx(AT_FDCWD, p, 0, STATX_BASIC_STATS, &stx));
    SHOW("statx bad flags", with, statx(AT_FDCWD, p, 0x40000000, STATX_BASIC_STATS, &stx));
    SHOW("statx both syncs", with, statx(AT_FDCWD, p, AT_STATX_SYNC_TYPE, STATX_BASIC_STATS, &stx));
    SHOW("statx bad mask", with, statx(AT_FDCWD, p, 0, 0x80000000U, &stx));
    SHOW("statx to a bad address", with, syscall(SYS_statx, AT_FDCWD, p, 0, STATX_BASIC_STATS, bad));
    SHOW("access", with, access(p, R_OK));
    SHOW("access bad mode", with, access(p, 0xff));
    SHOW("readlink", with, readlink(p, text, sizeof text) < 0 ? -1 : 0);
    SHOW("readlink to a bad address", with, readlink(p, bad, 16));
    SHOW("readlink of no size", with, readlink(p, text, 0));
    SHOW("statfs", with, statfs(p, &fs));
    SHOW("statfs to a bad address", with, syscall(SYS_statfs, p, bad));
    SHOW("chmod", with, chmod(p, 0755));
    SHOW("fchmodat bad flags", with, fchmodat(AT_FDCWD, p, 0755, 0x40000000));
    SHOW("fchmodat2 bad flags", with, syscall(SYS_fchmodat2, AT_FDCWD, p, 0755, 0x40000000));
    SHOW("fchmodat2", with, syscall(SYS_fchmodat2, AT_FDCWD, p, 0755, 0));
    SHOW("chown", with, chown(p, -1, -1));
    SHOW("lchown", with, lchown(p, -1, -1));
    SHOW("fchownat bad flags", with, fchownat(AT_FDCWD, p, -1, -1, 0x40000000));
    SHOW("utimensat", with, utimensat(AT_FDCWD, p, times, 0));
    SHOW("utimensat bad flags", with, utimensat(AT_FDCWD, p, times, 0x40000000));
    SHOW("utimensat from a bad address", with, syscall(SYS_utimensat, AT_FDCWD, p, bad, 0));
    times[0].tv_nsec = 2000000000;
    SHOW("utimensat bad times", with, utimensat(AT_FDCWD, p, times, 0));
    SHOW("utime from a bad address", with, syscall(SYS_utime, p, bad));
    SHOW("utimes from a bad address", with, syscall(SYS_utimes, p, bad));
    SHOW("truncate negative", with, truncate(p, -1));
    SHOW("getxattr missing", with, getxattr(p, "user.none", text, sizeof text));
    SHOW("lgetxattr missing", with, lgetxattr(p, "user.none", text, sizeof text));
    SHOW("getxattr bad name", with, getxattr(p, bad, text, sizeof text));
    SHOW("lgetxattr bad name", with, lgetxattr(p, bad, text, sizeof text));
    SHOW("setxattr bad name", with, setxattr(p, bad, "x", 1, 0));
    SHOW("setxattr bad value", with, setxattr(p, "user.x", bad, 1, 0));
    SHOW("setxattr bad flags", with, setxattr(p, "user.x", "x", 1, 0x40000000));
    SHOW("setxattr too big", with, setxattr(p, "user.x", "x", 1 << 20, 0));
    SHOW("setxattr long name", with, setxattr(p, long_name, "x", 1, 0));
    SHOW("setxattr no space", with, setxattr(p, "nospace", "x", 1, 0));
    SHOW("lsetxattr replace missing", with, lsetxattr(p, "user.none", "x", 1, XATTR_REPLACE));
    SHOW("removexattr missing", with, removexattr(p, "user.none"));
    SHOW("lremovexattr missing", with, lremovexattr(p, "user.none"));
    SHOW("removexattr bad name", with, removexattr(p, bad));
    SHOW("rmdir of a full one, or none", with, rmdir(p));
    SHOW("unlink bad flags", with, unlinkat(AT_FDCWD, p, 0x40000000));
    SHOW("unlink closed directory", with, unlinkat(999, p, 0));
    SHOW("rename to below itself", with, rename(p, "full/file/below"));
    SHOW("rename bad flags", with, renameat2(AT_FDCWD, p, AT_FDCWD, "new", 0x40000000));
    SHOW("rename exclusive exchange", with, renameat2(AT_FDCWD, p, AT_FDCWD, "new", RENAME_NOREPLACE | RENAME_EXCHANGE));
    SHOW("rename noreplace", with, renameat2(AT_FDCWD, p, AT_FDCWD, "full", RENAME_NOREPLACE));
    SHOW("rename exchange with none", with, renameat2(AT_FDCWD, p, AT_FDCWD, "missing", RENAME_EXCHANGE));
    SHOW("rename to a bad address", with, rename(p, bad));
    SHOW("rename from a bad address", with, rename(bad, p));
    SHOW("rename to a missing directory", with, rename(p, "missing/new"));
    SHOW("rename over a full directory", with, rename(p, "full"));
    SHOW("link over a name", with, link(p, "full"));
    SHOW("link to a bad address", with, link(p, bad));
    SHOW("link from a bad address", with, link(bad, p));
    SHOW("link to a missing directory", with, link(p, "missing/new"));
    SHOW("link bad flags", with, linkat(AT_FDCWD, p, AT_FDCWD, "new", 0x40000000));
    SHOW("symlink over it", with, symlink("x", p));
    SHOW("mkdir over it", with, mkdir(p, 0700) == 0 ? rmdir(p) : -1);
    SHOW("mknod over it", with, mknod(p, S_IFREG | 0600, 0) == 0 ? unlink(p) : -1);
    SHOW("execve", with, execve(p, none, none));
    SHOW("execveat bad flags", with, syscall(SYS_execveat, AT_FDCWD, p, none, none, 0x40000000));
    SHOW("chdir", with, chdir(p) == 0 ? chdir(root_path) : -1);
    SHOW("open O_CREAT|O_EXCL", with, opened(open(p, O_CREAT | O_EXCL | O_WRONLY, 0600)) < 0 ? -1 : unlink(p));
}

static void descriptors(const char *with, int fd) {
    struct stat st;
    char text[4096];
    struct iovec bad_vector = {bad, 10};
    off_t offset = -1;
    SHOW("fstat to a bad address", with, syscall(SYS_fstat, fd, bad));
    SHOW("fstatat of an empty path", with, fstatat(fd, "", &st, 0));
    SHOW("newfstatat of an empty path to a bad address", with, syscall(SYS_newfstatat, fd, "", bad, AT_EMPTY_PATH));
    SHOW("getdents", with, syscall(SYS_getdents64, fd, text, sizeof text) < 0 ? -1 : 0);
    SHOW("getdents of no size", with, syscall(SYS_getdents64, fd, text, 1));
    SHOW("getdents to a bad address", with, (lseek(fd, 0, SEEK_SET), syscall(SYS_getdents64, fd, bad, 4096)));
    SHOW("read to a bad address", with, read(fd, bad, 10));
    SHOW("write from a bad address", with, write(fd, bad, 10));
    SHOW("write far too much from a bad address", with, write(fd, bad, SIZE_MAX / 2));
    SHOW("pwrite at a negative offset", with, pwrite(fd, text, 10, -1));
    SHOW("writev of a bad vector", with, writev(fd, (void *)bad, 2));
    SHOW("writev of a bad buffer", with, writev(fd, &bad_vector, 1));
    SHOW("writev of too many", with, writev(fd, &bad_vector, 1 << 20));
    SHOW("writev of a negative number", with, writev(fd, &bad_vector, -1));
    SHOW("readv of a bad vector", with, readv(fd, (void *)bad, 2));
    SHOW("lseek bad whence", with, lseek(fd, 0, 99));
    SHOW("lseek negative", with, lseek(fd, -1, SEEK_SET));
    SHOW("ftruncate negative", with, ftruncate(fd, -1));
    SHOW("fallocate negative", with, fallocate(fd, 0, -1, 1));
    SHOW("fallocate empty", with, fallocate(fd, 0, 0, 0));
    SHOW("fallocate bad mode", with, fallocate(fd, 0x40000000, 0, 1));
    SHOW("sendfile from a bad offset", with, sendfile(fd, fd, (off_t *)bad, 10));
    SHOW("sendfile from a negative offset", with, sendfile(fd, fd, &offset, 10));
    SHOW("copy_file_range bad offset", with, copy_file_range(fd, (off_t *)bad, fd, NULL, 10, 0));
    SHOW("copy_file_range bad target offset", with, copy_file_range(fd, NULL, fd, (off_t *)bad, 10, 0));
    SHOW("copy_file_range bad flags", with, copy_file_range(fd, NULL, fd, NULL, 10, 99));
    SHOW("copy_file_range onto itself", with, copy_file_range(fd, NULL, fd, NULL, 10, 0) < 0 ? -1 : 0);
    SHOW("fchmod", with, fchmod(fd, 0755));
    SHOW("fchown", with, fchown(fd, -1, -1));
    SHOW("futimens from a bad address", with, syscall(SYS_utimensat, fd, NULL, bad, 0));
    SHOW("fsetxattr bad name", with, fsetxattr(fd, bad, "x", 1, 0));
    SHOW("fsetxattr bad value", with, fsetxattr(fd, "user.x", bad, 1, 0));
    SHOW("fremovexattr missing", with, fremovexattr(fd, "user.none"));
    SHOW("fstatfs to a bad address", with, syscall(SYS_fstatfs, fd, bad));
    SHOW("openat below it", with, opened(openat(fd, "file", O_RDONLY)));
    SHOW("fchdir", with, fchdir(fd) == 0 ? chdir(root_path) : -1);
    SHOW("execveat", with, syscall(SYS_execveat, fd, "", NULL, NULL, 0));
}

static void once(void) {
    char *wrong[] = {bad, NULL}, *none[] = {NULL};
    char with_magic[64];
    struct {
        struct open_how how;
        uint64_t more;
    } big = {.how = {.flags = O_RDONLY}};
    int fd = open("file", O_RDONLY);
    SHOW("execve bad arguments", "file", execve("file", (char **)bad, none));
    SHOW("execve bad environment", "file", execve("file", none, (char **)bad));
    SHOW("execve bad argument", "file", execve("file", wrong, none));
    SHOW("execve bad variable", "file", execve("file", none, wrong));
    SHOW("openat2 from a bad address", "file", syscall(SYS_openat2, AT_FDCWD, "file", bad, sizeof big.how));
    SHOW("openat2 too small", "file", syscall(SYS_openat2, AT_FDCWD, "file", &big, 8));
    SHOW("openat2 bigger and zero", "file", opened(syscall(SYS_openat2, AT_FDCWD, "file", &big, sizeof big)));
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(page + 4096, 4096);
    struct open_how *at_end = (struct open_how *)(page + 4096 - sizeof *at_end);
    at_end->flags = O_RDONLY;
    SHOW("openat2 at the end of a page", "file", opened(syscall(SYS_openat2, AT_FDCWD, "file", at_end, sizeof *at_end)));
    SHOW("openat2 beyond its page", "file", opened(syscall(SYS_openat2, AT_FDCWD, "file", at_end, sizeof *at_end + 1)));
    at_end->resolve = RESOLVE_BENEATH;
    SHOW("openat2 BENEATH beyond its page", "file", opened(syscall(SYS_openat2, AT_FDCWD, "file", at_end, sizeof *at_end + 8)));
    big.how.resolve = RESOLVE_IN_ROOT;
    SHOW("openat2 IN_ROOT bigger and zero", "file", opened(syscall(SYS_openat2, AT_FDCWD, "file", &big, sizeof big)));
    big.how.resolve = 0;
    big.more = 1;
    SHOW("openat2 bigger and not zero", "file", opened(syscall(SYS_openat2, AT_FDCWD, "file", &big, sizeof big)));
    big.more = 0;
    SHOW("openat2 a page", "file", syscall(SYS_openat2, AT_FDCWD, "file", &big, 1 << 20));
    big.how.flags = (uint64_t)1 << 40;
    SHOW("openat2 bad flags", "file", syscall(SYS_openat2, AT_FDCWD, "file", &big, sizeof big.how));
    big.how.flags = O_RDONLY;
    big.how.mode = 0600;
    SHOW("openat2 mode without O_CREAT", "file", syscall(SYS_openat2, AT_FDCWD, "file", &big, sizeof big.how));
    big.how.mode = 0;
    big.how.resolve = (uint64_t)1 << 40;
    SHOW("openat2 bad restriction", "file", syscall(SYS_openat2, AT_FDCWD, "file", &big, sizeof big.how));
    snprintf(with_magic, sizeof with_magic, "/proc/self/fd/%d", fd);
    big.how.resolve = RESOLVE_NO_MAGICLINKS;
    SHOW("openat2 NO_MAGICLINKS", "its descriptor's link", opened(syscall(SYS_openat2, AT_FDCWD, with_magic, &big, sizeof big.how)));
    big.how.resolve = RESOLVE_NO_SYMLINKS;
    SHOW("openat2 NO_SYMLINKS", "its descriptor's link", opened(syscall(SYS_openat2, AT_FDCWD, with_magic, &big, sizeof big.how)));
    big.how.resolve = RESOLVE_NO_XDEV;
    SHOW("openat2 NO_XDEV", "its descriptor's link", opened(syscall(SYS_openat2, AT_FDCWD, with_magic, &big, sizeof big.how)));
    SHOW("open O_RDONLY|O_CREAT", "a directory", opened(open("full", O_RDONLY | O_CREAT, 0600)));
    SHOW("open O_WRONLY|O_CREAT", "a directory", opened(open("full", O_WRONLY | O_CREAT, 0600)));
    SHOW("open O_RDONLY|O_CREAT", "a file and a slash", opened(open("file/", O_RDONLY | O_CREAT, 0600)));
    SHOW("open O_CREAT", "a new name and a slash", opened(open("new/", O_WRONLY | O_CREAT, 0600)));
    SHOW("open O_CREAT", "below a file", opened(open("file/new", O_WRONLY | O_CREAT, 0600)));
    SHOW("open O_CREAT", "below a missing directory", opened(open("missing/new", O_WRONLY | O_CREAT, 0600)));
    SHOW("open O_CREAT", "a long name", opened(open(long_name, O_WRONLY | O_CREAT, 0600)));
    SHOW("open O_CREAT", "a long path", opened(open(long_path, O_WRONLY | O_CREAT, 0600)));
    SHOW("open O_CREAT", "a link to itself", opened(open("loop", O_WRONLY | O_CREAT, 0600)));
    SHOW("open all flags", "file", opened(open("file", 0x3fffffff)));
    SHOW("creat", "a directory", opened(creat("full", 0600)));
    SHOW("linkat bad descriptor", "empty path", linkat(999, "", AT_FDCWD, "new", AT_EMPTY_PATH));
    SHOW("remove", "a full directory", remove("full"));
    SHOW("getcwd too small", "", syscall(SYS_getcwd, with_magic, 1));
    SHOW("fopen", "a missing file", fopen("missing", "r") ? 0 : -1);
    SHOW("fopen", "a directory", fopen("full", "w") ? 0 : -1);
    SHOW("opendir", "a file", opendir("file") ? 0 : -1);
    SHOW("realpath", "a missing file", realpath("missing", NULL) ? 0 : -1);
    SHOW("realpath", "below a file", realpath("file/below", NULL) ? 0 : -1);
    SHOW("realpath", "a link to itself", realpath("loop", NULL) ? 0 : -1);
    close(fd);
}

static int make(void) {
    int fd = open("file", O_CREAT | O_WRONLY, 0644);
    int other = open("full/file", O_CREAT | O_WRONLY, 0644);
    if (fd < 0 || other < 0 || write(fd, "some bytes", 10) != 10 || write(other, "others", 6) != 6)
        return 1;
    return close(fd) || close(other);
}

int main(int argc, char **argv) {
    char here[4096];
    if (argc < 2)
        return 2;
    if (!strcmp(argv[1], "make"))
        return make();
    root_path = getcwd(here, sizeof here);
    /* A page that may be read, and one that may not. */
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(pages + 4096, 4096, PROT_NONE);
    bad = pages + 4096;
    cut = pages + 4096 - 3;
    memcpy(cut, "fil", 3);
    memset(long_name, 'n', sizeof long_name - 1);
    for (unsigned i = 0; i + 2 < sizeof long_path; i += 2)
        memcpy(long_path + i, "a/", 2);
    struct path all[] = {
        {"a bad address", bad},
        {"a text that is cut by a bad page", cut},
        {"the highest address", (char *)-1},
        {"a non-canonical address", (char *)0x800000000000},
        {"an empty path", ""},
        {"a missing name", "missing"},
        {"a missing directory", "missing/name"},
        {"a file", "file"},
        {"a durable file", "durable"},
        {"below a file", "file/name"},
        {"below a durable file", "durable/name"},
        {"a file and a slash", "file/"},
        {"a directory", "full"},
        {"a directory and a slash", "full/"},
        {"dot", "."},
        {"a link", "link"},
        {"a link and a slash", "link/"},
        {"a link to a directory", "to_full"},
        {"a dangling link", "dangling"},
        {"a link to itself", "loop"},
        {"a long name", long_name},
        {"a long path", long_path},
    };
    alarm(20);
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        paths(all[i].name, all[i].text);
    const char *names[] = {"file", "durable", "full"};
    for (int i = 0; i < 3; i++) {
        int fd = open(names[i], i == 2 ? O_RDONLY : O_RDWR);
        descriptors(names[i], fd);
        close(fd);
        if (i < 2) {
            fd = open(names[i], O_RDONLY);
            descriptors("one for reading", fd);
            close(fd);
            fd = open(names[i], O_PATH);
            descriptors("one for the name only", fd);
            close(fd);
        }
    }
    descriptors("a closed one", 999);
    descriptors("a negative one", -1);
    descriptors("the working directory's", AT_FDCWD);
    once();
    return 0;
}
