/* The server of long-polls-server.py, thread-per-connection: each waits on a condition variable. */
#define _GNU_SOURCE
#include "../kit/kit.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t happened = PTHREAD_COND_INITIALIZER;
static unsigned long events;

OWN_FRAME static void wait_for_event(void) {
    pthread_mutex_lock(&lock);
    for (unsigned long seen = events; events == seen;)
        pthread_cond_wait(&happened, &lock);
    pthread_mutex_unlock(&lock);
}

static void answer(const char *path, char *body, size_t size) {
    if (strcmp(path, "/poll") == 0) {
        wait_for_event();
    } else if (strcmp(path, "/event") == 0) {
        pthread_mutex_lock(&lock);
        events++;
        pthread_cond_broadcast(&happened);
        pthread_mutex_unlock(&lock);
    }
    snprintf(body, size, "ok");
}

int main(void) { serve(answer); }
