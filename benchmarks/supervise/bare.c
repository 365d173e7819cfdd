// What the kernel's part of a supervised call takes: bare FILE TURNS. A child's every stat is handed to a supervisor that only
// lets it go on. Prints microseconds of one stat.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "timed.h"

#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP (1UL << 0)
#endif

static void supervise(int listener) {
    struct seccomp_notif call;
    struct seccomp_notif_resp answer;
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SET_FLAGS, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP); // an older kernel lacks it
    for (;;) {
        memset(&call, 0, sizeof call);
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) < 0)
            return;
        memset(&answer, 0, sizeof answer);
        answer.id = call.id;
        answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
        ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
}

static void send_descriptor(int socket, int fd) {
    char byte = 0, space[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    control->cmsg_level = SOL_SOCKET, control->cmsg_type = SCM_RIGHTS, control->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(control), &fd, sizeof fd);
    check(sendmsg(socket, &message, 0), "sendmsg");
}

static int receive_descriptor(int socket) {
    char byte, space[CMSG_SPACE(sizeof(int))];
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    int fd = -1;
    check(recvmsg(socket, &message, 0), "recvmsg");
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

int main(int count, char **args) {
    int sockets[2];
    struct stat status;
    if (count != 3)
        return fprintf(stderr, "bare FILE TURNS\n"), 2;
    check(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), "socketpair");
    pid_t child = fork();
    check(child, "fork");
    if (child > 0) {
        int listener = receive_descriptor(sockets[0]), ended;
        // Ends when the child has: its listener then fails.
        supervise(listener);
        check(waitpid(child, &ended, 0), "waitpid");
        return WIFEXITED(ended) ? WEXITSTATUS(ended) : 1;
    }
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_newfstatat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs");
    int listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    check(listener, "seccomp");
    send_descriptor(sockets[1], listener);
    close(listener);
    int turns = atoi(args[2]);
    double begun = now();
    for (int turn = 0; turn < turns; turn++)
        check(syscall(SYS_newfstatat, AT_FDCWD, args[1], &status, 0), args[1]);
    printf("%.3f\n", (now() - begun) / turns);
    return 0;
}
