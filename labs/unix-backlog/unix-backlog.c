/* An HTTP server that connects to a helper's unix socket for each request, with a thread for each
 * client, and says how long it took to connect.
 *
 * usage: unix-backlog HELPER */
#include <sys/un.h>

#include "../kit/kit.h"

#define MOST 100000

static struct sockaddr_un helper = {.sun_family = AF_UNIX};
static struct {
    int count;
    double connects[MOST];
} truth;

OWN_FRAME static void ask_helper(void) {
    char reply[64];
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    double begun = now_ms();
    if (fd < 0 || connect(fd, (struct sockaddr *)&helper, sizeof helper))
        die("connect");
    int number = __atomic_fetch_add(&truth.count, 1, __ATOMIC_SEQ_CST);
    if (number < MOST)
        truth.connects[number] = now_ms() - begun;
    if (write(fd, "help", 4) != 4 || read(fd, reply, sizeof reply) <= 0)
        die("the helper has gone");
    close(fd);
}

static void answer(const char *path, char *body, size_t size) {
    if (strcmp(path, "/about") == 0) {
        char took[256];
        summary(truth.connects, truth.count < MOST ? truth.count : MOST, took, sizeof took);
        snprintf(body, size, "{\"connect\":%s}", took);
        return;
    }
    ask_helper();
    snprintf(body, size, "asked");
}

int main(int count, char **words) {
    if (count != 2 || strlen(words[1]) >= sizeof helper.sun_path) {
        fprintf(stderr, "usage: unix-backlog HELPER\n");
        return 2;
    }
    strcpy(helper.sun_path, words[1]);
    serve(answer);
}
