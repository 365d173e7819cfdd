// Makes and removes directories and files while a timer interrupts; argv[1] times.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

static volatile int ticks;
static void tick(int signal) { (void)signal, ticks++; }

#define DO(what)                                                                  \
    if ((what) < 0) {                                                             \
        fprintf(stderr, "%s, turn %d: %s\n", #what, turn, strerror(errno)); \
        return 1;                                                                 \
    }

int main(int count, char **args) {
    int turns = atoi(args[1]);
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 300}, {0, 300}};
    struct stat status;
    char name[64];
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    for (int turn = 0; turn < turns; turn++) {
        DO(mkdir("directory", 0755));
        DO(rmdir("directory"));
        if (turn % 10 == 0) {
            snprintf(name, sizeof name, "file%d", turn);
            int fd = open(name, O_CREAT | O_EXCL | O_WRONLY, 0600);
            DO(fd);
            DO(close(fd));
            DO(lstat(name, &status));
            DO(unlink(name));
        }
    }
    return ticks < 1;
}
