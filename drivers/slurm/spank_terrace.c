/* A SPANK plugin: `#SBATCH --terrace`, `srun --terrace` (Slurm 20.11 and newer).
 *
 *   user_init (each step, each node) ──▶ `terrace join` as the user ──▶ says library and index ──▶ the tasks' environment
 *   exit      (each step, each node) ──▶ its standard input ends ──▶ it flushes ──▶ slurmstepd goes on
 *
 * The join is no process of the job's: it is left alone by the SIGKILL that follows KillWait, and the flush is done while the node is
 * still held (the job is shown as COMPLETING). Programs are reached by the preload library.
 *
 * plugstack.conf:   optional /usr/lib/terrace/spank_terrace.so terrace=/usr/bin/terrace [patience=SECONDS]
 *
 * Invariant: whatever goes wrong here is said, and the job runs as it would without us. */

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

SPANK_PLUGIN(terrace, 1)

#define WORDS_MAX 64
#define START_PATIENCE_S 120

/* Where `terrace` is, and how long the flush at a step's end may take: 0, as long as it takes. */
static char program[4096] = "/usr/bin/terrace";
static int patience_s = 0;
/* What --terrace was given: words for `terrace join`; null: it was not given. */
static char *wanted = NULL;
/* Of the join: what ends it, and what it says. */
static int to_join = -1, from_join = -1;
static char line[8192];
static size_t line_length = 0;

static int on_option(int value, const char *given, int remote)
{
    (void)value, (void)remote;
    free(wanted);
    wanted = strdup(given ? given : "");
    return wanted ? ESPANK_SUCCESS : ESPANK_NOSPACE;
}

static struct spank_option option = {
    "terrace", "FLAGS", "Keep files on faster tiers (flags of `terrace join`: --tier, --flush, ...)", 2, 0, on_option,
};

static void read_arguments(int count, char **arguments)
{
    for (int i = 0; i < count; i++) {
        if (strncmp(arguments[i], "terrace=", 8) == 0)
            snprintf(program, sizeof program, "%s", arguments[i] + 8);
        else if (strncmp(arguments[i], "patience=", 9) == 0)
            patience_s = atoi(arguments[i] + 9);
        else
            slurm_error("terrace: plugstack.conf: unknown argument `%s`", arguments[i]);
    }
}

int slurm_spank_init(spank_t spank, int count, char **arguments)
{
    read_arguments(count, arguments);
    return spank_option_register(spank, &option) == ESPANK_SUCCESS ? ESPANK_SUCCESS : ESPANK_ERROR;
}

/* The next line that the join says, within so many seconds; null: none came. */
static const char *next_line(int seconds)
{
    struct timespec begun, now;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    static size_t taken = 0;
    memmove(line, line + taken, line_length - taken);
    line_length -= taken, taken = 0;
    for (;;) {
        char *end = memchr(line, '\n', line_length);
        if (end) {
            *end = 0;
            taken = end + 1 - line;
            return line;
        }
        if (line_length == sizeof line)
            line_length = 0; /* no line of ours */
        clock_gettime(CLOCK_MONOTONIC, &now);
        long left = seconds ? (seconds - (now.tv_sec - begun.tv_sec)) * 1000 : -1;
        struct pollfd poll_fd = {.fd = from_join, .events = POLLIN};
        if (seconds && left <= 0)
            return errno = ETIMEDOUT, NULL;
        int found = poll(&poll_fd, 1, (int)left);
        if (found < 0 && errno == EINTR)
            continue;
        if (found <= 0)
            return errno = ETIMEDOUT, NULL;
        ssize_t got = read(from_join, line + line_length, sizeof line - line_length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return errno = 0, NULL;
        line_length += got;
    }
}

/* The text behind this beginning. */
static const char *after(const char *text, const char *beginning)
{
    size_t length = strlen(beginning);
    return strncmp(text, beginning, length) == 0 ? text + length : NULL;
}

/* In a process of its own, which nobody waits for: becomes the user, and then the join. */
static void become_join(uid_t user, gid_t group, const char *directory, char **environment, int in, int out)
{
    char *words[WORDS_MAX + 4] = {program, "join"};
    int count = 2;
    for (char *rest = wanted, *word; count < WORDS_MAX && (word = strsep(&rest, " \t"));)
        if (*word)
            words[count++] = word;
    struct passwd *found = getpwuid(user);
    /* Privileges are dropped for a while only: for good needs them once more. */
    if (seteuid(0) != 0 || (found ? initgroups(found->pw_name, group) : setgroups(1, &group)) != 0 ||
        setresgid(group, group, group) != 0 || setresuid(user, user, user) != 0) {
        dprintf(out, "terrace can't become user %d: %s\n", (int)user, strerror(errno));
        _exit(1);
    }
    if (directory && chdir(directory) != 0) {
        dprintf(out, "terrace can't change into %s: %s\n", directory, strerror(errno));
        _exit(1);
    }
    dup2(in, 0), dup2(out, 1), dup2(out, 2);
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execve(program, words, environment);
    dprintf(2, "terrace can't run %s: %s\n", program, strerror(errno));
    _exit(1);
}

static int start_join(uid_t user, gid_t group, const char *directory, char **environment)
{
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)
        return -1;
    pid_t child = fork();
    if (child < 0)
        return -1;
    if (child == 0) {
        /* Away from slurmstepd: what kills the step's processes does not kill this one. */
        setsid();
        if (fork() != 0)
            _exit(0);
        close(in[1]), close(out[0]);
        become_join(user, group, directory, environment, in[0], out[1]);
    }
    waitpid(child, NULL, 0);
    close(in[0]), close(out[1]);
    to_join = in[1], from_join = out[0];
    /* It ends with us from now on. */
    return write(to_join, "slurm\n", 6) == 6 ? 0 : -1;
}

static void set_environment(spank_t spank, const char *library, const char *index)
{
    char before[8192] = "", both[16384];
    spank_getenv(spank, "LD_PRELOAD", before, sizeof before);
    snprintf(both, sizeof both, "%s%s%s", library, *before ? ":" : "", before);
    if (spank_setenv(spank, "LD_PRELOAD", both, 1) != ESPANK_SUCCESS ||
        spank_setenv(spank, "TERRACE_INDEX", index, 1) != ESPANK_SUCCESS)
        slurm_error("terrace: the tasks' environment can't be set; they run without");
}

/* The user's, without what would make the join a program of a run. */
static char **environment_of_join(char **of_job)
{
    size_t count = 0, kept = 0;
    while (of_job && of_job[count])
        count++;
    char **environment = calloc(count + 1, sizeof *environment);
    for (size_t i = 0; environment && i < count; i++)
        if (!after(of_job[i], "LD_PRELOAD=") && !after(of_job[i], "TERRACE_INDEX="))
            environment[kept++] = of_job[i];
    return environment;
}

int slurm_spank_user_init(spank_t spank, int count, char **arguments)
{
    (void)count, (void)arguments;
    uid_t user;
    gid_t group;
    uint32_t step = 0;
    char **of_job = NULL, directory[4096];
    if (!wanted || !spank_remote(spank))
        return ESPANK_SUCCESS;
    if (spank_get_item(spank, S_JOB_UID, &user) != ESPANK_SUCCESS || spank_get_item(spank, S_JOB_GID, &group) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS || spank_get_item(spank, S_JOB_ENV, &of_job) != ESPANK_SUCCESS) {
        slurm_error("terrace: Slurm does not say whose step this is; it runs without");
        return ESPANK_SUCCESS;
    }
    if (step == SLURM_EXTERN_CONT)
        return ESPANK_SUCCESS;
    int has_directory = spank_getenv(spank, "SLURM_SUBMIT_DIR", directory, sizeof directory) == ESPANK_SUCCESS;
    char **environment = environment_of_join(of_job);
    if (!environment || start_join(user, group, has_directory ? directory : NULL, environment) != 0) {
        slurm_error("terrace: no agent can be started (%s); the step runs without", strerror(errno));
        free(environment);
        return ESPANK_SUCCESS;
    }
    free(environment);
    char library[4096] = "", index[4096] = "";
    const char *said;
    while ((said = next_line(START_PATIENCE_S))) {
        const char *reached = after(said, "terrace-join reach ");
        if (reached && sscanf(reached, "%4095s %4095[^\n]", library, index) == 2)
            continue;
        if (after(said, "terrace-join joined ")) {
            set_environment(spank, library, index);
            return ESPANK_SUCCESS;
        }
        slurm_error("terrace: %s", said);
    }
    slurm_error("terrace: no agent came on this node; the step runs without");
    return ESPANK_SUCCESS;
}

int slurm_spank_exit(spank_t spank, int count, char **arguments)
{
    (void)spank, (void)count, (void)arguments;
    if (to_join < 0)
        return ESPANK_SUCCESS;
    close(to_join);
    to_join = -1;
    const char *said;
    while ((said = next_line(patience_s)))
        if (!after(said, "terrace-join "))
            slurm_info("terrace: %s", said);
    if (errno == ETIMEDOUT)
        slurm_error("terrace: the flush goes on after %d s; `terrace drain` in an epilog waits for it", patience_s);
    close(from_join);
    return ESPANK_SUCCESS;
}
