/* An event loop over epoll (level- or edge-triggered), poll or select, for labs whose fault lies in
 * what a loop asks the kernel for. The four need the same program, so that a fault can be had in
 * each; a loop counts its turns, which is the ground truth of a loop that spins. One thread each;
 * connections are answered by HTTP/1.1 as far as the labs need it. */
#ifndef KIT_LOOP_H
#define KIT_LOOP_H

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>

#include "kit.h"

#ifndef EPOLLEXCLUSIVE
#define EPOLLEXCLUSIVE (1u << 28)
#endif

#define LOOP_MOST_FDS 512

enum flavour { EPOLL_LT, EPOLL_ET, POLL, SELECT };

/* Interest, and what is ready. HUP and ERR need not be asked for; with select they are IN or OUT.
 */
enum { IN = 1, OUT = 2, HUP = 4, ERR = 8 };
/* Not in the set at all, which is more than to be interested in nothing. */
#define NONE (-1)

struct loop {
    enum flavour flavour;
    int epoll;
    int interest[LOOP_MOST_FDS];
    int highest;
    /* Returns from the wait, those of them after which nothing moved, and when the first and last
     * of these were. */
    unsigned long turns, futile;
    double first_futile_ms, last_futile_ms;
    unsigned long progress;
};

struct ready {
    int fd, events;
};

static inline enum flavour flavour_named(const char *name) {
    static const char *const names[] = {"epoll-lt", "epoll-et", "poll", "select"};
    for (int i = 0; i < 4; i++)
        if (strcmp(name, names[i]) == 0)
            return (enum flavour)i;
    fprintf(stderr, "%s is not epoll-lt, epoll-et, poll or select\n", name);
    exit(2);
}

static inline void loop_init(struct loop *loop, enum flavour flavour) {
    memset(loop, 0, sizeof *loop);
    loop->flavour = flavour;
    loop->epoll = -1;
    for (int fd = 0; fd < LOOP_MOST_FDS; fd++)
        loop->interest[fd] = NONE;
    if (flavour <= EPOLL_ET && (loop->epoll = epoll_create1(EPOLL_CLOEXEC)) < 0)
        die("epoll_create1");
}

/* What the loop is interested in of fd: IN, OUT, both, 0 (only HUP and ERR, which always count) or
 * NONE. */
static inline void loop_set_with(struct loop *loop, int fd, int interest, unsigned flags) {
    if (fd >= LOOP_MOST_FDS || (loop->flavour == SELECT && fd >= FD_SETSIZE)) {
        errno = 0;
        die("too many connections for this loop");
    }
    int before = loop->interest[fd];
    loop->interest[fd] = interest;
    if (fd > loop->highest)
        loop->highest = fd;
    if (loop->epoll < 0 || before == interest)
        return;
    struct epoll_event event = {.data.fd = fd, .events = flags};
    event.events |= (interest != NONE && interest & IN ? EPOLLIN : 0) |
                    (interest != NONE && interest & OUT ? EPOLLOUT : 0) |
                    (loop->flavour == EPOLL_ET ? EPOLLET : 0);
    int operation = interest == NONE ? EPOLL_CTL_DEL
                    : before == NONE ? EPOLL_CTL_ADD
                                     : EPOLL_CTL_MOD;
    if (epoll_ctl(loop->epoll, operation, fd, &event))
        die("epoll_ctl");
}

static inline void loop_set(struct loop *loop, int fd, int interest) {
    loop_set_with(loop, fd, interest, 0);
}

/* Asks again for what was asked for: an edge-triggered descriptor that is ready is reported again.
 */
static inline void loop_ask_again(struct loop *loop, int fd) {
    int interest = loop->interest[fd];
    if (loop->epoll < 0 || interest == NONE)
        return;
    struct epoll_event event = {
        .data.fd = fd, .events = (interest & IN ? EPOLLIN : 0) | (interest & OUT ? EPOLLOUT : 0)};
    event.events |= loop->flavour == EPOLL_ET ? EPOLLET : 0;
    if (epoll_ctl(loop->epoll, EPOLL_CTL_MOD, fd, &event))
        die("epoll_ctl");
}

static inline void loop_close(struct loop *loop, int fd) {
    loop_set(loop, fd, NONE);
    close(fd);
}

static inline int loop_wait_epoll(struct loop *loop, int timeout_ms, struct ready *ready,
                                  int most) {
    struct epoll_event events[64];
    int count = epoll_wait(loop->epoll, events, most < 64 ? most : 64, timeout_ms);
    for (int i = 0; i < count; i++) {
        unsigned got = events[i].events;
        ready[i].fd = events[i].data.fd;
        ready[i].events = (got & EPOLLIN ? IN : 0) | (got & EPOLLOUT ? OUT : 0) |
                          (got & EPOLLHUP ? HUP : 0) | (got & EPOLLERR ? ERR : 0);
    }
    return count;
}

static inline int loop_wait_poll(struct loop *loop, int timeout_ms, struct ready *ready, int most) {
    struct pollfd fds[LOOP_MOST_FDS];
    int asked = 0, found = 0;
    for (int fd = 0; fd <= loop->highest; fd++)
        if (loop->interest[fd] != NONE)
            fds[asked++] = (struct pollfd){.fd = fd,
                                           .events = (loop->interest[fd] & IN ? POLLIN : 0) |
                                                     (loop->interest[fd] & OUT ? POLLOUT : 0)};
    int count = poll(fds, asked, timeout_ms);
    for (int i = 0; i < asked && count > 0 && found < most; i++) {
        int got = fds[i].revents;
        if (got)
            ready[found++] = (struct ready){
                fds[i].fd, (got & POLLIN ? IN : 0) | (got & POLLOUT ? OUT : 0) |
                               (got & POLLHUP ? HUP : 0) | (got & POLLERR ? ERR : 0)};
    }
    return count < 0 ? count : found;
}

static inline int loop_wait_select(struct loop *loop, int timeout_ms, struct ready *ready,
                                   int most) {
    fd_set in, out;
    struct timeval timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1000};
    int found = 0;
    FD_ZERO(&in);
    FD_ZERO(&out);
    for (int fd = 0; fd <= loop->highest; fd++) {
        if (loop->interest[fd] == NONE)
            continue;
        if (loop->interest[fd] & IN)
            FD_SET(fd, &in);
        if (loop->interest[fd] & OUT)
            FD_SET(fd, &out);
    }
    int count = select(loop->highest + 1, &in, &out, NULL, timeout_ms < 0 ? NULL : &timeout);
    for (int fd = 0; fd <= loop->highest && count > 0 && found < most; fd++) {
        int events = (FD_ISSET(fd, &in) ? IN : 0) | (FD_ISSET(fd, &out) ? OUT : 0);
        if (events)
            ready[found++] = (struct ready){fd, events};
    }
    return count < 0 ? count : found;
}

/* Waits for at most timeout_ms (-1: for good) and returns how many are ready. */
static inline int loop_wait(struct loop *loop, int timeout_ms, struct ready *ready, int most) {
    int count = loop->flavour == POLL     ? loop_wait_poll(loop, timeout_ms, ready, most)
                : loop->flavour == SELECT ? loop_wait_select(loop, timeout_ms, ready, most)
                                          : loop_wait_epoll(loop, timeout_ms, ready, most);
    if (count < 0 && errno != EINTR)
        die("cannot wait");
    loop->turns++;
    return count < 0 ? 0 : count;
}

/* To be called where something moved: bytes, a connection taken or ended, a timer that did work. */
static inline void loop_progress(struct loop *loop) { loop->progress++; }

/* To be called at the end of a turn, with what `progress` was at its beginning. */
static inline void loop_turn_over(struct loop *loop, unsigned long progress_then, int ready_count) {
    if (loop->progress != progress_then || ready_count == 0)
        return;
    loop->last_futile_ms = now_ms();
    if (!loop->futile++)
        loop->first_futile_ms = loop->last_futile_ms;
}

/* What the loop did, as members of a JSON object, and the CPU time of the process. */
static inline int loop_truth(const struct loop *loop, char *text, size_t size) {
    struct rusage usage;
    double spun = (loop->last_futile_ms - loop->first_futile_ms) / 1e3;
    getrusage(RUSAGE_SELF, &usage);
    double user = usage.ru_utime.tv_sec + usage.ru_utime.tv_usec / 1e6;
    double system = usage.ru_stime.tv_sec + usage.ru_stime.tv_usec / 1e6;
    return snprintf(text, size,
                    "\"pid\":%d,\"turns\":%lu,\"futile\":%lu,\"futile_s\":%.6f,\"futile_per_s\":%."
                    "1f,\"user_s\":%.6f,"
                    "\"system_s\":%.6f,\"cpu_s\":%.6f",
                    getpid(), loop->turns, loop->futile, spun, spun > 0 ? loop->futile / spun : 0.0,
                    user, system, user + system);
}

/* -- Sockets -- */

/* A listener that does not block, on a port of the system's choice unless there is one. */
static inline int listen_on(struct sockaddr_in *address, int reuseport, int blocking) {
    socklen_t size = sizeof *address;
    int one = 1,
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | (blocking ? 0 : SOCK_NONBLOCK), 0);
    address->sin_family = AF_INET;
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || (reuseport && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one)) ||
        bind(fd, (struct sockaddr *)address, size) || listen(fd, 1024) ||
        getsockname(fd, (struct sockaddr *)address, &size))
        die("cannot listen");
    return fd;
}

static inline void say_ready(const struct sockaddr_in *address) {
    const char *name = getenv("READY_FILE");
    FILE *ready = name ? fopen(name, "w") : NULL;
    if (!ready)
        die("READY_FILE must name the file to write when ready");
    fprintf(ready, "%d 127.0.0.1:%d\n", getpid(), ntohs(address->sin_port));
    if (fclose(ready))
        die(name);
}

/* Takes a connection that does not block; -1 and errno when there is none to be had. */
static inline int take(int listener) {
    int one = 1, fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

/* Reads a request, which comes in one piece from the labs' clients, and the path in it. 1: there is
 * one; 0: nothing to read; -1: the client has gone. */
static inline int read_request(int fd, char path[128]) {
    char bytes[4096];
    ssize_t got = recv(fd, bytes, sizeof bytes - 1, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (got <= 0)
        return -1;
    bytes[got] = 0;
    return sscanf(bytes, "GET %127s", path) == 1 ? 1 : -1;
}

static inline void reply(int fd, const char *body) {
    char text[2048];
    int length = snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s",
                          strlen(body), body);
    /* It fits into any send buffer; a client that has gone is met when it is read from. */
    if (send(fd, text, length, MSG_NOSIGNAL) < 0)
        return;
}

/* Answers a GET of /about with the loop's truth and what the server adds to it, and of anything
 * else by `done`. */
static inline void reply_to(struct loop *loop, int fd, const char *path, const char *more) {
    char body[1536] = "done";
    if (strcmp(path, "/about") == 0) {
        int used = snprintf(body, sizeof body, "{%s", more);
        used += loop_truth(loop, body + used, sizeof body - used);
        snprintf(body + used, sizeof body - used, "}");
    }
    reply(fd, body);
}

/* The value of `--name VALUE`, or what is given. */
static inline const char *option(char **words, const char *name, const char *otherwise) {
    for (words++; *words; words++)
        if (strcmp(*words, name) == 0)
            return words[1] ? words[1] : otherwise;
    return otherwise;
}

static inline int flag(char **words, const char *name) {
    for (words++; *words; words++)
        if (strcmp(*words, name) == 0)
            return 1;
    return 0;
}

#endif
