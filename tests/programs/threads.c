// 200 threads that create, rename, look at, read and remove files, while an interval timer interrupts them.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

enum { THREADS = 200, TURNS = 20, SIZE = 500 };
static atomic_int errors, files, alarms;

static void on_alarm(int signal) {
    (void)signal;
    alarms++;
}

#define CHECK(is) ((is) ? (void)0 : wrong(#is, from))
static void wrong(const char *what, const char *path) {
    if (errors++ < 10) printf("%s: %s: %s\n", path, what, strerror(errno));
}

static void *work(void *number) {
    long me = (long)number;
    char from[64], to[64], bytes[SIZE], back[SIZE + 1];
    memset(bytes, 'a' + me % 26, SIZE);
    snprintf(from, sizeof from, "t%ld", me);
    CHECK(mkdir(from, 0777) == 0);
    for (int turn = 0; turn < TURNS; turn++) {
        snprintf(from, sizeof from, "t%ld/new%d", me, turn);
        snprintf(to, sizeof to, "t%ld/renamed", me);
        errno = 0;
        int fd = open(from, O_CREAT | O_EXCL | O_RDWR, 0644);
        CHECK(fd >= 0);
        CHECK(write(fd, bytes, SIZE) == SIZE);
        CHECK(close(fd) == 0);
        CHECK(rename(from, to) == 0);
        struct stat seen;
        CHECK(lstat(from, &seen) < 0 && errno == ENOENT);
        errno = 0;
        if (lstat(to, &seen) != 0 || !S_ISREG(seen.st_mode) || seen.st_size != SIZE) {
            int of_lstat = errno;
            struct stat again = {0};
            lstat(to, &again);
            printf("%s: mode %o, %ld bytes, inode %lu; then %o, %ld, %lu\n", to, seen.st_mode, (long)seen.st_size, seen.st_ino,
                   again.st_mode, (long)again.st_size, again.st_ino);
            errno = of_lstat;
            wrong("lstat of a file that was just renamed", to);
        }
        fd = open(to, O_RDONLY | O_NOFOLLOW);
        CHECK(fd >= 0);
        CHECK(read(fd, back, sizeof back) == SIZE && memcmp(bytes, back, SIZE) == 0);
        CHECK(close(fd) == 0);
        if (turn + 1 < TURNS) CHECK(unlink(to) == 0);
        files++;
    }
    return NULL;
}

int main(void) {
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &often, NULL);
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, work, (void *)i) != 0) return 2;
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    memset(&often, 0, sizeof often);
    setitimer(ITIMER_REAL, &often, NULL);
    printf("%d threads, %d files, %d errors%s\n", THREADS, files, errors, alarms ? "" : ", no alarm");
    return errors != 0;
}
