/* Completions sit in the queue while the loop computes.
 *
 * Eight requests at a time are with a device that answers each in 2 ms. Broken: between two looks
 * at the completion queue the loop compresses for 20 ms. Fixed: another thread compresses. */
#include "lab.h"

#define LANES 8
#define COMPRESS_MS 20.0

static volatile uint64_t compressed;

/* Checks the clock only now and then, so that most of it is work. */
OWN_FRAME static void compress_segment(double until_ms) {
    uint64_t state = compressed | 1;
    while (now_ms() < until_ms) {
        for (int i = 0; i < 20000; i++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
        }
    }
    compressed = state;
}

static void *compress_apart(void *argument) {
    pthread_setname_np(pthread_self(), "compressor");
    double until = *(double *)argument;
    while (now_ms() < until) {
        compress_segment(now_ms() + COMPRESS_MS);
        /* As much as the broken twin, which waits for nothing, would starve whoever shares its CPU.
         */
        usleep(COMPRESS_MS * 1000);
    }
    return NULL;
}

static struct {
    int fd;
    uint64_t answered_ns;
} lanes[LANES];

static void ask(struct io_uring *ring, int lane) {
    struct io_uring_sqe *sqe = next_sqe(ring);
    ask_device(lanes[lane].fd);
    io_uring_prep_recv(sqe, lanes[lane].fd, &lanes[lane].answered_ns,
                       sizeof lanes[lane].answered_ns, MSG_WAITALL);
    io_uring_sqe_set_data64(sqe, lane);
}

OWN_FRAME static int reap_answers(struct io_uring *ring, double *late_ms) {
    struct io_uring_cqe *cqe;
    int reaped = 0;
    while (io_uring_peek_cqe(ring, &cqe) == 0) {
        int lane = io_uring_cqe_get_data64(cqe);
        done_or_die(cqe->res, "recv");
        *late_ms += since_ms(lanes[lane].answered_ns);
        io_uring_cqe_seen(ring, cqe);
        ask(ring, lane);
        reaped++;
    }
    return reaped;
}

void reap_lag(const struct lab *lab) {
    struct io_uring ring;
    double late_ms = 0;
    long reaped = 0, rounds = 0;
    pthread_t compressor;
    make_ring(&ring, LANES, NULL);
    for (int lane = 0; lane < LANES; lane++)
        lanes[lane].fd = connect_device(lab);
    double begun = now_ms(), until = begun + RUN_MS;
    if (lab->fixed && (errno = pthread_create(&compressor, NULL, compress_apart, &until)))
        die("pthread_create");
    for (int lane = 0; lane < LANES; lane++)
        ask(&ring, lane);
    for (; now_ms() < until; rounds++) {
        if (lab->fixed) {
            done_or_die(io_uring_submit_and_wait(&ring, 1), "submit and wait");
        } else {
            done_or_die(io_uring_submit(&ring), "submit");
            compress_segment(now_ms() + COMPRESS_MS);
        }
        reaped += reap_answers(&ring, &late_ms);
    }
    double took = now_ms() - begun;
    if (lab->fixed)
        pthread_join(compressor, NULL);
    /* The lanes are always in use: an operation's whole life follows from the rate. */
    tell_truth(
        lab, "{\"ops\":%ld,\"ops_per_s\":%.1f,\"op_ms\":%.4f,\"unreaped_ms\":%.3f,\"rounds\":%ld}",
        reaped, reaped / took * 1e3, LANES * took / reaped, late_ms / reaped, rounds);
}
