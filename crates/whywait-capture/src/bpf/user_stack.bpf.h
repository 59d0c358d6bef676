/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * User stacks of long sleeps, exact and free of cost for short ones: a thread that comes back from a long sleep leaves
 * its stack on its way out of the kernel, where its registers are still those of the call that it slept in. Kernels
 * before 6.18 cannot do that (bpf_task_work_schedule_resume); there the sweep over sleeping threads sees the longer ones.
 */

/* include/linux/sched.h: threads that never leave the kernel. */
#define PF_IO_WORKER 0x10
#define PF_USER_WORKER 0x4000
#define PF_KTHREAD 0x200000

extern int bpf_task_work_schedule_resume_impl(struct task_struct *task, struct bpf_task_work *tw, void *map__map,
					      bpf_task_work_callback_t callback, void *aux__prog) __weak __ksym;

/* Runs in the thread itself, as it returns to its program. */
static int leave_user_stack(struct bpf_map *map, void *key, void *value)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *thread = thread_of(task);
	struct user_stack_record *record;
	struct pt_regs *regs;
	u32 len;
	u64 sp;

	if (!thread)
		return 0;
	thread->stack_asked = 0;
	record = bpf_ringbuf_reserve(&records, sizeof(*record) + stack_bytes, 0);
	if (!record) {
		COUNT(lost_ring_full);
		return 0;
	}
	record->type = RECORD_USER_STACK;
	record->tid = thread->tid;
	record->tgid = thread->tgid;
	regs = (struct pt_regs *)bpf_task_pt_regs(task);
	record->ip = regs->ip;
	record->sp = sp = regs->sp;
	record->bp = regs->bp;
	/*
	 * Without faults, although they would be allowed here: the target would wait for its own memory map on our behalf, for
	 * hundreds of milliseconds where others map and unmap. The live part of a stack is in memory.
	 */
	record->stack_len = len = copy_user_stack(record + 1, sp);
	record->stack_key = learn_stack(task, thread, regs->ip, sp, (const u64 *)(record + 1), len, bpf_ktime_get_ns());
	if (!record->stack_len)
		COUNT(user_stack_unread);
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return 0;
}

/* Whether `task`, which is about to run again, will leave its stack. */
static __always_inline bool ask_user_stack(struct task_struct *task, struct thread *thread, u64 now)
{
	struct user_stack_work *work, none = {};
	u32 tid = thread->tid;

	if (!user_stacks_exact)
		return false;
	if (thread->stack_asked)
		return true; /* one stack serves all sleeps of one call */
	if (thread->stack_seq == thread->seq + 1)
		return false; /* the sweep has read it */
	if (task->flags & (PF_IO_WORKER | PF_USER_WORKER | PF_KTHREAD))
		return false;
	if (!within_budget(BUDGET_STACKS, stacks_per_second, now)) {
		COUNT(user_stack_budget);
		return false;
	}
	work = bpf_map_lookup_elem(&user_stack_works, &tid);
	if (!work) {
		bpf_map_update_elem(&user_stack_works, &tid, &none, BPF_NOEXIST);
		work = bpf_map_lookup_elem(&user_stack_works, &tid);
		if (!work)
			goto unread;
	}
	if (bpf_task_work_schedule_resume_impl(task, &work->work, &user_stack_works, leave_user_stack, 0))
		goto unread;
	thread->stack_asked = 1;
	return true;
unread:
	COUNT(user_stack_unread);
	return false;
}

/* The current thread ends the long sleep of `thread`: what it is doing tells what the sleep was for. */
static __always_inline void send_waker(const struct thread *thread, struct task_struct *task, struct thread *waker,
				       u64 now)
{
	struct pt_regs *regs = user_registers(task);
	u64 ip = regs->ip, sp = regs->sp, key = recognise_stack(waker, ip, sp, now);
	struct waker_record *record;

	if (key ? !within_budget(BUDGET_KNOWN_WAKERS, known_wakers_per_second, now) :
		  !within_budget(BUDGET_WAKERS, wakers_per_second, now)) {
		COUNT(waker_stack_budget);
		return;
	}
	if (key)
		record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	else
		record = bpf_ringbuf_reserve(&records, sizeof(*record) + stack_bytes, 0);
	if (!record) {
		COUNT(lost_ring_full);
		return;
	}
	record->type = RECORD_WAKER;
	record->tid = thread->tid;
	record->seq = thread->seq;
	record->waker_tid = waker->tid;
	record->waker_tgid = waker->tgid;
	record->ip = ip;
	record->sp = sp;
	record->bp = regs->bp;
	record->stack_key = key;
	record->stack_len = 0;
	if (!key) {
		u32 len = copy_user_stack(record + 1, sp);

		record->stack_len = len;
		record->stack_key = learn_stack(task, waker, ip, sp, (const u64 *)(record + 1), len, now);
	}
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}
