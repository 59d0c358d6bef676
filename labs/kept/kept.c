/* Threads that accept, and each keeps its connection until the client closes it.
 *
 *     kept WORKERS read|poll|select|oneshot|pollers|mixed|stream [--close]
 *
 * How a thread waits for the next request of its connection: in recv, or before that in poll or
 * select, with a time limit of a minute. oneshot: threads share an epoll instance, in which each
 * connection is armed for one event at a time; who gets it reads a whole request. pollers: threads
 * share an epoll instance that has the listener alone, and each keeps what it accepts. mixed: two
 * kinds of threads, one in recv and one in poll. stream: the answer to /stream never ends. One to
 * /slow takes 200 ms. --close: a connection ends with its first answer. */
#define _GNU_SOURCE
#include "../kit/kit.h"

#include <fcntl.h>
#include <poll.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/select.h>

#define LIMIT_S 60
#define WORK_US 3000
#define SLOW_US 200000
#define PAUSE_US 100000

static int listener, epoll;
static const char *mode;
/* Of a thread, where they differ. */
static _Thread_local int polls;
static int closes;

/* False: nothing came for a minute. */
static int wait_for_client(int fd) {
    if (polls || !strcmp(mode, "poll")) {
        struct pollfd one = {.fd = fd, .events = POLLIN};
        return poll(&one, 1, LIMIT_S * 1000) == 1;
    }
    if (!strcmp(mode, "select")) {
        struct timeval limit = {.tv_sec = LIMIT_S};
        fd_set some;
        FD_ZERO(&some);
        FD_SET(fd, &some);
        return select(fd + 1, &some, NULL, NULL, &limit) == 1;
    }
    return 1;
}

/* A request with its body: the fault. False: the client has gone. */
OWN_FRAME static int read_request(int fd, char *head, size_t size) {
    static const char field[] = "Content-Length:";
    size_t have = 0;
    char *end = NULL;
    while (!end) {
        ssize_t piece = -1;
        if (have == size - 1 || !wait_for_client(fd) ||
            (piece = recv(fd, head + have, size - 1 - have, 0)) <= 0)
            return 0;
        have += piece;
        head[have] = 0;
        end = strstr(head, "\r\n\r\n");
    }
    char *length = strcasestr(head, field);
    long body = length && length < end ? atol(length + sizeof field - 1) : 0;
    body -= have - (end + 4 - head);
    while (body > 0) {
        char piece[4096];
        ssize_t got = wait_for_client(fd) ? recv(fd, piece, sizeof piece, 0) : -1;
        if (got <= 0)
            return 0;
        body -= got;
    }
    return 1;
}

/* Until the client does not want any more. */
OWN_FRAME static void send_events(int fd) {
    char event[20000];
    memset(event, 'x', sizeof event);
    while (send(fd, event, sizeof event, MSG_NOSIGNAL) == sizeof event)
        usleep(PAUSE_US);
}

/* A request and its answer. False: the connection is over. */
static int answer(int fd) {
    char head[4096], body[256], reply[384];
    if (!read_request(fd, head, sizeof head))
        return 0;
    if (!strcmp(mode, "stream") && !strncmp(head, "GET /stream ", 12)) {
        static const char begin[] = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
        if (send(fd, begin, sizeof begin - 1, MSG_NOSIGNAL) == sizeof begin - 1)
            send_events(fd);
        return 0;
    }
    double read_ms = now_ms();
    /* Long enough to be recorded: so it shows who serves. */
    usleep(strncmp(head, "GET /slow ", 10) ? WORK_US : SLOW_US);
    snprintf(body, sizeof body, "{\"read\":%.3f,\"begun\":%.3f,\"ended\":%.3f}", read_ms, read_ms,
             now_ms());
    int length = snprintf(reply, sizeof reply,
                          "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
    return send(fd, reply, length, MSG_NOSIGNAL) == length && !closes;
}

/* A connection, by whichever of the pollers gets it. */
static int accept_polled(void) {
    for (;;) {
        struct epoll_event event;
        if (epoll_wait(epoll, &event, 1, -1) < 1)
            die("epoll_wait");
        int fd = accept(listener, NULL, NULL);
        if (fd >= 0)
            return fd;
        if (errno != EAGAIN)
            die("accept");
    }
}

static void arm(int operation, int fd) {
    struct epoll_event once = {.events = EPOLLIN | EPOLLONESHOT, .data.fd = fd};
    if (epoll_ctl(epoll, operation, fd, &once))
        die("epoll_ctl");
}

static void take_event(void) {
    struct epoll_event event;
    if (epoll_wait(epoll, &event, 1, -1) < 1)
        die("epoll_wait");
    if (event.data.fd != listener) {
        if (answer(event.data.fd))
            arm(EPOLL_CTL_MOD, event.data.fd);
        else
            close(event.data.fd);
        return;
    }
    int fd = accept(listener, NULL, NULL);
    if (fd < 0)
        die("accept");
    arm(EPOLL_CTL_ADD, fd);
    arm(EPOLL_CTL_MOD, listener);
}

static void *work(void *number) {
    int shared = !strcmp(mode, "oneshot"), pollers = !strcmp(mode, "pollers");
    if (!strcmp(mode, "mixed")) {
        polls = (long)number % 2;
        pthread_setname_np(pthread_self(), polls ? "asker" : "reader");
    }
    for (;;) {
        if (shared) {
            take_event();
            continue;
        }
        int fd = pollers ? accept_polled() : accept(listener, NULL, NULL);
        if (fd < 0)
            die("accept");
        while (answer(fd))
            ;
        close(fd);
    }
    return number;
}

int main(int count, char **arguments) {
    char where[32];
    int workers = count >= 3 ? atoi(arguments[1]) : 0;
    closes = count == 4 && !strcmp(arguments[3], "--close");
    if (workers < 1 || (count != 3 && !closes))
        die("usage: kept WORKERS read|poll|select|oneshot|pollers|mixed|stream [--close]");
    mode = arguments[2];
    listener = kit_listen(where, sizeof where);
    if (!strcmp(mode, "oneshot")) {
        epoll = epoll_create1(EPOLL_CLOEXEC);
        arm(EPOLL_CTL_ADD, listener);
    }
    if (!strcmp(mode, "pollers")) {
        struct epoll_event ready = {.events = EPOLLIN};
        epoll = epoll_create1(EPOLL_CLOEXEC);
        if (fcntl(listener, F_SETFL, O_NONBLOCK))
            die("fcntl");
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &ready))
            die("epoll_ctl");
    }
    for (long i = 0; i < workers; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, (void *)i))
            die("pthread_create");
    }
    kit_announce(where);
    for (;;)
        pause();
}
