/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Requests that have a state for themselves, and no connection: questions, streams of HTTP/2. */
#pragma once

#include "collectors/sockets/later.bpf.h"

/* One that came then (0: not known) was read just now: of whom and what kind says the caller. */
static __always_inline void begins_alone(struct socket_state *state, struct thread *thread,
					 u64 came_ns, u64 now, u32 bytes, u64 on_cpu_ns)
{
	state->id = __sync_fetch_and_add(&next_socket_id, 1) + 1;
	state->role = SOCKET_SERVER;
	state->multiplex = MULTIPLEX_NONE;
	state->timing = TIMED;
	state->gone = 0;
	state->emitted = 0;
	state->before_accept = 0;
	state->seq = 1;
	state->fd = 0;
	state->ready_ns = came_ns && came_ns < now ? came_ns : now;
	state->recv_ns = now;
	state->first_send_ns = 0;
	state->last_send_ns = 0;
	state->ended_ns = 0;
	state->send_tid = 0;
	state->bytes_in = bytes;
	state->bytes_out = 0;
	state->tgid = thread->tgid;
	state->recv_tid = thread->tid;
	state->unserved_wakeup_ns =
		thread->back_ns > state->ready_ns ? on_the_way_ns(thread, state->ready_ns) : 0;
	__builtin_memcpy(state->at_recv, thread->parts, sizeof(state->at_recv));
	state->at_recv[PART_ON_CPU] = on_cpu_ns;
	__builtin_memset(state->service, 0, sizeof(state->service));
	state->only_on_cpu = 1;
	state->recv_task = 0;
	state->send_task = 0;
	thread->open.requests++;
}
