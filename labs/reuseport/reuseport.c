/* Workers with a loop each, and requests for /work that keep a worker for 300 ms.
 *
 *   reuseport [--workers N] [--threads] [--fixed] [--burn]
 *
 * The fault: each worker has a listener of its own on the same port (SO_REUSEPORT). The kernel
 * gives a connection to one of them by its addresses, and it waits there, however busy that worker
 * is and however idle its siblings are. Fixed: one listener for all. --burn: /work takes CPU time
 * instead of waiting. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "../kit/loop.h"

#define MOST_WORKERS 16
#define WORK_MS 300

static int workers_count, fixed, burn;
static int listeners[MOST_WORKERS];
/* Connections that each worker took, and long requests. */
static struct shared {
    unsigned long taken[MOST_WORKERS];
    unsigned long works[MOST_WORKERS];
} *shared;

OWN_FRAME static int render_report(void) {
    struct timespec work = {0, WORK_MS * 1000000L};
    double begun = now_ms();
    if (!burn)
        nanosleep(&work, NULL);
    while (now_ms() - begun < WORK_MS)
        ;
    return 0;
}

static void answer(int worker, int fd, const char *path) {
    char body[1024] = "done";
    if (strcmp(path, "/work") == 0) {
        shared->works[worker]++;
        render_report();
    } else if (strcmp(path, "/about") == 0) {
        int used =
            snprintf(body, sizeof body, "{\"pid\":%d,\"work_ms\":%d,\"worker\":%d,\"taken\":[",
                     getpid(), WORK_MS, worker);
        for (int i = 0; i < workers_count; i++)
            used +=
                snprintf(body + used, sizeof body - used, "%s%lu", i ? "," : "", shared->taken[i]);
        snprintf(body + used, sizeof body - used, "]}");
    } else {
        /* Who answered: the load has to know where its connections are. */
        snprintf(body, sizeof body, "%d", worker);
    }
    reply(fd, body);
}

static void *work(void *argument) {
    int worker = (int)(long)argument, listener = listeners[fixed ? 0 : worker];
    struct loop loop;
    char path[128];
    loop_init(&loop, EPOLL_LT);
    loop_set_with(&loop, listener, IN, fixed ? EPOLLEXCLUSIVE : 0);
    for (;;) {
        struct ready ready[64];
        int found = loop_wait(&loop, -1, ready, 64);
        for (int i = 0; i < found; i++) {
            int fd = ready[i].fd, got = 0;
            if (fd != listener) {
                if ((got = read_request(fd, path)) > 0)
                    answer(worker, fd, path);
                else if (got < 0)
                    loop_close(&loop, fd);
            } else if ((fd = take(listener)) >= 0) {
                shared->taken[worker]++;
                loop_set(&loop, fd, IN);
            }
        }
    }
    return NULL;
}

int main(int count, char **words) {
    (void)count;
    struct sockaddr_in address = {0};
    fixed = flag(words, "--fixed");
    burn = flag(words, "--burn");
    workers_count = atoi(option(words, "--workers", "3"));
    if (workers_count < 1 || workers_count > MOST_WORKERS)
        die("1 to 16 workers");
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        die("mmap");
    for (int i = 0; i < (fixed ? 1 : workers_count); i++)
        listeners[i] = listen_on(&address, !fixed, 0);
    for (long i = 0; i < workers_count; i++) {
        pthread_t thread;
        if (flag(words, "--threads")) {
            if (pthread_create(&thread, NULL, work, (void *)i))
                die("pthread_create");
            continue;
        }
        pid_t child = fork();
        if (child < 0)
            die("fork");
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            /* A listener that a sibling holds open as well would outlive it. */
            for (int other = 0; other < workers_count && !fixed; other++)
                if (other != i)
                    close(listeners[other]);
            work((void *)i);
        }
    }
    if (!flag(words, "--threads"))
        for (int i = 0; i < (fixed ? 1 : workers_count); i++)
            close(listeners[i]);
    say_ready(&address);
    for (;;)
        pause();
}
