// Blocks in a read into a buffer on the stack that is larger than what is copied of stacks.
#include <unistd.h>

static volatile int sink;

__attribute__((noinline)) static void read_into_stack(int fd) {
    char buffer[64 << 10];
    sink += read(fd, buffer, sizeof buffer);
    sink += buffer[sink];
}

__attribute__((noinline)) static void serve(int fd) {
    read_into_stack(fd);
    sink++;
}

int main(void) {
    int ends[2];
    if (pipe(ends))
        return 1;
    serve(ends[0]);
    return sink;
}
