/* Reads of a file in memory, 32 at a time, as fast as they go.
 *
 * Punt storm, broken: each is forced to a worker thread of the kernel's, where none would have to
 * wait; fixed: none is. One a batch, broken: each is submitted by a call of its own; fixed: all by
 * one. */
#include "lab.h"

#include <sys/resource.h>

#define BATCH 32
#define BLOCK 4096
#define FILE_BLOCKS 256

static char blocks[BATCH][BLOCK];
static double queued_at[BATCH];

OWN_FRAME static void submit_reads(struct io_uring *ring, int file, unsigned flags, int one_by_one,
                                   unsigned first) {
    for (int i = 0; i < BATCH; i++) {
        struct io_uring_sqe *sqe = next_sqe(ring);
        io_uring_prep_read(sqe, file, blocks[i], BLOCK,
                           (uint64_t)((first + i) % FILE_BLOCKS) * BLOCK);
        sqe->flags |= flags;
        io_uring_sqe_set_data64(sqe, i);
        queued_at[i] = now_ms();
        if (one_by_one)
            done_or_die(io_uring_submit(ring), "submit");
    }
    done_or_die(io_uring_submit(ring), "submit");
}

/* Takes each completion as it comes. How long the operations took until then, all together. */
OWN_FRAME static double reap_reads(struct io_uring *ring) {
    double sum_ms = 0;
    for (int i = 0; i < BATCH; i++) {
        struct io_uring_cqe *cqe;
        done_or_die(io_uring_wait_cqe(ring, &cqe), "wait for a completion");
        done_or_die(cqe->res, "read");
        sum_ms += now_ms() - queued_at[io_uring_cqe_get_data64(cqe)];
        io_uring_cqe_seen(ring, cqe);
    }
    return sum_ms;
}

static void read_in_batches(const struct lab *lab, unsigned flags, int one_by_one) {
    struct io_uring ring;
    long ops = 0;
    double sum_ms = 0;
    make_ring(&ring, BATCH, NULL);
    int file = cached_file(lab, FILE_BLOCKS * BLOCK);
    double begun = now_ms();
    while (now_ms() < begun + RUN_MS) {
        submit_reads(&ring, file, flags, one_by_one, ops);
        sum_ms += reap_reads(&ring);
        ops += BATCH;
    }
    double took = now_ms() - begun;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double cpu = usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
                 (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    tell_truth(lab,
               "{\"ops\":%ld,\"ops_per_s\":%.1f,\"us_per_op\":%.3f,\"op_ms\":%.6f,"
               "\"server\":{\"cpu_s\":%.6f,\"requests\":%ld}}",
               ops, ops / took * 1e3, took * 1e3 / ops, sum_ms / ops, cpu, ops);
}

void punt_storm(const struct lab *lab) { read_in_batches(lab, lab->fixed ? 0 : IOSQE_ASYNC, 0); }

void one_a_batch(const struct lab *lab) { read_in_batches(lab, 0, !lab->fixed); }
