/* A connection has a thread, which sends a large body.
 *
 *     download at-once|bit-by-bit
 *
 * GET /large gets 64 MB, /small 1 kB. at-once: written as fast as the client reads. bit-by-bit: the
 * thread sleeps between pieces of 20 kB. */
#define _GNU_SOURCE
#include "../kit/kit.h"

#define PIECE 20000
#define LARGE (64 << 20)
#define SMALL 1000
#define PAUSE_US 50000

static int listener, slow;
static const char piece[PIECE];

static int send_all(int fd, const char *bytes, size_t length) {
    while (length) {
        ssize_t sent = send(fd, bytes, length, MSG_NOSIGNAL);
        if (sent <= 0)
            return 0;
        bytes += sent;
        length -= sent;
    }
    return 1;
}

OWN_FRAME static int send_body(int fd, size_t length) {
    while (length) {
        size_t next = length < PIECE ? length : PIECE;
        if (slow && length > SMALL)
            usleep(PAUSE_US);
        if (!send_all(fd, piece, next))
            return 0;
        length -= next;
    }
    return 1;
}

static void *converse(void *argument) {
    int fd = (int)(long)argument;
    char line[256], path[128], head[128];
    FILE *in = fdopen(fd, "r");
    while (in && fgets(line, sizeof line, in) && sscanf(line, "GET %127s", path) == 1) {
        size_t length = !strcmp(path, "/large") ? LARGE : SMALL;
        while (fgets(line, sizeof line, in) && strcmp(line, "\r\n"))
            ;
        int size = snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n",
                            length);
        if (!send_all(fd, head, size) || !send_body(fd, length))
            break;
    }
    if (in)
        fclose(in);
    return NULL;
}

int main(int count, char **arguments) {
    char where[32];
    int one = 1;
    slow = count == 2 && !strcmp(arguments[1], "bit-by-bit");
    if (count != 2 || (!slow && strcmp(arguments[1], "at-once")))
        die("usage: download at-once|bit-by-bit");
    listener = kit_listen(where, sizeof where);
    kit_announce(where);
    for (;;) {
        pthread_t thread;
        int fd = accept(listener, NULL, NULL);
        if (fd < 0)
            die("accept");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (pthread_create(&thread, NULL, converse, (void *)(long)fd))
            die("pthread_create");
        pthread_detach(thread);
    }
}
