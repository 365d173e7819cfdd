/* A file outgrows its tier by one descriptor; then its last bytes are written by another, as the argument says:
   vfork   after a vfork child gave the descriptor's number to a file of its own
   aio     by aio_write(3) */
#include <aio.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int other = open("file", O_CREAT | O_RDWR | O_TRUNC, 0644), fd = open("file", O_RDWR);
    if (argc > 1 && !strcmp(argv[1], "vfork")) {
        pid_t child = vfork();
        if (!child) {
            close(fd);
            _exit(open("durable", O_WRONLY) == fd ? 0 : 7);
        }
        int status;
        waitpid(child, &status, 0);
        if (status) return 3;
    }
    char *block = calloc(1, 1 << 20), back[6] = "";
    for (int i = 0; i < 8; i++)
        if (write(other, block, 1 << 20) != 1 << 20) return 4;
    if (argc > 1 && !strcmp(argv[1], "aio")) {
        struct aiocb control;
        memset(&control, 0, sizeof control);
        control.aio_fildes = fd;
        control.aio_buf = "BYTES";
        control.aio_nbytes = 5;
        const struct aiocb *list[1] = {&control};
        if (aio_write(&control) || aio_suspend(list, 1, 0) || aio_error(&control)) return 5;
    } else if (pwrite(fd, "BYTES", 5, 0) != 5)
        return 6;
    if (pread(other, back, 5, 0) != 5) return 8;
    printf("%s\n", back);
    return 0;
}
