/* Bytes objects through the C ABI. Run in a root, with what is said below about its files. */
#include "claim.h"
#include <sys/wait.h>
#include <unistd.h>

static int count(const char *name, int kind, void *context) {
    *(int *)context += 1;
    return kind == TERRACE_BYTES && strcmp(name, "b") == 0; /* the second of three: there is no third call */
}

static void names_and_kinds(terrace_session *s) {
    terrace_info info;
    CLAIM(terrace_container_create(s, "c/d", TERRACE_NEW) == TERRACE_OK);
    CLAIM(terrace_container_create(s, "c/d", TERRACE_NEW) == TERRACE_EXISTS);
    CLAIM(terrace_container_create(s, "c/d", TERRACE_IF_MISSING) == TERRACE_OK);
    CLAIM(terrace_stat(s, "c/d", &info) == TERRACE_OK && info.kind == TERRACE_CONTAINER);
    CLAIM(terrace_stat(s, "c/none", &info) == TERRACE_NOT_FOUND && SAYS("c/none"));
    CLAIM(terrace_stat(s, "../x", &info) == TERRACE_INVALID && SAYS("hint:"));
    CLAIM(terrace_stat(s, "bad-\xff", &info) == TERRACE_INVALID && SAYS("UTF-8"));
    CLAIM(terrace_stat(s, NULL, &info) == TERRACE_INVALID);
    for (const char *name = "abd"; *name; name++) {
        char path[] = {'c', '/', 'd', '/', *name, 0};
        terrace_bytes *b;
        CLAIM(terrace_bytes_create(s, path, TERRACE_NEW, &b) == TERRACE_OK);
        CLAIM(terrace_bytes_close(b) == TERRACE_OK);
        CLAIM(terrace_bytes_create(s, path, TERRACE_NEW, &b) == TERRACE_EXISTS);
        CLAIM(terrace_bytes_create(s, path, 17, &b) == TERRACE_INVALID && SAYS("17"));
    }
    int seen = 0;
    CLAIM(terrace_list(s, "c/d", count, &seen) == TERRACE_OK && seen == 2);
    CLAIM(terrace_list(s, "c/d/a", count, &seen) == TERRACE_WRONG_KIND);
    CLAIM(terrace_list(s, "c/d", NULL, NULL) == TERRACE_INVALID);
    CLAIM(terrace_remove(s, "c", false) != TERRACE_OK);
    CLAIM(terrace_remove(s, "c/d/a", false) == TERRACE_OK);
    CLAIM(terrace_remove(s, "c/d/a", false) == TERRACE_NOT_FOUND);
    CLAIM(terrace_remove(s, "c", true) == TERRACE_OK);
    CLAIM(terrace_wait_for(s, "c", 0.01, NULL) == TERRACE_BUSY);
    CLAIM(terrace_wait_for(s, "c", 0.0 / 0.0, NULL) == TERRACE_INVALID);
}

static void reads_and_writes(terrace_session *s) {
    terrace_bytes *w, *r;
    uint64_t at, length;
    size_t got;
    char buffer[64];
    CLAIM(terrace_bytes_create(s, "table", TERRACE_NEW, &w) == TERRACE_OK);
    CLAIM(terrace_bytes_append(w, "hello ", 6, NULL) == TERRACE_OK);
    CLAIM(terrace_bytes_append(w, "world", 5, &at) == TERRACE_OK && at == 6);
    CLAIM(terrace_bytes_write(w, 0, "J", 1) == TERRACE_OK);
    CLAIM(terrace_bytes_length(w, &length) == TERRACE_OK && length == 11);
    CLAIM(terrace_bytes_read(w, 0, buffer, 11, NULL) == TERRACE_OK && memcmp(buffer, "Jello world", 11) == 0);
    CLAIM(terrace_bytes_flush(w) == TERRACE_OK);

    CLAIM(terrace_bytes_open(s, "table", false, &r) == TERRACE_OK);
    CLAIM(terrace_bytes_read(r, 6, buffer, 64, &got) == TERRACE_OK && got == 5 && memcmp(buffer, "world", 5) == 0);
    CLAIM(terrace_bytes_read(r, 6, buffer, 64, NULL) == TERRACE_OUT_OF_BOUNDS && SAYS("11"));
    CLAIM(terrace_bytes_read(r, 1000, buffer, 64, &got) == TERRACE_OK && got == 0);
    CLAIM(terrace_bytes_write(r, 0, "x", 1) == TERRACE_WRONG_KIND && SAYS("reading only"));
    CLAIM(terrace_bytes_read(r, 0, NULL, 1, &got) == TERRACE_INVALID);
    CLAIM(terrace_bytes_read(r, 0, NULL, 0, &got) == TERRACE_OK && got == 0);
    CLAIM(terrace_bytes_read(r, 0, buffer, (size_t)-1, &got) == TERRACE_INVALID);
    CLAIM(terrace_bytes_write(w, (uint64_t)-1, "x", 1) == TERRACE_OUT_OF_BOUNDS);

    /* A hole is zero, to the writer and to the reader that has it mapped; cutting off is seen as well. */
    CLAIM(terrace_bytes_write(w, 20, "!", 1) == TERRACE_OK && terrace_bytes_flush(w) == TERRACE_OK);
    CLAIM(terrace_bytes_read(r, 11, buffer, 10, NULL) == TERRACE_OK && memcmp(buffer, "\0\0\0\0\0\0\0\0\0!", 10) == 0);
    CLAIM(terrace_bytes_set_length(w, 5) == TERRACE_OK && terrace_bytes_sync(w) == TERRACE_OK);
    CLAIM(terrace_bytes_read(w, 0, buffer, 64, &got) == TERRACE_OK && got == 5);
    CLAIM(terrace_bytes_set_length(w, 1 << 20) == TERRACE_OK);
    CLAIM(terrace_bytes_read(r, (1 << 20) - 64, buffer, 64, NULL) == TERRACE_OK);
    CLAIM(terrace_bytes_set_length(w, 5) == TERRACE_OK);
    CLAIM(terrace_bytes_read(r, (1 << 20) - 64, buffer, 64, &got) == TERRACE_OK && got == 0);
    CLAIM(terrace_bytes_read(r, 0, buffer, 64, &got) == TERRACE_OK && got == 5 && memcmp(buffer, "Jello", 5) == 0);
    CLAIM(terrace_bytes_close(w) == TERRACE_OK && terrace_bytes_close(r) == TERRACE_OK);
}

static void handles(terrace_session *s) {
    terrace_bytes *b;
    terrace_info info;
    char byte;
    CLAIM(terrace_bytes_open(s, "table", true, &b) == TERRACE_OK);
    CLAIM(terrace_bytes_open(s, "none", true, &b) == TERRACE_NOT_FOUND);
    CLAIM(terrace_bytes_close(b) == TERRACE_OK); /* a failed open leaves the place as it was */
    CLAIM(terrace_bytes_close(b) == TERRACE_BAD_HANDLE && SAYS("closed"));
    CLAIM(terrace_bytes_read(b, 0, &byte, 1, NULL) == TERRACE_BAD_HANDLE);
    CLAIM(terrace_bytes_close(NULL) == TERRACE_BAD_HANDLE && SAYS("NULL"));
    CLAIM(terrace_bytes_flush((terrace_bytes *)&byte) == TERRACE_BAD_HANDLE);
    CLAIM(terrace_bytes_open(s, "table", true, NULL) == TERRACE_INVALID);
    CLAIM(terrace_bytes_open(NULL, "table", true, &b) == TERRACE_BAD_HANDLE);
    CLAIM(terrace_stat(s, "table", NULL) == TERRACE_INVALID);
    CLAIM(terrace_stat((terrace_session *)b, "table", &info) == TERRACE_BAD_HANDLE);
    CLAIM(terrace_connect("", NULL) == TERRACE_INVALID);
    terrace_session *none;
    CLAIM(terrace_connect("/nonexistent-root", &none) == TERRACE_NOT_FOUND);
    CLAIM(terrace_connect("/proc", &none) == TERRACE_NO_AGENT && SAYS("terrace serve"));
    char small[2];
    CLAIM(terrace_root(s, small, sizeof small) == TERRACE_OUT_OF_BOUNDS);
}

/* What a parent gathered is published once, by the parent; the child's handle works, too. */
static void a_fork(terrace_session *s) {
    terrace_bytes *b;
    uint64_t length;
    CLAIM(terrace_bytes_create(s, "forked", TERRACE_NEW, &b) == TERRACE_OK);
    CLAIM(terrace_bytes_append(b, "parent", 6, NULL) == TERRACE_OK);
    pid_t child = fork();
    if (child == 0) {
        terrace_bytes *own;
        CLAIM(terrace_bytes_create(s, "by-child", TERRACE_NEW, &own) == TERRACE_OK);
        CLAIM(terrace_bytes_append(own, "child", 5, NULL) == TERRACE_OK);
        CLAIM(terrace_bytes_close(own) == TERRACE_OK && terrace_bytes_close(b) == TERRACE_OK);
        _exit(0);
    }
    int status;
    CLAIM(waitpid(child, &status, 0) == child && status == 0);
    terrace_bytes *other;
    CLAIM(terrace_bytes_open(s, "forked", false, &other) == TERRACE_OK);
    CLAIM(terrace_bytes_length(other, &length) == TERRACE_OK && length == 0);
    CLAIM(terrace_bytes_close(b) == TERRACE_OK);
    CLAIM(terrace_bytes_length(other, &length) == TERRACE_OK && length == 6);
    CLAIM(terrace_bytes_close(other) == TERRACE_OK);
    terrace_info info;
    CLAIM(terrace_stat(s, "by-child", &info) == TERRACE_OK && info.bytes == 5);
}

int main(void) {
    terrace_session *s;
    CLAIM(terrace_error()[0] == 0 && strchr(terrace_version(), '.'));
    CLAIM(terrace_connect(NULL, &s) == TERRACE_OK);
    names_and_kinds(s);
    reads_and_writes(s);
    handles(s);
    a_fork(s);
    CLAIM(terrace_disconnect(s) == TERRACE_OK);
    CLAIM(terrace_disconnect(s) == TERRACE_BAD_HANDLE);
    puts("all claims hold");
    return 0;
}
