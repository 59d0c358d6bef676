/* A server that leaves its interest in writing armed when there is nothing to write.
 *
 *   armed-write [--flavour epoll-lt|epoll-et|poll|select] [--fixed]
 *
 * The fault: an idle connection is writable, and wakes a level-triggered loop at once, again and
 * again. Edge-triggered it is reported once for each change, and the fault is none. */
#define _GNU_SOURCE
#include "../kit/loop.h"

static struct loop loop;
static int fixed;
static struct {
    char bytes[2048];
    int length, sent;
} unsent[LOOP_MOST_FDS];

/* Sends what there is to send; a client that has gone is met when it is read from. */
OWN_FRAME static void flush_output(int fd) {
    while (unsent[fd].sent < unsent[fd].length) {
        ssize_t sent = send(fd, unsent[fd].bytes + unsent[fd].sent,
                            unsent[fd].length - unsent[fd].sent, MSG_NOSIGNAL);
        if (sent <= 0)
            break;
        unsent[fd].sent += sent;
        loop_progress(&loop);
    }
    if (fixed)
        loop_set(&loop, fd, unsent[fd].sent < unsent[fd].length ? IN | OUT : IN);
}

static void converse(int fd) {
    char path[128], body[1024] = "done";
    int got = read_request(fd, path);
    if (got == 0)
        return;
    loop_progress(&loop);
    if (got < 0) {
        loop_close(&loop, fd);
        return;
    }
    if (strcmp(path, "/about") == 0) {
        int used = snprintf(body, sizeof body, "{");
        used += loop_truth(&loop, body + used, sizeof body - used);
        snprintf(body + used, sizeof body - used, "}");
    }
    unsent[fd].sent = 0;
    unsent[fd].length =
        snprintf(unsent[fd].bytes, sizeof unsent[fd].bytes,
                 "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
    /* Edge-triggered, the socket has been writable all the time and nobody will say so again. */
    flush_output(fd);
}

int main(int count, char **words) {
    (void)count;
    struct sockaddr_in address = {0};
    fixed = flag(words, "--fixed");
    loop_init(&loop, flavour_named(option(words, "--flavour", "epoll-lt")));
    int listener = listen_on(&address, 0, 0);
    loop_set(&loop, listener, IN);
    say_ready(&address);
    for (;;) {
        struct ready ready[64];
        int found = loop_wait(&loop, -1, ready, 64);
        unsigned long before = loop.progress;
        for (int i = 0; i < found; i++) {
            int fd = ready[i].fd;
            if (fd == listener) {
                while ((fd = take(listener)) >= 0) {
                    unsent[fd].sent = unsent[fd].length = 0;
                    loop_set(&loop, fd, fixed ? IN : IN | OUT);
                    loop_progress(&loop);
                }
                continue;
            }
            if (ready[i].events & (IN | HUP | ERR))
                converse(fd);
            if (ready[i].events & OUT && loop.interest[fd] != NONE)
                flush_output(fd);
        }
        loop_turn_over(&loop, before, found);
    }
}
