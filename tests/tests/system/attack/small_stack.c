/* File calls on threads with the smallest stack that there is. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static void *work(void *unused) {
    struct stat status;
    char text[100];
    int fd = open("a", O_CREAT | O_RDWR | O_TRUNC, 0644);
    int fine = fd >= 0 && write(fd, "hi\n", 3) == 3 && !close(fd) && !stat("a", &status) && !rename("a", "b")
        && !link("b", "c") && !unlink("c") && readlink("b", text, sizeof text) < 0 && !mkdir("d", 0755)
        && !rename("d", "e") && !rmdir("e") && !close(open("b", O_WRONLY | O_TRUNC)) && !unlink("b");
    return fine ? unused : "not fine";
}

int main(void) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 16384);
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        void *trouble = 0;
        if (pthread_create(&thread, &attributes, work, 0) || pthread_join(thread, &trouble) || trouble) return 1;
    }
    puts("fine");
    return 0;
}
