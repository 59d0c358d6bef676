/* Servers in which more requests wait for a fault than have it: behind a slow request, behind a
 * lock, for one commit, for a CPU. Of seven requests one is slow, by the number in its path. */
#define _GNU_SOURCE
#include <sched.h>

#include "../kit/kit.h"

#define SLOW_OF 7

static const char *mode;
static int fixed;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t commit_done = PTHREAD_COND_INITIALIZER;
/* Under the lock. */
static unsigned long entered, committed;
static int committing;

static void sleep_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &time, &time) == EINTR)
        ;
}

/* Computes for so much CPU time, and looks at the clock, which is a call, now and then. */
OWN_FRAME static int burn_ms(double ms) {
    static volatile unsigned long sum;
    struct timespec now;
    double begun = -1, used = 0;
    while (used < ms) {
        for (unsigned long i = 0; i < 100000; i++)
            sum += i * i;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        double at = now.tv_sec * 1e3 + now.tv_nsec / 1e6;
        begun = begun < 0 ? at : begun;
        used = at - begun;
    }
    return used > 0;
}

OWN_FRAME static int write_report(void) {
    sleep_ms(200);
    return 0;
}

OWN_FRAME static int render_report(void) { return burn_ms(100); }

OWN_FRAME static int book(void) {
    sleep_ms(15);
    return 0;
}

OWN_FRAME static int sync_journal(void) {
    sleep_ms(fixed ? 2 : 40);
    return 0;
}

/* Enters a booking and waits until somebody has committed it; who comes first does it for all. */
OWN_FRAME static void commit(void) {
    pthread_mutex_lock(&lock);
    unsigned long mine = ++entered;
    while (committed < mine) {
        if (committing) {
            pthread_cond_wait(&commit_done, &lock);
            continue;
        }
        committing = 1;
        unsigned long until = entered;
        pthread_mutex_unlock(&lock);
        sync_journal();
        pthread_mutex_lock(&lock);
        committing = 0;
        committed = until;
        pthread_cond_broadcast(&commit_done);
    }
    pthread_mutex_unlock(&lock);
}

static void answer(const char *path, char *body, size_t size) {
    int slow = atoi(path + 1) % SLOW_OF == 0 && !fixed;
    double begun = now_ms();
    if (strcmp(mode, "pool") == 0) {
        if (slow)
            write_report();
        sleep_ms(3);
    } else if (strcmp(mode, "cpu") == 0) {
        if (slow)
            render_report();
        burn_ms(8);
    } else if (strcmp(mode, "convoy") == 0) {
        if (!fixed)
            pthread_mutex_lock(&lock);
        book();
        if (!fixed)
            pthread_mutex_unlock(&lock);
    } else {
        commit();
    }
    snprintf(body, size, "{\"read\":%.3f,\"begun\":%.3f,\"ended\":%.3f}", begun, begun, now_ms());
}

/* Takes connections, one at a time. */
static void *work(void *listener) {
    for (int one = 1;;) {
        struct kit_connection *connection = malloc(sizeof *connection);
        if (!connection)
            die("malloc");
        *connection = (struct kit_connection){accept(*(int *)listener, NULL, NULL), answer};
        if (connection->fd < 0)
            die("accept");
        setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        kit_converse(connection);
    }
    return NULL;
}

int main(int count, char **words) {
    if (count < 3) {
        fprintf(stderr, "usage: queue-behind pool|convoy|commit|cpu WORKERS [--fixed]\n");
        return 2;
    }
    mode = words[1];
    int workers = atoi(words[2]);
    fixed = count > 3 && strcmp(words[3], "--fixed") == 0;
    if (strcmp(mode, "cpu") == 0) {
        cpu_set_t first;
        CPU_ZERO(&first);
        CPU_SET(0, &first);
        if (sched_setaffinity(0, sizeof first, &first))
            die("sched_setaffinity");
        /* In turns of 100 ms, and before whatever else runs on that CPU, which is no part of the
         * lab. Where that is not allowed it wants a machine that does nothing else. */
        struct sched_param lowest = {.sched_priority = 1};
        sched_setscheduler(0, SCHED_RR, &lowest);
    }
    if (workers == 0)
        serve(answer);
    char where[32];
    int listener = kit_listen(where, sizeof where);
    pthread_t thread = pthread_self();
    while (workers--)
        if (pthread_create(&thread, NULL, work, &listener))
            die("pthread_create");
    kit_announce(where);
    pthread_join(thread, NULL);
    return 1;
}
