/* The ledger of server/src/main.rs with glibc's mutex: see there. */
#define _GNU_SOURCE
#include <fcntl.h>

#include "../kit/kit.h"

/* A commit takes at least so long. How much it must write for that, the disk decides. */
#define COMMIT_MS 8
static const size_t SIZES_KB[] = {64, 256, 1024, 4096, 16 * 1024, 32 * 1024};
#define MOST_WAITS 100000

static int fixed;
static int log_file;
static char *state;
static size_t state_size;
static double commit_ms;

static pthread_mutex_t ledger = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t commit_done = PTHREAD_COND_INITIALIZER;
/* Under the lock. */
static unsigned long entered, committed;
static int committing;
static double waits[MOST_WAITS];
static int waits_count;

/* Writes the state and syncs it. What is left to do afterwards keeps its frame on the stack. */
OWN_FRAME static int append_log(unsigned long number) {
    off_t slot = number % 2 * state_size;
    for (size_t done = 0; done < state_size;) {
        ssize_t written = pwrite(log_file, state + done, state_size - done, slot + done);
        if (written < 0)
            die("cannot write the log");
        done += written;
    }
    if (fsync(log_file))
        die("cannot sync the log");
    return 0;
}

static double lock_ledger(void) {
    double begun = now_ms();
    pthread_mutex_lock(&ledger);
    double waited = now_ms() - begun;
    if (waits_count < MOST_WAITS)
        waits[waits_count++] = waited;
    return waited;
}

/* Enters a transfer and commits it, all under the lock: the fault. */
OWN_FRAME static void transfer_under_lock(void) {
    lock_ledger();
    append_log(++entered);
    pthread_mutex_unlock(&ledger);
}

/* Enters a transfer and waits until somebody has committed it, without the lock. */
OWN_FRAME static void transfer(void) {
    lock_ledger();
    unsigned long mine = ++entered;
    while (committed < mine) {
        if (committing) {
            pthread_cond_wait(&commit_done, &ledger);
            continue;
        }
        committing = 1;
        unsigned long until = entered;
        pthread_mutex_unlock(&ledger);
        append_log(until);
        pthread_mutex_lock(&ledger);
        committing = 0;
        committed = until;
        pthread_cond_broadcast(&commit_done);
    }
    pthread_mutex_unlock(&ledger);
}

static void answer(const char *path, char *body, size_t size) {
    if (strcmp(path, "/about") == 0) {
        char text[256];
        pthread_mutex_lock(&ledger);
        summary(waits, waits_count, text, sizeof text);
        pthread_mutex_unlock(&ledger);
        snprintf(body, size, "{\"commit_ms\":%.3f,\"commit_mb\":%.4f,\"lock_wait\":%s}", commit_ms,
                 state_size / 1048576.0, text);
        return;
    }
    fixed ? transfer() : transfer_under_lock();
    snprintf(body, size, "done");
}

/* Makes the file, and the state as large as a commit needs it. */
static void create_log(const char *dir) {
    char path[4096];
    snprintf(path, sizeof path, "%s/log", dir);
    log_file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (log_file < 0)
        die(path);
    for (size_t i = 0; i < sizeof SIZES_KB / sizeof *SIZES_KB && commit_ms < COMMIT_MS; i++) {
        double times[7];
        state_size = SIZES_KB[i] * 1024;
        state = realloc(state, state_size);
        if (!state || (errno = posix_fallocate(log_file, 0, 2 * state_size)))
            die("no room for the log");
        memset(state, 0x5a, state_size);
        for (int round = 0; round < 7; round++) {
            double begun = now_ms();
            append_log(round);
            times[round] = now_ms() - begun;
        }
        /* The first two fill the file, which takes longer than to overwrite it. */
        qsort(times + 2, 5, sizeof *times, kit_compare);
        commit_ms = times[4];
    }
}

int main(int count, char **words) {
    if (count < 2) {
        fprintf(stderr, "usage: convoy DIR [--fixed]\n");
        return 2;
    }
    fixed = count > 2 && strcmp(words[2], "--fixed") == 0;
    require_disk(words[1]);
    create_log(words[1]);
    serve(answer);
}
