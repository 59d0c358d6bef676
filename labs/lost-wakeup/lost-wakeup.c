/* The worker of server/src/main.rs with glibc's condition variable. Broken only: see there. */
#define _GNU_SOURCE
#include <semaphore.h>
#include <stdatomic.h>

#include "../kit/kit.h"

static atomic_int ready;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t handed_over = PTHREAD_COND_INITIALIZER;
/* Where waiter and worker meet, so that each knows how far the other is. */
static pthread_barrier_t window;
/* The job, which is only written while the worker waits for one. */
static sem_t jobs;
static int careless;
static atomic_int waiter;

OWN_FRAME static void wait_for_result(void) {
    int seen = atomic_exchange(&ready, 0);
    /* It has looked: now the worker may go on, and the careless one is done before the wait begins.
     */
    pthread_barrier_wait(&window);
    if (careless)
        pthread_barrier_wait(&window);
    while (!seen) {
        pthread_cond_wait(&handed_over, &mutex);
        seen = atomic_exchange(&ready, 0);
    }
}

/* The fault. What is left to do afterwards keeps its frame on the stack. */
OWN_FRAME static int publish_without_mutex(void) {
    atomic_store(&ready, 1);
    return pthread_cond_signal(&handed_over) == 0;
}

/* Has the mutex only once the waiter waits. */
OWN_FRAME static void publish_result(void) {
    pthread_mutex_lock(&mutex);
    atomic_store(&ready, 1);
    pthread_cond_signal(&handed_over);
    pthread_mutex_unlock(&mutex);
}

static void *work(void *unused) {
    (void)unused;
    for (;;) {
        while (sem_wait(&jobs))
            ;
        int without = careless;
        pthread_barrier_wait(&window);
        if (without) {
            publish_without_mutex();
            pthread_barrier_wait(&window);
        } else {
            publish_result();
        }
    }
    return NULL;
}

static void answer(const char *path, char *body, size_t size) {
    if (strcmp(path, "/about") == 0) {
        snprintf(body, size, "{\"waiter_tid\":%d}", atomic_load(&waiter));
        return;
    }
    atomic_store(&waiter, kit_tid());
    pthread_mutex_lock(&mutex);
    careless = strcmp(path, "/unlucky") == 0;
    sem_post(&jobs);
    wait_for_result();
    pthread_mutex_unlock(&mutex);
    snprintf(body, size, "done");
}

int main(void) {
    pthread_t worker;
    if (pthread_barrier_init(&window, NULL, 2) || sem_init(&jobs, 0, 0) ||
        pthread_create(&worker, NULL, work, NULL))
        die("cannot start the worker");
    pthread_setname_np(worker, "worker");
    serve(answer);
}
