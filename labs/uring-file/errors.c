/* Operations that fail, and nobody looks.
 *
 * A read of a file in memory every 5 ms. Broken: the descriptor was closed before, and each read is
 * refused; the program counts bytes as if there were some. Fixed: it stays open until the end. */
#include "lab.h"

#define EVERY_MS 5.0
#define BLOCK 4096

static char block[BLOCK];

OWN_FRAME static void submit_read(struct io_uring *ring, int file) {
    io_uring_prep_read(next_sqe(ring), file, block, BLOCK, 0);
    done_or_die(io_uring_submit(ring), "submit");
}

/* The operation's result. */
OWN_FRAME static int take_result(struct io_uring *ring) {
    struct io_uring_cqe *cqe;
    done_or_die(io_uring_wait_cqe(ring, &cqe), "wait for a completion");
    int result = cqe->res;
    io_uring_cqe_seen(ring, cqe);
    return result;
}

void errors(const struct lab *lab) {
    struct io_uring ring;
    long ops = 0, failed = 0, bytes = 0;
    int error = 0;
    make_ring(&ring, 8, NULL);
    int file = cached_file(lab, BLOCK);
    if (!lab->fixed)
        close(file);
    double begun = now_ms();
    for (double due = begun; due < begun + RUN_MS; due += EVERY_MS, ops++) {
        sleep_until(due);
        submit_read(&ring, file);
        int result = take_result(&ring);
        if (result < 0) {
            failed++;
            error = -result;
        } else {
            bytes += result;
        }
    }
    tell_truth(lab, "{\"ops\":%ld,\"failed\":%ld,\"errno\":%d,\"bytes\":%ld}", ops, failed, error,
               bytes);
}
