/* A quick server with a thread for each connection, for somebody to stop. */
#define _GNU_SOURCE
#include "../kit/kit.h"

#define WORK_MS 1

static void answer(const char *path, char *body, size_t size) {
    double read = now_ms(), now = read;
    (void)path;
    while (now < read + WORK_MS)
        now = now_ms();
    snprintf(body, size, "{\"read\":%.3f,\"begun\":%.3f,\"ended\":%.3f}", read, read, now);
}

int main(void) { serve(answer); }
