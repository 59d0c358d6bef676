/* The kernel's poller of a submission queue, burning a core for little, or asleep when it is
 * needed.
 *
 * Reads of a file in memory, now and then. Idle, broken: the poller looks for entries without a
 * pause for as long as the program runs, and finds one every 10 ms; fixed: there is no poller, each
 * read is submitted by a call. Asleep, broken: the poller sleeps when there was nothing for a tick,
 * a read comes every 60 ms, and the program wakes the poller with every eighth; fixed: with each,
 * as io_uring_submit does. */
#include "lab.h"

#include <sys/resource.h>

#define WAKE_EVERY 8
#define MOST 1000
#define BLOCK 4096

static char blocks[MOST][BLOCK];
static double queued_at[MOST], latencies[MOST];

/* Takes completions as they come, until that time. */
static int reap_until(struct io_uring *ring, int count, double until_ms) {
    for (double rest; (rest = until_ms - now_ms()) > 0;) {
        struct __kernel_timespec patience = {.tv_nsec = rest * 1e6};
        struct io_uring_cqe *cqe;
        int waited = io_uring_wait_cqe_timeout(ring, &cqe, &patience);
        if (waited == -ETIME || waited == -EINTR)
            continue;
        done_or_die(waited, "wait for a completion");
        int number = io_uring_cqe_get_data64(cqe);
        done_or_die(cqe->res, "read");
        latencies[count++] = now_ms() - queued_at[number];
        io_uring_cqe_seen(ring, cqe);
    }
    return count;
}

OWN_FRAME static void queue_read(struct io_uring *ring, int file, int number) {
    struct io_uring_sqe *sqe = next_sqe(ring);
    io_uring_prep_read(sqe, file, blocks[number], BLOCK, 0);
    io_uring_sqe_set_data64(sqe, number);
    queued_at[number] = now_ms();
}

static void read_now_and_then(const struct lab *lab, struct io_uring_params *params,
                              double every_ms, int wake_every) {
    struct io_uring ring;
    struct rusage usage;
    char latency[256];
    int count = 0, number = 0;
    make_ring(&ring, 64, params);
    int file = cached_file(lab, BLOCK);
    double begun = now_ms();
    for (; number < MOST && now_ms() < begun + RUN_MS; number++) {
        queue_read(&ring, file, number);
        if (number % wake_every == wake_every - 1)
            done_or_die(io_uring_submit(&ring), "submit");
        else
            publish(&ring);
        count = reap_until(&ring, count, begun + (number + 1) * every_ms);
    }
    double took = now_ms() - begun;
    getrusage(RUSAGE_SELF, &usage);
    double cpu = usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
                 (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    summary(latencies, count, latency, sizeof latency);
    tell_truth(lab,
               "{\"queued\":%d,\"ops\":%d,\"cpus\":%.3f,\"latency\":%s,\"server\":{\"cpu_s\":%.6f,"
               "\"requests\":%d}}",
               number, count, cpu / took * 1e3, latency, cpu, count);
}

void sqpoll_idle(const struct lab *lab) {
    struct io_uring_params params = {.flags = IORING_SETUP_SQPOLL, .sq_thread_idle = 60 * 1000};
    read_now_and_then(lab, lab->fixed ? NULL : &params, 10, 1);
}

void sqpoll_asleep(const struct lab *lab) {
    struct io_uring_params params = {.flags = IORING_SETUP_SQPOLL, .sq_thread_idle = 1};
    read_now_and_then(lab, &params, 60, lab->fixed ? 1 : WAKE_EVERY);
}
