/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Requests that are read through a ring: until when they lay there, for certain. The kernel reads
 * for the program, which knows of it when it takes the completion. Completions are taken in order,
 * and each look at the ring tells which were not taken yet: a request's lay there at the last look
 * at which as many as had come before it had not all been taken.
 *
 * The kernel reads for several operations, and then puts their completions into the queue in that
 * order. So those of requests that were read before, in the same batch, come before this one's, if
 * each has exactly one: not where operations have several or none, where a read that has not got
 * all of what it is for goes on, or where several threads use the ring. Then the batch's first is
 * assumed.
 */
#pragma once

#include "collectors/sockets/state.bpf.h"
#include "collectors/uring/state.bpf.h"

#define MSG_WAITALL 0x100

/*
 * x86-64's numbers of calls that read from a socket by themselves: read, readv, recvfrom, recvmsg,
 * recvmmsg.
 */
static __always_inline bool reads_by_itself(u64 nr)
{
	return nr == 0 || nr == 19 || nr == 45 || nr == 47 || nr == 299;
}

static __noinline void uring_reads(struct socket_state *socket, struct thread *thread, int flags)
{
	struct pt_regs *regs = user_registers(bpf_get_current_task_btf());
	u32 index = (thread->uring - 1) & (URING_RINGS - 1);
	struct uring_state *ring = uring_at(index);
	u64 from;
	u32 tail;

	if (!ring || uring_keys[index] != ring->ctx || ring->tgid != thread->tgid ||
	    reads_by_itself(call_number(regs)))
		return;
	from = ring->ctx;
	socket->uring = index + 1;
	socket->uring_id = ring->id;
	/* Its completion comes after this, and has this number or a later one. */
	tail = KERNEL_READ(struct io_ring_ctx, from, cached_cq_tail);
	if (tail != ring->read_tail) {
		ring->read_tail = tail;
		ring->reads = 0;
	}
	socket->uring_number = tail + ring->reads;
	if (!ring->unordered && !ring->users_changed && !(flags & MSG_WAITALL))
		ring->reads++;
}

/* At the first byte of the response. 0: it was not seen lying there. */
static __noinline u64 uring_taken(struct socket_state *socket)
{
	u32 index = (socket->uring - 1) & (URING_RINGS - 1);
	struct uring_state *ring = uring_at(index);
	u64 taken_ns = 0;

	if (!ring || ring->id != socket->uring_id)
		return 0;
	if ((s32)(socket->uring_number - ring->head) >= 0) {
		taken_ns = ring->look_ns; /* not yet, as far as was looked */
	} else {
		for (u32 i = 0; i < URING_MOVES; i++) {
			u32 at = (ring->moves - 1 - i) & (URING_MOVES - 1);

			if (i >= ring->moves)
				break;
			if ((s32)(socket->uring_number - ring->moved_from[at]) >= 0) {
				taken_ns = ring->moved_ns[at];
				break;
			}
		}
	}
	return taken_ns > socket->recv_ns ? taken_ns : 0;
}
