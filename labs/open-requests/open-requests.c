/* A server on blocking sockets, in three shapes.
 *
 *   open-requests UPSTREAM [--workers N] [--acceptor|--files N]
 *
 * Each of N threads accepts a connection, answers one request, and comes back. With --acceptor one
 * thread accepts, reads the request to see what it is, and hands it to N threads. With --files it
 * is thread-per-connection, with descriptors for N of them: who has none left waits for a moment
 * and tries again.
 *
 * A request for /hold asks the other service for something that it keeps to itself. */
#define _GNU_SOURCE
#include <sys/prctl.h>
#include <sys/resource.h>

#include "../kit/loop.h"

#define MOST_JOBS 256
#define RETRY_MS 50

struct request {
    int fd;
    double read_ms;
    char path[128];
};

static struct sockaddr_in upstream;
static int listener;

/* What the acceptor has read and no worker has taken. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static struct request jobs[MOST_JOBS];
static unsigned long first_job, next_job;

static int connect_upstream(void) {
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&upstream, sizeof upstream))
        die("cannot reach the upstream");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

/* Asks the other service and waits for its answer. */
OWN_FRAME static int fetch_report(int service, const char *path) {
    char text[256], answer[4096];
    int length = snprintf(text, sizeof text, "GET %s HTTP/1.1\r\n\r\n", path);
    if (send(service, text, length, MSG_NOSIGNAL) < 0)
        return -1;
    return recv(service, answer, sizeof answer, 0) > 0 ? 0 : -1;
}

/* Reads a request's head from a client that may take its time. */
OWN_FRAME static int read_head(int fd, struct request *request) {
    request->fd = fd;
    if (read_request(fd, request->path) <= 0)
        return -1;
    request->read_ms = now_ms();
    return 0;
}

OWN_FRAME static void answer_request(const struct request *request, int service) {
    char body[256];
    double begun = now_ms();
    if (service >= 0 && fetch_report(service, request->path))
        return;
    snprintf(body, sizeof body,
             "{\"tid\":%d,\"read\":%.3f,\"begun\":%.3f,\"ended\":%.3f}",
             kit_tid(), request->read_ms, begun, now_ms());
    reply(request->fd, body);
}

static int take_client(void) {
    int one = 1, fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    else if (errno != EMFILE)
        die("accept");
    return fd;
}

static void *accept_and_answer(void *argument) {
    int service = connect_upstream();
    (void)argument;
    for (;;) {
        struct request request;
        int fd = take_client();
        if (fd >= 0 && read_head(fd, &request) == 0)
            answer_request(&request, service);
        close(fd);
    }
    return NULL;
}

static void *work(void *argument) {
    int service = connect_upstream();
    (void)argument;
    prctl(PR_SET_NAME, "worker");
    for (;;) {
        pthread_mutex_lock(&lock);
        while (first_job == next_job)
            pthread_cond_wait(&more, &lock);
        struct request request = jobs[first_job++ % MOST_JOBS];
        pthread_mutex_unlock(&lock);
        answer_request(&request, service);
        close(request.fd);
    }
    return NULL;
}

/* The fault: nobody is accepted while a client that was has nothing to say. */
OWN_FRAME static void accept_and_route(void) {
    struct request request;
    int fd = take_client();
    if (fd < 0 || read_head(fd, &request)) {
        close(fd);
        return;
    }
    pthread_mutex_lock(&lock);
    if (next_job - first_job < MOST_JOBS)
        jobs[next_job++ % MOST_JOBS] = request;
    pthread_cond_signal(&more);
    pthread_mutex_unlock(&lock);
}

static void *converse(void *argument) {
    struct request request;
    int fd = (int)(long)argument;
    while (read_head(fd, &request) == 0)
        answer_request(&request, -1);
    close(fd);
    return NULL;
}

/* The fault: what has no descriptor stays in the queue. */
OWN_FRAME static void accept_or_retry(void) {
    int fd = take_client();
    pthread_t thread;
    if (fd < 0) {
        usleep(RETRY_MS * 1000);
        return;
    }
    if (pthread_create(&thread, NULL, converse, (void *)(long)fd))
        die("pthread_create");
    pthread_detach(thread);
}

static void start(int workers, void *body(void *)) {
    for (int i = 0; i < workers; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, body, NULL))
            die("pthread_create");
    }
}

/* So many may be opened from now on: the lowest numbers that are free. */
static void leave_descriptors(int count) {
    int taken[1024];
    rlim_t most = 0;
    for (int i = 0; i < count; i++) {
        taken[i] = dup(listener);
        if (taken[i] < 0)
            die("dup");
        most = taken[i] + 1;
    }
    for (int i = 0; i < count; i++)
        close(taken[i]);
    if (setrlimit(RLIMIT_NOFILE, &(struct rlimit){most, most}))
        die("setrlimit");
}

int main(int count, char **words) {
    struct sockaddr_in address = {0};
    const char *port = count > 1 ? strrchr(words[1], ':') : NULL;
    int workers = atoi(option(words, "--workers", "0"));
    int files = atoi(option(words, "--files", "0"));
    if (!port || (!workers && !files) || files > 1024) {
        fprintf(stderr, "usage: open-requests UPSTREAM [--workers N] [--acceptor|--files N]\n");
        return 2;
    }
    upstream.sin_family = AF_INET;
    upstream.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    upstream.sin_port = htons(atoi(port + 1));
    listener = listen_on(&address, 0, 1);
    start(workers, flag(words, "--acceptor") ? work : accept_and_answer);
    say_ready(&address);
    if (files)
        leave_descriptors(files);
    if (!files && !flag(words, "--acceptor"))
        for (;;)
            pause();
    prctl(PR_SET_NAME, "acceptor");
    for (;;)
        files ? accept_or_retry() : accept_and_route();
}
