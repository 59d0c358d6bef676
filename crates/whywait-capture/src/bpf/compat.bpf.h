/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Where kernels differ. */
#ifndef WHYWAIT_COMPAT_H
#define WHYWAIT_COMPAT_H

/* include/linux/preempt.h */
#define SERVING_SOFTIRQ_BIT 0x100u
#define HARDIRQ_MASK 0xf0000u
#define NMI_MASK 0xf00000u

/* Linux < 5.18 does not pass the previous state to sched_switch; the loader finds out from BTF. */
const volatile bool switch_passes_state = true;

/*
 * The preemption count is a per-CPU variable, and BPF finds per-CPU variables by name only where the kernel's symbol table
 * lists data (CONFIG_KALLSYMS_ALL). So it is found by its distance from another one that every task points to: its run queue.
 * The loader takes the distance from BTF; without one, every wake counts as made by the current task.
 */
const volatile bool preempt_count_known = false;
const volatile s64 preempt_count_from_runqueue = 0;

static __always_inline u32 preempt_count(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u32 count = 0;
	u64 runqueue;

	if (!preempt_count_known)
		return 0;
	runqueue = (u64)task->se.cfs_rq->rq;
	if (bpf_probe_read_kernel(&count, sizeof(count), (void *)(runqueue + preempt_count_from_runqueue)))
		return 0;
	return count;
}

/* In which context the current code runs. Without a preemption count every wake counts as made by the current task. */
static __always_inline u32 current_context(void)
{
	u32 count = preempt_count();

	if (count & (HARDIRQ_MASK | NMI_MASK))
		return WAKE_HARDIRQ;
	if (count & SERVING_SOFTIRQ_BIT)
		return WAKE_SOFTIRQ;
	return WAKE_TASK;
}

#endif
