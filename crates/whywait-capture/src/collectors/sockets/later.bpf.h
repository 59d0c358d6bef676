/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Requests that begin later than they seemed to. */
#pragma once

#include "collectors/sockets/arrivals.bpf.h"

/* How long a thread that now works for what came at `ready_ns` was on its way to it. */
static __always_inline u64 on_the_way_ns(const struct thread *thread, u64 ready_ns)
{
	u64 from = thread->wake_ns > ready_ns ? thread->wake_ns : ready_ns;

	return thread->back_ns > from ? thread->back_ns - from : 0;
}

/*
 * What wants no answer is no longer than this, and a byte more for so many of the answers before:
 * HTTP/2's clients say for each piece of one that they have room for more (Go's, of 200 kB: 1,200
 * bytes). Some of that is read while the answer is written, which then looks like several.
 */
#define UNANSWERED_BYTES 1024
#define ANSWER_FOR_ONE 64

/*
 * More was read of a request that was not answered yet. What had come before may have wanted no
 * answer (HTTP/2's acknowledgements and WINDOW_UPDATE, MySQL's COM_STMT_CLOSE): little, all of it
 * was read, and then nothing came for long. Whether it was so shows the answer; if it was, the
 * request begins here, and what the client did before it asked is none of the server's time.
 */
__noinline int may_begin_later(struct socket_state *socket, const struct arrivals *arrivals,
			       struct thread *thread, u32 bytes, u64 read_before_ns)
{
	u64 now, came_ns;

	if (!socket || !thread)
		return 0;
	now = socket->read_ns;
	if (socket->bytes_in > UNANSWERED_BYTES + socket->recent_out / ANSWER_FOR_ONE ||
	    thread->uring)
		return 0;
	came_ns = noted_arrival(socket, arrivals, bytes, 0);
	if (came_ns < read_before_ns + threshold_ns)
		return 0;
	socket->later.ready_ns = came_ns;
	socket->later.recv_ns = now;
	socket->later.paused_ns = came_ns - read_before_ns;
	socket->later.bytes_in = socket->bytes_in;
	socket->later.recv_tid = thread->tid;
	socket->later.unserved_wakeup_ns = on_the_way_ns(thread, came_ns);
	__builtin_memcpy(socket->later.at_recv, thread->parts, sizeof(socket->later.at_recv));
	socket->later.at_recv[PART_ON_CPU] = on_cpu_now(thread, now);
	return 0;
}

/*
 * It is answered, and it may begin later than it seemed to. It does if the answer comes soon after
 * what came last, measured by the pause before; or if the thread that answers read that, and did
 * not sleep since. (Of requests that overlap on one connection, as HTTP/2's may, one that takes
 * long is answered at any time after the next one came: one in ten within so short a time.)
 */
__noinline int begin_later(struct socket_state *socket, const struct thread *thread, u64 now)
{
	bool soon, at_once;

	if (!socket || !thread)
		return 0;
	soon = (now - socket->later.ready_ns) * 10 <= socket->later.paused_ns;
	at_once = thread->tid == socket->later.recv_tid &&
		  thread->back_ns <= socket->later.recv_ns;
	if (soon || at_once) {
		COUNT(began_later);
		socket->ready_ns = socket->later.ready_ns;
		socket->recv_ns = socket->later.recv_ns;
		socket->recv_tid = socket->later.recv_tid;
		socket->recv_task = 0;
		socket->before_accept = 0;
		socket->before_in += socket->later.bytes_in;
		socket->bytes_in -= socket->later.bytes_in;
		socket->unserved_wakeup_ns = socket->later.unserved_wakeup_ns;
		__builtin_memcpy(socket->at_recv, socket->later.at_recv, sizeof(socket->at_recv));
	}
	socket->later.ready_ns = 0;
	return 0;
}
