/* Sends to a peer that reads slowly.
 *
 * Three messages come every millisecond, all for one peer, through a ring of 8 entries. Slow: the
 * peer reads one message a millisecond, its socket's buffers are full, and each send waits for
 * room: the slots are the socket's, whatever the loop does, and a deeper ring would have more of
 * them wait. Otherwise the peer reads as fast as it can, and nothing waits. */
#include "lab.h"

#include <sys/socket.h>
#include <sys/un.h>

#define MESSAGES_PER_MS 3
#define MESSAGE 4096
#define ENTRIES 8
/* Room for a message or two, as the kernel doubles it. */
#define SEND_BUFFER 8192

static char message[MESSAGE];
static double queued_at[ENTRIES];
static int idle[ENTRIES], idle_count;

OWN_FRAME static int submit_messages(struct io_uring *ring, int peer, long waiting) {
    int taken = 0;
    for (; waiting > 0 && idle_count > 0; waiting--, taken++) {
        int slot = idle[--idle_count];
        struct io_uring_sqe *sqe = next_sqe(ring);
        io_uring_prep_send(sqe, peer, message, sizeof message, MSG_WAITALL | MSG_NOSIGNAL);
        io_uring_sqe_set_data64(sqe, slot);
        queued_at[slot] = now_ms();
    }
    return taken;
}

OWN_FRAME static int reap_sends(struct io_uring *ring, double *sum_ms) {
    struct io_uring_cqe *cqe;
    int reaped = 0;
    for (; io_uring_peek_cqe(ring, &cqe) == 0; reaped++) {
        int slot = io_uring_cqe_get_data64(cqe);
        done_or_die(cqe->res, "send");
        *sum_ms += now_ms() - queued_at[slot];
        idle[idle_count++] = slot;
        io_uring_cqe_seen(ring, cqe);
    }
    return reaped;
}

void send_pressure(const struct lab *lab) {
    struct io_uring ring;
    long come = 0, taken = 0, reaped = 0;
    int small = SEND_BUFFER / 2;
    double sum_ms = 0;
    make_ring(&ring, ENTRIES, NULL);
    for (int slot = 0; slot < ENTRIES; slot++)
        idle[idle_count++] = slot;
    int peer = connect_to(lab, "reader.sock");
    if (setsockopt(peer, SOL_SOCKET, SO_SNDBUF, &small, sizeof small))
        die("SO_SNDBUF");
    double begun = now_ms(), now = begun;
    while ((now = now_ms()) < begun + RUN_MS) {
        long tick = now - begun;
        come = (tick + 1) * MESSAGES_PER_MS;
        taken += submit_messages(&ring, peer, come - taken);
        struct __kernel_timespec rest = {.tv_nsec = (begun + tick + 1 - now) * 1e6};
        struct io_uring_cqe *cqe;
        int waited = io_uring_submit_and_wait_timeout(&ring, &cqe, 1, &rest, NULL);
        if (waited < 0 && waited != -ETIME)
            done_or_die(waited, "submit and wait");
        reaped += reap_sends(&ring, &sum_ms);
    }
    double took = now - begun;
    tell_truth(lab,
               "{\"ops\":%ld,\"ops_per_s\":%.1f,\"op_ms\":%.6f,\"send_ms\":%.3f,\"come\":%ld,"
               "\"waiting\":%ld}",
               reaped, reaped / took * 1e3, took / reaped, sum_ms / reaped, come, come - taken);
}
