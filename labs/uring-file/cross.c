/* One thread queues entries, another submits them.
 *
 * The producer queues a read of a file in memory every 20 ms, and makes it visible. The submitter
 * sleeps in ppoll for up to 499 ms before it looks. Fixed: the producer kicks it by an eventfd. */
#include "lab.h"

#include <poll.h>
#include <sys/eventfd.h>

#define EVERY_MS 20.0
#define PATIENCE_MS 499
#define MOST 1000
#define BLOCK 4096

static pthread_mutex_t queue = PTHREAD_MUTEX_INITIALIZER;
static struct io_uring ring;
static int file, kick, fixed;
static double until;
static char blocks[MOST][BLOCK];
static double queued_at[MOST], latencies[MOST];
static int queued;

OWN_FRAME static void queue_read(int number) {
    pthread_mutex_lock(&queue);
    struct io_uring_sqe *sqe = next_sqe(&ring);
    io_uring_prep_read(sqe, file, blocks[number], BLOCK, 0);
    io_uring_sqe_set_data64(sqe, number);
    queued_at[number] = now_ms();
    publish(&ring);
    pthread_mutex_unlock(&queue);
    if (fixed)
        eventfd_write(kick, 1);
}

static void *produce(void *unused) {
    double begun = now_ms();
    pthread_setname_np(pthread_self(), "producer");
    for (; queued < MOST && now_ms() < until; queued++) {
        queue_read(queued);
        sleep_until(begun + (queued + 1) * EVERY_MS);
    }
    return unused;
}

OWN_FRAME static void wait_for_work(void) {
    struct pollfd fds = {.fd = kick, .events = POLLIN};
    struct timespec patience = {.tv_nsec = PATIENCE_MS * 1000000L};
    eventfd_t kicks;
    if (ppoll(&fds, 1, &patience, NULL) > 0)
        eventfd_read(kick, &kicks);
}

void cross_thread(const struct lab *lab) {
    pthread_t producer;
    char latency[256];
    int count = 0;
    fixed = lab->fixed;
    make_ring(&ring, 64, NULL);
    file = cached_file(lab, BLOCK);
    kick = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    until = now_ms() + RUN_MS;
    if (kick < 0 || (errno = pthread_create(&producer, NULL, produce, NULL)))
        die("cannot start the producer");
    pthread_setname_np(pthread_self(), "submitter");
    while (now_ms() < until + PATIENCE_MS) {
        struct io_uring_cqe *cqe;
        wait_for_work();
        pthread_mutex_lock(&queue);
        done_or_die(io_uring_submit(&ring), "submit");
        pthread_mutex_unlock(&queue);
        while (io_uring_peek_cqe(&ring, &cqe) == 0) {
            done_or_die(cqe->res, "read");
            latencies[count++] = now_ms() - queued_at[io_uring_cqe_get_data64(cqe)];
            io_uring_cqe_seen(&ring, cqe);
        }
    }
    pthread_join(producer, NULL);
    summary(latencies, count, latency, sizeof latency);
    tell_truth(lab, "{\"queued\":%d,\"ops\":%d,\"latency\":%s}", queued, count, latency);
}
