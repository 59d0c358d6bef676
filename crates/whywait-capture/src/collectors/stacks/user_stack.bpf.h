/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * User stacks of long sleeps, exact and free of cost for short ones. A thread's memory can be read
 * while one of its process's runs:
 *  - the one that wakes it, if that is of its process, reads its stack, as it is when the sleep
 *    ends;
 *  - a thread that comes back from a long sleep in a read of a socket leaves its stack when it has
 *    read;
 *  - any other leaves its stack on its way out of the kernel, where its registers are still those
 *    of the call that it slept in. Kernels before 6.18 cannot do that
 *    (bpf_task_work_schedule_resume); there the sweep over sleeping threads sees the longer ones.
 *    It is by far the most expensive, some 9 us, because the kernel interrupts its own CPU for it.
 */
#pragma once

#include "core/calls.bpf.h"
#include "core/threads.bpf.h"
#include "collectors/stacks/functions.bpf.h"
#include "collectors/stacks/known_stack.bpf.h"

extern int bpf_task_work_schedule_resume_impl(struct task_struct *task, struct bpf_task_work *tw,
					      void *map__map, bpf_task_work_callback_t callback,
					      void *aux__prog) __weak __ksym;
/* The same from Linux 7.0 on, where the one above stands in BTF and cannot be called. */
extern int bpf_task_work_schedule_resume(struct task_struct *task, struct bpf_task_work *tw,
					 void *map__map,
					 bpf_task_work_callback_t callback) __weak __ksym;

/* By tid: threads that will leave their stack. A storage of the task cannot hold this. */
struct user_stack_work {
	struct bpf_task_work work;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, u32);
	__type(value, struct user_stack_work);
} user_stack_works SEC(".maps");

enum stack_asked {
	STACK_NOT_ASKED,
	STACK_ON_RETURN,
	STACK_AFTER_READ,
};

/* Where a thread is in its program. */
struct user_place {
	u64 ip, sp, bp, lr;
	u64 kept[2]; /* registers in which interpreters have their frame and instruction */
	u64 top; /* see stack_top_of */
	u64 thread_pointer;
};

static __always_inline void place_of(struct user_place *place, struct task_struct *task)
{
	struct pt_regs *regs = user_registers(task);

	place->ip = PT_REGS_IP(regs);
	place->sp = PT_REGS_SP(regs);
	place->bp = PT_REGS_FP(regs);
	place->lr = LINK_REGISTER(regs);
	place->kept[0] = KEPT_REGISTER(regs);
	place->kept[1] = OTHER_KEPT_REGISTER(regs);
	place->top = stack_top_of(task, place->sp);
	place->thread_pointer = THREAD_POINTER(task);
}

static __always_inline void fill_user_stack(struct user_stack_record *record,
					    const struct thread *thread,
					    const struct user_place *place, u64 key)
{
	record->type = RECORD_USER_STACK;
	record->stack_len = 0;
	record->tid = thread->tid;
	record->tgid = thread->tgid;
	record->ip = place->ip;
	record->sp = place->sp;
	record->bp = place->bp;
	record->lr = place->lr;
	record->kept[0] = place->kept[0];
	record->kept[1] = place->kept[1];
	record->stack_key = key;
}

/* How far above the stack pointer what is behind a large frame begins, as user space has found. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct large_frame_key);
	__type(value, u32);
} large_frames SEC(".maps");

/* There is one: until then nobody looks. */
volatile bool large_frames_known = false;

/* Tells what is behind the large frame of a stack that is told next, if it has one. */
static __noinline int send_behind(const struct thread *thread, const struct user_place *place)
{
	struct large_frame_key key = {};
	struct stack_behind_record *record;
	u32 *distance;

	if (!thread || !place)
		return 0;
	key.tgid = thread->tgid;
	key.ip = place->ip;
	distance = bpf_map_lookup_elem(&large_frames, &key);
	if (!distance)
		return 0;
	record = bpf_ringbuf_reserve(&records, sizeof(*record) + stack_bytes, 0);
	/* A stack without it ends there. */
	if (!record)
		return 0;
	record->type = RECORD_STACK_BEHIND;
	record->tid = thread->tid;
	record->distance = *distance;
	record->ip = place->ip;
	record->sp = place->sp;
	record->stack_len = copy_user_stack(record + 1, place->sp + record->distance, place->top);
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return 0;
}

/*
 * Tells a user stack of a thread that has the memory that is current here. Says its key, or 0 if it
 * has none by which later sleeps could refer to it. Not static, so that it is verified once and not
 * on each way that leads to it.
 */
__noinline u64 send_user_stack(struct thread *thread, const struct user_place *place, u64 now)
{
	struct user_stack_record *record;
	u64 key;

	if (!thread || !place)
		return 0;
	if (unlikely(large_frames_known))
		send_behind(thread, place);
	send_functions(&records, thread, place->thread_pointer, place->ip, place->sp, 0);
	record = bpf_ringbuf_reserve(&records, sizeof(*record) + stack_bytes, 0);
	if (!record) {
		COUNT(lost_ring_full);
		return 0;
	}
	fill_user_stack(record, thread, place, 0);
	/*
	 * Without faults, even where they would be allowed: the target would wait for its own
	 * memory map on our behalf, for hundreds of milliseconds where others map and unmap. The
	 * live part of a stack is in memory.
	 */
	record->stack_len = copy_user_stack(record + 1, place->sp, place->top);
	if (!record->stack_len)
		COUNT(user_stack_unread);
	key = 0;
	if (record->stack_len >= STACK_TOP_BYTES)
		key = learn_stack(thread, place->ip, place->sp,
				  (const struct stack_top *)(record + 1), now);
	record->stack_key = key;
	submit(record);
	return key;
}

/*
 * As send_user_stack, but only its key if user space has had the stack, and not even that if too
 * many have been sent.
 */
static __noinline int send_or_refer(struct task_struct *task, struct thread *thread, u64 now)
{
	struct user_stack_record *record;
	struct user_place place;
	u64 key;

	place_of(&place, task);
	key = recognise_stack(thread, place.ip, place.sp, now);
	if (!key && within_budget(STACKS, now)) {
		send_user_stack(thread, &place, now);
		return 0;
	}
	if (!key)
		COUNT(user_stack_budget);
	record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	if (!record) {
		COUNT(lost_ring_full);
		return 0;
	}
	fill_user_stack(record, thread, &place, key);
	submit(record);
	return 0;
}

static __always_inline u64 send_stack_of(struct task_struct *task, struct thread *thread, u64 now)
{
	struct user_place place;

	place_of(&place, task);
	return send_user_stack(thread, &place, now);
}

/* Runs in the thread itself, as it returns to its program. */
static int leave_user_stack(struct bpf_map *map, void *key, void *value)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *thread = thread_of(task);

	if (!thread)
		return 0;
	thread->stack_asked = STACK_NOT_ASKED;
	send_stack_of(task, thread, bpf_ktime_get_ns());
	return 0;
}

/* Whether it sleeps in a call at whose end leave_stack_after_read comes. */
static __always_inline bool read_tells_stack(const struct thread *thread)
{
	return sockets_followed && (thread->nr == NR_RECVFROM || thread->nr == NR_RECVMSG);
}

/* The thread has read from a socket, or tried to. */
static __always_inline void leave_stack_after_read(struct task_struct *task, struct thread *thread,
						   u64 now)
{
	if (likely(thread->stack_asked != STACK_AFTER_READ))
		return;
	thread->stack_asked = STACK_NOT_ASKED;
	send_or_refer(task, thread, now);
}

/*
 * Whether this thread's stack is of use and may be sent; by a thread of its process, which ends its
 * long sleep on a futex.
 */
static __always_inline bool may_send_stack(const struct thread *thread, u64 now)
{
	return stacks_repeat && !thread->stack_asked && thread->stack_seq != thread->seq + 1 &&
	       within_budget(STACKS, now);
}

/* Whether `task`, which is about to run again, will leave its stack. */
static __always_inline bool ask_user_stack(struct task_struct *task, struct thread *thread, u64 now)
{
	struct user_stack_work *work, none = {};
	u32 tid = thread->tid;

	if (!user_stacks_exact && !read_tells_stack(thread))
		return false;
	/* The end of that read was not seen (see `runs.left-out`), or its call has no such end. */
	if (thread->stack_asked == STACK_AFTER_READ && !read_tells_stack(thread))
		thread->stack_asked = STACK_NOT_ASKED;
	if (thread->stack_asked)
		return true; /* one stack serves all sleeps of one call */
	if (thread->stack_seq == thread->seq + 1)
		return false; /* the sweep has read it */
	if (task->flags & (PF_IO_WORKER | PF_USER_WORKER | PF_KTHREAD))
		return false;
	if (read_tells_stack(thread)) {
		thread->stack_asked = STACK_AFTER_READ;
		return true;
	}
	if (!user_stacks_exact)
		/* so that the verifier sees nothing of what the kernel does not have */
		return false;
	if (!within_budget(STACKS, now)) {
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
	if (bpf_ksym_exists(bpf_task_work_schedule_resume_impl) ?
		    bpf_task_work_schedule_resume_impl(task, &work->work, &user_stack_works,
						       leave_user_stack, 0) :
		    bpf_task_work_schedule_resume(task, &work->work, &user_stack_works,
						  leave_user_stack))
		goto unread;
	thread->stack_asked = STACK_ON_RETURN;
	return true;
unread:
	COUNT(user_stack_unread);
	return false;
}

static __always_inline void fill_waker(struct waker_record *record, const struct thread *thread,
				       const struct thread *waker, const struct pt_regs *regs,
				       u64 key)
{
	record->type = RECORD_WAKER;
	record->tid = thread->tid;
	record->seq = thread->seq;
	record->waker_tid = waker->tid;
	record->waker_tgid = waker->tgid;
	record->ip = PT_REGS_IP(regs);
	record->sp = PT_REGS_SP(regs);
	record->bp = PT_REGS_FP(regs);
	record->lr = LINK_REGISTER(regs);
	record->stack_key = key;
	record->stack_len = 0;
}

/*
 * The current thread ends the long sleep of `thread`: what it is doing tells what the sleep was
 * for.
 */
static __always_inline void send_waker(const struct thread *thread, struct task_struct *task,
				       struct thread *waker, u64 now)
{
	struct pt_regs *regs = user_registers(task);
	u64 ip = PT_REGS_IP(regs), sp = PT_REGS_SP(regs), key = recognise_stack(waker, ip, sp, now);
	struct waker_record *record;

	if (key ? !within_budget(KNOWN_WAKERS, now) :
		  !within_budget(WAKERS, now)) {
		COUNT(waker_stack_budget);
		return;
	}
	/*
	 * Each to its end, because kernels before 6.2 do not see that whether there is a key
	 * decides how large the record is.
	 */
	if (key) {
		record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
		if (!record)
			goto full;
		fill_waker(record, thread, waker, regs, key);
		submit(record);
		return;
	}
	record = bpf_ringbuf_reserve(&records, sizeof(*record) + stack_bytes, 0);
	if (!record)
		goto full;
	fill_waker(record, thread, waker, regs, 0);
	record->stack_len = copy_user_stack(record + 1, sp, stack_top_of(task, sp));
	if (record->stack_len >= STACK_TOP_BYTES)
		record->stack_key =
			learn_stack(waker, ip, sp, (const struct stack_top *)(record + 1), now);
	submit(record);
	return;
full:
	COUNT(lost_ring_full);
}
