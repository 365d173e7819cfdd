/* Random operations on files, each told with its start and its end: recorder LOG CLIENT SEED END PAUSE_US BLOCKS KINDS NAME…
 *
 * END: when to stop, in seconds on CLOCK_MONOTONIC; 0: look at each name and directory once. `recorder dead LOG` tells that its client is gone.
 *
 * The working directory is where the names are. A file's slots have BLOCKS bytes each (a list: group 0's, group 1's, …; a group is the
 * number at a name's end; 0 leaves that group out), filled with one number of eight bytes that is written only once: CLIENT and a count.
 * KINDS: letters of what is left out (l: hard links; L: links of other nodes may show as what they are, told as EREMOTE). The log, outside of what is tested, has `> NUMBER TIME CALL` before each
 * call and `< NUMBER TIME RESULT` after it, each one write(2): a kill takes no line back.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SLOTS_MAX = 40, OPEN_MAX_ = 3, NAMES_MAX = 64, GROUPS_MAX = 8 };

static int log_fd;
static uint64_t client, count, calls, state;
static char **names;
static int name_count, sessions;
static long blocks[GROUPS_MAX];
static const char *left_out;

static struct { int fd, session, group, append, write; } opened[OPEN_MAX_];
static int open_count;

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static unsigned random_below(unsigned n)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (state >> 20) % n;
}

static int group_of(const char *name) { return atoi(name + strcspn(name, "0123456789")); }

static void tell(const char *line, int length)
{
    if (write(log_fd, line, length) != length) _exit(3);
}

static void before(const char *call)
{
    char line[300];
    tell(line, snprintf(line, sizeof line, "> %lu %lu %s\n", ++calls, now(), call));
}

static void after(const char *result)
{
    static char line[16384];
    uint64_t end = now();
    tell(line, snprintf(line, sizeof line, "< %lu %lu %s\n", calls, end, result));
}

static void after_number(int result)
{
    char text[20];
    if (result < 0) sprintf(text, "%d", errno);
    after(result < 0 ? text : "ok");
}

static const char *pick(void)
{
    const char *name;
    do name = names[random_below(name_count)];
    while (!blocks[group_of(name)]);
    return name;
}

static const char *pick_other(const char *than)
{
    for (;;) {
        const char *name = names[random_below(name_count)];
        if (name != than && group_of(name) == group_of(than)) return name;
    }
}

static void after_stat(int result, const struct stat *s, int group)
{
    char text[80];
    if (result < 0) { after_number(result); return; }
    if (S_ISLNK(s->st_mode) && strchr(left_out, 'L')) { errno = EREMOTE; after_number(-1); return; }
    if (!S_ISREG(s->st_mode)) { after("strange"); return; }
    long block = blocks[group];
    sprintf(text, "ok %ld%s %o %ld", (long)s->st_size / block, s->st_size % block ? "~" : "", s->st_mode & 07777, (long)s->st_nlink);
    after(text);
}

static void open_one(void)
{
    const char *name = pick();
    char call[200], letters[16] = "r";
    int flags, r = random_below(20);
    if (r < 7) flags = O_RDONLY;
    else {
        flags = random_below(2) ? O_WRONLY : O_RDWR;
        strcat(letters, "w");
        if (random_below(10) < 6) {
            flags |= O_CREAT, strcat(letters, "c");
            if (random_below(6) == 0) flags |= O_EXCL, strcat(letters, "x");
        }
        if (random_below(4) == 0) flags |= O_TRUNC, strcat(letters, "t");
        if (random_below(4) == 0) flags |= O_APPEND, strcat(letters, "a");
    }
    int can_read = (flags & O_ACCMODE) != O_WRONLY;
    if (!can_read) letters[0] = 'o';
    if (random_below(40) == 0 && !(flags & O_CREAT)) flags |= O_DIRECTORY, strcat(letters, "d");
    /* These change nothing for a regular file. */
    if (random_below(4) == 0) flags |= O_CLOEXEC;
    if (random_below(8) == 0) flags |= O_NOFOLLOW;
    if (random_below(8) == 0) flags |= O_NONBLOCK;
    if (random_below(16) == 0) flags |= O_SYNC;
    int session = ++sessions;
    snprintf(call, sizeof call, "open %s %s %d", name, letters, session);
    before(call);
    int fd = open(name, flags, 0640);
    after_number(fd);
    if (fd < 0) return;
    opened[open_count].fd = fd;
    opened[open_count].session = session;
    opened[open_count].group = group_of(name);
    opened[open_count].append = !!(flags & O_APPEND);
    opened[open_count].write = (flags & O_ACCMODE) != O_RDONLY;
    if (!can_read) opened[open_count].append |= 2;
    open_count++;
}

static void close_one(int at)
{
    char call[100];
    sprintf(call, "close %d", opened[at].session);
    before(call);
    after_number(close(opened[at].fd));
    opened[at] = opened[--open_count];
}

static void read_all(int at)
{
    static unsigned char bytes[SLOTS_MAX * 70000];
    static char result[16000];
    char call[100];
    long block = blocks[opened[at].group];
    sprintf(call, "read %d", opened[at].session);
    before(call);
    ssize_t n = pread(opened[at].fd, bytes, SLOTS_MAX * block, 0);
    uint64_t end = now();
    if (n < 0) { after_number(-1); return; }
    int length = sprintf(result, "< %lu %lu ok", calls, end);
    for (long slot = 0; slot * block < n; slot++) {
        /* Each other number than the one before it: a whole slot has one. */
        uint64_t last = 0;
        long words = block / 8, told = 0;
        for (long w = 0; w < words && slot * block + w * 8 + 8 <= n; w++) {
            uint64_t word;
            memcpy(&word, bytes + slot * block + w * 8, 8);
            if (w && word == last) continue;
            if (told++ < 8) length += sprintf(result + length, "%s%lu", w ? "|" : " ", word);
            last = word;
        }
        if ((slot + 1) * block > n) length += sprintf(result + length, told ? "|~" : " ~");
    }
    length += sprintf(result + length, "\n");
    tell(result, length);
}

/* A slot of a new number. */
static const void *fresh(long block, uint64_t *value)
{
    static uint64_t words[70000 / 8];
    *value = client << 24 | ++count;
    for (long w = 0; w < block / 8; w++) words[w] = *value;
    return words;
}

static void use(int at)
{
    char call[100];
    int fd = opened[at].fd, session = opened[at].session, can_write = opened[at].write;
    int is_append = opened[at].append & 1, can_read = !(opened[at].append & 2);
    long block = blocks[opened[at].group];
    struct stat s;
    uint64_t value;
    int r = random_below(20);
    if (r < 10 && can_write) {
        const void *slot = fresh(block, &value);
        ssize_t n;
        if (is_append) {
            if (fstat(fd, &s) || s.st_size / block > SLOTS_MAX - 16) return;
            sprintf(call, "append %d %lu", session, value);
            before(call);
            n = write(fd, slot, block);
        } else {
            int where = random_below(5);
            sprintf(call, "write %d %d %lu", session, where, value);
            before(call);
            n = pwrite(fd, slot, block, where * block);
        }
        if (n >= 0 && n != block) after("short");
        else after_number(n < 0 ? -1 : 0);
    } else if (r < 12 && can_write) {
        int slots = random_below(6);
        sprintf(call, "ftruncate %d %d", session, slots);
        before(call);
        after_number(ftruncate(fd, slots * block));
    } else if (r < 14) {
        sprintf(call, "fstat %d", session);
        before(call);
        int result = fstat(fd, &s);
        after_stat(result, &s, opened[at].group);
    } else if (r < 15) {
        sprintf(call, "fsync %d", session);
        before(call);
        after_number(random_below(2) ? fsync(fd) : fdatasync(fd));
    } else if (can_read)
        read_all(at);
}

static void list(const char *directory)
{
    static char result[8192];
    char call[120];
    snprintf(call, sizeof call, "list%s%s", *directory ? " " : "", directory);
    before(call);
    DIR *d = opendir(*directory ? directory : ".");
    if (!d) { after_number(-1); return; }
    int length = sprintf(result, "ok");
    struct dirent *e;
    errno = 0;
    while ((e = readdir(d))) {
        if (e->d_name[0] == '.' || e->d_type == DT_DIR) continue;
        int strange = e->d_type != DT_REG && e->d_type != DT_UNKNOWN && !(e->d_type == DT_LNK && strchr(left_out, 'L'));
        length += snprintf(result + length, 200, " %s%s%s%s", directory, *directory ? "/" : "", e->d_name, strange ? "!" : "");
    }
    int error = errno;
    closedir(d);
    errno = error;
    if (error) after_number(-1);
    else after(result);
}

static void by_name(void)
{
    const char *name = pick(), *other = pick_other(name);
    static const int modes[] = { 0600, 0640, 0644, 0755 };
    char call[200];
    struct stat s;
    int r = random_below(40), result;
    if (r < 8) {
        snprintf(call, sizeof call, "rename %s %s", name, other);
        before(call);
        after_number(rename(name, other));
    } else if (r < 10) {
        int how = random_below(2) ? 1 : 2;
        snprintf(call, sizeof call, "rename-%s %s %s", how == 1 ? "keep" : "exchange", name, other);
        before(call);
        after_number(syscall(SYS_renameat2, AT_FDCWD, name, AT_FDCWD, other, how));
    } else if (r < 13) {
        if (strchr(left_out, 'l')) return;
        snprintf(call, sizeof call, "link %s %s", name, other);
        before(call);
        after_number(link(name, other));
    } else if (r < 20) {
        snprintf(call, sizeof call, "unlink %s", name);
        before(call);
        after_number(unlink(name));
    } else if (r < 23) {
        int mode = modes[random_below(4)];
        snprintf(call, sizeof call, "chmod %s %o", name, mode);
        before(call);
        after_number(chmod(name, mode));
    } else if (r < 26) {
        int slots = random_below(6);
        snprintf(call, sizeof call, "truncate %s %d", name, slots);
        before(call);
        after_number(truncate(name, slots * blocks[group_of(name)]));
    } else if (r < 36) {
        int l = random_below(2);
        snprintf(call, sizeof call, "%s %s", l ? "lstat" : "stat", name);
        before(call);
        memset(&s, 0xff, sizeof s);
        result = l ? lstat(name, &s) : stat(name, &s);
        after_stat(result, &s, group_of(name));
    } else {
        const char *slash = strchr(name, '/');
        char directory[100] = "";
        if (slash) memcpy(directory, name, slash - name), directory[slash - name] = 0;
        list(directory);
    }
}

/* Each name and each directory once. */
static void look_at_all(void)
{
    char directory[100] = "";
    list("");
    for (int i = 0; i < name_count; i++) {
        const char *name = names[i], *slash = strchr(name, '/');
        char call[200];
        struct stat s;
        if (slash && strncmp(directory, name, slash - name + 1)) {
            memcpy(directory, name, slash - name), directory[slash - name] = 0;
            list(directory);
        }
        snprintf(call, sizeof call, "lstat %s", name);
        before(call);
        int result = lstat(name, &s);
        after_stat(result, &s, group_of(name));
        snprintf(call, sizeof call, "open %s r %d", name, ++sessions);
        before(call);
        int fd = open(name, O_RDONLY);
        after_number(fd);
        if (fd < 0) continue;
        opened[0].fd = fd, opened[0].session = sessions, opened[0].group = group_of(name);
        open_count = 1;
        read_all(0);
        close_one(0);
    }
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "dead")) {
        char line[64];
        log_fd = open(argv[2], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        /* A line that the kill has cut ends here. */
        tell(line, snprintf(line, sizeof line, "\ndead %lu\n", now()));
        return 0;
    }
    if (argc < 9) return 2;
    log_fd = open(argv[1], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (log_fd < 0) return 2;
    client = strtoull(argv[2], 0, 10);
    state = strtoull(argv[3], 0, 10) * 2654435761u + client * 40503 + 88172645463325252ull;
    uint64_t end = (uint64_t)(atof(argv[4]) * 1e9);
    unsigned pause = atoi(argv[5]);
    int group = 0;
    for (char *block = strtok(argv[6], ","); block && group < GROUPS_MAX; block = strtok(0, ",")) blocks[group++] = atol(block);
    left_out = argv[7];
    names = argv + 8;
    name_count = argc - 8;
    umask(0);
    for (int i = 0; i < 20; i++) random_below(2);
    if (!end) look_at_all();
    while (now() < end) {
        int r = random_below(10);
        if (open_count < OPEN_MAX_ && (r < 3 || (!open_count && r < 6))) open_one();
        else if (open_count && r < 8) {
            int at = random_below(open_count);
            if (random_below(4) == 0) close_one(at);
            else use(at);
        } else by_name();
        if (pause) {
            struct timespec t = { 0, 1000 * random_below(2 * pause) };
            nanosleep(&t, 0);
        }
    }
    while (open_count) close_one(0);
    return 0;
}
