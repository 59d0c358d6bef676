/* A server with a timer in its loop.
 *
 *   unread-timer [--flavour epoll-lt|epoll-et|poll|select] [--eventfd | --timeout] [--work US]
 *   [--again] [--fixed]
 *
 * The fault: a timerfd that has expired, or an eventfd that was written, stays readable until
 * somebody reads it, and wakes the loop again at once. Fixed, it is a loop that is woken each
 * millisecond and works for --work microseconds then; --timeout does the same by the time-out of
 * its wait. With --again its handler asks anew for what it asked for, as many do: so that an edge
 * is none any more. */
#define _GNU_SOURCE
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include "../kit/loop.h"

static struct loop loop;
static int fixed, again, clock_fd = -1, listener;
static double work_us, next_tick_ms;
static unsigned long ticks, state;

/* A timer, or an eventfd that another thread writes each second. */
static void *write_events(void *argument) {
    uint64_t one = 1;
    (void)argument;
    for (;;) {
        if (write(clock_fd, &one, sizeof one) < 0)
            die("eventfd");
        usleep(fixed ? 1000 : 1000000);
    }
    return NULL;
}

static void open_clock(int with_eventfd) {
    /* Often when it is read; once, soon, when it is not: what comes after that makes no difference.
     */
    struct itimerspec each = {{0, fixed ? 1000000 : 0}, {0, 1000000}};
    pthread_t thread;
    clock_fd = with_eventfd ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
                            : timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (clock_fd < 0 || (!with_eventfd && timerfd_settime(clock_fd, 0, &each, NULL)) ||
        (with_eventfd && pthread_create(&thread, NULL, write_events, NULL)))
        die("cannot make the timer");
    loop_set(&loop, clock_fd, IN);
}

/* What is done at each tick: computing, which moves no byte anywhere. */
OWN_FRAME static void tick(void) {
    double until = now_ms() + work_us / 1e3;
    ticks++;
    loop_progress(&loop);
    while (now_ms() < until)
        for (int i = 0; i < 100; i++)
            state = state * 6364136223846793005UL + 1442695040888963407UL;
}

OWN_FRAME static void on_clock(void) {
    uint64_t count;
    /* The faulty one waits for a change that it saw already. */
    if (!fixed) {
        if (again)
            loop_ask_again(&loop, clock_fd);
        return;
    }
    if (read(clock_fd, &count, sizeof count) == sizeof count)
        tick();
}

static void converse(int fd) {
    char path[128], more[64];
    int got = read_request(fd, path);
    if (got == 0)
        return;
    loop_progress(&loop);
    if (got < 0) {
        loop_close(&loop, fd);
        return;
    }
    snprintf(more, sizeof more, "\"ticks\":%lu,\"state\":%lu,", ticks, state % 10);
    reply_to(&loop, fd, path, more);
}

int main(int count, char **words) {
    (void)count;
    struct sockaddr_in address = {0};
    int by_timeout = flag(words, "--timeout"), fd;
    fixed = flag(words, "--fixed");
    again = flag(words, "--again");
    work_us = atof(option(words, "--work", "10"));
    loop_init(&loop, flavour_named(option(words, "--flavour", "epoll-lt")));
    listener = listen_on(&address, 0, 0);
    loop_set(&loop, listener, IN);
    if (!by_timeout)
        open_clock(flag(words, "--eventfd"));
    say_ready(&address);
    for (;;) {
        struct ready ready[64];
        int found = loop_wait(&loop, by_timeout ? 1 : -1, ready, 64);
        unsigned long before = loop.progress;
        if (by_timeout && now_ms() >= next_tick_ms) {
            tick();
            next_tick_ms = now_ms() + 1;
        }
        for (int i = 0; i < found; i++) {
            if (ready[i].fd == clock_fd)
                on_clock();
            else if (ready[i].fd != listener)
                converse(ready[i].fd);
            else
                while ((fd = take(listener)) >= 0) {
                    loop_set(&loop, fd, IN);
                    loop_progress(&loop);
                }
        }
        loop_turn_over(&loop, before, found);
    }
}
