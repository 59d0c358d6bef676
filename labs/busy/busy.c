/* Servers that are busy, each in a way that looks like a loop without progress and is none.
 *
 *   busy socket [--flavour F]   answers of 2 MB; interest in writing is armed, and each time some
 *                               of it goes out
 *   busy poll [--flavour F]     never sleeps: asks with a time-out of 0, over and over
 *   busy recv                   never sleeps: reads from each connection in turns
 *   busy spinlock [--yield]     thread-per-connection, and a lock that is spun for, for moments
 *   busy cpu                    thread-per-connection computes; another one computes all the time
 *   busy handoff                the loop hands each request, and a stream of other jobs, to a
 *                               thread and back by eventfds
 *   busy pipes                  the loop moves bytes from pipe to pipe, alongside its requests
 */
#define _GNU_SOURCE
#include <sched.h>
#include <sys/eventfd.h>

#include "../kit/loop.h"

#define ANSWER_SIZE (2 << 20)

static struct loop loop;
static int listener;

/* What computing is here: cannot be left out, and takes some microseconds. */
OWN_FRAME static unsigned long compute(unsigned long rounds) {
    unsigned long value = rounds;
    for (unsigned long i = 0; i < rounds; i++)
        value = value * 6364136223846793005UL + 1442695040888963407UL;
    return value | 1;
}

static void accept_clients(void) {
    int fd;
    while ((fd = take(listener)) >= 0) {
        loop_set(&loop, fd, IN);
        loop_progress(&loop);
    }
}

/* The ordinary part of every loop here. */
static void converse(int fd) {
    char path[128];
    int got = read_request(fd, path);
    if (got == 0)
        return;
    loop_progress(&loop);
    if (got < 0)
        loop_close(&loop, fd);
    else
        reply_to(&loop, fd, path, "");
}

/* -- socket -- */

static size_t unsent[LOOP_MOST_FDS];

OWN_FRAME static void send_more(int fd) {
    static char document[64 * 1024];
    size_t part = unsent[fd] < sizeof document ? unsent[fd] : sizeof document;
    ssize_t sent = send(fd, document, part, MSG_NOSIGNAL);
    if (sent > 0) {
        unsent[fd] -= sent;
        loop_progress(&loop);
    }
    loop_set(&loop, fd, unsent[fd] ? IN | OUT : IN);
}

static void serve_documents(void) {
    struct ready ready[64];
    char path[128], head[128];
    for (;;) {
        int found = loop_wait(&loop, -1, ready, 64);
        unsigned long before = loop.progress;
        for (int i = 0; i < found; i++) {
            int fd = ready[i].fd, got = 0;
            if (fd == listener) {
                accept_clients();
                continue;
            }
            if (ready[i].events & (IN | HUP | ERR) && (got = read_request(fd, path)) < 0) {
                unsent[fd] = 0;
                loop_close(&loop, fd);
                continue;
            }
            if (got > 0 && strcmp(path, "/document") == 0) {
                int length = snprintf(head, sizeof head,
                                      "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", ANSWER_SIZE);
                unsent[fd] = ANSWER_SIZE;
                if (send(fd, head, length, MSG_NOSIGNAL | MSG_MORE) < 0)
                    unsent[fd] = 0;
            } else if (got > 0) {
                reply_to(&loop, fd, path, "");
            }
            if (unsent[fd])
                send_more(fd);
        }
        loop_turn_over(&loop, before, found);
    }
}

/* -- poll, recv -- */

static void poll_without_sleep(void) {
    struct ready ready[64];
    for (;;) {
        int found = loop_wait(&loop, 0, ready, 64);
        unsigned long before = loop.progress;
        for (int i = 0; i < found; i++)
            ready[i].fd == listener ? accept_clients() : converse(ready[i].fd);
        loop_turn_over(&loop, before, found);
    }
}

static void receive_without_sleep(void) {
    for (unsigned long turn = 0;; turn++) {
        if (turn % 64 == 0)
            accept_clients();
        for (int fd = 0; fd <= loop.highest; fd++)
            if (fd != listener && loop.interest[fd] != NONE)
                converse(fd);
        loop.turns++;
    }
}

/* -- spinlock, cpu: thread-per-connection -- */

static int spinlock, yields;
static unsigned long shared_state;

OWN_FRAME static void take_spinlock(void) {
    while (__atomic_exchange_n(&spinlock, 1, __ATOMIC_ACQUIRE)) {
        /* Whoever has it may have lost its CPU: then it is better to give way. */
        for (int i = 0; i < 1000 && __atomic_load_n(&spinlock, __ATOMIC_RELAXED); i++)
            __builtin_ia32_pause();
        if (yields)
            sched_yield();
    }
}

static void count_under_spinlock(const char *path, char *body, size_t size) {
    for (int i = 0; i < 500; i++) {
        take_spinlock();
        shared_state += compute(200);
        __atomic_store_n(&spinlock, 0, __ATOMIC_RELEASE);
        compute(200);
    }
    snprintf(body, size, strcmp(path, "/about") ? "done" : "{\"state\":%lu}", shared_state % 1000);
}

static void compute_answer(const char *path, char *body, size_t size) {
    unsigned long value = compute(3000000);
    snprintf(body, size, strcmp(path, "/about") ? "done" : "{\"state\":%lu}", value % 1000);
}

static void *compute_on(void *argument) {
    (void)argument;
    for (;;)
        shared_state += compute(10000000);
    return NULL;
}

/* -- handoff -- */

#define JOBS 256
static struct queue {
    pthread_mutex_t lock;
    int fds[JOBS], first, count, event;
} todo = {.lock = PTHREAD_MUTEX_INITIALIZER}, done = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void put(struct queue *queue, int fd) {
    uint64_t one = 1;
    pthread_mutex_lock(&queue->lock);
    if (queue->count < JOBS)
        queue->fds[(queue->first + queue->count++) % JOBS] = fd;
    pthread_mutex_unlock(&queue->lock);
    if (write(queue->event, &one, sizeof one) < 0)
        die("eventfd");
}

/* -1: there is none. */
static int get(struct queue *queue) {
    int fd = -1;
    pthread_mutex_lock(&queue->lock);
    if (queue->count) {
        fd = queue->fds[queue->first];
        queue->first = (queue->first + 1) % JOBS;
        queue->count--;
    }
    pthread_mutex_unlock(&queue->lock);
    return fd;
}

static void *work(void *argument) {
    uint64_t count;
    (void)argument;
    for (;;) {
        if (read(todo.event, &count, sizeof count) < 0)
            die("eventfd");
        for (int fd; (fd = get(&todo)) >= 0;) {
            compute(200);
            put(&done, fd);
        }
    }
    return NULL;
}

/* A job that no connection waits for has the listener's descriptor. */
OWN_FRAME static void take_results(void) {
    uint64_t count;
    if (read(done.event, &count, sizeof count) == sizeof count)
        loop_progress(&loop);
    for (int fd; (fd = get(&done)) >= 0;) {
        loop_progress(&loop);
        if (fd == listener)
            put(&todo, listener);
        else if (loop.interest[fd] != NONE)
            reply(fd, "done");
    }
}

static void hand_over(void) {
    struct ready ready[64];
    pthread_t thread;
    char path[128];
    todo.event = eventfd(0, EFD_CLOEXEC);
    done.event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (todo.event < 0 || done.event < 0 || pthread_create(&thread, NULL, work, NULL))
        die("cannot hand over");
    loop_set(&loop, done.event, IN);
    put(&todo, listener);
    for (;;) {
        int found = loop_wait(&loop, -1, ready, 64);
        unsigned long before = loop.progress;
        for (int i = 0; i < found; i++) {
            int fd = ready[i].fd, got;
            if (fd == listener) {
                accept_clients();
            } else if (fd == done.event) {
                take_results();
            } else if ((got = read_request(fd, path)) < 0) {
                loop_close(&loop, fd);
            } else if (got > 0 && strcmp(path, "/about") == 0) {
                reply_to(&loop, fd, path, "");
            } else if (got > 0) {
                put(&todo, fd);
            }
        }
        loop_turn_over(&loop, before, found);
    }
}

/* -- pipes -- */

static void move_pipes(void) {
    struct ready ready[64];
    char bytes[4096];
    int first[2], second[2];
    if (pipe2(first, O_CLOEXEC | O_NONBLOCK) || pipe2(second, O_CLOEXEC | O_NONBLOCK))
        die("pipe2");
    /* What is in them goes round. */
    memset(bytes, 'x', sizeof bytes);
    if (write(first[1], bytes, sizeof bytes) < 0)
        die("write");
    loop_set(&loop, first[0], IN);
    loop_set(&loop, second[0], IN);
    for (;;) {
        int found = loop_wait(&loop, -1, ready, 64);
        unsigned long before = loop.progress;
        for (int i = 0; i < found; i++) {
            int fd = ready[i].fd;
            if (fd == first[0] || fd == second[0]) {
                ssize_t got = read(fd, bytes, sizeof bytes);
                if (got > 0 && write(fd == first[0] ? second[1] : first[1], bytes, got) == got)
                    loop_progress(&loop);
            } else {
                fd == listener ? accept_clients() : converse(fd);
            }
        }
        loop_turn_over(&loop, before, found);
    }
}

int main(int count, char **words) {
    const char *kind = count > 1 ? words[1] : "";
    struct sockaddr_in address = {0};
    yields = flag(words, "--yield");
    if (strcmp(kind, "spinlock") == 0)
        serve(count_under_spinlock);
    if (strcmp(kind, "cpu") == 0) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, compute_on, NULL))
            die("pthread_create");
        serve(compute_answer);
    }
    loop_init(&loop, flavour_named(option(words, "--flavour", "epoll-lt")));
    listener = listen_on(&address, 0, 0);
    loop_set(&loop, listener, IN);
    say_ready(&address);
    if (strcmp(kind, "socket") == 0)
        serve_documents();
    if (strcmp(kind, "poll") == 0)
        poll_without_sleep();
    if (strcmp(kind, "recv") == 0)
        receive_without_sleep();
    if (strcmp(kind, "handoff") == 0)
        hand_over();
    if (strcmp(kind, "pipes") == 0)
        move_pipes();
    fprintf(stderr,
            "usage: busy socket|poll|recv|spinlock|cpu|handoff|pipes [--flavour F] [--yield]\n");
    return 2;
}
