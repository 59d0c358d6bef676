// Blocks in nanosleep in the main thread and in futex in a second, below functions that the
// compiler cannot inline.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile int sink;

__attribute__((noinline)) static void wait_for_lock(int n) {
    char room[200];
    room[n] = 1;
    pthread_mutex_lock(&lock);
    sink += room[n];
}

__attribute__((noinline)) static void *worker(void *argument) {
    wait_for_lock((int)(long)argument);
    sink++;
    return NULL;
}

__attribute__((noinline)) void innermost(int n) {
    // A frame of variable size: the unwinder needs the frame pointer here.
    volatile char *room = __builtin_alloca(n * 16);
    room[0] = 1;
    struct timespec long_time = {1000, 0};
    nanosleep(&long_time, NULL);
    sink += room[0];
}

__attribute__((noinline)) void middle(int n) {
    volatile long a[32];
    for (int i = 0; i < 32; i++) a[i] = i * n;
    innermost(n);
    sink += a[n];
}

static void handler(int signal) {
    middle(signal);
    sink++;
}

int main(int argc, char **argv) {
    pthread_t thread;
    pthread_mutex_lock(&lock);
    pthread_create(&thread, NULL, worker, (void *)7L);
    if (argc > 1) {
        signal(SIGUSR1, handler);
        raise(SIGUSR1);
    }
    middle(argc);
    sink++;
    return sink;
}
