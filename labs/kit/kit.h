/* What the labs' servers in C have in common: as much of a blocking HTTP/1.1 server as they need,
 * thread-per-connection, and saying that they are ready. The crate beside it is the
 * same for those in Rust. */
#ifndef KIT_H
#define KIT_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

/* Its frame is in the stack of a release build. */
#define OWN_FRAME __attribute__((noinline, noclone))

static void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, errno ? strerror(errno) : "failed");
    exit(1);
}

static inline int kit_tid(void) { return (int)syscall(SYS_gettid); }

static inline double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

/* Refuses a folder where a sync is not a wait for a disk. */
static inline void require_disk(const char *dir) {
    struct statfs found;
    if (statfs(dir, &found))
        die(dir);
    if (found.f_type != 0xef53 && found.f_type != 0x58465342 && found.f_type != 0x9123683e) {
        fprintf(stderr,
                "%s is on a filesystem of type %#lx; this lab needs ext4, xfs, btrfs (LABS_DISK "
                "names another "
                "folder)\n",
                dir, (unsigned long)found.f_type);
        exit(1);
    }
}

/* Tells the lab's driver, which waits for this file, that the load can begin, and where. */
static inline void kit_announce(const char *address) {
    const char *name = getenv("READY_FILE");
    FILE *ready = name ? fopen(name, "w") : NULL;
    if (!ready)
        die("READY_FILE must name the file to write when ready");
    fprintf(ready, "%d %s\n", getpid(), address);
    if (fclose(ready))
        die(name);
}

/* Writes the body of the answer to a GET of the path. */
typedef void answer_fn(const char *path, char *body, size_t size);

struct kit_connection {
    int fd;
    answer_fn *answer;
};

/* Any failure means that the client has gone, and ends this thread alone. */
static inline void *kit_converse(void *argument) {
    struct kit_connection connection = *(struct kit_connection *)argument;
    /* Small: what is above a frame of many kilobytes is out of reach for who copies the top of the
     * stack. */
    char line[256], path[128], body[1024], reply[1152];
    free(argument);
    FILE *in = fdopen(connection.fd, "r");
    if (!in)
        return NULL;
    while (fgets(line, sizeof line, in) && sscanf(line, "GET %127s", path) == 1) {
        while (fgets(line, sizeof line, in) && strcmp(line, "\r\n"))
            ;
        body[0] = 0;
        connection.answer(path, body, sizeof body);
        int length =
            snprintf(reply, sizeof reply, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s",
                     strlen(body), body);
        if (send(connection.fd, reply, length, MSG_NOSIGNAL) < 0)
            break;
    }
    fclose(in);
    return NULL;
}

/* Listens on a port of the system's choice, and writes where that is. */
static inline int kit_listen(char *where, size_t room) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, size) ||
        listen(listener, 128) || getsockname(listener, (struct sockaddr *)&address, &size))
        die("cannot listen");
    snprintf(where, room, "127.0.0.1:%d", ntohs(address.sin_port));
    return listener;
}

/* Listens, tells the lab's driver, and serves. */
static inline void serve(answer_fn *answer) {
    char where[32];
    int listener = kit_listen(where, sizeof where), one = 1;
    kit_announce(where);
    for (;;) {
        struct kit_connection *connection = malloc(sizeof *connection);
        pthread_t thread;
        if (!connection)
            die("malloc");
        *connection = (struct kit_connection){accept(listener, NULL, NULL), answer};
        if (connection->fd < 0)
            die("accept");
        setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (pthread_create(&thread, NULL, kit_converse, connection))
            die("pthread_create");
        pthread_detach(thread);
    }
}

static inline int kit_compare(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Median, 99th percentile, maximum and sum of a series of milliseconds, which it sorts. */
static inline void summary(double *series, int count, char *text, size_t size) {
    double sum = 0;
    if (count == 0) {
        snprintf(text, size, "{\"count\":0}");
        return;
    }
    qsort(series, count, sizeof *series, kit_compare);
    for (int i = 0; i < count; i++)
        sum += series[i];
    /* Nearest ranks, as the clients have them. */
    int p50 = (count * 50 + 99) / 100 - 1, p99 = (count * 99 + 99) / 100 - 1;
    snprintf(text, size,
             "{\"count\":%d,\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"max_ms\":%.3f,\"sum_ms\":%.3f}",
             count, series[p50], series[p99], series[count - 1], sum);
}

#endif
