/* Processes forked ahead, each with a connection at a time and a file of its own; a request is
 * answered when its entry is written.
 *
 *   prefork-disk DIR --workers N [--no-sync]
 *
 * The fault: each of them syncs its file for each request, and waits for the disk. Without it the
 * kernel writes what there is when it sees fit. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>

#include "../kit/loop.h"

/* How fast a disk syncs differs by the moment: a request has as many entries as take so long. */
#define REQUEST_MS 40
#define ENTRIES_WITHOUT_SYNC 1
#define MOST_WORKERS 64

static int no_sync, listener;
static char entry[4 << 20];

static int open_log(const char *dir, int number) {
    char path[4096];
    snprintf(path, sizeof path, "%s/log-%d", dir, number);
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0)
        die(path);
    return file;
}

/* The log begins anew with each request, and each entry has blocks to allocate. Returns how many it
 * were: what is left to do afterwards keeps its frame on the stack. */
OWN_FRAME static int append_entries(int file) {
    double end = now_ms() + REQUEST_MS;
    int count = 0;
    if (ftruncate(file, 0))
        die("cannot begin the log");
    do {
        if (pwrite(file, entry, sizeof entry, (off_t)sizeof entry * count) != sizeof entry)
            die("cannot write the log");
        if (!no_sync && fsync(file))
            die("cannot sync the log");
        count++;
    } while (no_sync ? count < ENTRIES_WITHOUT_SYNC : now_ms() < end);
    return count;
}

static void serve_clients(int file) {
    for (;;) {
        char path[128], body[256];
        int one = 1, fd = accept(listener, NULL, NULL);
        if (fd < 0)
            die("accept");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        while (read_request(fd, path) > 0) {
            double read = now_ms();
            int entries = append_entries(file);
            snprintf(body, sizeof body,
                     "{\"worker\":%d,\"entries\":%d,\"read\":%.3f,\"begun\":%.3f,\"ended\":%.3f}",
                     getpid(), entries, read, read, now_ms());
            reply(fd, body);
        }
        close(fd);
    }
}

int main(int count, char **words) {
    struct sockaddr_in address = {0};
    if (count < 2) {
        fprintf(stderr, "usage: prefork-disk DIR --workers N [--no-sync]\n");
        return 2;
    }
    no_sync = flag(words, "--no-sync");
    require_disk(words[1]);
    int workers = atoi(option(words, "--workers", "4")), files[MOST_WORKERS];
    if (workers < 1 || workers > MOST_WORKERS)
        die("1 to 64 workers");
    memset(entry, 0x5a, sizeof entry);
    for (int i = 0; i < workers; i++)
        files[i] = open_log(words[1], i);
    listener = listen_on(&address, 0, 1);
    for (int i = 0; i < workers; i++) {
        pid_t child = fork();
        if (child < 0)
            die("fork");
        if (child == 0) {
            /* With the parent goes the server. */
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            serve_clients(files[i]);
        }
    }
    say_ready(&address);
    for (;;)
        pause();
}
