#include "lab.h"

#include <fcntl.h>
#include <stdarg.h>
#include <sys/un.h>

/* How long the load may take to open its device. */
#define DEVICE_DEADLINE_MS 10000.0

void publish(struct io_uring *ring) {
    struct io_uring_sq *sq = &ring->sq;
    unsigned mask = *sq->kring_mask, tail = *sq->ktail;
    for (; sq->sqe_head != sq->sqe_tail; sq->sqe_head++)
        sq->array[tail++ & mask] = sq->sqe_head & mask;
    io_uring_smp_store_release(sq->ktail, tail);
}

int cached_file(const struct lab *lab, size_t size) {
    char path[4096], *bytes = malloc(size);
    snprintf(path, sizeof path, "%s/data", lab->dir);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || !bytes)
        die(path);
    memset(bytes, 0x5a, size);
    if (write(fd, bytes, size) != (ssize_t)size)
        die(path);
    free(bytes);
    return fd;
}

int connect_device(const struct lab *lab) { return connect_to(lab, "device.sock"); }

int connect_to(const struct lab *lab, const char *socket_name) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    double deadline = now_ms() + DEVICE_DEADLINE_MS;
    int length =
        snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", lab->dir, socket_name);
    if (length >= (int)sizeof address.sun_path)
        die("the folder's path is too long");
    for (;;) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
            die("socket");
        if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
            return fd;
        close(fd);
        if (now_ms() > deadline)
            die("the load opens no device");
        usleep(10000);
    }
}

void ask_device(int fd) {
    uint64_t request = 0;
    if (send(fd, &request, sizeof request, MSG_NOSIGNAL) != sizeof request)
        die("cannot ask the device");
}

void sleep_until(double at_ms) {
    struct timespec at = {.tv_sec = at_ms / 1e3};
    at.tv_nsec = (at_ms - at.tv_sec * 1e3) * 1e6;
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

void tell_truth(const struct lab *lab, const char *format, ...) {
    char part[4096], whole[4096];
    va_list values;
    snprintf(part, sizeof part, "%s/truth.part", lab->dir);
    snprintf(whole, sizeof whole, "%s/truth.json", lab->dir);
    FILE *file = fopen(part, "w");
    if (!file)
        die(part);
    va_start(values, format);
    vfprintf(file, format, values);
    va_end(values);
    fputc('\n', file);
    if (fclose(file) || rename(part, whole))
        die(whole);
}
