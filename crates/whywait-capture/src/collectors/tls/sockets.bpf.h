/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Connections in TLS, as their sockets show them: which they are, and when what is read there came.
 * What was read and written is looked at in clear text (calls.bpf.h). Until that shows HTTP/2 they
 * are what they are without it: requests that are told apart by who reads and writes in turns.
 */
#pragma once

#include "collectors/sockets/multiplexed.bpf.h"
#include "collectors/streams/streams.bpf.h"
#include "collectors/tls/state.bpf.h"

/* Types of TLS's records, and the version that they say: RFC 8446, 5.1. */
#define TLS_FIRST_TYPE 20
#define TLS_LAST_TYPE 23
#define TLS_MAJOR 3
#define TLS_LAST_MINOR 4

/* Whether what was read begins with the head of a record. */
static __always_inline bool reads_tls(const struct thread *thread, u32 bytes)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u8 head[3] = {};
	u64 at;

	if (bytes < sizeof(head) || thread->uring || task->flags & (PF_IO_WORKER | PF_USER_WORKER))
		return false;
	at = read_into(task);
	return at && !bpf_probe_read_user(head, sizeof(head), (void *)at) &&
	       head[0] >= TLS_FIRST_TYPE && head[0] <= TLS_LAST_TYPE && head[1] == TLS_MAJOR &&
	       head[2] <= TLS_LAST_MINOR;
}

/* A connection in TLS: what it carries is not known yet. */
static __noinline int tls_begins(struct socket_state *socket, struct arrivals *arrivals)
{
	bool client = socket->role == SOCKET_CLIENT;
	bool is_new = socket->multiplex == MULTIPLEX_TLS && !socket->limits_unknown;
	u32 exchange_peer = client ? socket->exchange.peer : PEER_NONE;
	struct followed *connection;
	u64 sk = socket->sk;
	u32 place;

	if (client && (!exchange_peer || exchange_peer == PEER_NONE)) {
		socket->multiplex = MULTIPLEX_NONE;
		return 0;
	}
	place = take_followed(KERNEL_READ(struct sock, sk, __sk_common.skc_cookie.counter), sk);
	if (!place) {
		COUNT(lost_tls_connections);
		socket->multiplex = MULTIPLEX_NONE;
		return 0;
	}
	COUNT(tls_connections);
	connection = follow(socket, arrivals, place, false);
	socket->multiplex = MULTIPLEX_TLS;
	connection->tls = is_new ? TLS_UNKNOWN : TLS_SOUGHT;
	connection->tls_looks = LOOKS;
	/* TCP's numbers are those of what is encrypted. */
	connection->tcp = 0;
	connection->framers[OF_SERVER].seeks = 0;
	connection->port = socket->local_port;
	connection->peer = socket->peer;
	connection->calls = client;
	connection->exchange_peer = exchange_peer;
	return 0;
}

/* It has no place any more, nor any stream. */
static __always_inline void tls_leaves(struct socket_state *socket)
{
	u32 place = (socket->streams - 1) & (FOLLOWED - 1);

	socket->streams = 0;
	NOW(followed[place].cookie) = 0;
}

/* Its clear text has shown what it carries. */
static __noinline int tls_settles(struct socket_state *socket, struct arrivals *arrivals,
				  const struct followed *connection)
{
	struct request_totals *sums = totals_of(socket);

	if (connection->tls == TLS_OTHER) {
		NOW(arrivals->streams) = 0;
		tls_leaves(socket);
		socket->multiplex = MULTIPLEX_NONE;
		return 0;
	}
	socket->multiplex = MULTIPLEX_STREAMS;
	if (socket->role == SOCKET_CLIENT)
		return 0;
	/* What seemed to be requests before were exchanges. */
	if (sums && socket->seq && !connection->from_preface) {
		sums->http2_connections++;
		sums->multiplexed += socket->seq - !!socket->ready_ns;
	}
	socket->ready_ns = 0;
	socket->last_send_ns = 0;
	return 0;
}

/*
 * A connection in TLS is read of which it was not known yet whether its clear text can be seen.
 * True: it still is not. What it carries is not counted until then.
 */
static __noinline bool tls_is_unknown(struct socket_state *socket, struct arrivals *arrivals,
				      const struct thread *thread)
{
	u32 tgid = thread->tgid;
	u8 *probes = bpf_map_lookup_elem(&tls_processes, &tgid);

	if (!probes) {
		COUNT(tls_early);
		socket->multiplex = MULTIPLEX_TLS_EARLY;
		return true;
	}
	if (*probes == PROBES_SET)
		tls_begins(socket, arrivals);
	else
		socket->multiplex = MULTIPLEX_NONE;
	return false;
}

/* When that came which was just read, though it does not count as read yet. */
static __always_inline u64 tls_came(struct socket_state *socket, const struct arrivals *arrivals,
				    u64 now, u32 bytes, u64 otherwise)
{
	u64 read_ns = socket->read_ns, came_ns;
	u32 to = socket->read_to, before = socket->read_before;

	was_read(socket, now);
	came_ns = noted_arrival(socket, arrivals, bytes, otherwise);
	socket->read_ns = read_ns;
	socket->read_to = to;
	socket->read_before = before;
	return came_ns;
}

/*
 * A thread has read from a connection that may be in TLS, or has written to it: before that means
 * anything. True: it means nothing, as it is of the handshake, or came too early.
 */
__noinline int tls_is_moved(struct socket_state *socket, struct arrivals *arrivals,
			    struct thread *thread, s32 moved)
{
	struct followed *connection;
	struct framer *framer;
	bool reads = moved > 0;

	if (!socket || !arrivals || !thread || socket->multiplex == MULTIPLEX_STREAMS)
		return 0;
	if (socket->multiplex == MULTIPLEX_TLS_EARLY) {
		if (!reads || tls_is_unknown(socket, arrivals, thread))
			return 1;
	} else if (!socket->streams) {
		/* Nothing was read yet. */
		if (!reads)
			return 0;
		if (!reads_tls(thread, moved)) {
			socket->multiplex = socket->limits_unknown ? MULTIPLEX_OLD + LOOKS :
								     MULTIPLEX_NEW;
			return 0;
		}
		if (tls_is_unknown(socket, arrivals, thread))
			return 1;
	}
	if (!socket->streams)
		return 0;
	connection = followed_at(socket->streams - 1);
	if (connection->tls == TLS_UNKNOWN && !reads && socket->role == SOCKET_SERVER) {
		/* What is written before there is any clear text is the handshake's. */
		socket->ready_ns = 0;
		socket->last_send_ns = 0;
		return 1;
	}
	thread->tls = socket->streams;
	framer = &connection->framers[socket->role == SOCKET_CLIENT ? OF_SERVER : OF_CLIENT];
	if (connection->tls >= TLS_HTTP2)
		tls_settles(socket, arrivals, connection);
	else if (reads)
		framer->came_ns = tls_came(socket, arrivals, thread->io_ns, moved, framer->came_ns);
	return 0;
}

/* The same of a connection whose streams are followed. */
__noinline int tls_was_moved(struct socket_state *socket, struct arrivals *arrivals,
			     struct thread *thread, s32 moved)
{
	struct followed *connection;
	struct framer *framer;

	if (!socket || !arrivals || !thread || !socket->streams)
		return 0;
	connection = followed_at(socket->streams - 1);
	thread->tls = socket->streams;
	framer = &connection->framers[socket->role == SOCKET_CLIENT ? OF_SERVER : OF_CLIENT];
	if (moved > 0)
		framer->came_ns = noted_arrival(socket, arrivals, moved, framer->came_ns);
	else
		connection->writes_to = writes_to(thread);
	if (connection->framers[0].lost || connection->framers[1].lost)
		lose_place(socket, arrivals, thread->io_ns);
	return 0;
}
