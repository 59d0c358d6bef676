/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Responses that are under way when somebody looks: the client has sent nothing for a while, and
 * bytes are on their way to it, or came there since the look before. User space walks over the
 * target's sockets, so that it costs nothing in between. What a connection was limited by the
 * kernel counts itself (enum tcp_chrono): to look again and again is to have all of it.
 */
#pragma once

#include "collectors/responses/records.h"
#include "collectors/sockets/sockets.bpf.h"
#include "collectors/tails/tails.bpf.h"
#include "core/peer.bpf.h"

/* The number of the look that is made, and which it is (RESPONSES_…). */
volatile u32 responses_look = 0;
volatile u32 responses_which = 0;
/* When this look began and the one before, and that one in jiffies. */
u32 responses_looked = 0;
u32 responses_jiffies = 0;
u32 responses_before_jiffies = 0;
u64 responses_ns = 0;
u64 responses_before_ns = 0;

/* What of the time between two counts of jiffies it was limited by something. */
static __always_inline u64 limited_since(u32 *before, u32 now, u64 at_ns)
{
	u32 jiffies = now - *before;

	*before = now;
	return jiffies_ns(jiffies, at_ns);
}

/*
 * Whether a response of a connection of TCP is under way, and all that is known of it. Not static,
 * so that it is verified once for a program.
 */
__noinline int look_at_response(struct socket_state *socket, struct response_record *record)
{
	struct looked *looked;
	struct sock *sk;
	u64 now = responses_ns, acknowledged;
	u32 which = responses_which, asked_ago;
	bool asked_before;

	if (!socket || !record || !socket->tcp)
		return 0;
	sk = sk_of(socket);
	looked = &socket->looked;
	acknowledged = KERNEL_READ(struct tcp_sock, sk, bytes_acked);
	record->acknowledged = acknowledged - looked->acknowledged;
	looked->acknowledged = acknowledged;
	record->window_ns = limited_since(&looked->window, limited_by(sk, CHRONO_WINDOW), now);
	record->buffer_ns = limited_since(&looked->buffer, limited_by(sk, CHRONO_BUFFER), now);
	record->network_ns = limited_since(&looked->network, limited_by(sk, CHRONO_BUSY), now);
	/* What is on its way and all that was written is held back by nobody but the server. */
	if (KERNEL_READ(struct tcp_sock, sk, write_seq) == KERNEL_READ(struct tcp_sock, sk, snd_nxt))
		record->network_ns = 0;
	record->unacknowledged = only_fin_is_out(sk) ? 0 : unacknowledged_of(sk);
	asked_ago = responses_jiffies -
		    KERNEL_READ(struct inet_connection_sock, sk, icsk_ack.lrcvtime);
	/* A clock of jiffies has steps: what came in the step of the look came before or after it. */
	asked_before = (s32)(asked_ago - (responses_jiffies - responses_before_jiffies)) > 0;
	record->since_ns = responses_before_ns;
	if (which == RESPONSES_FIRST) {
		/* What it was limited by and had before is not looked at. */
		record->acknowledged = record->window_ns = 0;
		record->buffer_ns = record->network_ns = 0;
		record->since_ns = now;
	} else if (!asked_before) {
		/* Of those that were asked for since only what is not over in the end counts. */
		if (which != RESPONSES_LAST || !record->unacknowledged || !socket->seq)
			return 0;
		record->since_ns = now - jiffies_ns(asked_ago, now);
		record->acknowledged = KERNEL_READ(struct tcp_sock, sk, snd_una) -
				       socket->written_to;
		if ((s32)record->acknowledged < 0)
			record->acknowledged = 0;
	}
	if (!record->unacknowledged && !record->acknowledged)
		return 0;
	/* Until then its client waited for the first byte, and nothing went out slowly. */
	if (which != RESPONSES_FIRST && socket->first_send_ns > record->since_ns)
		record->since_ns = socket->first_send_ns;
	record->asked_ago_ns = jiffies_ns(asked_ago, now);
	record->sent_ago_ns = jiffies_ns(responses_jiffies -
						 KERNEL_READ(struct tcp_sock, sk, lsndtime),
					 now);
	return 1;
}

SEC("iter/bpf_sk_storage_map")
int responses_under_way(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct response_record record = { .type = RECORD_RESPONSE };
	struct socket_home *home = ctx->value;
	struct sock *sk = ctx->sk;
	struct socket_state *socket;

	if (responses_looked != responses_look) {
		responses_looked = responses_look;
		responses_before_jiffies = responses_jiffies;
		responses_before_ns = responses_ns;
		responses_jiffies = (u32)bpf_jiffies64();
		responses_ns = bpf_ktime_get_ns();
	}
	if (!home || !sk || home->cookie != cookie_of(sk))
		return 0;
	socket = home->away ? socket_in_slot(home->cookie) : &home->state;
	/* What is pushed has no end, and streams are no one response: they have rows of their own. */
	if (!socket || socket->role != SOCKET_SERVER || socket->pushes == PUSHES ||
	    socket->multiplex == MULTIPLEX_STREAMS)
		return 0;
	if (!look_at_response(socket, &record))
		return 0;
	record.tgid = socket->tgid;
	record.socket = socket->id;
	record.seq = socket->seq;
	record.tid = socket->send_tid;
	record.local_port = socket->local_port;
	record.family = socket->family;
	record.peer_port = BPF_CORE_READ(sk, __sk_common.skc_dport);
	read_peer(record.peer, sk, socket->family);
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}
