/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* How long threads go without I/O. */
#pragma once

#include "core/state.bpf.h"
#include "collectors/samples/slow.bpf.h"

/*
 * The thread has done no I/O since `io_ns`. Not static: it is verified once, for all who call it.
 */
__noinline int send_busy(struct thread *thread, u64 end_ns)
{
	struct busy_record *record;

	if (!thread)
		return 0;
	record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	if (!record) {
		COUNT(lost_ring_full);
		return 0;
	}
	record->type = RECORD_BUSY;
	record->tid = thread->tid;
	record->tgid = thread->tgid;
	record->pad = 0;
	record->start_ns = thread->io_ns;
	record->end_ns = end_ns;
	record->on_cpu_ns = thread->parts[PART_ON_CPU] - thread->io_on_cpu_ns;
	/* While the thread runs, its totals lack the time since it last got a CPU. */
	if (is_running(thread) && thread->in_ns && end_ns > thread->in_ns)
		record->on_cpu_ns += end_ns - thread->in_ns;
	record->runnable_ns = thread->parts[PART_RUNNABLE] - thread->io_runnable_ns;
	was_slow(thread->io_ns, end_ns, record->on_cpu_ns);
	submit(record);
	return 0;
}

/*
 * If the thread has done no I/O for the threshold, that interval is recorded: whatever became ready
 * in it had to wait.
 */
static __always_inline void thread_did_io_until(struct thread *thread, u64 end_ns)
{
	if (unlikely(thread->io_ns && end_ns >= thread->io_ns &&
		     end_ns - thread->io_ns >= threshold_ns))
		send_busy(thread, end_ns);
}

/* The next interval without I/O starts here. */
static __always_inline void thread_io_mark(struct thread *thread, u64 now, u64 on_cpu_ns)
{
	thread->io_ns = now;
	thread->io_on_cpu_ns = on_cpu_ns;
	thread->io_runnable_ns = thread->parts[PART_RUNNABLE];
}

static __always_inline void thread_does_io(struct thread *thread, u64 now, u64 on_cpu_ns)
{
	thread_did_io_until(thread, now);
	thread_io_mark(thread, now, on_cpu_ns);
}
