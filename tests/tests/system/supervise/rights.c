// Files have the umask, and (when we are root) the owner and the limits, of the thread that makes them.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static mode_t made(const char *name, mode_t mode) {
    struct stat status;
    unlink(name);
    int fd = open(name, O_CREAT | O_EXCL | O_WRONLY, mode);
    CHECK(fd >= 0 && fstat(fd, &status) == 0 && close(fd) == 0);
    return status.st_mode & 07777;
}

int main(void) {
    umask(022);
    CHECK(made("u1", 0666) == 0644);
    umask(027);
    CHECK(made("u2", 0666) == 0640);
    umask(0);
    CHECK(made("u3", 0666) == 0666);
    if (getuid() != 0)
        return 0;
    umask(022);
    CHECK(made("roots", 0600) == 0600);
    mkdir("open", 0777), chmod("open", 0777);
    if (fork() == 0) {
        struct stat status;
        CHECK(setgroups(0, NULL) == 0 && setresgid(4321, 4321, 4321) == 0 && setresuid(4321, 4321, 4321) == 0);
        CHECK(open("mine", O_CREAT | O_WRONLY, 0600) == -1 && errno == EACCES);
        CHECK(open("roots", O_WRONLY) == -1 && errno == EACCES);
        CHECK(unlink("roots") == -1 && errno == EACCES);
        CHECK(made("open/mine", 0644) == 0644);
        CHECK(stat("open/mine", &status) == 0 && status.st_uid == 4321 && status.st_gid == 4321);
        CHECK(lstat("roots", &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == 0);
        exit(0);
    }
    int status;
    wait(&status);
    CHECK(status == 0);
    CHECK(unlink("open/mine") == 0 && rmdir("open") == 0);
    return 0;
}
