/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * The slow requests that are under way whose tasks can be looked at, when user space does: it
 * walks over the target's sockets. No hook is needed, so that it costs nothing in between.
 */
#pragma once

#include "collectors/sockets/sockets.bpf.h"
#include "collectors/tasks/tasks.bpf.h"

SEC("iter/bpf_sk_storage_map")
int slow_tasks(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct slow_task_record record = { .type = RECORD_SLOW_TASK };
	struct socket_home *home = ctx->value;
	struct sock *sk = ctx->sk;
	struct socket_state *socket;
	struct runtime *runtime;

	if (!home || !sk || home->cookie != cookie_of(sk))
		return 0;
	socket = home->away ? socket_in_slot(home->cookie) : &home->state;
	if (!socket || socket->role != SOCKET_SERVER)
		return 0;
	/* Whoever reads ahead on a connection with several requests waits for none of them. */
	if (!socket->ready_ns || !socket->recv_ns || socket->first_send_ns ||
	    is_multiplexed(socket) || bpf_ktime_get_ns() - socket->recv_ns < threshold_ns)
		return 0;
	record.tgid = socket->tgid;
	runtime = bpf_map_lookup_elem(&runtimes, &record.tgid);
	/* Which goroutine has read it is known; of Python's tasks none has. */
	if (!runtime || (runtime->kind == RUNTIME_GO && !socket->recv_task))
		return 0;
	record.task = runtime->kind == RUNTIME_GO ? socket->recv_task : 0;
	record.socket = socket->id;
	record.seq = socket->seq;
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}
