// What a program does with files, by the kernel alone: made statically, so that no library stands between.
#include "../supervise/check.h"
#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/io_uring.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static void put(const char *path, const char *text) {
    int fd;
    CHECK((fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0644)) >= 0);
    CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    CHECK(close(fd) == 0);
}

static const char *get(const char *path) {
    static char text[4][4096];
    static int next;
    char *into = text[next++ % 4];
    int fd;
    CHECK((fd = open(path, O_RDONLY | O_NOFOLLOW)) >= 0);
    ssize_t count;
    CHECK((count = read(fd, into, 4095)) >= 0);
    into[count] = 0;
    CHECK(close(fd) == 0);
    return into;
}

static struct stat look(const char *path) {
    struct stat status;
    CHECK(lstat(path, &status) == 0);
    return status;
}

static int count_of(const char *path) {
    DIR *directory = opendir(path);
    CHECK(directory != NULL);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        CHECK(entry->d_type != DT_LNK);
        CHECK(fstatat(dirfd(directory), entry->d_name, &(struct stat){0}, AT_SYMLINK_NOFOLLOW) == 0);
        count++;
    }
    closedir(directory);
    return count;
}

static void files(void) {
    umask(027);
    put("a", "one");
    struct stat status = look("a");
    CHECK(S_ISREG(status.st_mode) && status.st_size == 3 && (status.st_mode & 0777) == 0640);
    CHECK(status.st_uid == geteuid() && status.st_gid == getegid());
    CHECK(readlink("a", (char[9]){0}, 8) < 0 && errno == EINVAL);
    CHECK(strcmp(get("a"), "one") == 0);
    CHECK(mkdir("d", 0755) == 0 && rename("a", "d/b") == 0);
    CHECK(lstat("a", &status) < 0 && errno == ENOENT);
    CHECK(strcmp(get("d/b"), "one") == 0 && look("d/b").st_ino == (status = look("d/b"), status.st_ino));
    CHECK(rename("d", "e") == 0 && strcmp(get("e/b"), "one") == 0);
    for (int i = 0; i < 300; i++) {
        char path[32];
        sprintf(path, "e/many%03d", i);
        put(path, path);
    }
    CHECK(count_of("e") == 301);
    CHECK(chmod("e/b", 0600) == 0 && (look("e/b").st_mode & 0777) == 0600);
    struct timespec times[2] = {{7, 8}, {9, 10}};
    CHECK(utimensat(AT_FDCWD, "e/b", times, 0) == 0);
    CHECK(look("e/b").st_mtim.tv_sec == 9 && look("e/b").st_mtim.tv_nsec == 10);
    CHECK(truncate("e/b", 2) == 0 && strcmp(get("e/b"), "on") == 0);
    CHECK(symlink("e/b", "link") == 0 && S_ISLNK(look("link").st_mode));
    CHECK(unlink("link") == 0);
    CHECK(setxattr("e/many001", "user.k", "v", 1, 0) == 0);
    char value[8];
    CHECK(getxattr("e/many001", "user.k", value, 8) == 1 && value[0] == 'v');
    CHECK(mknod("e/fifo", S_IFIFO | 0600, 0) == 0 && S_ISFIFO(look("e/fifo").st_mode) && unlink("e/fifo") == 0);
    CHECK(rmdir("e") < 0 && errno == ENOTEMPTY);
    for (int i = 0; i < 100; i++) {
        char path[32];
        sprintf(path, "e/many%03d", i);
        CHECK(unlink(path) == 0);
    }
    CHECK(count_of("e") == 201);
}

// What two processes write into one mapping, each sees, and a read sees.
static void map(void) {
    int fd;
    CHECK((fd = open("map", O_CREAT | O_RDWR, 0600)) >= 0 && ftruncate(fd, 3 * 4096) == 0);
    char *bytes = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(bytes != MAP_FAILED);
    if (fork() == 0) {
        strcpy(bytes + 4096, "child");
        _exit(0);
    }
    CHECK(wait(NULL) > 0);
    CHECK(strcmp(bytes + 4096, "child") == 0);
    strcpy(bytes, "parent");
    char text[16] = "";
    CHECK(pread(fd, text, 7, 0) == 7 && strcmp(text, "parent") == 0);
    CHECK(close(fd) == 0);
    // After the descriptor's end, until that of the mapping.
    strcpy(bytes + 2 * 4096, "late");
    CHECK(munmap(bytes, 3 * 4096) == 0);
}

static void append(void) {
    for (int writer = 0; writer < 2; writer++) {
        if (fork() == 0) {
            int fd;
            CHECK((fd = open("log", O_CREAT | O_WRONLY | O_APPEND, 0600)) >= 0);
            for (int i = 0; i < 1000; i++) {
                char line[32];
                int length = sprintf(line, "%d %04d\n", writer, i);
                CHECK(write(fd, line, length) == length);
            }
            exit(0);
        }
    }
    for (int writer = 0; writer < 2; writer++) {
        int status;
        CHECK(wait(&status) > 0 && status == 0);
    }
    CHECK(look("log").st_size == 2 * 1000 * 7);
    FILE *log = fopen("log", "r");
    int next[2] = {0, 0}, writer, number;
    while (fscanf(log, "%d %d\n", &writer, &number) == 2)
        CHECK(number == next[writer]++);
    CHECK(next[0] == 1000 && next[1] == 1000);
}

static void unlinked(void) {
    int fd;
    CHECK((fd = open("gone", O_CREAT | O_RDWR, 0600)) >= 0);
    CHECK(write(fd, "abc", 3) == 3 && unlink("gone") == 0);
    CHECK(write(fd, "def", 3) == 3);
    char text[8] = "";
    CHECK(pread(fd, text, 8, 0) == 6 && strcmp(text, "abcdef") == 0);
    struct stat status;
    CHECK(fstat(fd, &status) == 0 && status.st_nlink == 0 && status.st_size == 6);
    CHECK(ftruncate(fd, 2) == 0 && fchmod(fd, 0640) == 0);
    CHECK(fstat(fd, &status) == 0 && status.st_size == 2 && (status.st_mode & 0777) == 0640);
    // Another file of that name is another file.
    put("gone", "new");
    CHECK(look("gone").st_ino != status.st_ino && pread(fd, text, 8, 0) == 2);
    CHECK(rename("gone", "kept") == 0 && close(fd) == 0);
}

static void links(void) {
    put("first", "text");
    CHECK(link("first", "second") == 0);
    CHECK(look("first").st_ino == look("second").st_ino && look("second").st_nlink == 2);
    int fd;
    CHECK((fd = open("first", O_WRONLY | O_APPEND)) >= 0 && write(fd, "+", 1) == 1 && close(fd) == 0);
    CHECK(strcmp(get("second"), "text+") == 0);
    CHECK(unlink("first") == 0 && look("second").st_nlink == 1 && strcmp(get("second"), "text+") == 0);
}

static int rename2(const char *from, const char *to, unsigned flags) {
    return syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flags);
}

static void renames(void) {
    put("x", "x");
    put("y", "y");
    CHECK(rename2("x", "y", RENAME_NOREPLACE) < 0 && errno == EEXIST);
    ino_t x = look("x").st_ino, y = look("y").st_ino;
    CHECK(rename2("x", "y", RENAME_EXCHANGE) == 0);
    CHECK(strcmp(get("x"), "y") == 0 && strcmp(get("y"), "x") == 0);
    CHECK(look("x").st_ino == y && look("y").st_ino == x);
    CHECK(rename2("x", "z", RENAME_NOREPLACE) == 0 && strcmp(get("z"), "y") == 0);
    CHECK(rename("z", "y") == 0 && strcmp(get("y"), "y") == 0);
}

static void locks(void) {
    put("lock", "");
    int fd;
    CHECK((fd = open("lock", O_RDWR)) >= 0 && flock(fd, LOCK_EX) == 0);
    if (fork() == 0) {
        int other;
        CHECK((other = open("lock", O_RDWR)) >= 0 && flock(other, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK);
        struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        CHECK(fcntl(other, F_SETLK, &whole) == 0);
        exit(0);
    }
    int status;
    CHECK(wait(&status) > 0 && status == 0);
}

static struct io_uring_params params;
static unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_mask;
static struct io_uring_cqe *cqes;
static struct io_uring_sqe *sqes;
static int ring;

static int32_t did(struct io_uring_sqe request) {
    unsigned tail = *sq_tail;
    sqes[tail & *sq_mask] = request;
    sq_array[tail & *sq_mask] = tail & *sq_mask;
    __atomic_store_n(sq_tail, tail + 1, __ATOMIC_RELEASE);
    CHECK(syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 1);
    unsigned head = *cq_head;
    int32_t result = cqes[head & *cq_mask].res;
    __atomic_store_n(cq_head, head + 1, __ATOMIC_RELEASE);
    return result;
}

// Exit code 77: this kernel has no io_uring.
static void uring(void) {
    ring = syscall(SYS_io_uring_setup, 8, &params);
    if (ring < 0 && (errno == ENOSYS || errno == EPERM))
        exit(77);
    CHECK(ring >= 0);
    char *sq = mmap(NULL, params.sq_off.array + params.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    size_t room = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
    char *cq = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_CQ_RING);
    sqes = mmap(NULL, params.sq_entries * sizeof *sqes, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
    CHECK(sq != MAP_FAILED && cq != MAP_FAILED && (void *)sqes != MAP_FAILED);
    sq_tail = (unsigned *)(sq + params.sq_off.tail);
    sq_mask = (unsigned *)(sq + params.sq_off.ring_mask);
    sq_array = (unsigned *)(sq + params.sq_off.array);
    cq_head = (unsigned *)(cq + params.cq_off.head);
    cq_mask = (unsigned *)(cq + params.cq_off.ring_mask);
    cqes = (struct io_uring_cqe *)(cq + params.cq_off.cqes);
    int fd = did((struct io_uring_sqe){
        .opcode = IORING_OP_OPENAT, .fd = AT_FDCWD, .addr = (uintptr_t)"ring", .open_flags = O_CREAT | O_RDWR, .len = 0600});
    CHECK(fd >= 0);
    CHECK(did((struct io_uring_sqe){.opcode = IORING_OP_WRITE, .fd = fd, .addr = (uintptr_t)"by a ring", .len = 9}) == 9);
    char text[16] = "";
    CHECK(did((struct io_uring_sqe){.opcode = IORING_OP_READ, .fd = fd, .addr = (uintptr_t)text, .len = 16}) == 9);
    CHECK(strcmp(text, "by a ring") == 0 && S_ISREG(look("ring").st_mode));
    CHECK(did((struct io_uring_sqe){.opcode = IORING_OP_CLOSE, .fd = fd}) == 0);
}

// Confines itself to a directory below the root. Exit code 77: this kernel has no Landlock.
static void landlock(void) {
    uint64_t writing = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG;
    struct landlock_ruleset_attr rules = {.handled_access_fs = writing};
    CHECK(mkdir("mine", 0700) == 0 && mkdir("theirs", 0700) == 0);
    int set = syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0);
    if (set < 0 && (errno == ENOSYS || errno == EOPNOTSUPP))
        exit(77);
    CHECK(set >= 0);
    struct landlock_path_beneath_attr beneath = {.allowed_access = writing};
    CHECK((beneath.parent_fd = open("mine", O_PATH | O_DIRECTORY)) >= 0);
    CHECK(syscall(SYS_landlock_add_rule, set, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0) == 0);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && syscall(SYS_landlock_restrict_self, set, 0) == 0);
    put("mine/f", "allowed");
    CHECK(open("theirs/f", O_CREAT | O_WRONLY, 0600) < 0 && errno == EACCES);
}

int main(int count, char **args) {
    struct {
        const char *name;
        void (*does)(void);
    } all[] = {{"files", files}, {"map", map},         {"append", append}, {"unlinked", unlinked},
               {"links", links}, {"renames", renames}, {"locks", locks},   {"uring", uring},
               {"landlock", landlock}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (count > 1 && strcmp(args[1], all[i].name) == 0) {
            all[i].does();
            return 0;
        }
    return 2;
}
