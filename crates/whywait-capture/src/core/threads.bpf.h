/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Which tasks are the target's threads, and where their state is.
 *
 * The hooks ask this of every task that is switched or woken on the machine, so it has to cost next
 * to nothing for those that are not the target's. A thread's state lies in an array, in the slot of
 * the lowest bits of its id: the look-up is a load and a comparison, and no call, where a storage
 * of the task takes 20 ns. Threads whose slot is taken are in a hash. Only tasks of such a slot are
 * looked for there: a target with a few threads too many must not make all the machine's switches
 * and wakes pay.
 *
 * The array is a variable and no map of the type ARRAY: what the kernel makes of a look-up there
 * (the key through memory, a comparison, a product) is some 3 ns longer, and everything that a hook
 * does waits for it.
 *
 * A slot's `tid` is written when nothing of an earlier thread is left in it, and cleared first when
 * its thread goes. A thread goes when it exits; what it does between that and its end is not seen.
 * The id of a thread whose exit was missed is taken back when it is given to another.
 */
#pragma once

#include "core/state.bpf.h"

#define THREAD_SLOTS 8192

struct thread thread_slots[THREAD_SLOTS] SEC(".bss.threads");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, u32);
	__type(value, struct thread);
} more_threads SEC(".maps");

/* A state is too large for the stack that programs have: this one is copied. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct thread);
} blank_thread SEC(".maps");

/* How many threads of each slot are there; and of all, which is one line of the cache. */
u32 more_threads_of_slot[THREAD_SLOTS] SEC(".bss.more");
u32 more_threads_used = 0;

static __always_inline struct thread *thread_slot(u32 tid)
{
	return &thread_slots[tid & (THREAD_SLOTS - 1)];
}

static __always_inline void count_more_threads(u32 tid, s32 change)
{
	__sync_fetch_and_add(&more_threads_of_slot[tid & (THREAD_SLOTS - 1)], change);
	__sync_fetch_and_add(&more_threads_used, change);
}

static __noinline struct thread *thread_in_more(u32 tid)
{
	struct thread *thread;

	if (!more_threads_of_slot[tid & (THREAD_SLOTS - 1)])
		return 0;
	thread = bpf_map_lookup_elem(&more_threads, &tid);

	if (!thread || thread->tid != tid)
		return 0;
	return thread;
}

static __always_inline struct thread *thread_by_id(u32 tid)
{
	struct thread *thread = thread_slot(tid);

	/* Slots that are free have the id 0, which is that of every CPU's idle task. */
	if (thread->tid == tid)
		return tid ? thread : 0;
	if (unlikely(more_threads_used))
		return thread_in_more(tid);
	return 0;
}

/* The state of a thread of the target, 0 for any other task. */
static __always_inline struct thread *thread_of(struct task_struct *task)
{
	return thread_by_id(task->pid);
}

/*
 * A state for a thread that is not followed yet, empty but for its process. Nobody finds it until
 * publish_thread.
 */
static __always_inline struct thread *claim_thread(struct task_struct *task)
{
	u32 tid = task->pid, zero = 0;
	struct thread *thread = thread_slot(tid), *blank;
	u32 owner = __sync_val_compare_and_swap(&thread->claimed, 0, tid);

	if (owner == tid)
		return 0; /* just being taken in */
	if (!owner) {
		/*
		 * In two pieces, because the compiler makes no more than 128 stores of one, and
		 * would put them together again.
		 */
		__builtin_memset((void *)thread + offsetof(struct thread, tgid), 0,
				 offsetof(struct thread, known_tags) -
					 offsetof(struct thread, tgid));
		barrier();
		__builtin_memset(thread->known_tags, 0,
				 sizeof(*thread) - offsetof(struct thread, known_tags));
	} else {
		blank = bpf_map_lookup_elem(&blank_thread, &zero);
		if (!blank || bpf_map_update_elem(&more_threads, &tid, blank, BPF_NOEXIST))
			return 0;
		count_more_threads(tid, 1);
		thread = bpf_map_lookup_elem(&more_threads, &tid);
		if (!thread)
			return 0;
	}
	thread->tgid = task->tgid;
	thread->epfd = -1;
	return thread;
}

static __always_inline void publish_thread(struct thread *thread, struct task_struct *task)
{
	barrier();
	*(volatile u32 *)&thread->tid = task->pid;
}
