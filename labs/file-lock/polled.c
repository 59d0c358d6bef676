/* A printer's server, thread-per-connection. Who prints has the lease: a file that must not be
 * there before. Who finds it there tries again after 5 ms. A label takes 25 ms. With --own-printers
 * each connection has a printer of its own, and a lease of its own. */
#include <fcntl.h>
#include <stdatomic.h>

#include "../kit/kit.h"

#define TRY_AGAIN_US 5000
#define LABEL_US 25000

static const char *folder;
static int own_printers;
static atomic_int printers;
static __thread int printer;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static double waited[4096];
static int served;

OWN_FRAME static int take_lease(const char *name) {
    int lease;
    while ((lease = open(name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600)) < 0) {
        if (errno != EEXIST)
            die(name);
        usleep(TRY_AGAIN_US);
    }
    return lease;
}

OWN_FRAME static int print_label(void) {
    usleep(LABEL_US);
    return 0;
}

static void answer(const char *path, char *body, size_t size) {
    char name[512];
    if (!strcmp(path, "/about")) {
        char text[256];
        summary(waited, served, text, sizeof text);
        snprintf(body, size, "{\"lock_wait\":%s}", text);
        return;
    }
    if (own_printers && !printer)
        printer = 1 + atomic_fetch_add(&printers, 1);
    snprintf(name, sizeof name, "%s/printer-%d", folder, printer);
    double from = now_ms();
    int lease = take_lease(name);
    double ms = now_ms() - from;
    print_label();
    close(lease);
    if (unlink(name))
        die(name);
    pthread_mutex_lock(&lock);
    if (served < 4096)
        waited[served++] = ms;
    pthread_mutex_unlock(&lock);
    snprintf(body, size, "printed");
}

int main(int count, char **words) {
    if (count < 2)
        die("usage: polled FOLDER [--own-printers]");
    folder = words[1];
    own_printers = count > 2 && !strcmp(words[2], "--own-printers");
    serve(answer);
}
