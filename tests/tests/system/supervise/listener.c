// Stands for a supervisor that is not Terrace's: takes the one listener that the kernel allows, then runs a command.
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int count, char **args) {
    struct sock_filter filter[] = {
        {BPF_LD | BPF_W | BPF_ABS, 0, 0, 0},
        {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_swapon},
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_USER_NOTIF},
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
    };
    struct sock_fprog program = {4, filter};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    int listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    if (listener < 0) return perror("seccomp"), 1;
    fcntl(listener, F_SETFD, 0);
    execvp(args[1], args + 1);
    return perror(args[1]), 1;
}
