/* Few operations, and each of them waits for very long.
 *
 * Late once, broken: the program asks a device that answers in 2 ms, sleeps for 790 ms, and then
 * takes the answer; three times. Fixed: it takes the answer, and sleeps then. Sqpoll forgotten,
 * broken: the kernel's poller has gone to sleep when two reads are published, and nobody wakes it;
 * fixed: it is woken. */
#include "lab.h"

#define ROUNDS 3
#define ASLEEP_MS 790.0
#define BLOCK 4096

OWN_FRAME static void sleep_between(void) { sleep_until(now_ms() + ASLEEP_MS); }

OWN_FRAME static void take_answer(struct io_uring *ring) {
    struct io_uring_cqe *cqe;
    done_or_die(io_uring_wait_cqe(ring, &cqe), "wait for a completion");
    done_or_die(cqe->res, "read");
    io_uring_cqe_seen(ring, cqe);
}

void late_once(const struct lab *lab) {
    struct io_uring ring;
    double late_ms = 0;
    uint64_t answered_ns;
    make_ring(&ring, 8, NULL);
    int device = connect_device(lab);
    for (int round = 0; round < ROUNDS; round++) {
        ask_device(device);
        io_uring_prep_recv(next_sqe(&ring), device, &answered_ns, sizeof answered_ns, MSG_WAITALL);
        done_or_die(io_uring_submit(&ring), "submit");
        if (!lab->fixed)
            sleep_between();
        take_answer(&ring);
        late_ms += since_ms(answered_ns);
        if (lab->fixed)
            sleep_between();
    }
    tell_truth(lab, "{\"ops\":%d,\"unreaped_ms\":%.3f}", ROUNDS, late_ms / ROUNDS);
}

void sqpoll_forgotten(const struct lab *lab) {
    struct io_uring_params params = {.flags = IORING_SETUP_SQPOLL, .sq_thread_idle = 1};
    static char blocks[2][BLOCK];
    struct io_uring ring;
    struct io_uring_cqe *cqe;
    int ops = 0;
    make_ring(&ring, 8, &params);
    int file = cached_file(lab, BLOCK);
    sleep_between();
    for (int i = 0; i < 2; i++)
        io_uring_prep_read(next_sqe(&ring), file, blocks[i], BLOCK, 0);
    if (lab->fixed) {
        done_or_die(io_uring_submit(&ring), "submit");
        for (; ops < 2; ops++)
            take_answer(&ring);
    } else {
        publish(&ring);
    }
    for (int round = 1; round < ROUNDS; round++)
        sleep_between();
    while (io_uring_peek_cqe(&ring, &cqe) == 0) {
        io_uring_cqe_seen(&ring, cqe);
        ops++;
    }
    tell_truth(lab, "{\"queued\":2,\"ops\":%d}", ops);
}
