/* The bank of server/src/main.rs with the mutexes of a C library: see there.
 *
 *     deadlock [--fixed] */
#define _GNU_SOURCE
#include "../kit/kit.h"

static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER;
static long in_a, in_b;
static pthread_barrier_t meeting;
/* Under the lock `met`. */
static pthread_mutex_t met = PTHREAD_MUTEX_INITIALIZER;
static struct {
    char path[32];
    int tid;
} threads[2];
static int threads_count;

static int fixed;

/* Two that meet have their first lock each; who is fixed holds none meanwhile. */
static void lock_both(pthread_mutex_t *first, pthread_mutex_t *second, int together) {
    if (together && fixed)
        pthread_barrier_wait(&meeting);
    pthread_mutex_lock(first);
    if (together && !fixed)
        pthread_barrier_wait(&meeting);
    pthread_mutex_lock(second);
}

OWN_FRAME static void transfer_ab(int together) {
    lock_both(&a, &b, together);
    in_a--;
    in_b++;
    pthread_mutex_unlock(&b);
    pthread_mutex_unlock(&a);
}

/* The fault: the account that it takes from first, as in transfer_ab, is the other one. */
OWN_FRAME static void transfer_ba(int together) {
    lock_both(fixed ? &a : &b, fixed ? &b : &a, together);
    in_b--;
    in_a++;
    pthread_mutex_unlock(&a);
    pthread_mutex_unlock(&b);
}

static void note(const char *path) {
    pthread_mutex_lock(&met);
    if (threads_count < 2) {
        snprintf(threads[threads_count].path, sizeof threads->path, "%.31s", path);
        threads[threads_count++].tid = kit_tid();
    }
    pthread_mutex_unlock(&met);
}

static void answer(const char *path, char *body, size_t size) {
    int together = strstr(path, "/together") != NULL;
    if (together)
        note(path);
    if (strncmp(path, "/ab/", 4) == 0 || strcmp(path, "/ab") == 0) {
        transfer_ab(together);
    } else if (strncmp(path, "/ba", 3) == 0) {
        transfer_ba(together);
    } else {
        pthread_mutex_lock(&met);
        int length = snprintf(body, size, "{\"threads\":[");
        for (int i = 0; i < threads_count; i++)
            length += snprintf(body + length, size - length, "%s{\"path\":\"%s\",\"tid\":%d}",
                               i ? "," : "", threads[i].path, threads[i].tid);
        snprintf(body + length, size - length, "]}");
        pthread_mutex_unlock(&met);
        return;
    }
    snprintf(body, size, "done");
}

int main(int count, char **arguments) {
    fixed = count == 2 && !strcmp(arguments[1], "--fixed");
    if (pthread_barrier_init(&meeting, NULL, 2))
        die("pthread_barrier_init");
    serve(answer);
}
