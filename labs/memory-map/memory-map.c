/* A server that maps a buffer for each request, while its cache is made anew: 256 MiB are mapped,
 * filled by the kernel, and unmapped, each in one call, during which nobody else can map.
 *
 * usage: memory-map [--fixed]
 *
 * With --fixed the cache stays mapped, and is written over. */
#define _GNU_SOURCE
#include <sys/mman.h>

#include "../kit/kit.h"

#define CACHE_BYTES (256UL << 20)
#define BUFFER_BYTES (256UL << 10)
#define PAUSE_MS 20
#define MOST_BUFFERS 100000

static int fixed;
static struct {
    int count;
    double waits[MOST_BUFFERS];
} truth;

static void *map(size_t bytes, int flags) {
    int all = MAP_PRIVATE | MAP_ANONYMOUS | flags;
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, all, -1, 0);
    if (at == MAP_FAILED)
        die("mmap");
    return at;
}

/* Fills the cache with what only the kernel writes: the fault. */
OWN_FRAME static void make_cache_anew(void) {
    void *cache = map(CACHE_BYTES, MAP_POPULATE);
    if (munmap(cache, CACHE_BYTES))
        die("munmap");
}

OWN_FRAME static void write_cache_over(char *cache) {
    for (size_t at = 0; at < CACHE_BYTES; at += 4096)
        cache[at]++;
}

static void *keep_cache(void *unused) {
    char *cache = fixed ? map(CACHE_BYTES, 0) : NULL;
    struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000};
    for (;;) {
        fixed ? write_cache_over(cache) : make_cache_anew();
        nanosleep(&pause, NULL);
    }
    return unused;
}

OWN_FRAME static void fill_buffer(void) {
    double begun = now_ms();
    char *buffer = map(BUFFER_BYTES, 0);
    double mapped = now_ms();
    memset(buffer, 1, BUFFER_BYTES);
    double filled = now_ms();
    munmap(buffer, BUFFER_BYTES);
    int number = __atomic_fetch_add(&truth.count, 1, __ATOMIC_SEQ_CST);
    if (number < MOST_BUFFERS)
        truth.waits[number] = mapped - begun + now_ms() - filled;
}

static void answer(const char *path, char *body, size_t size) {
    if (strcmp(path, "/about") == 0) {
        char waited[256];
        summary(truth.waits, truth.count < MOST_BUFFERS ? truth.count : MOST_BUFFERS, waited,
                sizeof waited);
        snprintf(body, size, "{\"lock_wait\":%s}", waited);
        return;
    }
    fill_buffer();
    snprintf(body, size, "filled");
}

int main(int count, char **words) {
    pthread_t keeper;
    fixed = count > 1 && strcmp(words[1], "--fixed") == 0;
    if (pthread_create(&keeper, NULL, keep_cache, NULL))
        die("pthread_create");
    serve(answer);
}
