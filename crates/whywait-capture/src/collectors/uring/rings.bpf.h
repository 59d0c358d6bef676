/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * io_uring, beside the operations: rings that were there before, looks at those whose threads
 * sleep, rings that are closed, and memory.
 */
#pragma once

#include "collectors/uring/uring.bpf.h"

/* include/linux/percpu-refcount.h, include/net/sock.h */
#define PERCPU_REF_DEAD 2
#define SK_MEM_SEND 0

/*
 * A ring whose last reference is given up is being torn down, whoever's memory it is afterwards:
 * then it has no queues, or none of as many entries as it says. (One that is resized has new ones,
 * which do.)
 */
static __always_inline bool uring_is_closed(const struct io_ring_ctx *from)
{
	struct io_rings *rings = BPF_CORE_READ(from, rings);
	u32 entries = BPF_CORE_READ(from, sq_entries);

	return BPF_CORE_READ(from, refs.percpu_count_ptr) & PERCPU_REF_DEAD || !rings || !entries ||
	       BPF_CORE_READ(rings, sq_ring_entries) != entries;
}

static long look_at_uring(u32 index, void *ctx)
{
	struct io_ring_ctx *from;
	struct io_rings *rings;
	struct uring_state *ring;
	struct uring_view view;

	if (index >= URING_RINGS || !uring_keys[index])
		return 0;
	ring = uring_at(index);
	if (!ring || uring_keys[index] != ring->ctx || ring->looking)
		return 0;
	from = (struct io_ring_ctx *)ring->ctx;
	rings = (struct io_rings *)ring->rings;
	if (uring_is_closed(from)) {
		uring_ends(index);
		return 0;
	}
	/* The memory may be another's by now. */
	if (BPF_CORE_READ(from, rings) != rings ||
	    BPF_CORE_READ(rings, sq_ring_entries) != ring->sq_entries)
		return 0;
	uring_read(&view, (u64)from, (u64)rings);
	uring_look(index, ring, &view, bpf_ktime_get_ns(), LOOK_ELSEWHERE);
	return 0;
}

/* Run by user space every few milliseconds: rings whose threads sleep have no other looks. */
SEC("syscall")
int look_at_urings(void *ctx)
{
	bpf_loop(URING_RINGS, look_at_uring, 0, 0);
	return 0;
}

/*
 * Memory for sockets is short: the protocol's limit, or that of the thread's cgroup. (A send
 * buffer that is full is no matter of this: there the kernel waits until the socket can be written
 * to.)
 */
SEC("tp_btf/sock_exceed_buf_limit")
int sock_exceed_buf_limit(u64 *args)
{
	struct thread *thread = thread_of(bpf_get_current_task_btf());
	struct uring_state *ring;
	u32 index;

	if ((u32)args[3] != SK_MEM_SEND || !thread || !thread->uring)
		return 0;
	index = (thread->uring - 1) & (URING_RINGS - 1);
	ring = uring_at(index);
	if (ring && uring_keys[index] == ring->ctx && ring->tgid == thread->tgid)
		ring->memory_limits++;
	return 0;
}

/* Rings that the target has open already; and, first, how to tell a ring. */
SEC("iter/task_file")
int open_urings(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	u64 ring;

	if (!task || !file)
		return 0;
	if (!uring_fops) {
		if (ctx->fd == uring_own_fd)
			uring_fops = (u64)file->f_op;
		return 0;
	}
	if ((u64)file->f_op != uring_fops || !thread_of(task))
		return 0;
	ring = (u64)BPF_CORE_READ(file, private_data);
	if (uring_index(ring) < 0)
		uring_begin(ring, URING_FOUND, task->tgid, 0, ctx->fd);
	return 0;
}
