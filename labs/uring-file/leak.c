/* Operations that nothing ends.
 *
 * Every 10 ms a job asks somebody over a connection of its own, and reads the answer. In the first
 * second one of each five is not answered, and given up after 50 ms. Broken: its connection is
 * closed, which does not end the read: the ring keeps the connection open, and the read has its
 * slot for good. Fixed: the read is cancelled before. */
#include "lab.h"

#define EVERY_MS 10.0
#define PATIENCE_MS 50.0
#define JOBS 500
#define SILENT_EVERY 5
#define LAST_SILENT 100
#define CANCEL UINT64_MAX

static struct job {
    int ours, theirs;
    int silent, done;
    double begun_ms;
    uint64_t answer;
} jobs[JOBS];

OWN_FRAME static void begin_job(struct io_uring *ring, int number) {
    struct job *job = &jobs[number];
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
        die("socketpair");
    job->ours = pair[0];
    job->theirs = pair[1];
    job->silent = number < LAST_SILENT && number % SILENT_EVERY == 0;
    job->begun_ms = now_ms();
    struct io_uring_sqe *sqe = next_sqe(ring);
    io_uring_prep_recv(sqe, job->ours, &job->answer, sizeof job->answer, 0);
    io_uring_sqe_set_data64(sqe, number);
    done_or_die(io_uring_submit(ring), "submit");
    if (!job->silent && write(job->theirs, &job->begun_ms, sizeof job->begun_ms) < 0)
        die("write");
}

/* The one who does not answer keeps its end open. */
OWN_FRAME static void give_up(struct io_uring *ring, const struct lab *lab, struct job *job) {
    if (lab->fixed) {
        struct io_uring_sqe *sqe = next_sqe(ring);
        io_uring_prep_cancel_fd(sqe, job->ours, IORING_ASYNC_CANCEL_ALL);
        io_uring_sqe_set_data64(sqe, CANCEL);
        done_or_die(io_uring_submit(ring), "submit");
    }
    close(job->ours);
    job->done = 1;
}

/* Takes answers as they come, until that time: how many reads have ended. */
OWN_FRAME static int take_answers(struct io_uring *ring, double until_ms) {
    int ended = 0;
    for (double rest; (rest = until_ms - now_ms()) > 0;) {
        struct __kernel_timespec patience = {.tv_nsec = rest * 1e6};
        struct io_uring_cqe *cqe;
        int waited = io_uring_wait_cqe_timeout(ring, &cqe, &patience);
        if (waited == -ETIME || waited == -EINTR)
            continue;
        done_or_die(waited, "wait for a completion");
        uint64_t number = io_uring_cqe_get_data64(cqe);
        if (number != CANCEL) {
            struct job *job = &jobs[number];
            if (!job->done) {
                close(job->ours);
                close(job->theirs);
            }
            job->done = 1;
            ended++;
        }
        io_uring_cqe_seen(ring, cqe);
    }
    return ended;
}

void leak(const struct lab *lab) {
    struct io_uring ring;
    int ended = 0;
    make_ring(&ring, 64, NULL);
    double begun = now_ms();
    for (int number = 0; number < JOBS; number++) {
        begin_job(&ring, number);
        ended += take_answers(&ring, begun + (number + 1) * EVERY_MS);
        for (int old = 0; old < number; old++)
            if (!jobs[old].done && now_ms() > jobs[old].begun_ms + PATIENCE_MS)
                give_up(&ring, lab, &jobs[old]);
    }
    ended += take_answers(&ring, now_ms() + EVERY_MS);
    tell_truth(lab, "{\"ops\":%d,\"ended\":%d,\"leaked\":%d}", JOBS, ended, JOBS - ended);
}
