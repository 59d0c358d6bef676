/* Programs on io_uring, each with one fault and a fixed twin. It runs for a few seconds, leaves the
 * truth in the folder that it was given, and waits to be ended. */
#include "lab.h"

static const struct {
    const char *name;
    void (*show)(const struct lab *lab);
} FAULTS[] = {
    {"reap-lag", reap_lag},
    {"cq-overflow", cq_overflow},
    {"punt-storm", punt_storm},
    {"one-a-batch", one_a_batch},
    {"errors", errors},
    {"late-once", late_once},
    {"sqpoll-forgotten", sqpoll_forgotten},
    {"leak", leak},
    {"worker-storm", worker_storm},
    {"sqpoll-idle", sqpoll_idle},
    {"sqpoll-asleep", sqpoll_asleep},
    {"cross-thread", cross_thread},
    {"slots-exhausted", slots},
    {"send-pressure", send_pressure},
    {"reopen", reopen},
    {"spin", spin},
    {"stuck", stuck},
    {"poll", poll_rings},
    {"look", look_at_rings},
};

int main(int count, char **words) {
    if (count == 3 || (count == 4 && strcmp(words[3], "--fixed") == 0)) {
        struct lab lab = {words[2], count == 4};
        for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++) {
            if (strcmp(words[1], FAULTS[i].name) == 0) {
                kit_announce(lab.dir);
                FAULTS[i].show(&lab);
                for (;;)
                    pause();
            }
        }
    }
    fprintf(stderr, "usage: uring-file FAULT DIR [--fixed]\n");
    return 2;
}
