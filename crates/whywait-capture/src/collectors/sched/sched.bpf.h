/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Threads: when they run, sleep and are woken, and by whom. Every switch of a thread of the target
 * goes into its totals; only long sleeps become records.
 */
#pragma once

#include "core/calls.bpf.h"
#include "core/threads.bpf.h"
#include "collectors/cpu/cpu.bpf.h"
#include "collectors/futex/futex.bpf.h"
#include "collectors/futex/sums.bpf.h"
#include "collectors/herd/herd.bpf.h"
#include "collectors/jobs/handed.bpf.h"
#include "collectors/sched/cpu_waits.bpf.h"
#include "collectors/sched/io.bpf.h"
#include "collectors/sched/stolen.bpf.h"
#include "collectors/stacks/user_stack.bpf.h"

/*
 * After so many short sleeps in a row a thread's next one is taken for short, too, until it proves
 * to be long: its stack is not looked at beforehand. It costs as much as so many looks when such a
 * one has to leave its stack.
 */
#define SHORT_SLEEPS 64

static __always_inline void fill_sleep(struct sleep *sleep, const struct thread *thread)
{
	sleep->tid = thread->tid;
	sleep->tgid = thread->tgid;
	sleep->seq = thread->seq;
	sleep->nr = thread->nr;
	sleep->args[0] = thread->args[0];
	sleep->args[1] = thread->args[1];
	sleep->args[2] = thread->args[2];
	sleep->out_ns = thread->out_ns;
	sleep->epoll = is_epoll_call(thread->nr) ? thread->epoll : 0;
	sleep->since_before = thread->since_before;
	sleep->uninterruptible = thread->uninterruptible;
	sleep->io_wait = thread->io_wait;
	sleep->lock =
		thread->nr == NR_FUTEX && thread->word_tells == WORD_TELLS_LOCK ? thread->lock : 0;
	sleep->owner = thread->nr == NR_FUTEX && thread->word_tells == WORD_TELLS_OWNER ?
			       thread->owner :
			       0;
	sleep->timeout = thread->nr == NR_FUTEX && thread->timeout;
	for (int i = 0; i < PART_COUNT; i++)
		sleep->segment[i] = thread->parts[i] - thread->at_row[i];
}

/*
 * What tells the kernel stack of a sleep when it comes again: the system call, and what it was
 * called for. Enough where a thread waits for a wake, as each call does in one place of its own;
 * what waits for a device or a lock of the kernel, and calls that wait for many things, have their
 * stack read each time. 0: this one has to be read. (How deep in the kernel the thread sleeps tells
 * nothing: each call's stack begins at a random offset, CONFIG_RANDOMIZE_KSTACK_OFFSET.)
 */
static __always_inline u64 kernel_key(const struct thread *thread)
{
	if (!thread->interruptible || thread->io_wait || thread->nr < 0 ||
	    thread->family == CALL_FILE || thread->family == CALL_OTHER)
		return 0;
	return 1ull << 63 | (u64)(thread->nr & 0xffff) << 32 |
	       (u32)(thread->nr == NR_FUTEX ? thread->args[1] : thread->args[0]);
}

static __always_inline bool process_ends(struct task_struct *task)
{
	return UNTRUSTED(struct task_struct, task)->signal->flags & SIGNAL_GROUP_EXIT;
}

#define WAIT_PROCESS_ENDS 1
#define WAIT_STACK_FOLLOWS 2

/* Not static, so that it is verified once for a program. `how`: WAIT_… */
__noinline int fill_wait(struct wait_record *record, const struct thread *thread, u64 wake_ns,
			 u64 now, u32 how)
{
	if (!record || !thread)
		return 0;
	record->wake_context = wake_ns ? thread->wake_context : WAKE_UNKNOWN;
	if (how & WAIT_PROCESS_ENDS)
		record->wake_context = WAKE_EXIT;
	fill_sleep(&record->sleep, thread);
	record->wake_ns = wake_ns;
	record->in_ns = now;
	record->waker_tid = record->wake_context == WAKE_TASK ? thread->waker_tid : 0;
	record->waker_tgid = record->wake_context == WAKE_TASK ? thread->waker_tgid : 0;
	record->stack_follows = !!(how & WAIT_STACK_FOLLOWS);
	record->kernel_stack_len = 0;
	record->ip = thread->ip;
	record->sp = thread->sp;
	record->stack_key = thread->stack_key;
	return 0;
}

static __always_inline void send_wait(struct task_struct *task, struct thread *thread, u64 wake_ns,
				      u64 now)
{
	u32 how = process_ends(task) ? WAIT_PROCESS_ENDS : 0;
	u64 key = kernel_key(thread);
	struct known_kernel_stack *known =
		&thread->known_kernel[mix(key, 0) >> 32 & (KNOWN_KERNEL_STACKS - 1)];
	struct whole_wait_record *record;

	if (!within_budget(WAITS, now)) {
		COUNT(lost_wait_budget);
		return;
	}
	/* Of a process that ends the stack itself is needed: it is searched for locks. */
	if (how)
		thread->stack_key = 0;
	if (!thread->stack_key && ask_user_stack(task, thread, now))
		how |= WAIT_STACK_FOLLOWS;
	if (key && known->key == key && now - known->sent_ns < KERNEL_KNOWN_FOR_NS) {
		struct wait_record *brief = bpf_ringbuf_reserve(&records, sizeof(*brief), 0);

		if (!brief) {
			COUNT(lost_ring_full);
			return;
		}
		brief->type = RECORD_WAIT;
		fill_wait(brief, thread, wake_ns, now, how);
		brief->kernel_key = key;
		submit(brief);
		return;
	}
	record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	if (!record) {
		COUNT(lost_ring_full);
		return;
	}
	record->wait.type = RECORD_WHOLE_WAIT;
	fill_wait(&record->wait, thread, wake_ns, now, how);
	record->wait.kernel_key = key;
	record->wait.kernel_stack_len =
		bpf_get_task_stack(task, record->kernel_stack, sizeof(record->kernel_stack), 0);
	if (record->wait.kernel_stack_len > 0) {
		known->key = key;
		known->sent_ns = now;
	}
	submit(record);
}

/*
 * A sleep of which only the end is known: what the thread slept in is over. Stacks that were sent
 * before serve it, too.
 */
static __always_inline void send_wait_unseen(struct thread *thread, bool ends, u64 wake_ns,
					     u64 in_ns)
{
	struct wait_record *record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);

	if (!record) {
		COUNT(lost_ring_full);
		return;
	}
	record->type = RECORD_WAIT;
	fill_wait(record, thread, wake_ns, in_ns, ends ? WAIT_PROCESS_ENDS : 0);
	record->kernel_key = kernel_key(thread);
	submit(record);
}

/*
 * Whether sleeps like this one are recorded by the thousand in a server that is busy and sound: for
 * a wake, or for its peers.
 */
static __always_inline bool may_storm(const struct thread *thread)
{
	if (thread->nr == NR_FUTEX)
		return true;
	return thread->interruptible && !thread->io_wait &&
	       (thread->nr == NR_READ || thread->nr == NR_RECVFROM || thread->nr == NR_RECVMSG);
}

/* struct pollfd of include/uapi/asm-generic/poll.h. */
struct polled {
	u32 fd;
	u32 events;
};

/* Whether it sleeps in a poll of one descriptor, or of two. */
static __always_inline bool polls_few(const struct thread *thread)
{
	return (thread->nr == NR_POLL || thread->nr == NR_PPOLL) &&
	       (thread->args[1] == 1 || thread->args[1] == 2);
}

/* Below 64 KiB there are no places in memory (vm.mmap_min_addr): these are descriptors instead. */
#define DESCRIPTORS (1 << 16)

/* The descriptor that a poll of one, or of two (`both`), is for; -1: not known. */
static __always_inline s32 polled_one(struct task_struct *task, u32 one, u32 two, bool both)
{
	bool second;

	if (both) {
		second = is_socket(task, two);
		if (second == is_socket(task, one))
			return -1;
		if (second)
			one = two;
	}
	return one < DESCRIPTORS ? (s32)one : -1;
}

/*
 * A poll of one descriptor: the descriptor instead of the place where it is said, which is of no
 * use to anybody. Where two are polled and one of them is a socket it is that one: by the other, an
 * eventfd or a pipe, the program's own threads wake it (Ruby's do).
 */
static __always_inline void name_polled(struct task_struct *task, struct thread *thread)
{
	const struct polled *place = (const void *)thread->args[0];
	struct polled one = {}, two = {};
	bool both = thread->args[1] == 2;
	s32 fd;

	if (bpf_probe_read_user(&one, sizeof(one), place) ||
	    (both && bpf_probe_read_user(&two, sizeof(two), place + 1)))
		return;
	fd = polled_one(task, one.fd, two.fd, both);
	if (fd >= 0)
		thread->args[0] = fd;
}

static __always_inline void switch_out(struct task_struct *task, struct thread *thread, bool sleeps,
				       u32 task_state, u64 now)
{
	enum call_family family;
	struct pt_regs *regs;

	/* It may have been taken in asleep, just before it was seen to run. */
	if (likely(thread->in_ns))
		thread->parts[PART_ON_CPU] += now - thread->in_ns;
	thread->out_ns = now;
	if (!sleeps) {
		thread->state = THREAD_RUNNABLE;
		if (unlikely(is_throttled(task)))
			thread->throttled_ns = now;
		return;
	}
	thread->state = THREAD_SLEEPING;
	thread->since_before = 0;
	thread->seq++;
	thread->uninterruptible = !!(task_state & TASK_UNINTERRUPTIBLE);
	thread->interruptible = (task_state & TASK_STATES) == TASK_INTERRUPTIBLE;
	thread->io_wait = BPF_CORE_READ_BITFIELD(task, in_iowait);
	regs = user_registers(task);
	thread->nr = call_number(regs);
	thread->args[0] = PT_REGS_PARM1_SYSCALL(regs);
	thread->args[1] = PT_REGS_PARM2_SYSCALL(regs);
	thread->args[2] = PT_REGS_PARM3_SYSCALL(regs);
	thread->ip = PT_REGS_IP(regs);
	thread->sp = PT_REGS_SP(regs);
	thread->stack_key = 0;
	thread->storm = 0;
	thread->family = family = call_family(thread->nr);
	if (thread->nr == NR_FUTEX)
		read_futex(thread, regs);
	/*
	 * Its memory can be read now. Where it can be read later, only that of long sleeps is: see
	 * user_stack.bpf.h.
	 */
	if (user_stacks_exact && !read_tells_stack(thread) &&
	    (thread->nr != NR_FUTEX || thread->timeout) && thread->short_sleeps < SHORT_SLEEPS) {
		/* In a storm it would be read for nothing. */
		thread->storm = thread->nr != NR_FUTEX && may_storm(thread) &&
				used_up(READ_STORM, now) &&
				knows_place(thread, now);
		if (!thread->storm)
			thread->stack_key = recognise_stack(thread, thread->ip, thread->sp, now);
	}
	if (family == CALL_POLL || family == CALL_SOCKET) {
		thread_does_io(thread, now, thread->parts[PART_ON_CPU]);
		if (family == CALL_POLL) {
			cpu_polls(thread, now, thread->parts[PART_ON_CPU]);
			if (polls_few(thread))
				name_polled(task, thread);
		}
		if (unlikely(is_epoll_call(thread->nr) && thread->epfd != (s32)thread->args[0])) {
			thread->epfd = (s32)thread->args[0];
			thread->epoll = epoll_of(task, thread->args[0]);
			thread->record_poll = 1;
		}
	}
	/* What it polls has been named. */
	if (unlikely(thread->handed | thread->asked))
		sleeps_after_work(thread, now);
}

/* `wake_ns` 0: no wake was seen. */
static __always_inline void add_sleep(struct thread *thread, enum part part, u64 wake_ns, u64 now)
{
	if (part < PART_COUNT)
		thread->parts[part] += (wake_ns ? wake_ns : now) - thread->out_ns;
	if (wake_ns)
		thread->parts[PART_RUNNABLE] += now - wake_ns;
}

/*
 * Whether a long sleep is one too many of a storm. Recorded are so many a second, all that are much
 * longer than the threshold, and all at places whose stack is not known. Asked once for a sleep: of
 * one on a futex that a thread of the target ends when it does, of others when they are over.
 */
__noinline int is_storm(struct thread *thread, u64 now)
{
	if (!thread)
		return 0;
	if (now - thread->out_ns >= STORM_THRESHOLDS * threshold_ns || !knows_place(thread, now))
		return false;
	if (thread->nr != NR_FUTEX)
		return !within_budget(READ_STORM, now);
	/*
	 * It would have to leave its stack on its return, which is expensive; and most of its time
	 * was the CPU's, not the futex's.
	 */
	if (thread->waker_in_target && thread->wake_ns - thread->out_ns < threshold_ns)
		return !within_budget(QUEUED_STORM, now);
	return !within_budget(STORM, now);
}

/* Whether that was asked when the sleep was ended. */
static __always_inline bool asked_at_wake(const struct thread *thread, u64 wake_ns)
{
	return thread->nr == NR_FUTEX && thread->waker_in_target && wake_ns &&
	       wake_ns - thread->out_ns >= threshold_ns;
}

/*
 * Adds a sleep of a storm to its object's sums, or says that it is to be recorded all the same: the
 * object is not known yet.
 */
static __always_inline bool sum_up_storm(struct thread *thread, u64 slept_ns)
{
	if (record_short_futex(thread, slept_ns))
		return false;
	COUNT(storm_waits);
	return true;
}

/* `by`: who leaves the CPU, 0: not known. */
static __always_inline void got_cpu(struct task_struct *by, struct thread *thread, u64 in_ns)
{
	u64 ns = in_ns - thread->out_ns;

	thread->parts[PART_RUNNABLE] += ns;
	if (likely(ns < threshold_ns))
		return;
	send_preempted(thread, thread->out_ns, in_ns);
	if (thread->throttled_ns == thread->out_ns)
		send_cpu_wait(by, thread, thread->out_ns, in_ns, CPU_WAIT_QUOTA);
	else if (by)
		send_cpu_wait(by, thread, thread->out_ns, in_ns, CPU_WAIT_TASK);
}

static __always_inline void switch_in(struct task_struct *task, struct task_struct *by,
				      struct thread *thread, u64 now)
{
	u64 wake_ns = thread->wake_ns, slept_ns;
	enum call_family family;
	enum part part;
	bool recorded;

	if (thread->state == THREAD_RUNNABLE) {
		got_cpu(by, thread, now);
	} else if (thread->state == THREAD_SLEEPING) {
		/*
		 * The wake may have been made between the decision to sleep and the switch, on
		 * another CPU: then it was seen first. It is the right one if it came after the
		 * thread last got a CPU.
		 */
		if (unlikely(wake_ns <= thread->in_ns)) {
			wake_ns = 0;
			thread->wake_context = WAKE_UNKNOWN;
			COUNT(unmatched_wakes);
		} else if (unlikely(wake_ns < thread->out_ns)) {
			wake_ns = thread->out_ns;
		}
		family = thread->family;
		part = part_of_sleep(family, thread->uninterruptible, thread->io_wait,
				     thread->wake_context, thread->waker_in_target);
		slept_ns = (wake_ns ? wake_ns : now) - thread->out_ns;
		if (unlikely(now - thread->out_ns >= threshold_ns)) {
			/* One that the sweep has sent while it lasted is recorded to its end. */
			bool recorded_before = thread->stack_seq == thread->seq + 1;
			bool storm = thread->storm &&
				     now - thread->out_ns < STORM_THRESHOLDS * threshold_ns;

			if (!storm && may_storm(thread) && !asked_at_wake(thread, wake_ns))
				storm = is_storm(thread, now);
			recorded = !storm || recorded_before || !sum_up_storm(thread, slept_ns);
			thread->short_sleeps = 0;
			if (unlikely(wake_ns && now - wake_ns >= threshold_ns))
				send_cpu_wait(by, thread, wake_ns, now, CPU_WAIT_TASK);
		} else {
			recorded = thread->record_poll ||
				   (thread->nr == NR_FUTEX && record_short_futex(thread, slept_ns));
			if (thread->short_sleeps < SHORT_SLEEPS)
				thread->short_sleeps++;
		}
		if (unlikely(recorded)) {
			thread->record_poll = 0;
			/*
			 * A long sleep has a record of its own; the totals up to it are the segment
			 * before it.
			 */
			if (family != CALL_POLL && family != CALL_SOCKET && thread->io_ns)
				thread_did_io_until(thread, thread->out_ns);
			send_wait(task, thread, wake_ns, now);
			add_sleep(thread, part, wake_ns, now);
			__builtin_memcpy(thread->at_row, thread->parts, sizeof(thread->at_row));
			if (thread->io_ns)
				thread_io_mark(thread, now, thread->parts[PART_ON_CPU]);
		} else {
			add_sleep(thread, part, wake_ns, now);
			if (family == CALL_POLL || family == CALL_SOCKET)
				thread_io_mark(thread, now, thread->parts[PART_ON_CPU]);
		}
		thread->back_ns = now;
	}
	thread->state = THREAD_RUNNING;
	thread->in_ns = now;
}

/*
 * `thread` has run for `ran_ns`, and was not seen getting its CPU: a switch was not traced. (There
 * are kernels that trace nothing of what certain processes do; the switch from one of those to a
 * thread of the target is one of their events.) Since when it runs, the scheduler knows: its sum is
 * up to date when a thread leaves its CPU, and at the latest tick while it stays (update_curr and
 * set_next_entity in kernel/sched/fair.c). What it slept in cannot be looked at any more; stacks
 * that are known can be sent. Not static, so that it is verified once for a program.
 */
__noinline int unseen_switch_in(struct thread *thread, u64 ran_ns, bool ends, u64 now)
{
	u64 in_ns = now > ran_ns ? now - ran_ns : 0;
	u64 wake_ns = 0;
	bool recorded;

	if (!thread)
		return 0;
	COUNT(unseen_switches);
	if (thread->state == THREAD_SLEEPING && thread->wake_ns > thread->in_ns)
		wake_ns = thread->wake_ns > thread->out_ns ? thread->wake_ns : thread->out_ns;
	if (in_ns < thread->out_ns)
		in_ns = thread->out_ns;
	if (in_ns < wake_ns)
		in_ns = wake_ns;
	if (thread->state == THREAD_RUNNABLE) {
		got_cpu(0, thread, in_ns);
	} else {
		if (!wake_ns) {
			thread->wake_context = WAKE_UNKNOWN;
			COUNT(unmatched_wakes);
		}
		recorded =
			in_ns - thread->out_ns >= threshold_ns ||
			thread->stack_seq == thread->seq + 1 ||
			(thread->nr == NR_FUTEX &&
			 record_short_futex(thread, (wake_ns ? wake_ns : in_ns) - thread->out_ns));
		if (recorded)
			send_wait_unseen(thread, ends, wake_ns, in_ns);
		add_sleep(thread,
			  part_of_sleep(thread->family, thread->uninterruptible, thread->io_wait,
					thread->wake_context, thread->waker_in_target),
			  wake_ns, in_ns);
		if (recorded)
			__builtin_memcpy(thread->at_row, thread->parts, sizeof(thread->at_row));
		if (thread->io_ns)
			thread_io_mark(thread, in_ns, thread->parts[PART_ON_CPU]);
		thread->back_ns = in_ns;
	}
	thread->state = THREAD_RUNNING;
	thread->in_ns = in_ns;
	return 0;
}

/* To be called before the totals of a thread are used that runs. */
static __always_inline void must_run(struct task_struct *task, struct thread *thread, u64 now)
{
	if (likely(thread->state == THREAD_RUNNING))
		return;
	if (thread->state == THREAD_ROBBED)
		account_stolen(thread, now);
	else
		unseen_switch_in(thread, task->se.sum_exec_runtime - task->se.prev_sum_exec_runtime,
				 process_ends(task), now);
}

SEC("tp_btf/sched_switch")
int sched_switch(u64 *ctx)
{
	bool preempt = ctx[0];
	struct task_struct *prev = (struct task_struct *)ctx[1];
	struct task_struct *next = (struct task_struct *)ctx[2];
	struct thread *from, *to;
	u64 now = 0;

	if (unlikely(hooks_do_nothing || (untraced_process && prev->tgid == untraced_process)))
		return 0;
	from = thread_of(prev);
	if (from) {
		u32 state = switch_passes_state ? (u32)ctx[3] : prev->__state;

		now = bpf_ktime_get_ns();
		COUNT(events);
		must_run(prev, from, now);
		interval_may_end(prev, from, now);
		switch_out(prev, from, !preempt && state, state, now);
	}
	/* Not looked for before: the verifier would go through the above for each kind of both. */
	to = thread_of(next);
	if (!to)
		return 0;
	if (!now) {
		now = bpf_ktime_get_ns();
		COUNT(events);
	}
	switch_in(next, prev, to, now);
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(sched_waking, struct task_struct *task)
{
	struct thread *thread = hooks_do_nothing ? 0 : thread_of(task);
	struct thread *by = 0;
	struct task_struct *waker;
	u64 now;

	if (!thread)
		return 0;
	now = bpf_ktime_get_ns();
	thread->wake_ns = now;
	waker = bpf_get_current_task_btf();
	thread->wake_context = current_context(waker);
	thread->waker_tid = waker->pid;
	thread->waker_tgid = waker->tgid;
	if (thread->wake_context == WAKE_TASK)
		by = thread_of(waker);
	thread->waker_in_target = !!by;
	if (unlikely((thread->handed || has_to_do_with_jobs(by)) &&
		     thread->state == THREAD_SLEEPING))
		wakes_to_work(by, thread, task, now);
	if (unlikely(by && thread->state == THREAD_SLEEPING && thread->nr == NR_FUTEX &&
		     now - thread->out_ns >= threshold_ns)) {
		thread->storm = is_storm(thread, now);
		if (thread->storm)
			goto out;
		if (!thread->stack_key && waker->tgid == thread->tgid) {
			thread->stack_key = recognise_stack(thread, thread->ip, thread->sp, now);
			if (!thread->stack_key && may_send_stack(thread, now))
				thread->stack_key = send_stack_of(task, thread, now);
		}
		send_waker(thread, waker, by, now);
	}
	if (thread->state == THREAD_SLEEPING && thread->family == CALL_POLL)
		herd_wakes(thread, waker, now);
out:
	COUNT(events);
	return 0;
}
