/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * What the CPU time was for, and whether anything came of it: a few additions at events that are
 * handled anyway. A thread's time goes to the listener from which it read last, until it sleeps in
 * a poll. Included by state.bpf.h's users after it.
 */
#pragma once

#include "core/calls.bpf.h"
#include "core/threads.bpf.h"
#include "collectors/cpu/socket_cpu.bpf.h"
#include "collectors/herd/herd.bpf.h"

/*
 * A thread that wakes up and reads has its way there charged to what it reads, if the way was no
 * longer than this.
 */
#define WAY_NS 100000
/*
 * A sample in an interval of CPU time without a byte read or written is of interest from here on.
 */
#define DRY_NS 1000000
/*
 * A thread that is suspected of spinning has all such intervals counted: the shortest that could be
 * one, and the longest that the clock may have missed.
 */
#define SHORT_NS 200000
#define MISSED_NS 50000000
/*
 * So many samples in polls within such intervals, or so many poll sleeps for nothing, in a second
 * make a suspect.
 */
#define SUSPECT_SAMPLES 3
#define SUSPECT_SLEEPS 200
#define SUSPECT_WINDOW_NS 1000000000

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct listener_key);
	__type(value, struct listener_sum);
} listeners SEC(".maps");

#define ADD(field)                                              \
	if (open->field) {                                      \
		__sync_fetch_and_add(&sum->field, open->field); \
		open->field = 0;                                \
	}

/* Adds what the thread has used for the port that it served so far to the port's sum. */
static __noinline int cpu_flush(struct thread *thread)
{
	struct listener_key key = {};
	struct listener_sum zero = {};
	struct listener_sum *sum, *open;

	if (!thread)
		return 0;
	open = &thread->open;
	key.tgid = thread->tgid;
	key.port = thread->cpu_port;
	sum = bpf_map_lookup_elem(&listeners, &key);
	if (!sum) {
		bpf_map_update_elem(&listeners, &key, &zero, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&listeners, &key);
	}
	if (!sum)
		return 0; /* kept for the next time */
	ADD(cpu_ns);
	ADD(futile_ns);
	ADD(requests);
	ADD(bytes_in);
	ADD(bytes_out);
	ADD(user_samples);
	ADD(system_samples);
	return 0;
}

/* Of the time since then: until it wrote an answer, or read on. */
static __always_inline u64 cpu_answering(const struct thread *thread, u64 mark_ns)
{
	u64 answered_ns = thread->cpu_answered_ns;

	return answered_ns > mark_ns && answered_ns != WROTE_INSTEAD ? answered_ns - mark_ns : 0;
}

/* Charges the time since the last charge, and says how much that was. */
static __always_inline u64 cpu_charge(struct thread *thread, u64 on_cpu_ns)
{
	u64 mark_ns = thread->cpu_mark_ns, ns = on_cpu_ns - mark_ns;

	thread->cpu_mark_ns = on_cpu_ns;
	if (thread->serves) {
		thread->open.cpu_ns += ns;
		socket_charge(thread, ns, cpu_answering(thread, mark_ns));
	}
	return ns;
}

/*
 * What it has burnt since a byte last moved, or since it slept in a poll, if that was for nothing
 * as far as is to be seen.
 */
static __always_inline u64 cpu_interval(const struct thread *thread, u64 on_cpu_ns)
{
	u64 ns = on_cpu_ns - thread->interval_on_cpu_ns;

	if (likely(on_cpu_ns < thread->interval_on_cpu_ns || ns < SHORT_NS))
		return 0;
	return thread->dry_samples || (thread->suspected && ns < MISSED_NS) ? ns : 0;
}

/* It has burnt so much for nothing. Not static: it is verified once, for all who call it. */
__noinline int was_futile(struct thread *thread, u64 ns)
{
	if (!thread)
		return 0;
	thread->futile_ns += ns;
	if (thread->serves) {
		thread->open.futile_ns += ns;
		socket_charge_futile(thread, ns);
	}
	return 0;
}

static __always_inline void cpu_interval_ends(struct thread *thread, u64 on_cpu_ns)
{
	u64 ns = cpu_interval(thread, on_cpu_ns);

	if (unlikely(ns))
		was_futile(thread, ns);
	thread->dry_samples = 0;
	thread->interval_on_cpu_ns = on_cpu_ns;
}

/* A byte was read or written. */
static __always_inline void cpu_progress(struct thread *thread, u64 on_cpu_ns)
{
	cpu_interval_ends(thread, on_cpu_ns);
	thread->progress_on_cpu_ns = on_cpu_ns;
	thread->progressed = 1;
}

/* From now on it works for this connection of this port. */
static __always_inline void cpu_serves(struct thread *thread, u16 port, u64 socket, u64 bytes,
				       u64 on_cpu_ns)
{
	bool served = thread->serves;
	u64 ns;

	/* It reads on before it answers. */
	if (served && thread->cpu_answered_ns <= thread->cpu_mark_ns)
		thread->cpu_answered_ns = on_cpu_ns;
	ns = cpu_charge(thread, on_cpu_ns);
	if (unlikely(thread->cpu_port != port)) {
		cpu_flush(thread);
		thread->cpu_port = port;
	}
	socket_serves(thread, socket);
	if (!served && ns < WAY_NS) {
		thread->open.cpu_ns += ns;
		socket_charge(thread, ns, 0);
	}
	thread->serves = 1;
	thread->cpu_answered_ns = 0;
	thread->open.bytes_in += bytes;
}

/*
 * It writes to a connection. A program that reads several requests and then answers them all: what
 * went by since it read the last one was for that one, what goes by between two answers for the
 * second.
 */
static __always_inline void cpu_answers(struct thread *thread, u64 socket, u64 on_cpu_ns)
{
	bool wrote_instead = thread->cpu_answered_ns == WROTE_INSTEAD;

	if (!thread->serves)
		return;
	if (likely(thread->cpu_socket == socket && !wrote_instead)) {
		thread->cpu_answered_ns = on_cpu_ns;
		return;
	}
	if (thread->cpu_socket == socket)
		return;
	thread->cpu_answered_ns = on_cpu_ns;
	if (wrote_instead) {
		socket_serves(thread, socket);
		cpu_charge(thread, on_cpu_ns);
	} else {
		cpu_charge(thread, on_cpu_ns);
		socket_serves(thread, socket);
	}
	thread->cpu_answered_ns = WROTE_INSTEAD;
}

static __always_inline void cpu_suspect(struct thread *thread, u32 reason, u64 now)
{
	struct suspect_record *record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);

	if (!record) {
		COUNT(lost_ring_full);
		return;
	}
	record->type = RECORD_SUSPECT;
	record->reason = reason;
	record->at_ns = now;
	record->tid = thread->tid;
	record->tgid = thread->tgid;
	submit(record);
}

static __always_inline void cpu_window(struct thread *thread, u64 now)
{
	if (likely(now - thread->window_ns <= SUSPECT_WINDOW_NS))
		return;
	thread->window_ns = now;
	thread->window_samples = 0;
	thread->window_sleeps = 0;
	thread->window_dry = 0;
}

/* It goes to sleep in a poll. `on_cpu_ns` is up to date. */
static __always_inline void cpu_polls(struct thread *thread, u64 now, u64 on_cpu_ns)
{
	bool for_connection;

	if (unlikely(!sockets_followed))
		cpu_progress(thread, on_cpu_ns);
	cpu_charge(thread, on_cpu_ns);
	cpu_interval_ends(thread, on_cpu_ns);
	thread->serves = 0;
	thread->cpu_socket = 0;
	/*
	 * Woken for a connection: no tracepoint tells that it was accepted, and herds are counted
	 * by themselves.
	 */
	for_connection = thread->herd_port;
	herd_sleeps(thread, on_cpu_ns);
	cpu_window(thread, now);
	thread->poll_sleeps++;
	thread->window_sleeps++;
	/* `wake_context` is that of the wake before: a timeout is no wake for nothing. */
	if (unlikely(!thread->progressed) &&
	    (thread->wake_context == WAKE_TASK || thread->wake_context == WAKE_SOFTIRQ)) {
		thread->dry_sleeps++;
		if (!for_connection && ++thread->window_dry == SUSPECT_SLEEPS &&
		    thread->window_dry * 2 > thread->window_sleeps)
			cpu_suspect(thread, SUSPECT_WOKEN_FOR_NOTHING, now);
	}
	thread->progressed = 0;
}

/*
 * The clock ticked while it ran; `nr`: in the kernel, in this call; `ring_stands`: see
 * uring_stands.
 */
static __always_inline bool cpu_sampled(struct thread *thread, bool in_kernel, s32 nr,
					bool ring_stands, u32 periods, u64 now)
{
	if (in_kernel)
		thread->system_samples += periods;
	else
		thread->user_samples += periods;
	if (thread->serves) {
		if (in_kernel)
			thread->open.system_samples += periods;
		else
			thread->open.user_samples += periods;
		socket_sampled(thread, in_kernel, periods);
	}
	if (!in_kernel ||
	    (call_family(nr) != CALL_POLL && nr != 233 /* epoll_ctl */ && !ring_stands) ||
	    own_on_cpu_now(thread, now) < thread->progress_on_cpu_ns + DRY_NS)
		return false;
	thread->dry_samples++;
	cpu_window(thread, now);
	if (++thread->window_samples == SUSPECT_SAMPLES) {
		thread->suspected = 1;
		cpu_suspect(thread, SUSPECT_SPINS, now);
	}
	return true;
}

static __always_inline void fill_cpu(struct cpu_record *record, const struct thread *thread,
				     u64 now)
{
	u64 on_cpu_ns = thread->parts[PART_ON_CPU];
	u64 dry_ns;

	if (is_running(thread))
		on_cpu_ns = own_on_cpu_now(thread, now);
	record->type = RECORD_CPU;
	record->tid = thread->tid;
	record->tgid = thread->tgid;
	record->open_port = thread->cpu_port;
	record->at_ns = now;
	record->on_cpu_ns = on_cpu_ns;
	record->runnable_ns = thread->parts[PART_RUNNABLE];
	record->futile_ns = thread->futile_ns;
	record->user_samples = thread->user_samples;
	record->system_samples = thread->system_samples;
	record->poll_sleeps = thread->poll_sleeps;
	record->dry_sleeps = thread->dry_sleeps;
	record->calls = thread->burst_calls;
	record->polls = thread->burst_polls;
	record->open = thread->open;
	if (thread->serves && on_cpu_ns > thread->cpu_mark_ns)
		record->open.cpu_ns += on_cpu_ns - thread->cpu_mark_ns;
	/* An interval that has not ended. */
	dry_ns = cpu_interval(thread, on_cpu_ns);
	record->futile_ns += dry_ns;
	if (thread->serves)
		record->open.futile_ns += dry_ns;
}

/* A thread ends: the last that is heard of its totals. */
static __always_inline void cpu_exit(struct thread *thread, u64 now)
{
	u64 on_cpu_ns = on_cpu_now(thread, now);
	struct cpu_record *record;

	cpu_charge(thread, on_cpu_ns);
	cpu_progress(thread, on_cpu_ns);
	cpu_flush(thread);
	thread->ended = 1;
	record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	if (!record) {
		COUNT(lost_ring_full);
		return;
	}
	fill_cpu(record, thread, now);
	submit(record);
}

/* The totals of the threads that live. */
SEC("iter/task")
int tell_cpu(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct cpu_record record = {};
	struct thread *thread;

	if (!task)
		return 0;
	thread = thread_of(task);
	if (!thread || thread->ended)
		return 0;
	fill_cpu(&record, thread, bpf_ktime_get_ns());
	/*
	 * In the end, what it has not been charged for yet is the connection's that it works for.
	 */
	if (sweep_all && thread->serves) {
		socket_charge(thread, record.open.cpu_ns - thread->open.cpu_ns, 0);
		socket_charge_futile(thread, record.open.futile_ns - thread->open.futile_ns);
	}
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}
