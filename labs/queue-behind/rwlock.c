#define _GNU_SOURCE
/* A catalogue behind a read-write lock that lets writers pass new readers. A thread reads all of it
 * for an export, which takes 60 ms; another one changes a price now and then and waits for the
 * export's end, and the requests, which read a price, wait for that one. With --copied the export
 * copies what it needs, for which it has the lock for a moment. */
#include "../kit/kit.h"

#define EXPORT_US 60000
#define REST_US 20000

static pthread_rwlock_t catalogue;
static volatile long price = 1;
static int copied;

static void check(int failed) {
    if (failed) {
        errno = failed;
        die("rwlock");
    }
}

OWN_FRAME static int write_export(void) { return usleep(EXPORT_US); }

OWN_FRAME static int export_all(void) {
    check(pthread_rwlock_rdlock(&catalogue));
    if (!copied)
        write_export();
    check(pthread_rwlock_unlock(&catalogue));
    if (copied)
        write_export();
    return 0;
}

OWN_FRAME static int change_price(void) {
    check(pthread_rwlock_wrlock(&catalogue));
    price++;
    check(pthread_rwlock_unlock(&catalogue));
    return 0;
}

OWN_FRAME static long read_price(void) {
    check(pthread_rwlock_rdlock(&catalogue));
    long found = price;
    check(pthread_rwlock_unlock(&catalogue));
    return found;
}

static void *forever(void *work) {
    int (*each)(void) = (int (*)(void))work;
    for (;;) {
        each();
        usleep(REST_US);
    }
    return NULL;
}

static void background(const char *name, int (*work)(void)) {
    pthread_t thread;
    check(pthread_create(&thread, NULL, forever, (void *)work));
    check(pthread_setname_np(thread, name));
}

static void answer(const char *path, char *body, size_t size) {
    (void)path;
    snprintf(body, size, "%ld", read_price());
}

int main(int count, char **words) {
    pthread_rwlockattr_t kind;
    copied = count > 1 && !strcmp(words[1], "--copied");
    check(pthread_rwlockattr_init(&kind));
    check(pthread_rwlockattr_setkind_np(&kind, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP));
    check(pthread_rwlock_init(&catalogue, &kind));
    background("exporter", export_all);
    background("pricing", change_price);
    serve(answer);
}
