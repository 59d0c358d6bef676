/* Threads that share one epoll instance: each connection is armed for one event at a time.
 *
 *     oneshot UPSTREAM WORKERS
 *
 * The thread that gets the event reads the request, asks the other service, answers, and only then
 * arms the connection again. */
#define _GNU_SOURCE
#include "../kit/kit.h"

#include <sys/epoll.h>

static int epoll, listener;
static struct sockaddr_in upstream = {.sin_family = AF_INET};

static void arm(int operation, int fd) {
    struct epoll_event once = {.events = EPOLLIN | EPOLLONESHOT, .data.fd = fd};
    if (epoll_ctl(epoll, operation, fd, &once))
        die("epoll_ctl");
}

static void without_delay(int fd) {
    int one = 1;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one))
        die("TCP_NODELAY");
}

/* Asks the other service and waits for its answer. */
OWN_FRAME static void fetch_report(int service) {
    static const char ask[] = "GET / HTTP/1.1\r\n\r\n";
    char answer[4096];
    if (send(service, ask, sizeof ask - 1, MSG_NOSIGNAL) < 0 ||
        recv(service, answer, sizeof answer, 0) <= 0)
        die("the upstream has gone");
}

static void serve_once(int fd, int service) {
    char request[4096], body[256], reply[384];
    if (recv(fd, request, sizeof request, 0) <= 0) {
        close(fd);
        return;
    }
    double read_ms = now_ms();
    fetch_report(service);
    snprintf(body, sizeof body, "{\"worker\":%d,\"read\":%.3f,\"begun\":%.3f,\"ended\":%.3f}",
             kit_tid(), read_ms, read_ms, now_ms());
    int length = snprintf(reply, sizeof reply, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s",
                          strlen(body), body);
    if (send(fd, reply, length, MSG_NOSIGNAL) == length)
        arm(EPOLL_CTL_MOD, fd);
    else
        close(fd);
}

static void *work(void *unused) {
    int service = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (service < 0 || connect(service, (struct sockaddr *)&upstream, sizeof upstream))
        die("cannot connect to the upstream");
    without_delay(service);
    for (;;) {
        struct epoll_event event;
        if (epoll_wait(epoll, &event, 1, -1) < 1)
            die("epoll_wait");
        if (event.data.fd != listener) {
            serve_once(event.data.fd, service);
            continue;
        }
        int fd = accept(listener, NULL, NULL);
        if (fd < 0)
            die("accept");
        without_delay(fd);
        arm(EPOLL_CTL_ADD, fd);
        arm(EPOLL_CTL_MOD, listener);
    }
    return unused;
}

int main(int count, char **arguments) {
    char where[32], host[32];
    int port, workers = count == 3 ? atoi(arguments[2]) : 0;
    if (workers < 1 || sscanf(arguments[1], "%31[^:]:%d", host, &port) != 2 ||
        inet_pton(AF_INET, host, &upstream.sin_addr) != 1)
        die("usage: oneshot ADDRESS:PORT WORKERS");
    upstream.sin_port = htons(port);
    listener = kit_listen(where, sizeof where);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    arm(EPOLL_CTL_ADD, listener);
    for (int i = 0; i < workers; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, NULL))
            die("pthread_create");
    }
    kit_announce(where);
    for (;;)
        pause();
}
