/* A healthy program that makes a ring for each piece of work, and closes it: many more in its life
 * than it has at a time. */
#include "lab.h"

#define ENTRIES 8
#define READS 4
#define BLOCK 4096
#define EVERY_MS 4.0

static char blocks[READS][BLOCK];

OWN_FRAME static void read_through_a_ring_of_its_own(int file) {
    struct io_uring ring;
    make_ring(&ring, ENTRIES, NULL);
    for (int i = 0; i < READS; i++)
        io_uring_prep_read(next_sqe(&ring), file, blocks[i], BLOCK, 0);
    done_or_die(io_uring_submit_and_wait(&ring, READS), "submit and wait");
    for (int i = 0; i < READS; i++) {
        struct io_uring_cqe *cqe;
        done_or_die(io_uring_wait_cqe(&ring, &cqe), "wait for a completion");
        done_or_die(cqe->res, "read");
        io_uring_cqe_seen(&ring, cqe);
    }
    io_uring_queue_exit(&ring);
}

void reopen(const struct lab *lab) {
    long rings = 0;
    int file = cached_file(lab, BLOCK);
    double begun = now_ms();
    for (; now_ms() < begun + RUN_MS; rings++) {
        read_through_a_ring_of_its_own(file);
        sleep_until(begun + (rings + 1) * EVERY_MS);
    }
    tell_truth(lab, "{\"ops\":%ld,\"rings\":%ld}", rings * READS, rings);
}
