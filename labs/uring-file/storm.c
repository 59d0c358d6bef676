/* Operations that block workers of the kernel's.
 *
 * From each of 200 pipes what comes is thrown away, and something comes every 100 ms. Broken: it is
 * spliced, for which the kernel cannot wait by polling: a worker blocks for each pipe. Fixed: it is
 * read, which needs none. */
#include "lab.h"

#include <dirent.h>
#include <fcntl.h>

#define PIPES 200
#define EVERY_MS 100.0

static int pipes[PIPES][2];
static char bytes[PIPES];

OWN_FRAME static void await_byte(struct io_uring *ring, const struct lab *lab, int sink, int i) {
    struct io_uring_sqe *sqe = next_sqe(ring);
    if (lab->fixed)
        io_uring_prep_read(sqe, pipes[i][0], &bytes[i], 1, 0);
    else
        io_uring_prep_splice(sqe, pipes[i][0], -1, sink, -1, 1, 0);
    io_uring_sqe_set_data64(sqe, i);
}

/* The kernel's workers that the process has now. */
static int count_workers(void) {
    int workers = 0;
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks)
        die("/proc/self/task");
    for (struct dirent *entry; (entry = readdir(tasks));) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE *comm = fopen(path, "r");
        if (!comm)
            continue;
        if (fgets(name, sizeof name, comm) && strncmp(name, "iou-wrk-", 8) == 0)
            workers++;
        fclose(comm);
    }
    closedir(tasks);
    return workers;
}

OWN_FRAME static void take_bytes(struct io_uring *ring) {
    for (int i = 0; i < PIPES; i++) {
        struct io_uring_cqe *cqe;
        done_or_die(io_uring_wait_cqe(ring, &cqe), "wait for a completion");
        done_or_die(cqe->res, "take a byte");
        io_uring_cqe_seen(ring, cqe);
    }
}

void worker_storm(const struct lab *lab) {
    struct io_uring ring;
    long ops = 0;
    int most = 0;
    make_ring(&ring, 256, NULL);
    int sink = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (sink < 0)
        die("/dev/null");
    for (int i = 0; i < PIPES; i++)
        if (pipe2(pipes[i], O_CLOEXEC))
            die("pipe");
    double begun = now_ms();
    for (double due = begun + EVERY_MS; due < begun + RUN_MS; due += EVERY_MS, ops += PIPES) {
        for (int i = 0; i < PIPES; i++)
            await_byte(&ring, lab, sink, i);
        done_or_die(io_uring_submit(&ring), "submit");
        sleep_until(due);
        int workers = count_workers();
        if (workers > most)
            most = workers;
        for (int i = 0; i < PIPES; i++)
            if (write(pipes[i][1], "x", 1) != 1)
                die("write");
        take_bytes(&ring);
    }
    tell_truth(lab, "{\"ops\":%ld,\"workers\":%d}", ops, most);
}
