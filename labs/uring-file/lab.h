/* What the faults have in common: rings, a slow device, a file that is in memory, work for a CPU,
 * and the truth. */
#ifndef LAB_H
#define LAB_H

#define _GNU_SOURCE
#include <liburing.h>
#include <stdint.h>

#include "../kit/kit.h"

/* How long a fault is shown. */
#define RUN_MS 3000.0

/* The folder of the run, and which of the twins this is. */
struct lab {
    const char *dir;
    int fixed;
};

/* Each shows its fault, or its fixed twin, for RUN_MS, and then tells the truth. */
void reap_lag(const struct lab *lab);
void cq_overflow(const struct lab *lab);
void punt_storm(const struct lab *lab);
void one_a_batch(const struct lab *lab);
void errors(const struct lab *lab);
void late_once(const struct lab *lab);
void sqpoll_forgotten(const struct lab *lab);
void leak(const struct lab *lab);
void worker_storm(const struct lab *lab);
void sqpoll_idle(const struct lab *lab);
void sqpoll_asleep(const struct lab *lab);
void cross_thread(const struct lab *lab);
void slots(const struct lab *lab);
void spin(const struct lab *lab);
void stuck(const struct lab *lab);
void poll_rings(const struct lab *lab);
void look_at_rings(const struct lab *lab);
void send_pressure(const struct lab *lab);
void reopen(const struct lab *lab);

/* A ring, or the end. `params` may be NULL. */
static inline void make_ring(struct io_uring *ring, unsigned entries,
                             struct io_uring_params *params) {
    struct io_uring_params plain = {0};
    errno = -io_uring_queue_init_params(entries, ring, params ? params : &plain);
    if (errno)
        die("cannot make a ring");
}

/* What a call to liburing returned, or the end. */
static inline int done_or_die(int returned, const char *what) {
    if (returned < 0) {
        errno = -returned;
        die(what);
    }
    return returned;
}

static inline struct io_uring_sqe *next_sqe(struct io_uring *ring) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
    errno = 0;
    if (!sqe)
        die("the submission queue is full");
    return sqe;
}

/* Lets the kernel see what was prepared, without entering it: what io_uring_submit does first. */
void publish(struct io_uring *ring);

/* A file of so many bytes, all of them in the page cache. */
int cached_file(const struct lab *lab, size_t size);

/* The load's device: it answers each request after a fixed time, with the time when it did. A
 * connection each for requests at a time. */
int connect_device(const struct lab *lab);
int connect_to(const struct lab *lab, const char *socket_name);
void ask_device(int fd);

/* Since a device's answer, in milliseconds. */
static inline double since_ms(uint64_t answered_ns) { return now_ms() - answered_ns / 1e6; }

/* Sleeps until that time of now_ms(). */
void sleep_until(double at_ms);

/* Leaves the line, which must be JSON, for the load. Printed as by printf. */
void tell_truth(const struct lab *lab, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
