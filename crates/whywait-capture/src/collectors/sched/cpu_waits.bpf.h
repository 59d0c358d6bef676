/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Who had the CPU while a thread of the target could have run. The switch that gives a thread its
 * CPU back names the one that leaves it, and the scheduler knows for how long that one had it (see
 * unseen_switch_in). Those before it are not known: over many waits, the last ones stand for all.
 *
 * Costs nothing where threads get their CPUs soon: only what waited for the threshold comes here.
 */
#pragma once

#include "core/state.bpf.h"

/* Whether the cgroup of a task has used up its CPU time here. */
static __always_inline bool is_throttled(struct task_struct *task)
{
	struct cfs_rq *queue;

	if (!bpf_core_field_exists(struct cfs_rq, throttle_count))
		return false;
	queue = UNTRUSTED(struct task_struct, task)->se.cfs_rq;
	return queue->throttle_count;
}

/* `by`: who leaves the CPU. Of a wait that `why` explains by itself it may be 0. */
static __noinline int send_cpu_wait(struct task_struct *by, struct thread *thread, u64 from_ns,
				    u64 in_ns, u32 why)
{
	struct cpu_wait_record *record;
	struct task_struct *leader;

	if (!thread)
		return 0;
	if (!within_budget(CPU_WAITS, in_ns)) {
		COUNT(cpu_wait_budget);
		return 0;
	}
	record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	if (!record) {
		COUNT(lost_ring_full);
		return 0;
	}
	__builtin_memset(record, 0, sizeof(*record));
	record->type = RECORD_CPU_WAIT;
	record->tid = thread->tid;
	record->tgid = thread->tgid;
	record->why = why;
	record->from_ns = from_ns;
	record->in_ns = in_ns;
	if (by && by->pid) {
		record->by_tid = by->pid;
		record->by_tgid = by->tgid;
		record->by_kernel = !!(by->flags & PF_KTHREAD);
		record->by_ran_ns = by->se.sum_exec_runtime - by->se.prev_sum_exec_runtime;
		leader = BPF_CORE_READ(by, group_leader);
		BPF_CORE_READ_STR_INTO(&record->by_comm, leader, comm);
	}
	submit(record);
	return 0;
}
