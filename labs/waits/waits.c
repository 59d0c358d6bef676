/* Threads that wait on futexes, each for one reason, which its name tells: see server/src/main.rs.
 * Here with what glibc has. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "../kit/kit.h"

#define HOLD_MS 10
#define AWAY_MS 3
/* How long a helper takes for what it is asked. */
#define WORK_MS 20
/* How long a timer takes that nobody ends before its time. */
#define TICK_MS 25
/* Time-outs that never run out. */
#define PATIENCE_MS 20000

static void check(int error, const char *what) {
    if (error) {
        errno = error;
        die(what);
    }
}

static void nap(int ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&time, NULL);
}

/* For functions that take a point of the wall clock. */
static struct timespec in_ms(int ms) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    time.tv_sec += ms / 1000;
    time.tv_nsec += ms % 1000 * 1000000L;
    if (time.tv_nsec >= 1000000000L) {
        time.tv_sec++;
        time.tv_nsec -= 1000000000L;
    }
    return time;
}

static pthread_t start(const char *name, int number, void *(*body)(void *)) {
    char full[16];
    pthread_t thread;
    snprintf(full, sizeof full, "%s-%d", name, number);
    check(pthread_create(&thread, NULL, body, NULL), "pthread_create");
    check(pthread_setname_np(thread, full), full);
    return thread;
}

/* -- Locks. Each is held for a while, and its holder then stays away for a moment, so that who
 * waits gets it. -- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t timed = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t heir;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
/* A semaphore that whoever has waited for it posts itself. */
static sem_t one_at_a_time;

static void use_it(int ms) {
    pthread_mutex_lock(&mutex);
    nap(ms);
    pthread_mutex_unlock(&mutex);
}

static void *contend(void *unused) {
    for (;; nap(AWAY_MS))
        use_it(HOLD_MS);
    return unused;
}

static void *contend_timed(void *unused) {
    for (;; nap(AWAY_MS)) {
        struct timespec until = in_ms(PATIENCE_MS);
        check(pthread_mutex_timedlock(&timed, &until), "timedlock");
        nap(HOLD_MS);
        pthread_mutex_unlock(&timed);
    }
    return unused;
}

static void *contend_heir(void *unused) {
    for (;; nap(AWAY_MS)) {
        pthread_mutex_lock(&heir);
        nap(HOLD_MS);
        pthread_mutex_unlock(&heir);
    }
    return unused;
}

static void *contend_read(void *unused) {
    for (;; nap(AWAY_MS)) {
        pthread_rwlock_rdlock(&rwlock);
        nap(HOLD_MS);
        pthread_rwlock_unlock(&rwlock);
    }
    return unused;
}

static void *contend_write(void *unused) {
    for (;; nap(AWAY_MS)) {
        pthread_rwlock_wrlock(&rwlock);
        nap(HOLD_MS);
        pthread_rwlock_unlock(&rwlock);
    }
    return unused;
}

static void *contend_sem(void *unused) {
    for (;; nap(AWAY_MS)) {
        while (sem_wait(&one_at_a_time))
            ;
        nap(HOLD_MS);
        sem_post(&one_at_a_time);
    }
    return unused;
}

static void start_locks(void) {
    pthread_mutexattr_t inherit;
    check(pthread_mutexattr_init(&inherit) ||
              pthread_mutexattr_setprotocol(&inherit, PTHREAD_PRIO_INHERIT),
          "a mutex with priority inheritance");
    check(pthread_mutex_init(&heir, &inherit), "a mutex with priority inheritance");
    if (sem_init(&one_at_a_time, 0, 1))
        die("sem_init");
    for (int i = 0; i < 3; i++) {
        start("lock-mutex", i, contend);
        /* One reader: two might take turns for good, and shut the writers out, for readers go
         * first. */
        start("lock-rwlock", i, i ? contend_write : contend_read);
    }
    for (int i = 0; i < 2; i++) {
        start("lock-timed", i, contend_timed);
        start("lock-pi", i, contend_heir);
        start("lock-sem", i, contend_sem);
    }
}

/* -- Helpers that are asked for something, and those that ask them. -- */

/* A place for one answer: by condition variable, or by semaphore. */
struct reply {
    pthread_mutex_t mutex;
    pthread_cond_t arrived;
    sem_t by_semaphore;
    int done;
    struct reply *next;
};

static pthread_mutex_t pool_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t pool_more = PTHREAD_COND_INITIALIZER;
static struct reply *pool;

/* The others have one client and one helper each. */
static sem_t asked, asked_timed;
static struct reply *_Atomic job, *_Atomic job_timed;
static pthread_barrier_t begin, end;

static struct reply *new_reply(void) {
    struct reply *reply = calloc(1, sizeof *reply);
    if (!reply || pthread_mutex_init(&reply->mutex, NULL) ||
        pthread_cond_init(&reply->arrived, NULL) || sem_init(&reply->by_semaphore, 0, 0))
        die("no room for a reply");
    return reply;
}

/* Signals without the mutex, so that whoever is woken does not wait for it. That takes replies that
 * are never freed; they are some kilobytes in all. */
static void put(struct reply *reply) {
    pthread_mutex_lock(&reply->mutex);
    reply->done = 1;
    pthread_mutex_unlock(&reply->mutex);
    pthread_cond_signal(&reply->arrived);
}

static void take(struct reply *reply, int patience_ms) {
    struct timespec until = in_ms(patience_ms);
    pthread_mutex_lock(&reply->mutex);
    while (!reply->done) {
        if (patience_ms)
            check(pthread_cond_timedwait(&reply->arrived, &reply->mutex, &until),
                  "no answer in time");
        else
            pthread_cond_wait(&reply->arrived, &reply->mutex);
    }
    pthread_mutex_unlock(&reply->mutex);
}

static void ask_pool(int patience_ms) {
    struct reply *reply = new_reply();
    pthread_mutex_lock(&pool_mutex);
    reply->next = pool;
    pool = reply;
    pthread_mutex_unlock(&pool_mutex);
    pthread_cond_signal(&pool_more);
    take(reply, patience_ms);
}

static void *serve_pool(void *unused) {
    for (;;) {
        pthread_mutex_lock(&pool_mutex);
        while (!pool)
            pthread_cond_wait(&pool_more, &pool_mutex);
        struct reply *reply = pool;
        pool = reply->next;
        pthread_mutex_unlock(&pool_mutex);
        nap(WORK_MS);
        put(reply);
    }
    return unused;
}

static void ask_by_semaphore(void) {
    struct reply *reply = new_reply();
    atomic_store(&job, reply);
    sem_post(&asked);
    while (sem_wait(&reply->by_semaphore))
        ;
}

static void *serve_semaphore(void *unused) {
    for (;;) {
        while (sem_wait(&asked))
            ;
        nap(WORK_MS);
        sem_post(&atomic_load(&job)->by_semaphore);
    }
    return unused;
}

static void ask_timed(void) {
    struct reply *reply = new_reply();
    atomic_store(&job_timed, reply);
    sem_post(&asked_timed);
    take(reply, PATIENCE_MS);
}

/* Looks up now and then: it would, were there ever a long time without a job. */
static void *serve_timed(void *unused) {
    for (;;) {
        struct timespec until = in_ms(PATIENCE_MS);
        if (sem_timedwait(&asked_timed, &until))
            continue;
        nap(WORK_MS);
        put(atomic_load(&job_timed));
    }
    return unused;
}

/* Phases: the helper waits for the next to begin, and who asks waits for its end. Neither is ever
 * late for the other, so that it is always the same one that waits. */
static void run_phase(void) {
    pthread_barrier_wait(&begin);
    pthread_barrier_wait(&end);
}

static void *serve_phases(void *unused) {
    for (;;) {
        pthread_barrier_wait(&begin);
        nap(WORK_MS);
        pthread_barrier_wait(&end);
    }
    return unused;
}

static void *helper(void *unused) {
    nap(WORK_MS);
    return unused;
}

static void join_a_thread(void) {
    pthread_t thread;
    check(pthread_create(&thread, NULL, helper, NULL), "pthread_create");
    pthread_setname_np(thread, "helper");
    pthread_join(thread, NULL);
}

/* Asks without anybody asking it. */
static void *ask_again(void *unused) {
    for (;; nap(WORK_MS))
        ask_pool(0);
    return unused;
}

static void start_helpers(void) {
    if (sem_init(&asked, 0, 0) || sem_init(&asked_timed, 0, 0) ||
        pthread_barrier_init(&begin, NULL, 2) || pthread_barrier_init(&end, NULL, 2))
        die("cannot start the helpers");
    for (int i = 0; i < 4; i++)
        start("idle-queue", i, serve_pool);
    start("idle-sem", 0, serve_semaphore);
    start("idle-timed", 0, serve_timed);
    start("idle-barrier", 0, serve_phases);
    start("result-batch", 0, ask_again);
}

/* -- Waits for a time, though what they wait on could be signalled. -- */

static void wait_a_tick(pthread_mutex_t *mutex, pthread_cond_t *never) {
    struct timespec until = in_ms(TICK_MS);
    pthread_mutex_lock(mutex);
    while (pthread_cond_timedwait(never, mutex, &until) == 0)
        ;
    pthread_mutex_unlock(mutex);
    /* Away from the mutex, which the others take at the same time. */
    nap(2);
}

static void wait_a_shared_tick(void) {
    static pthread_mutex_t shared = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
    wait_a_tick(&shared, &never);
}

static void *tick_same(void *unused) {
    for (;;)
        wait_a_shared_tick();
    return unused;
}

static void *tick_own(void *unused) {
    pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t never = PTHREAD_COND_INITIALIZER;
    for (;;)
        wait_a_tick(&own, &never);
    return unused;
}

static void *tick_sem(void *unused) {
    sem_t never;
    sem_init(&never, 0, 0);
    for (;;) {
        struct timespec until = in_ms(TICK_MS);
        sem_timedwait(&never, &until);
    }
    return unused;
}

/* -- A word of their own, on which two threads take turns. From outside it may be a lock that is
 * handed on, one that asks and one that answers, or two that wait for something to do. -- */

static atomic_uint turn = 1000;

static void relay(unsigned me) {
    for (;;) {
        unsigned now = atomic_load(&turn);
        if (now % 2 == me) {
            nap(15);
            atomic_store(&turn, now + 1);
            syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 1);
        } else {
            syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, now, NULL);
        }
    }
}

static void *relay_even(void *unused) {
    relay(0);
    return unused;
}

static void *relay_odd(void *unused) {
    relay(1);
    return unused;
}

/* -- Requests: what a connection's thread waits for hangs on which connection it is. -- */

static const char *const KINDS[] = {"result-cond", "result-sem",   "result-timed",  "result-phase",
                                    "result-join", "lock-request", "timer-request", "result-limit"};
#define KIND_COUNT ((int)(sizeof KINDS / sizeof *KINDS))

static void answer(const char *path, char *body, size_t size) {
    static atomic_int connections;
    static _Thread_local int mine = -1;
    (void)path;
    if (mine < 0) {
        char name[16];
        mine = atomic_fetch_add(&connections, 1);
        snprintf(name, sizeof name, "%s-%d", KINDS[mine % KIND_COUNT], mine);
        pthread_setname_np(pthread_self(), name);
    }
    switch (mine % KIND_COUNT) {
    case 0:
        ask_pool(0);
        break;
    case 1:
        ask_by_semaphore();
        break;
    case 2:
        ask_timed();
        break;
    case 3:
        run_phase();
        break;
    case 4:
        join_a_thread();
        break;
    case 5:
        use_it(HOLD_MS / 2);
        break;
    case 6:
        wait_a_shared_tick();
        break;
    default:
        ask_pool(PATIENCE_MS);
    }
    snprintf(body, size, "done");
}

int main(void) {
    start_locks();
    start_helpers();
    for (int i = 0; i < 2; i++) {
        start("timer-own", i, tick_own);
        start("timer-same", i, tick_same);
        start("timer-sem", i, tick_sem);
        start("unknown-relay", i, i ? relay_odd : relay_even);
    }
    serve(answer);
}
