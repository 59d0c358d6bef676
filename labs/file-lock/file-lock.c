/* A journal with a process for each connection: each entry takes 40 ms, with the journal's file
 * locked by a record lock of fcntl(2).
 *
 * usage: file-lock DIR [--threads] [--fixed]
 *
 * With --threads there is a thread for each connection, each with an open file of its own, and
 * flock(2). With --fixed the file is locked when the entry is ready, for moments. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <signal.h>

#include "../kit/kit.h"

#define WORKERS 8
#define ENTRY_MS 40
#define MOST_ENTRIES 100000

static int threads, fixed;
static char path_of_journal[4096];
static __thread int journal = -1;
/* In memory that all processes share. */
static struct shared {
    int count;
    double waits[MOST_ENTRIES], holds[MOST_ENTRIES];
} *truth;

/* A call of something synchronous. What is left to do afterwards keeps its frame on the stack. */
OWN_FRAME static double make_entry(void) {
    struct timespec wait = {.tv_nsec = ENTRY_MS * 1000000};
    double begun = now_ms();
    while (nanosleep(&wait, &wait))
        ;
    return now_ms() - begun;
}

static void lock_journal(int kind) {
    struct flock range = {.l_type = kind, .l_whence = SEEK_SET};
    int whole = kind == F_UNLCK ? LOCK_UN : LOCK_EX;
    int failed = threads ? flock(journal, whole) : fcntl(journal, F_SETLKW, &range);
    if (failed)
        die("cannot lock the journal");
}

static void write_down(double wanted, double locked) {
    int number = __atomic_fetch_add(&truth->count, 1, __ATOMIC_SEQ_CST);
    if (number < MOST_ENTRIES) {
        truth->waits[number] = locked - wanted;
        truth->holds[number] = now_ms() - locked;
    }
}

/* Makes the entry under the lock: the fault. */
OWN_FRAME static void enter_under_lock(void) {
    double wanted = now_ms();
    lock_journal(F_WRLCK);
    double locked = now_ms();
    make_entry();
    write_down(wanted, locked);
    lock_journal(F_UNLCK);
}

OWN_FRAME static void enter(void) {
    make_entry();
    double wanted = now_ms();
    lock_journal(F_WRLCK);
    write_down(wanted, now_ms());
    lock_journal(F_UNLCK);
}

static void answer(const char *path, char *body, size_t size) {
    if (strcmp(path, "/about") == 0) {
        char waited[256], held[256];
        int known = truth->count < MOST_ENTRIES ? truth->count : MOST_ENTRIES;
        summary(truth->waits, known, waited, sizeof waited);
        summary(truth->holds, known, held, sizeof held);
        snprintf(body, size, "{\"lock_wait\":%s,\"held\":%s}", waited, held);
        return;
    }
    /* Each thread has an open file of its own: locks of flock belong to that. */
    if (journal < 0 && (journal = open(path_of_journal, O_RDWR | O_CREAT | O_CLOEXEC, 0644)) < 0)
        die(path_of_journal);
    fixed ? enter() : enter_under_lock();
    snprintf(body, size, "entered");
}

static pid_t workers[WORKERS];

static void stop(int signal_number) {
    for (int i = 0; i < WORKERS; i++)
        kill(workers[i], signal_number);
    _exit(0);
}

/* One connection at a time. */
static void work(int listener) {
    int one = 1;
    for (;;) {
        struct kit_connection *connection = malloc(sizeof *connection);
        if (!connection)
            die("malloc");
        *connection = (struct kit_connection){accept(listener, NULL, NULL), answer};
        if (connection->fd < 0)
            die("accept");
        setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        kit_converse(connection);
    }
}

static void serve_prefork(void) {
    char where[32];
    int listener = kit_listen(where, sizeof where);
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = fork();
        if (workers[i] < 0)
            die("fork");
        if (workers[i] == 0)
            work(listener);
    }
    signal(SIGTERM, stop);
    kit_announce(where);
    while (wait(NULL) > 0)
        ;
}

int main(int count, char **words) {
    if (count < 2) {
        fprintf(stderr, "usage: file-lock DIR [--threads] [--fixed]\n");
        return 2;
    }
    for (int i = 2; i < count; i++) {
        threads |= strcmp(words[i], "--threads") == 0;
        fixed |= strcmp(words[i], "--fixed") == 0;
    }
    snprintf(path_of_journal, sizeof path_of_journal, "%s/journal", words[1]);
    truth = mmap(NULL, sizeof *truth, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (truth == MAP_FAILED)
        die("mmap");
    if (threads)
        serve(answer);
    serve_prefork();
}
