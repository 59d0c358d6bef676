/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * The slow requests that are under way whose tasks can be looked at, when user space does: it
 * walks over the target's sockets. No hook is needed, so that it costs nothing in between.
 */
#pragma once

#include "collectors/sockets/sockets.bpf.h"
#include "collectors/streams/state.bpf.h"
#include "collectors/tasks/tasks.bpf.h"

/* Of a connection with as many slow streams it is not known which goroutine works for which. */
#define MOST_SLOW_STREAMS 256

/* The slow streams of one connection, of the only walk there is at a time. */
struct slow_task_record slow_streams[MOST_SLOW_STREAMS] SEC(".bss.slow");

/*
 * How many there are. Not on the stack, where the verifier knows the number, and goes through the
 * search once for each: a tenth of what it has to do for all programs.
 */
u32 slow_streams_found SEC(".bss.slow");

struct slow_search {
	u64 key; /* what the keys of its streams begin with */
	u64 now;
	u64 reader;
	u64 connection;
};

static long find_slow_stream(u32 index, struct slow_search *search)
{
	u32 at = index & (STREAMS - 1);
	u64 key = stream_keys[at];
	struct socket_state *state = &streams[at].state;
	struct slow_task_record *record;
	u32 found;

	if (key >> 32 != search->key || key & STREAM_ENDS || state->first_send_ns ||
	    search->now - state->recv_ns < threshold_ns)
		return 0;
	found = slow_streams_found++ & (MOST_SLOW_STREAMS - 1);
	record = &slow_streams[found];
	record->type = RECORD_SLOW_TASK;
	record->tgid = state->tgid;
	record->task = search->reader;
	record->socket = state->id;
	record->connection = search->connection;
	record->seq = state->seq;
	return slow_streams_found >= MOST_SLOW_STREAMS;
}

/*
 * The slow streams of a connection whose reader is a goroutine. Another one works for each: user
 * space finds those that the reader has begun.
 */
static __always_inline void tell_slow_streams(struct seq_file *file, struct socket_state *socket)
{
	struct followed *connection = &followed[(socket->streams - 1) & (FOLLOWED - 1)];
	struct slow_search search = {
		.key = connection->tag,
		.now = bpf_ktime_get_ns(),
		.reader = connection->reader,
		.connection = socket->id,
	};
	u32 found;

	if (!connection->open || !connection->reader)
		return;
	slow_streams_found = 0;
	bpf_loop(STREAMS, find_slow_stream, &search, 0);
	found = slow_streams_found;
	if (!found || found >= MOST_SLOW_STREAMS)
		return;
	/* Else the compiler compares less than Linux 6.12's verifier needs to know the size. */
	barrier_var(found);
	bpf_seq_write(file, slow_streams,
		      (found & (MOST_SLOW_STREAMS - 1)) * sizeof(slow_streams[0]));
}

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
	if (socket->multiplex == MULTIPLEX_STREAMS) {
		tell_slow_streams(ctx->meta->seq, socket);
		return 0;
	}
	/* Whoever reads ahead on a connection with several requests waits for none of them. */
	if (!socket->ready_ns || !socket->recv_ns || socket->first_send_ns ||
	    is_multiplexed(socket) || bpf_ktime_get_ns() - socket->recv_ns < threshold_ns)
		return 0;
	record.tgid = socket->tgid;
	runtime = bpf_map_lookup_elem(&runtimes, &record.tgid);
	/* Which goroutine has read it is known; of Python's tasks none has. */
	if (!runtime || runtime->kind == RUNTIME_INTERPRETED ||
	    (runtime->kind == RUNTIME_GO && !socket->recv_task))
		return 0;
	record.task = runtime->kind == RUNTIME_GO ? socket->recv_task : 0;
	record.socket = socket->id;
	record.seq = socket->seq;
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}
