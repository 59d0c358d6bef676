/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * A virtual machine's CPU may stand still for tens of milliseconds, because its host has others
 * run. The thread on it is not switched: to the kernel's scheduler, and to the hooks, it seems to
 * run all that time. But the host tells how long that was (steal time), and so it is what it is,
 * time in which the thread could have run and had no CPU: not in its time on a CPU, and recorded
 * like a preemption if it was long.
 *
 * Many hosts do not tell (all but KVM and Xen, and emulators). There the clock of the samples does:
 * it ticks at equal distances, and one that comes late was due while its CPU stood still. That is a
 * part of the standstill, from when the tick was due; a standstill between two ticks is not seen.
 *
 * The clock of the samples looks whenever it ticks, and after a long standstill its tick is due and
 * comes as soon as the CPU goes on. It only notes what it sees, because it may have interrupted a
 * hook that uses the thread's totals; the thread's next hook puts them right. A thread that reads,
 * writes or polls after an interval without looks by itself.
 */
#pragma once

#include "core/state.bpf.h"
#include "collectors/sched/cpu_waits.bpf.h"
#include "collectors/sched/preempted.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} stolen_seen SEC(".maps");

/* Of each CPU: when its clock ticks next, and which of its rates that is for. */
struct clock_state {
	u64 due_ns;
	u64 set;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct clock_state);
} clock_states SEC(".maps");

/* By how much a tick that stands for so many periods came late, from the threshold on. */
static __always_inline u64 late_ns(u64 periods, u64 now)
{
	u64 period_ns = clock_period_ns * periods, late;
	struct clock_state *clock;
	u32 zero = 0;

	clock = bpf_map_lookup_elem(&clock_states, &zero);
	if (!clock || !period_ns)
		return 0;
	/* None comes early: the one before was late, as the first one may be. */
	if (!clock->due_ns || clock->set != clock_set || now < clock->due_ns) {
		clock->set = clock_set;
		clock->due_ns = now + period_ns;
		return 0;
	}
	late = now - clock->due_ns;
	clock->due_ns += period_ns * (1 + late / period_ns);
	/* Interrupts that are turned off make less. */
	return late >= threshold_ns ? late : 0;
}

/* How long this CPU stood still since this was last asked on it, in nanoseconds. */
static __always_inline u64 stolen_since(struct task_struct *task)
{
	u64 stolen_ns = clock_ticks ? stolen_so_far(task) : 0, before_ns;
	u32 zero = 0;
	u64 *seen = stolen_ns ? bpf_map_lookup_elem(&stolen_seen, &zero) : 0;

	if (!seen)
		return 0;
	before_ns = *seen;
	*seen = stolen_ns;
	return before_ns && stolen_ns > before_ns ? stolen_ns - before_ns : 0;
}

/*
 * The same, where the clock ticks. Not static: for the verifier the result is any number, and it
 * follows one way through what comes after it.
 */
__noinline u64 stolen_since_tick(u64 periods, u64 now)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u64 stolen_ns = stolen_since(task);

	if (!clock_tells_stolen || stolen_so_far(task))
		return stolen_ns;
	return late_ns(periods, now);
}

/* The current thread was on a CPU that stood still for `ns` until now. */
static __always_inline void note_stolen(struct thread *thread, u64 ns, u64 now)
{
	u64 since_ns = thread->io_ns > thread->in_ns ? thread->io_ns : thread->in_ns;

	if (!is_running(thread))
		return;
	/*
	 * Sent here, where it is known when it was: a thread that computes may come by no hook for
	 * long.
	 */
	if (ns >= threshold_ns && since_ns && since_ns <= now - threshold_ns) {
		u64 from_ns = since_ns > now - ns ? since_ns : now - ns;

		send_preempted(thread, from_ns, now);
		send_cpu_wait(0, thread, from_ns, now, CPU_WAIT_HOST);
	}
	if (thread->state == THREAD_RUNNING)
		thread->stolen_ns = 0;
	thread->stolen_ns += ns;
	thread->stolen_until_ns = now;
	thread->state = THREAD_ROBBED;
}

/*
 * Puts a thread's totals right. What was stolen before they were last used stays where it is: that
 * was too short to matter, or the clock would have ticked before. Not static, so that it is
 * verified once for a program.
 */
__noinline int account_stolen(struct thread *thread, u64 now)
{
	u64 on_cpu_ns, used_ns, ns;

	if (!thread)
		return 0;
	thread->state = THREAD_RUNNING;
	ns = thread->stolen_ns;
	if (!thread->in_ns || thread->stolen_until_ns > now ||
	    thread->stolen_until_ns <= thread->in_ns)
		return 0;
	on_cpu_ns = on_cpu_now(thread, thread->stolen_until_ns);
	used_ns = thread->io_on_cpu_ns;
	if (thread->cpu_mark_ns > used_ns)
		used_ns = thread->cpu_mark_ns;
	if (thread->progress_on_cpu_ns > used_ns)
		used_ns = thread->progress_on_cpu_ns;
	if (thread->interval_on_cpu_ns > used_ns)
		used_ns = thread->interval_on_cpu_ns;
	if (thread->herd_on_cpu_ns > used_ns)
		used_ns = thread->herd_on_cpu_ns;
	if (on_cpu_ns <= used_ns)
		return 0;
	if (ns > on_cpu_ns - used_ns)
		ns = on_cpu_ns - used_ns;
	if (ns > thread->stolen_until_ns - thread->in_ns)
		ns = thread->stolen_until_ns - thread->in_ns;
	thread->in_ns += ns;
	thread->parts[PART_RUNNABLE] += ns;
	COUNT_MORE(stolen_ns, ns);
	return 0;
}

/* The current thread has not slept, and did no I/O for the threshold. */
static __noinline int look_for_stolen(struct task_struct *task, struct thread *thread, u64 now)
{
	u64 ns = stolen_since(task);

	if (!ns)
		return 0;
	note_stolen(thread, ns, now);
	return account_stolen(thread, now);
}

/* Has an end of an interval without I/O looked at, before the totals of the thread are used. */
static __always_inline void interval_may_end(struct task_struct *task, struct thread *thread,
					     u64 now)
{
	if (steal_known && unlikely(thread->io_ns && now - thread->io_ns >= threshold_ns))
		look_for_stolen(task, thread, now);
}
