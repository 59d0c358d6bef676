/* A ring that is too small for its device.
 *
 * Three jobs come every millisecond, whatever happens to those before, and each is 4 ms with a
 * device that takes as many at a time as it gets. Broken: the ring has 4 entries, so that 1000 jobs
 * a second can be done. Fixed: it has 64, of which some 12 are needed. */
#include "lab.h"

#define JOBS_PER_MS 3
#define MOST_LANES 64

static struct {
    int fd;
    uint64_t answered_ns;
} lanes[MOST_LANES];
static int idle[MOST_LANES];
static int idle_count;

/* Submits jobs that have come, as many as there are slots. */
OWN_FRAME static int submit_jobs(struct io_uring *ring, long waiting) {
    int taken = 0;
    for (; waiting > 0 && idle_count > 0; waiting--, taken++) {
        int lane = idle[--idle_count];
        struct io_uring_sqe *sqe = next_sqe(ring);
        ask_device(lanes[lane].fd);
        io_uring_prep_recv(sqe, lanes[lane].fd, &lanes[lane].answered_ns,
                           sizeof lanes[lane].answered_ns, MSG_WAITALL);
        io_uring_sqe_set_data64(sqe, lane);
    }
    return taken;
}

OWN_FRAME static int reap_answers(struct io_uring *ring, double *late_ms) {
    struct io_uring_cqe *cqe;
    int reaped = 0;
    for (; io_uring_peek_cqe(ring, &cqe) == 0; reaped++) {
        int lane = io_uring_cqe_get_data64(cqe);
        done_or_die(cqe->res, "recv");
        *late_ms += since_ms(lanes[lane].answered_ns);
        idle[idle_count++] = lane;
        io_uring_cqe_seen(ring, cqe);
    }
    return reaped;
}

void slots(const struct lab *lab) {
    unsigned depth = lab->fixed ? MOST_LANES : 4;
    struct io_uring ring;
    long come = 0, taken = 0, reaped = 0;
    int most = 0;
    double late_ms = 0;
    make_ring(&ring, depth, NULL);
    for (unsigned lane = 0; lane < depth; lane++) {
        lanes[lane].fd = connect_device(lab);
        idle[idle_count++] = lane;
    }
    double begun = now_ms(), now = begun;
    while ((now = now_ms()) < begun + RUN_MS) {
        long tick = now - begun;
        come = (tick + 1) * JOBS_PER_MS;
        taken += submit_jobs(&ring, come - taken);
        if (taken - reaped > most)
            most = taken - reaped;
        struct __kernel_timespec rest = {.tv_nsec = (begun + tick + 1 - now) * 1e6};
        struct io_uring_cqe *cqe;
        int waited = io_uring_submit_and_wait_timeout(&ring, &cqe, 1, &rest, NULL);
        if (waited < 0 && waited != -ETIME)
            done_or_die(waited, "submit and wait");
        reaped += reap_answers(&ring, &late_ms);
    }
    double took = now - begun;
    tell_truth(lab,
               "{\"ops\":%ld,\"ops_per_s\":%.1f,\"op_ms\":%.6f,\"unreaped_ms\":%.3f,\"come\":%ld,"
               "\"waiting\":%ld,\"most_in_flight\":%d}",
               reaped, reaped / took * 1e3, took / reaped, late_ms / reaped, come, come - taken,
               most);
}
