/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Whether a thread that is found in io_uring_enter over and over gets anywhere. */
#pragma once

#include "collectors/cpu/cpu.bpf.h"
#include "collectors/uring/looks.bpf.h"

/* include/uapi/linux/io_uring.h */
#define IORING_ENTER_REGISTERED_RING \
	16 /* the descriptor is none, but a number among the thread's own */

/* The ring of a call to io_uring_enter, as far as it is known. */
static __always_inline bool uring_entered(const struct thread *thread, struct task_struct *task,
					  const struct pt_regs *regs, struct uring_view *view)
{
	struct uring_state *ring;
	u64 from, rings;
	s32 index;

	if ((u32)PT_REGS_PARM4_SYSCALL(regs) & IORING_ENTER_REGISTERED_RING)
		index = (s32)thread->uring - 1;
	else
		index = uring_index(epoll_of(
			task, (u32)PT_REGS_PARM1_SYSCALL(regs))); /* what the file is about, as of an epoll instance */
	if (index < 0)
		return false;
	index &= URING_RINGS - 1;
	ring = uring_at(index);
	if (!ring || !ring->ctx || ring->tgid != thread->tgid)
		return false;
	from = ring->ctx;
	rings = ring->rings;
	if ((u64)KERNEL_READ(struct io_ring_ctx, from, rings) != rings)
		return false;
	uring_read(view, from, rings);
	return true;
}

/*
 * The clock found the thread in io_uring_enter. Whether its ring stands where it stood the last
 * time: nothing was submitted, and the program has taken no completion since. What is not known has
 * moved.
 */
static __always_inline bool uring_stands(struct thread *thread, struct task_struct *task,
					 const struct pt_regs *regs, u64 now)
{
	struct uring_view view;
	u64 seen;

	if (!uring_entered(thread, task, regs, &view))
		return false;
	seen = (u64)view.cached_sq_head << 32 | view.cq_head;
	if (thread->uring_seen == seen)
		return true;
	thread->uring_seen = seen;
	cpu_progress(thread, on_cpu_now(thread, now));
	return false;
}
