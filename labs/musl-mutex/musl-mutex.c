/* A gauge with a lock and a thread for each connection. A reading takes 40 ms: with the lock held,
 * which is the fault, or without.
 *
 * usage: musl-mutex [--fixed]
 *
 * The same source is linked with musl and with glibc. musl's mutex has its word in another place
 * and its own states in it, and its threads wait by a private FUTEX_WAIT from __timedwait_cp, and
 * not from __lll_lock_wait. */
#define _GNU_SOURCE
#include "../kit/kit.h"

#define READING_MS 40
#define MOST_WAITS 100000

static int fixed;

static pthread_mutex_t gauge = PTHREAD_MUTEX_INITIALIZER;
/* Under the lock. */
static double level;
static double waits[MOST_WAITS], holds[MOST_WAITS];
static int waits_count, holds_count;

/* A call of something synchronous, such as a device on a bus. What is left to do afterwards keeps
 * its frame on the stack. */
OWN_FRAME static double read_sensor(void) {
    struct timespec wait = {.tv_nsec = READING_MS * 1000000};
    double begun = now_ms();
    while (nanosleep(&wait, &wait))
        ;
    return now_ms() - begun;
}

static double lock_gauge(void) {
    double begun = now_ms();
    pthread_mutex_lock(&gauge);
    double entered = now_ms();
    if (waits_count < MOST_WAITS)
        waits[waits_count++] = entered - begun;
    return entered;
}

static void unlock_gauge(double entered) {
    if (holds_count < MOST_WAITS)
        holds[holds_count++] = now_ms() - entered;
    pthread_mutex_unlock(&gauge);
}

/* Reads under the lock: the fault. */
OWN_FRAME static void update_under_lock(void) {
    double entered = lock_gauge();
    level += read_sensor();
    unlock_gauge(entered);
}

OWN_FRAME static void update(void) {
    double reading = read_sensor();
    double entered = lock_gauge();
    level += reading;
    unlock_gauge(entered);
}

static void answer(const char *path, char *body, size_t size) {
    if (strcmp(path, "/about") == 0) {
        char waited[256], held[256];
        pthread_mutex_lock(&gauge);
        summary(waits, waits_count, waited, sizeof waited);
        summary(holds, holds_count, held, sizeof held);
        pthread_mutex_unlock(&gauge);
        snprintf(body, size, "{\"lock_wait\":%s,\"held\":%s}", waited, held);
        return;
    }
    fixed ? update() : update_under_lock();
    snprintf(body, size, "updated");
}

int main(int count, char **words) {
    fixed = count > 1 && strcmp(words[1], "--fixed") == 0;
    serve(answer);
}
