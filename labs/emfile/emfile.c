/* A server that may have 64 files open and meets more connections than that.
 *
 *   emfile [--flavour epoll-lt|epoll-et|poll|select] [--fixed]
 *
 * The fault: when accept fails for want of a descriptor, the connection stays in the queue, the
 * listener stays readable, and the loop turns as fast as it can until somebody hangs up. */
#define _GNU_SOURCE
#include "../kit/loop.h"

static struct loop loop;
static int fixed;
static unsigned long taken, refused;

OWN_FRAME static void accept_clients(int listener) {
    for (;;) {
        int fd = take(listener);
        if (fd >= 0) {
            taken++;
            loop_set(&loop, fd, IN);
            loop_progress(&loop);
            continue;
        }
        if (errno == EMFILE) {
            refused++;
            /* Until a descriptor is free again, a report has no point. */
            if (fixed)
                loop_set(&loop, listener, NONE);
        } else if (errno != EAGAIN) {
            die("accept");
        }
        return;
    }
}

static void converse(int fd, int listener) {
    char path[128], more[128];
    int got = read_request(fd, path);
    if (got == 0)
        return;
    loop_progress(&loop);
    if (got < 0) {
        loop_close(&loop, fd);
        if (fixed)
            loop_set(&loop, listener, IN);
        accept_clients(listener);
        return;
    }
    snprintf(more, sizeof more, "\"taken\":%lu,\"refused\":%lu,", taken, refused);
    reply_to(&loop, fd, path, more);
}

int main(int count, char **words) {
    (void)count;
    struct rlimit limit = {64, 64};
    struct sockaddr_in address = {0};
    fixed = flag(words, "--fixed");
    loop_init(&loop, flavour_named(option(words, "--flavour", "epoll-lt")));
    int listener = listen_on(&address, 0, 0);
    loop_set(&loop, listener, IN);
    say_ready(&address);
    /* After everything that needs one. */
    if (setrlimit(RLIMIT_NOFILE, &limit))
        die("setrlimit");
    for (;;) {
        struct ready ready[64];
        int found = loop_wait(&loop, -1, ready, 64);
        unsigned long before = loop.progress;
        for (int i = 0; i < found; i++) {
            if (ready[i].fd == listener)
                accept_clients(listener);
            else
                converse(ready[i].fd, listener);
        }
        loop_turn_over(&loop, before, found);
    }
}
