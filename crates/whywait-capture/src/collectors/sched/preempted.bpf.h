/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Threads without a CPU that have not gone to sleep. */
#pragma once

#include "core/state.bpf.h"

/*
 * A thread that had not slept was without a CPU for the threshold or longer. Not static, so that it
 * is verified once for a program.
 */
__noinline int send_preempted(struct thread *thread, u64 out_ns, u64 in_ns)
{
	struct preempted_record *record;

	if (!thread)
		return 0;
	if (!within_budget(PREEMPTED, in_ns)) {
		COUNT(preempted_budget);
		return 0;
	}
	record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	if (!record) {
		COUNT(lost_ring_full);
		return 0;
	}
	record->type = RECORD_PREEMPTED;
	record->tid = thread->tid;
	record->tgid = thread->tgid;
	record->pad = 0;
	record->out_ns = out_ns;
	record->in_ns = in_ns;
	submit(record);
	return 0;
}
