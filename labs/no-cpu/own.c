/* A server, thread-per-connection, whose own background threads want its CPU: they merge segments
 * all the time. Each request is 4 ms of CPU time. */
#include "../kit/kit.h"

static volatile unsigned long sum;

static double used_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

OWN_FRAME static int render_page(void) {
    double until = used_ms() + 4;
    while (used_ms() < until)
        for (unsigned long i = 0; i < 20000; i++)
            sum += i * i;
    return 0;
}

OWN_FRAME static int merge_segments(void) {
    for (unsigned long i = 0; i < 50000000; i++)
        sum += i * i;
    return sum > 0;
}

static void *compact(void *unused) {
    (void)unused;
    while (merge_segments())
        ;
    return NULL;
}

static void answer(const char *path, char *body, size_t size) {
    (void)path;
    render_page();
    snprintf(body, size, "page");
}

int main(int count, char **words) {
    int compactors = count > 1 ? atoi(words[1]) : 0;
    pthread_t thread;
    while (compactors--)
        if (pthread_create(&thread, NULL, compact, NULL))
            die("pthread_create");
    serve(answer);
}
