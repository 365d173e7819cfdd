// A program of 32 bits without a C library: begins as they do, and says that it ran.
static int call(int nr, int a, int b, int c) {
    int result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(nr), "b"(a), "c"(b), "d"(c) : "memory");
    return result;
}

void _start(void) {
    struct {
        unsigned number, base, limit, flags;
    } area = {-1, 0, 0xfffff, 0x51};
    call(243, (int)&area, 0, 0);
    call(4, 1, (int)"ran\n", 4);
    call(1, 0, 0, 0);
}
