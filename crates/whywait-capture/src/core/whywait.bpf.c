// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * whywait's BPF programs: one object, of what each collector has. A header includes what it uses.
 */
#include "collectors/accept_queues/accept_queues.bpf.h"
#include "collectors/burst/burst.bpf.h"
#include "collectors/connections/connections.bpf.h"
#include "collectors/responses/responses.bpf.h"
#include "collectors/samples/samples.bpf.h"
#include "collectors/sched/sched.bpf.h"
#include "collectors/sockets/functions.bpf.h"
#include "collectors/sockets/hooks.bpf.h"
#include "collectors/sweep/sweep.bpf.h"
#include "collectors/tasks/slow.bpf.h"
#include "collectors/threads/threads.bpf.h"
#include "collectors/tls/calls.bpf.h"
#include "collectors/uring/pending.bpf.h"
#include "collectors/uring/rings.bpf.h"
#include "collectors/uring/uring.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
