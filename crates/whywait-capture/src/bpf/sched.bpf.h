/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Threads: when they run, sleep and are woken, and by whom. Every switch of a thread of the target goes into its totals;
 * only long sleeps become records.
 */

#define TASK_UNINTERRUPTIBLE 2 /* include/linux/sched.h */
#define SIGNAL_GROUP_EXIT 4 /* include/linux/sched/signal.h: the process ends, or was killed */

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
	sleep->lock = thread->nr == NR_FUTEX ? thread->lock : 0;
	sleep->owner = thread->nr == NR_FUTEX ? thread->owner : 0;
	sleep->timeout = thread->nr == NR_FUTEX && thread->timeout;
	for (int i = 0; i < PART_COUNT; i++)
		sleep->segment[i] = thread->parts[i] - thread->at_row[i];
}

static __always_inline void send_wait(struct task_struct *task, struct thread *thread, u64 wake_ns, u64 now)
{
	struct wait_record *record;
	bool stack_follows;

	if (!within_budget(BUDGET_WAITS, waits_per_second, now)) {
		COUNT(lost_wait_budget);
		return;
	}
	stack_follows = ask_user_stack(task, thread, now);
	record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	if (!record) {
		COUNT(lost_ring_full);
		return;
	}
	record->type = RECORD_WAIT;
	record->wake_context = wake_ns ? thread->wake_context : WAKE_UNKNOWN;
	if (task->signal->flags & SIGNAL_GROUP_EXIT)
		record->wake_context = WAKE_EXIT;
	fill_sleep(&record->sleep, thread);
	record->wake_ns = wake_ns;
	record->in_ns = now;
	record->waker_tid = record->wake_context == WAKE_TASK ? thread->waker_tid : 0;
	record->waker_tgid = record->wake_context == WAKE_TASK ? thread->waker_tgid : 0;
	record->stack_follows = stack_follows;
	record->kernel_stack_len =
		bpf_get_task_stack(task, record->kernel_stack, sizeof(record->kernel_stack), 0);
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

static __always_inline void switch_out(struct task_struct *task, struct thread *thread, bool sleeps, u32 task_state,
				       u64 now)
{
	struct pt_regs *regs;

	thread->parts[PART_ON_CPU] += now - thread->in_ns;
	thread->out_ns = now;
	if (!sleeps) {
		thread->state = THREAD_RUNNABLE;
		return;
	}
	thread->state = THREAD_SLEEPING;
	thread->since_before = 0;
	thread->seq++;
	thread->uninterruptible = !!(task_state & TASK_UNINTERRUPTIBLE);
	thread->io_wait = BPF_CORE_READ_BITFIELD(task, in_iowait);
	regs = (struct pt_regs *)bpf_task_pt_regs(task);
	thread->nr = (s32)regs->orig_ax;
	thread->args[0] = regs->di;
	thread->args[1] = regs->si;
	thread->args[2] = regs->dx;
	if (thread->nr == NR_FUTEX)
		read_futex(thread, regs);
	if (call_family(thread->nr) == CALL_POLL || call_family(thread->nr) == CALL_SOCKET) {
		thread_does_io(thread, now, thread->parts[PART_ON_CPU]);
		if (call_family(thread->nr) == CALL_POLL)
			cpu_polls(thread, now, thread->parts[PART_ON_CPU]);
		if (is_epoll_call(thread->nr) && thread->epfd != (s32)thread->args[0]) {
			thread->epfd = (s32)thread->args[0];
			thread->epoll = epoll_of(task, thread->args[0]);
			thread->tell_poll = 1;
		}
	}
}

/* `wake_ns` 0: no wake was seen. */
static __always_inline void add_sleep(struct thread *thread, enum part part, u64 wake_ns, u64 now)
{
	if (part < PART_COUNT)
		thread->parts[part] += (wake_ns ? wake_ns : now) - thread->out_ns;
	if (wake_ns)
		thread->parts[PART_RUNNABLE] += now - wake_ns;
}

static __always_inline void switch_in(struct task_struct *task, struct thread *thread, u64 now)
{
	u64 wake_ns = thread->wake_ns;
	enum call_family family;
	enum part part;

	if (thread->state == THREAD_RUNNABLE) {
		thread->parts[PART_RUNNABLE] += now - thread->out_ns;
	} else if (thread->state == THREAD_SLEEPING) {
		/*
		 * The wake may have been made between the decision to sleep and the switch, on another CPU: then it
		 * was seen first. It is the right one if it came after the thread last got a CPU.
		 */
		if (wake_ns <= thread->in_ns) {
			wake_ns = 0;
			thread->wake_context = WAKE_UNKNOWN;
			COUNT(unmatched_wakes);
		} else if (wake_ns < thread->out_ns) {
			wake_ns = thread->out_ns;
		}
		part = part_of_sleep(thread->nr, thread->uninterruptible, thread->io_wait, thread->wake_context,
				     thread->waker_in_target);
		family = call_family(thread->nr);
		if (now - thread->out_ns >= threshold_ns || thread->tell_poll ||
		    (thread->nr == NR_FUTEX && tell_short_futex(thread, (wake_ns ? wake_ns : now) - thread->out_ns))) {
			thread->tell_poll = 0;
			/* A long sleep has a record of its own; the totals up to it are the segment before it. */
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

SEC("tp_btf/sched_switch")
int sched_switch(u64 *ctx)
{
	bool preempt = ctx[0];
	struct task_struct *prev = (struct task_struct *)ctx[1];
	struct task_struct *next = (struct task_struct *)ctx[2];
	struct thread *thread;
	u64 now = 0;

	thread = thread_of(prev);
	if (thread) {
		u32 state = switch_passes_state ? (u32)ctx[3] : prev->__state;

		now = bpf_ktime_get_ns();
		switch_out(prev, thread, !preempt && state, state, now);
		COUNT(events);
	}
	thread = thread_of(next);
	if (thread) {
		if (!now)
			now = bpf_ktime_get_ns();
		switch_in(next, thread, now);
		COUNT(events);
	}
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(sched_waking, struct task_struct *task)
{
	struct thread *thread = thread_of(task);
	struct task_struct *waker;
	u64 now;

	if (!thread)
		return 0;
	now = bpf_ktime_get_ns();
	thread->wake_ns = now;
	thread->wake_context = current_context();
	waker = bpf_get_current_task_btf();
	thread->waker_tid = waker->pid;
	thread->waker_tgid = waker->tgid;
	thread->waker_in_target = thread->wake_context == WAKE_TASK && thread_of(waker);
	if (thread->waker_in_target && thread->state == THREAD_SLEEPING && thread->nr == NR_FUTEX &&
	    now - thread->out_ns >= threshold_ns)
		send_waker(thread, waker, now);
	if (thread->state == THREAD_SLEEPING && call_family(thread->nr) == CALL_POLL)
		herd_wakes(thread, waker, now);
	COUNT(events);
	return 0;
}

static __always_inline void send_thread(struct task_struct *task, u32 change, struct task_struct *parent,
					const char *comm)
{
	struct thread_record *record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);

	if (!record) {
		COUNT(lost_ring_full);
		return;
	}
	record->type = RECORD_THREAD;
	record->change = change;
	record->at_ns = bpf_ktime_get_ns();
	record->tid = task->pid;
	record->tgid = task->tgid;
	record->parent_tid = parent ? parent->pid : 0;
	record->parent_tgid = parent ? parent->tgid : 0;
	bpf_probe_read_kernel_str(record->comm, sizeof(record->comm), comm ? comm : task->comm);
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(sched_process_fork, struct task_struct *parent, struct task_struct *child)
{
	struct thread *thread;

	if (!thread_of(parent))
		return 0;
	thread = bpf_task_storage_get(&threads, child, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!thread) {
		COUNT(lost_thread_storage);
		return 0;
	}
	if (child->pid == child->tgid)
		follow_process(child->tgid);
	thread->tid = child->pid;
	thread->tgid = child->tgid;
	thread->epfd = -1;
	thread->state = THREAD_RUNNABLE;
	thread->out_ns = bpf_ktime_get_ns();
	COUNT(events);
	send_thread(child, THREAD_FORK, parent, 0);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(sched_process_exec, struct task_struct *task)
{
	struct thread *thread = thread_of(task);

	if (!thread)
		return 0;
	/* A thread that is not the leader takes over the leader's id when it becomes another program. */
	thread->tid = task->pid;
	thread->epfd = -1;
	thread->io_ns = 0;
	COUNT(events);
	send_thread(task, THREAD_EXEC, 0, 0);
	return 0;
}

SEC("tp_btf/task_rename")
int BPF_PROG(task_rename, struct task_struct *task, const char *comm)
{
	if (!thread_of(task))
		return 0;
	COUNT(events);
	send_thread(task, THREAD_RENAME, 0, comm);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(sched_process_exit, struct task_struct *task)
{
	struct thread *thread = thread_of(task);
	u32 tid = task->pid;

	if (!thread)
		return 0;
	COUNT(events);
	cpu_exit(thread, bpf_ktime_get_ns());
	bpf_map_delete_elem(&user_stack_works, &tid);
	bpf_map_delete_elem(&processes, &tid); /* there only if it is the process's first thread */
	send_thread(task, THREAD_EXIT, 0, 0);
	return 0;
}
