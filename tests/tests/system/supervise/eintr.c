// Renames a file to and fro while a timer interrupts, with a handler that has calls not restarted; argv[1] times.
// A call that says EINTR must have done nothing, so that it can be repeated.
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

int main(int count, char **args) {
    struct sigaction action = {.sa_handler = tick, .sa_flags = 0};
    struct itimerval often = {{0, 200}, {0, 200}};
    const char *names[] = {"here", "there"};
    struct stat status;
    close(open("here", O_CREAT | O_WRONLY, 0600));
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    for (int turn = 0; turn < atoi(args[1]); turn++) {
        const char *from = names[turn % 2], *to = names[1 - turn % 2];
        while (rename(from, to) < 0) {
            int is_there, error = errno;
            while ((is_there = lstat(from, &status)) < 0 && errno == EINTR) {}
            if (error != EINTR || is_there < 0) {
                fprintf(stderr, "turn %d: rename: %s, and the name is %s\n", turn, strerror(error), is_there < 0 ? "gone" : "there");
                return 1;
            }
        }
    }
    return ticks < 1;
}
