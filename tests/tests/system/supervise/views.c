// A child in another tree gets what is in that tree, and never our file of the same path. argv[1]: how it gets there;
// argv[2]: a directory outside that has the root's path and a file "data" below it.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void holds(const char *path, const char *wanted) {
    char bytes[64] = "";
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && read(fd, bytes, sizeof bytes) == (long)strlen(wanted) && strcmp(bytes, wanted) == 0 && close(fd) == 0);
}

int main(int count, char **args) {
    char root[4096], data[4200], over[8300];
    const char *how = args[1];
    CHECK(count == 3 && getcwd(root, sizeof root) != NULL);
    snprintf(data, sizeof data, "%s/data", root);
    snprintf(over, sizeof over, "%s%s", args[2], root);
    int fd = open("data", O_CREAT | O_TRUNC | O_WRONLY, 0600);
    CHECK(fd >= 0 && write(fd, "ours", 4) == 4 && close(fd) == 0);
    holds(data, "ours");

    pid_t child;
    if (strcmp(how, "clone3") == 0) {
        struct clone_args flags = {.flags = CLONE_NEWNS, .exit_signal = SIGCHLD};
        child = syscall(SYS_clone3, &flags, sizeof flags);
    } else
        child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        if (strcmp(how, "unshare") == 0)
            CHECK(unshare(CLONE_NEWNS) == 0);
        if (strcmp(how, "user") == 0) {
            CHECK(unshare(CLONE_NEWUSER) == 0);
            holds(data, "ours");
            return 0;
        }
        if (strcmp(how, "chroot") == 0)
            CHECK(chroot(args[2]) == 0 && chdir(root) == 0);
        else {
            CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
            CHECK(mount(over, root, NULL, MS_BIND, NULL) == 0 && chdir(root) == 0);
        }
        holds(data, "theirs");
        holds("data", "theirs");
        fd = open(strcmp(how, "chroot") == 0 ? data : "made", O_CREAT | O_TRUNC | O_WRONLY, 0600);
        CHECK(fd >= 0 && write(fd, "theirs", 6) == 6 && close(fd) == 0);
        return 0;
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    holds(data, "ours");
    CHECK(access("made", F_OK) < 0);
    return 0;
}
