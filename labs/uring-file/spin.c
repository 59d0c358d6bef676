/* A loop that enters the kernel for its ring again and again, and nothing has come.
 *
 * Requests are with a device. `spin`, broken: the loop asks for completions without waiting for
 * one, where the device takes 400 ms. `stuck`, broken: it waits for one, but the first in the queue
 * is that of a cancellation, which it does not know and leaves there, so that the wait is over at
 * once; nobody takes the device's answers behind it. Fixed, both: it waits for one, and takes
 * whatever comes. `poll`: the loop of `spin` on purpose, with answers every few milliseconds: it
 * buys latency. `look`: the same without entering the kernel, which it does to submit only: the
 * completion queue is in memory. */
#include "lab.h"

#include <sys/resource.h>
#include <sys/syscall.h>

#define MOST_LANES 8

static struct {
    int fd;
    uint64_t answered_ns;
} lanes[MOST_LANES];

static void ask(struct io_uring *ring, int lane) {
    struct io_uring_sqe *sqe = next_sqe(ring);
    ask_device(lanes[lane].fd);
    io_uring_prep_recv(sqe, lanes[lane].fd, &lanes[lane].answered_ns,
                       sizeof lanes[lane].answered_ns, MSG_WAITALL);
    io_uring_sqe_set_data64(sqe, lane);
}

/* Takes what is there, and asks anew; with `only_answers` what is none stays, and all behind it. */
static int take_answers(struct io_uring *ring, int only_answers) {
    struct io_uring_cqe *cqe;
    int taken = 0;
    while (io_uring_peek_cqe(ring, &cqe) == 0) {
        uint64_t lane = io_uring_cqe_get_data64(cqe);
        if (lane >= MOST_LANES && only_answers)
            break;
        if (lane < MOST_LANES)
            done_or_die(cqe->res, "recv");
        io_uring_cqe_seen(ring, cqe);
        if (lane < MOST_LANES) {
            ask(ring, lane);
            taken++;
        }
    }
    return taken;
}

OWN_FRAME static void ask_without_waiting(struct io_uring *ring) {
    done_or_die(io_uring_submit(ring), "submit");
    if (syscall(__NR_io_uring_enter, ring->ring_fd, 0, 0, IORING_ENTER_GETEVENTS, NULL, 0) < 0)
        die("io_uring_enter");
}

OWN_FRAME static void look_until_answered(struct io_uring *ring) {
    done_or_die(io_uring_submit(ring), "submit");
    while (!io_uring_cq_ready(ring))
        ;
}

static void wait_for_one(struct io_uring *ring) {
    done_or_die(io_uring_submit_and_wait(ring, 1), "submit and wait");
}

static void go_round(const struct lab *lab, int count, void (*turn)(struct io_uring *ring),
                     int leaves) {
    struct io_uring ring;
    struct rusage usage;
    long turns = 0, futile = 0, answers = 0;
    make_ring(&ring, 2 * MOST_LANES, NULL);
    for (int lane = 0; lane < count; lane++) {
        lanes[lane].fd = connect_device(lab);
        ask(&ring, lane);
    }
    /* Something to cancel that is not there: its answer is the first completion. */
    struct io_uring_sqe *sqe = next_sqe(&ring);
    io_uring_prep_cancel64(sqe, 4711, 0);
    io_uring_sqe_set_data64(sqe, UINT64_MAX);
    double begun = now_ms();
    for (; now_ms() < begun + RUN_MS; turns++) {
        turn(&ring);
        int taken = take_answers(&ring, leaves);
        answers += taken;
        futile += taken == 0;
    }
    double took = now_ms() - begun;
    getrusage(RUSAGE_SELF, &usage);
    double cpu = usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
                 (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    tell_truth(lab,
               "{\"turns\":%ld,\"futile\":%ld,\"futile_per_s\":%.0f,\"ops\":%ld,\"cpus\":%.3f}",
               turns, futile, futile / took * 1e3, answers, cpu / took * 1e3);
}

void spin(const struct lab *lab) {
    go_round(lab, 1, lab->fixed ? wait_for_one : ask_without_waiting, 0);
}
void stuck(const struct lab *lab) { go_round(lab, 1, wait_for_one, !lab->fixed); }
void poll_rings(const struct lab *lab) {
    go_round(lab, lab->fixed ? 1 : MOST_LANES, ask_without_waiting, 0);
}
void look_at_rings(const struct lab *lab) { go_round(lab, 1, look_until_answered, 0); }
