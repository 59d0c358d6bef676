/* A completion queue that is smaller than what is written to it.
 *
 * Every 5 ms come 128 reads of a file in memory, which complete at once, and are reaped when all
 * are submitted. Broken: the queue holds 16, and the kernel keeps the others in a list of its own.
 * Fixed: it holds 256. */
#include "lab.h"

#define ENTRIES 16
#define BURST 128
#define EVERY_MS 5.0
#define BLOCK 4096

static char blocks[BURST][BLOCK];
static double queued_at[BURST];

OWN_FRAME static void submit_burst(struct io_uring *ring, int file) {
    for (int i = 0; i < BURST; i++) {
        struct io_uring_sqe *sqe = next_sqe(ring);
        io_uring_prep_read(sqe, file, blocks[i], BLOCK, (uint64_t)i * BLOCK);
        io_uring_sqe_set_data64(sqe, i);
        queued_at[i] = now_ms();
        if (i % ENTRIES == ENTRIES - 1)
            done_or_die(io_uring_submit(ring), "submit");
    }
}

/* How long the operations took until they were taken, all together. */
OWN_FRAME static double reap_burst(struct io_uring *ring) {
    double sum_ms = 0;
    for (int i = 0; i < BURST; i++) {
        struct io_uring_cqe *cqe;
        done_or_die(io_uring_wait_cqe(ring, &cqe), "wait for a completion");
        done_or_die(cqe->res, "read");
        sum_ms += now_ms() - queued_at[io_uring_cqe_get_data64(cqe)];
        io_uring_cqe_seen(ring, cqe);
    }
    return sum_ms;
}

void cq_overflow(const struct lab *lab) {
    struct io_uring_params params = {.flags = IORING_SETUP_CQSIZE,
                                     .cq_entries = lab->fixed ? 2 * BURST : ENTRIES};
    struct io_uring ring;
    long bursts = 0, overflown = 0;
    double sum_ms = 0;
    make_ring(&ring, ENTRIES, &params);
    int file = cached_file(lab, BURST * BLOCK);
    double begun = now_ms();
    for (double due = begun; due < begun + RUN_MS; due += EVERY_MS, bursts++) {
        sleep_until(due);
        submit_burst(&ring, file);
        overflown += !!(IO_URING_READ_ONCE(*ring.sq.kflags) & IORING_SQ_CQ_OVERFLOW);
        sum_ms += reap_burst(&ring);
    }
    tell_truth(
        lab,
        "{\"ops\":%ld,\"bursts\":%ld,\"bursts_overflown\":%ld,\"cq_entries\":%u,\"op_ms\":%.6f}",
        bursts * BURST, bursts, overflown, params.cq_entries, sum_ms / (bursts * BURST));
}
