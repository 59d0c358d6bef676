/* A server of one loop on an io_uring: connections are accepted, read and written through the ring.
 *
 * `/quick` is answered at once, `/report` takes 100 ms. Blocked: the loop makes the report itself,
 * by sleeping or by computing, and whatever completes meanwhile waits in the completion queue.
 * Healthy: other threads make them. */
#define _GNU_SOURCE
#include <liburing.h>
#include <sys/eventfd.h>

#include "../kit/kit.h"

#define REPORT_MS 100.0
#define MOST_CONNECTIONS 64
#define ENTRIES 256
/* As many as there are reports at a time. */
#define RENDERERS 3

enum how { HEALTHY, SLEEPS, COMPUTES };
enum what { ACCEPTED, READ, WRITTEN, REPORTS_DONE };

struct connection {
    int fd;
    size_t filled, length;
    char request[1024], reply[256];
};

static enum how how;
static struct io_uring ring;
static int listener;
static struct connection connections[MOST_CONNECTIONS];

/* Connections that wait for a report, those whose report is made, and how the loop comes to know.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wanted = PTHREAD_COND_INITIALIZER;
static int waiting[MOST_CONNECTIONS], done[MOST_CONNECTIONS], waiting_count, done_count;
static int done_event;
static eventfd_t done_events;

static struct io_uring_sqe *next_sqe(void) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
    if (!sqe) {
        io_uring_submit(&ring);
        sqe = io_uring_get_sqe(&ring);
    }
    if (!sqe)
        die("the submission queue is full");
    return sqe;
}

/* To be called last: some versions' preparations clear it. */
static void mark(struct io_uring_sqe *sqe, enum what what, int number) {
    io_uring_sqe_set_data64(sqe, (uint64_t)what << 32 | number);
}

static void start_accept(void) {
    struct io_uring_sqe *sqe = next_sqe();
    io_uring_prep_accept(sqe, listener, NULL, NULL, SOCK_CLOEXEC);
    mark(sqe, ACCEPTED, 0);
}

/* Submitted at once: what comes while a report is made lies in the ring then, whichever request the
 * loop takes next, and not in the socket. */
static void start_read(int number) {
    struct connection *one = &connections[number];
    struct io_uring_sqe *sqe = next_sqe();
    io_uring_prep_recv(sqe, one->fd, one->request + one->filled,
                       sizeof one->request - 1 - one->filled, 0);
    mark(sqe, READ, number);
    errno = -io_uring_submit(&ring);
    if (errno > 0 && errno != EINTR)
        die("io_uring_submit");
}

static void start_write(int number) {
    struct connection *one = &connections[number];
    struct io_uring_sqe *sqe = next_sqe();
    io_uring_prep_send(sqe, one->fd, one->reply, one->length, MSG_NOSIGNAL | MSG_WAITALL);
    mark(sqe, WRITTEN, number);
}

static void start_wait_for_reports(void) {
    struct io_uring_sqe *sqe = next_sqe();
    io_uring_prep_read(sqe, done_event, &done_events, sizeof done_events, 0);
    mark(sqe, REPORTS_DONE, 0);
}

static volatile uint64_t rendered;

/* The fault, when the loop calls it. What is left to do afterwards keeps its frame on the stack. */
OWN_FRAME static void render_report(void) {
    double until = now_ms() + REPORT_MS;
    uint64_t state = rendered | 1;
    if (how != COMPUTES)
        usleep(REPORT_MS * 1000);
    while (now_ms() < until) {
        for (int i = 0; i < 20000; i++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
        }
    }
    rendered = state;
}

static void *render_apart(void *unused) {
    pthread_setname_np(pthread_self(), "renderer");
    for (;;) {
        pthread_mutex_lock(&lock);
        while (waiting_count == 0)
            pthread_cond_wait(&wanted, &lock);
        int number = waiting[--waiting_count];
        pthread_mutex_unlock(&lock);
        render_report();
        pthread_mutex_lock(&lock);
        done[done_count++] = number;
        pthread_mutex_unlock(&lock);
        eventfd_write(done_event, 1);
    }
    return unused;
}

static void reply(int number, const char *body) {
    struct connection *one = &connections[number];
    one->length = snprintf(one->reply, sizeof one->reply,
                           "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
    one->filled = 0;
    start_write(number);
}

static void close_connection(int number) {
    close(connections[number].fd);
    connections[number].fd = -1;
}

OWN_FRAME static void handle_request(int number, int result) {
    struct connection *one = &connections[number];
    char path[64];
    if (result <= 0) {
        close_connection(number);
        return;
    }
    one->filled += result;
    one->request[one->filled] = 0;
    if (!strstr(one->request, "\r\n\r\n")) {
        if (one->filled < sizeof one->request - 1)
            start_read(number);
        else
            close_connection(number);
        return;
    }
    if (sscanf(one->request, "GET %63s", path) != 1) {
        close_connection(number);
    } else if (strcmp(path, "/report")) {
        reply(number, "quick");
    } else if (how == HEALTHY) {
        pthread_mutex_lock(&lock);
        waiting[waiting_count++] = number;
        pthread_cond_signal(&wanted);
        pthread_mutex_unlock(&lock);
    } else {
        render_report();
        reply(number, "report");
    }
}

static void reports_done(void) {
    pthread_mutex_lock(&lock);
    while (done_count > 0)
        reply(done[--done_count], "report");
    pthread_mutex_unlock(&lock);
    start_wait_for_reports();
}

static void accepted(int fd) {
    int one = 1;
    start_accept();
    if (fd < 0)
        return;
    for (int number = 0; number < MOST_CONNECTIONS; number++) {
        if (connections[number].fd < 0) {
            connections[number].fd = fd;
            connections[number].filled = 0;
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
            start_read(number);
            return;
        }
    }
    close(fd);
}

static void run_loop(void) {
    start_accept();
    start_wait_for_reports();
    for (;;) {
        struct io_uring_cqe *cqe;
        errno = -io_uring_submit_and_wait(&ring, 1);
        if (errno > 0 && errno != EINTR)
            die("io_uring_submit_and_wait");
        /* One at a time: what is seen here is reaped. */
        while (io_uring_peek_cqe(&ring, &cqe) == 0) {
            enum what what = cqe->user_data >> 32;
            int number = (int)(cqe->user_data & 0xffffffff), result = cqe->res;
            io_uring_cqe_seen(&ring, cqe);
            if (what == ACCEPTED)
                accepted(result);
            else if (what == READ)
                handle_request(number, result);
            else if (what == REPORTS_DONE)
                reports_done();
            else if (result < 0)
                close_connection(number);
            else
                start_read(number);
        }
    }
}

int main(int count, char **words) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    pthread_t renderer;
    char where[32];
    const char *name = count == 2 ? words[1] : "";
    how = !strcmp(name, "--sleeps") ? SLEEPS : !strcmp(name, "--computes") ? COMPUTES : HEALTHY;
    if (count > 2 || (count == 2 && how == HEALTHY)) {
        fprintf(stderr, "usage: uring-http [--sleeps|--computes]\n");
        return 2;
    }
    for (int number = 0; number < MOST_CONNECTIONS; number++)
        connections[number].fd = -1;
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, size) ||
        listen(listener, 128) || getsockname(listener, (struct sockaddr *)&address, &size))
        die("cannot listen");
    done_event = eventfd(0, EFD_CLOEXEC);
    errno = -io_uring_queue_init(ENTRIES, &ring, 0);
    if (errno || done_event < 0)
        die("cannot make the ring");
    for (int i = 0; how == HEALTHY && i < RENDERERS; i++)
        if ((errno = pthread_create(&renderer, NULL, render_apart, NULL)))
            die("pthread_create");
    snprintf(where, sizeof where, "127.0.0.1:%d", ntohs(address.sin_port));
    kit_announce(where);
    run_loop();
}
