/* Threads that accept, and each keeps its connection until the client closes it.
 *
 *     kept WORKERS read|poll|select [--close]
 *
 * How a thread waits for the next request of its connection: in recv, or before that in poll or
 * select, with a time limit of a minute. --close: a connection ends with its first answer. */
#define _GNU_SOURCE
#include "../kit/kit.h"

#include <poll.h>
#include <strings.h>
#include <sys/select.h>

#define LIMIT_S 60
#define WORK_US 3000

static int listener;
static const char *mode;
static int closes;

/* False: nothing came for a minute. */
static int wait_for_client(int fd) {
    if (!strcmp(mode, "poll")) {
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
OWN_FRAME static int read_request(int fd) {
    static const char field[] = "Content-Length:";
    char head[4096];
    size_t have = 0;
    char *end = NULL;
    while (!end) {
        ssize_t piece = -1;
        if (have == sizeof head - 1 || !wait_for_client(fd) ||
            (piece = recv(fd, head + have, sizeof head - 1 - have, 0)) <= 0)
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

static void converse(int fd) {
    while (read_request(fd)) {
        char body[256], reply[384];
        double read_ms = now_ms();
        /* Long enough to be recorded: so it shows who serves. */
        usleep(WORK_US);
        snprintf(body, sizeof body, "{\"read\":%.3f,\"begun\":%.3f,\"ended\":%.3f}", read_ms,
                 read_ms, now_ms());
        int length = snprintf(reply, sizeof reply,
                              "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", strlen(body),
                              body);
        if (send(fd, reply, length, MSG_NOSIGNAL) != length || closes)
            break;
    }
    close(fd);
}

static void *work(void *unused) {
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0)
            die("accept");
        converse(fd);
    }
    return unused;
}

int main(int count, char **arguments) {
    char where[32];
    int workers = count >= 3 ? atoi(arguments[1]) : 0;
    closes = count == 4 && !strcmp(arguments[3], "--close");
    if (workers < 1 || (count != 3 && !closes))
        die("usage: kept WORKERS read|poll|select [--close]");
    mode = arguments[2];
    listener = kit_listen(where, sizeof where);
    for (int i = 0; i < workers; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, NULL))
            die("pthread_create");
    }
    kit_announce(where);
    for (;;)
        pause();
}
