/* Workers that all wait for connections on one listener, each with a loop of its own.
 *
 *   herd [--flavour epoll-lt|epoll-et|poll|select] [--workers N] [--threads] [--fixed|--accept]
 *
 * The fault: a connection wakes all of them, one takes it, and the others find nothing. Fixed by
 * EPOLLEXCLUSIVE, or by workers that block in accept (--accept), of which the kernel wakes one. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "../kit/loop.h"

#define MOST_WORKERS 16

struct worker {
    /* Connections taken; times that accept found none; sleeps that ended, as the kernel counts
     * them; those of them that ended for nothing: most of these never leave the kernel, which looks
     * before it lets the worker go. */
    unsigned long taken, empty, wakes, wasted;
};

static struct worker *workers;
static int workers_count, listener, fixed, blocking;
static enum flavour flavour;

static void about(char *body, size_t size) {
    unsigned long taken = 0, empty = 0, wakes = 0, wasted = 0;
    for (int i = 0; i < workers_count; i++) {
        taken += workers[i].taken;
        empty += workers[i].empty;
        wakes += workers[i].wakes;
        wasted += workers[i].wasted;
    }
    snprintf(body, size,
             "{\"pid\":%d,\"workers\":%d,\"taken\":%lu,\"empty\":%lu,\"wakes\":%lu,\"wasted\":%lu}",
             getpid(), workers_count, taken, empty, wakes, wasted);
}

static void answer(int fd, const char *path) {
    char body[512] = "done";
    if (strcmp(path, "/about") == 0)
        about(body, sizeof body);
    reply(fd, body);
}

/* How often this thread slept since it was asked last. */
static unsigned long count_wakes(struct worker *own) {
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    unsigned long since = usage.ru_nvcsw - own->wakes;
    own->wakes = usage.ru_nvcsw;
    return since;
}

static void work_blocking(struct worker *own) {
    char path[128];
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0)
            die("accept");
        unsigned long slept = count_wakes(own);
        own->taken++;
        own->wasted += slept > 1 ? slept - 1 : 0;
        while (read_request(fd, path) > 0)
            answer(fd, path);
        count_wakes(own);
        close(fd);
    }
}

OWN_FRAME static int accept_clients(struct worker *own, struct loop *loop) {
    int fd, found = 0;
    while ((fd = take(listener)) >= 0) {
        found = 1;
        own->taken++;
        loop_set(loop, fd, IN);
    }
    own->empty += !found;
    return found;
}

static void *work(void *argument) {
    struct worker *own = argument;
    struct loop loop;
    char path[128];
    if (blocking)
        work_blocking(own);
    loop_init(&loop, flavour);
    loop_set_with(&loop, listener, IN, fixed ? EPOLLEXCLUSIVE : 0);
    for (;;) {
        struct ready ready[64];
        int found = loop_wait(&loop, -1, ready, 64);
        unsigned long slept = count_wakes(own);
        int progress = 0;
        for (int i = 0; i < found; i++) {
            int fd = ready[i].fd, got = 0;
            if (fd == listener)
                progress |= accept_clients(own, &loop);
            else if ((got = read_request(fd, path)) > 0)
                answer(fd, path);
            else if (got < 0)
                loop_close(&loop, fd);
            progress |= fd != listener && got != 0;
        }
        own->wasted += slept - (slept && progress);
    }
    return NULL;
}

int main(int count, char **words) {
    (void)count;
    struct sockaddr_in address = {0};
    fixed = flag(words, "--fixed");
    blocking = flag(words, "--accept");
    flavour = flavour_named(option(words, "--flavour", "epoll-lt"));
    workers_count = atoi(option(words, "--workers", "8"));
    if (workers_count < 1 || workers_count > MOST_WORKERS)
        die("1 to 16 workers");
    workers = mmap(NULL, MOST_WORKERS * sizeof *workers, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (workers == MAP_FAILED)
        die("mmap");
    listener = listen_on(&address, 0, blocking);
    for (int i = 0; i < workers_count; i++) {
        pthread_t thread;
        if (flag(words, "--threads")) {
            if (pthread_create(&thread, NULL, work, &workers[i]))
                die("pthread_create");
            continue;
        }
        pid_t child = fork();
        if (child < 0)
            die("fork");
        if (child == 0) {
            /* With the parent goes the server. */
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            work(&workers[i]);
        }
    }
    say_ready(&address);
    for (;;)
        pause();
}
