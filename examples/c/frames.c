/* A camera that appends frames to one object, and a reader that takes them from it.
 *
 *   cc frames.c $(pkg-config --cflags --libs terrace) -o frames && terrace run -- ./frames */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <terrace.h>

enum { FRAMES = 1000, FRAME_BYTES = 2880 };

static void check(int code, const char *what) {
    if (code == TERRACE_OK) return;
    fprintf(stderr, "%s: %s\n", what, terrace_error());
    exit(1);
}

static int print(const char *name, int kind, void *context) {
    (void)context;
    printf("  %s%s\n", name, kind == TERRACE_CONTAINER ? "/" : "");
    return 0;
}

int main(void) {
    terrace_session *session;
    check(terrace_connect("", &session), "connect");
    check(terrace_container_create(session, "night/2026-11-21", TERRACE_IF_MISSING), "make a container");

    terrace_bytes *frames;
    check(terrace_bytes_create(session, "night/2026-11-21/frames", TERRACE_REPLACE, &frames), "create");
    unsigned char frame[FRAME_BYTES];
    for (int number = 0; number < FRAMES; number++) {
        for (int at = 0; at < FRAME_BYTES; at++) frame[at] = (unsigned char)(number + at);
        check(terrace_bytes_append(frames, frame, sizeof frame, NULL), "append");
    }
    check(terrace_bytes_close(frames), "close");

    /* From here on any program sees the file; a reader's cells come from memory that both map. */
    check(terrace_bytes_open(session, "night/2026-11-21/frames", false, &frames), "open");
    uint64_t length;
    check(terrace_bytes_length(frames, &length), "length");
    check(terrace_bytes_read(frames, length - FRAME_BYTES, frame, sizeof frame, NULL), "read");
    printf("%llu bytes, the last frame begins with %d\n", (unsigned long long)length, frame[0]);
    check(terrace_bytes_close(frames), "close");

    printf("night/2026-11-21 has\n");
    check(terrace_list(session, "night/2026-11-21", print, NULL), "list");
    check(terrace_disconnect(session), "disconnect");
    return 0;
}
