/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * How many threads a connection wakes. A listener's readiness (sk_data_ready) and the wakes that it
 * makes follow each other on one CPU, in one context; a thread that is woken so and goes back to
 * sleep in its poll without a byte read or written was woken for nothing. Since the kernel looks at
 * the queue again before epoll_wait returns, it may never leave that call.
 */
#pragma once

#include "core/state.bpf.h"

/* Wakes that a readiness makes come within this time. */
#define HERD_NS 100000

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, struct herd_sum);
} herds SEC(".maps");

struct herd {
	u64 at_ns; /* 0: no listener has just become ready on this CPU */
	u32 port;
	u32 pid; /* in whose context */
	u64 woken;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct herd);
} herd_now SEC(".maps");

static __always_inline struct herd_sum *herd_of(u32 port)
{
	struct herd_sum *sum, none = {};

	sum = bpf_map_lookup_elem(&herds, &port);
	if (sum)
		return sum;
	bpf_map_update_elem(&herds, &port, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&herds, &port);
}

/* A listening socket of the target is seen for the first time. */
static __always_inline void herd_listens(struct sock *sk)
{
	struct herd_sum *sum;

	if (!BPF_CORE_READ_BITFIELD_PROBED(sk, __sk_common.skc_reuseport))
		return;
	sum = herd_of(BPF_CORE_READ(sk, __sk_common.skc_num));
	if (sum)
		__sync_fetch_and_add(&sum->reuseport, 1);
}

static __always_inline void herd_begins(u16 port, u64 now)
{
	u32 zero = 0;
	struct herd *herd = bpf_map_lookup_elem(&herd_now, &zero);

	if (!herd || !port)
		return;
	herd->at_ns = now;
	herd->port = port;
	herd->pid = bpf_get_current_task_btf()->pid;
	herd->woken = 0;
}

static __always_inline void herd_ends(void)
{
	u32 zero = 0;
	struct herd *herd = bpf_map_lookup_elem(&herd_now, &zero);

	if (herd)
		herd->at_ns = 0;
}

/* A thread that sleeps in a poll is woken. */
static __always_inline void herd_wakes(struct thread *thread, struct task_struct *waker, u64 now)
{
	u32 zero = 0;
	struct herd *herd = bpf_map_lookup_elem(&herd_now, &zero);
	struct herd_sum *sum;

	if (likely(!herd || !herd->at_ns))
		return;
	if (herd->pid != waker->pid || now - herd->at_ns > HERD_NS) {
		herd->at_ns = 0;
		return;
	}
	thread->herd_port = herd->port;
	thread->herd_on_cpu_ns = thread->parts[PART_ON_CPU];
	herd->woken++;
	sum = herd_of(herd->port);
	if (!sum)
		return;
	if (herd->woken == 1)
		__sync_fetch_and_add(&sum->events, 1);
	else
		__sync_fetch_and_add(&sum->extra_wakes, 1);
	if (herd->woken > sum->most_woken)
		sum->most_woken = herd->woken;
}

/* The thread goes back to sleep in a poll. */
static __always_inline void herd_sleeps(struct thread *thread, u64 on_cpu_ns)
{
	struct herd_sum *sum;
	u32 port = thread->herd_port;

	if (likely(!port))
		return;
	thread->herd_port = 0;
	if (thread->progressed)
		return;
	sum = bpf_map_lookup_elem(&herds, &port);
	if (!sum)
		return;
	__sync_fetch_and_add(&sum->dry_wakes, 1);
	__sync_fetch_and_add(&sum->dry_cpu_ns, on_cpu_ns - thread->herd_on_cpu_ns);
}
