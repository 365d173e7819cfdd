// Forks while other threads open and look at files; argv[1] times. The child makes and removes a file.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int stop;

static void *busy(void *number) {
    char name[64];
    struct stat status;
    snprintf(name, sizeof name, "thread%d", (int)(long)number);
    while (!stop) {
        int fd = open(name, O_CREAT | O_WRONLY | O_TRUNC, 0600);
        if (fd < 0 || stat(name, &status) || close(fd) || unlink(name)) {
            perror(name);
            exit(1);
        }
    }
    return NULL;
}

int main(int count, char **args) {
    pthread_t threads[4];
    for (long i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, busy, (void *)i);
    for (int turn = 0; turn < atoi(args[1]); turn++) {
        pid_t child = fork();
        if (child < 0)
            return perror("fork"), 1;
        if (child == 0) {
            int fd = open("child", O_CREAT | O_EXCL | O_WRONLY, 0600);
            _exit(fd < 0 || write(fd, "x", 1) != 1 || unlink("child") ? 1 : 0);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status != 0) {
            fprintf(stderr, "child of turn %d: status %x\n", turn, status);
            return 1;
        }
    }
    stop = 1;
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
