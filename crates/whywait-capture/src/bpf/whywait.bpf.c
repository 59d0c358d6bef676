// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/* whywait's BPF programs: one object, one file for each subsystem. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#include "events.h"
#include "burst_events.h"
#include "compat.bpf.h"
#include "syscalls.bpf.h"
#include "state.bpf.h"
#include "herd.bpf.h"
#include "threads.bpf.h"
#include "futex.bpf.h"
#include "socket_cpu.bpf.h"
#include "cpu.bpf.h"
#include "known_stack.bpf.h"
#include "user_stack.bpf.h"
#include "stolen.bpf.h"
#include "sched.bpf.h"
#include "sockets.bpf.h"
#include "arrivals.bpf.h"
#include "sock.bpf.h"
#include "uring.bpf.h"
#include "uring_rings.bpf.h"
#include "uring_sock.bpf.h"
#include "uring_stands.bpf.h"
#include "sample.bpf.h"
#include "sweep.bpf.h"
#include "burst.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
