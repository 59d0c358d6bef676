/* A server that does not look at how a connection ended while it works for it.
 *
 *   unread-hup [--flavour epoll-lt|epoll-et|poll|select] [--end hup|eof|error] [--again] [--fixed]
 *
 * A request for /job is answered three seconds later; until then the connection is of no interest.
 * The faults:
 *   hup    interest in nothing is still interest in HUP and ERR: a client that resets the
 *          connection wakes the loop until the job is done
 *   eof    interest in reading is left on, and the end of the client's data is readable until
 *          somebody reads it
 *   error  a UDP socket whose peer is gone has an error pending, which only who reads it takes away
 * With --again the loop asks anew for a connection that was reported, as many do: an edge is none
 * any more. */
#define _GNU_SOURCE
#include "../kit/loop.h"

#define JOB_MS 3000

enum end { END_HUP, END_EOF, END_ERROR };

static struct loop loop;
static int fixed, again;
static enum end end;
static double job_until[LOOP_MOST_FDS];
/* Where counts of jobs are sent to, and where nobody listens. */
static int statistics = -1;

static void end_connection(int fd) {
    job_until[fd] = 0;
    loop_close(&loop, fd);
    loop_progress(&loop);
}

/* A connected UDP socket to a port that was free a moment ago. */
static void open_statistics(void) {
    struct sockaddr_in gone = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof gone;
    int other = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    statistics = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (other < 0 || statistics < 0 || bind(other, (struct sockaddr *)&gone, size) ||
        getsockname(other, (struct sockaddr *)&gone, &size) ||
        connect(statistics, (struct sockaddr *)&gone, size))
        die("cannot make the statistics' socket");
    close(other);
    loop_set(&loop, statistics, IN);
}

static void begin_job(int fd) {
    job_until[fd] = now_ms() + JOB_MS;
    if (end != END_EOF || fixed)
        loop_set(&loop, fd, 0);
    if (statistics >= 0 && send(statistics, "jobs:1|c", 8, 0) < 0 && errno != ECONNREFUSED)
        die("cannot send statistics");
}

OWN_FRAME static void on_statistics(int events) {
    char bytes[512];
    if (events & IN && recv(statistics, bytes, sizeof bytes, 0) > 0)
        loop_progress(&loop);
    int error = 0;
    socklen_t size = sizeof error;
    if (fixed && events & ERR && !getsockopt(statistics, SOL_SOCKET, SO_ERROR, &error, &size) &&
        error)
        loop_progress(&loop);
}

/* While there is a job for a connection, its client has nothing to say. */
OWN_FRAME static void on_client(int fd, int events) {
    char path[128];
    if (job_until[fd] > 0) {
        if (fixed && events & (HUP | ERR))
            end_connection(fd);
        else if (again)
            loop_ask_again(&loop, fd);
        return;
    }
    int got = read_request(fd, path);
    if (got == 0)
        return;
    loop_progress(&loop);
    if (got < 0)
        end_connection(fd);
    else if (strcmp(path, "/job") == 0)
        begin_job(fd);
    else
        reply_to(&loop, fd, path, "");
}

/* Answers the jobs that are done; returns how long the next one takes, or -1. */
static int finish_jobs(void) {
    double now = now_ms(), next = -1;
    for (int fd = 0; fd <= loop.highest; fd++) {
        if (job_until[fd] == 0)
            continue;
        if (job_until[fd] <= now) {
            reply(fd, "done");
            job_until[fd] = 0;
            loop_set(&loop, fd, IN);
            loop_progress(&loop);
        } else if (next < 0 || job_until[fd] - now < next) {
            next = job_until[fd] - now;
        }
    }
    return next < 0 ? -1 : (int)next + 1;
}

int main(int count, char **words) {
    (void)count;
    struct sockaddr_in address = {0};
    const char *name = option(words, "--end", "hup");
    fixed = flag(words, "--fixed");
    again = flag(words, "--again");
    end = strcmp(name, "eof") == 0 ? END_EOF : strcmp(name, "error") == 0 ? END_ERROR : END_HUP;
    loop_init(&loop, flavour_named(option(words, "--flavour", "epoll-lt")));
    int listener = listen_on(&address, 0, 0);
    loop_set(&loop, listener, IN);
    if (end == END_ERROR)
        open_statistics();
    say_ready(&address);
    for (;;) {
        struct ready ready[64];
        int found = loop_wait(&loop, finish_jobs(), ready, 64);
        unsigned long before = loop.progress;
        for (int i = 0; i < found; i++) {
            int fd = ready[i].fd;
            if (fd == statistics) {
                on_statistics(ready[i].events);
            } else if (fd == listener) {
                while ((fd = take(listener)) >= 0) {
                    job_until[fd] = 0;
                    loop_set(&loop, fd, IN);
                    loop_progress(&loop);
                }
            } else {
                on_client(fd, ready[i].events);
            }
        }
        loop_turn_over(&loop, before, found);
    }
}
