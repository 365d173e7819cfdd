/* What another user may do with files that root made: owners, groups and modes, sticky and setgid directories. A line for each call, as
 * in errors.c.
 *
 *   owners check
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define OTHER 65534

static void show(const char *what, long result) {
    int error = errno;
    printf("%s: %s\n", what, result < 0 ? strerrorname_np(error) : "done");
    fflush(stdout);
    alarm(20);
}

#define SHOW(call) (errno = 0, show(#call, (long)(call)))

static void status(const char *name) {
    struct stat st;
    if (lstat(name, &st) == 0)
        printf("%s: %o %u %u %ld\n", name, st.st_mode, st.st_uid, st.st_gid, (long)st.st_size);
    else
        printf("%s: %s\n", name, strerrorname_np(errno));
    fflush(stdout);
}

static void make(const char *name, int mode) {
    int fd = open(name, O_CREAT | O_RDWR, 0600);
    if (fd < 0 || write(fd, "some bytes", 10) != 10 || fchmod(fd, mode) || close(fd))
        exit(3);
}

static void as_other(void (*act)(void), int for_good) {
    if (fork() == 0) {
        if (for_good ? setresgid(OTHER, OTHER, OTHER) || setresuid(OTHER, OTHER, OTHER) : setegid(OTHER) || seteuid(OTHER))
            exit(3);
        act();
        fflush(stdout);
        _exit(0);
    }
    wait(NULL);
}

static void moves(void) {
    SHOW(rename("all/by_name", "sticky/by_name"));
    SHOW(rename("all/by_descriptor", "sticky/by_descriptor"));
    SHOW(rename("sticky/by_name", "sticky/renamed"));
    SHOW(open("sticky/renamed", O_RDONLY));
    SHOW(unlink("sticky/renamed"));
    SHOW(unlink("sticky/by_descriptor"));
    SHOW(rename("team/by_name", "team/renamed"));
    SHOW(unlink("team/renamed"));
    SHOW(unlink("team/by_descriptor"));
    SHOW(unlink("team/of_root"));
    SHOW(rename("all/of_root", "sticky/of_root"));
    SHOW(unlink("sticky/of_root"));
    SHOW(rename("all/shared", "all/shared2"));
    SHOW(link("all/shared2", "all/linked"));
    SHOW(open("all/shared2", O_RDWR | O_TRUNC));
    SHOW(open("durable", O_RDWR | O_TRUNC));
    SHOW(open("durable", O_RDONLY));
    SHOW(chmod("all/of_root", 0666));
    SHOW(setxattr("all/shared2", "user.x", "1", 1, 0));
    SHOW(truncate("all/shared2", 100));
    SHOW(open("all/private", O_RDONLY));
    SHOW(open("all/private", O_RDWR));
    status("all/shared2");
    SHOW(link("closed/shared", "closed/linked"));
    SHOW(link("closed/private", "closed/linked"));
    SHOW(link("closed/setuid", "closed/linked"));
    SHOW(link("closed/setgid", "closed/linked"));
    SHOW(link("closed/shared", "closed/private"));
    SHOW(link("closed/missing", "closed/linked"));
}

static void creates(void) {
    char name[64];
    int modes[] = {0644, 02755, 02644, 04755, 06777, 01644};
    for (int i = 0; i < 6; i++) {
        snprintf(name, sizeof name, "group/%d_%o", geteuid(), modes[i]);
        close(open(name, O_CREAT | O_RDWR, modes[i]));
        status(name);
        snprintf(name, sizeof name, "all/%d_%o", geteuid(), modes[i]);
        close(open(name, O_CREAT | O_RDWR, modes[i]));
        status(name);
    }
}

static void reads_there(void) {
    SHOW(open("sticky/moved", O_RDONLY));
    status("sticky/moved");
}

int main(int argc, char **argv) {
    if (argc < 2 || strcmp(argv[1], "check"))
        return 0; /* all is made on the way */
    const char *names[] = {"all/by_name", "team/by_name", "all/by_descriptor", "team/by_descriptor"};
    umask(0);
    alarm(20);
    mkdir("all", 0777);
    mkdir("sticky", 01777);
    mkdir("team", 01770);
    mkdir("closed", 0755);
    mkdir("group", 02777);
    chown("team", 0, OTHER);
    chown("group", 0, OTHER);
    chmod("group", 02777);
    for (int i = 0; i < 4; i++) {
        make(names[i], 0644);
        int fd = open(names[i], O_RDWR);
        SHOW(i < 2 ? chown(names[i], OTHER, OTHER) : fchown(fd, OTHER, OTHER));
        close(fd);
        status(names[i]);
    }
    make("team/of_root", 0666);
    make("all/of_root", 0666);
    make("all/shared", 0666);
    make("all/private", 0600);
    make("all/to_move", 0644);
    make("closed/shared", 0666);
    make("closed/private", 0600);
    make("closed/setuid", 04777);
    make("closed/setgid", 02777);
    rename("all/to_move", "sticky/moved");
    creates();
    as_other(moves, 0);
    as_other(creates, 1);
    as_other(reads_there, 1);
    /* What one call copies, natively: all of it. */
    int from = open("all/large", O_CREAT | O_RDWR, 0644), to = open("all/copy", O_CREAT | O_RDWR, 0644);
    if (ftruncate(from, 64 << 20))
        return 3;
    printf("sendfile: %ld\n", (long)sendfile(to, from, NULL, 64 << 20));
    off_t here = 0, there = 0;
    printf("copy_file_range: %ld\n", (long)copy_file_range(from, &here, to, &there, 64 << 20, 0));
    status("all/copy");
    return 0;
}
