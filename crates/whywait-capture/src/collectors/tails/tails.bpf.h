/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Ends of responses that the kernel holds back: Nagle's algorithm (RFC 896) sends less than a full
 * segment only when the peer has acknowledged all that was sent before, and a peer that waits for
 * the rest acknowledges late (RFC 1122, 4.2.3.2; Linux: 40 ms). It is looked for where a response
 * is written in several pieces, which is rare, and shows in what the connection knows.
 */
#pragma once

#include "collectors/sockets/arrivals.bpf.h"

/* The values of `nonagle` (include/net/tcp.h): 0 stands for Nagle's algorithm. */
#define NAGLE 0
#define MICROSECOND_NS 1000

/*
 * How many bytes of what was just written are held back so; 0: none. What the peer has no room for,
 * or the network (its congestion window), waits for that.
 */
static __noinline u32 held_back(struct sock *sk)
{
	u32 written, sent, unsent, in_flight, room;

	if (!sk || !is_tcp(sk))
		return 0;
	written = KERNEL_READ(struct tcp_sock, sk, write_seq);
	sent = KERNEL_READ(struct tcp_sock, sk, snd_nxt);
	unsent = written - sent;
	if (!unsent || unsent >= KERNEL_READ(struct tcp_sock, sk, mss_cache))
		return 0;
	in_flight = KERNEL_READ(struct tcp_sock, sk, packets_out);
	if (!in_flight || in_flight >= KERNEL_READ(struct tcp_sock, sk, snd_cwnd))
		return 0;
	room = KERNEL_READ(struct tcp_sock, sk, snd_una) +
	       KERNEL_READ(struct tcp_sock, sk, snd_wnd) - sent;
	if ((s32)(room - unsent) < 0)
		return 0;
	return BPF_CORE_READ_BITFIELD_PROBED((struct tcp_sock *)sk, nonagle) == NAGLE ? unsent : 0;
}

/* More of a response was written. */
static __always_inline void look_for_tail(struct socket_state *socket, struct sock *sk, u64 now)
{
	u32 bytes = held_back(sk);

	if (likely(!bytes)) {
		socket->held = 0;
		return;
	}
	if (!socket->held)
		socket->held_ns = now;
	socket->held = 1;
	socket->held_bytes = bytes;
}

/*
 * The response is over, and its end was held back. By now the peer has acknowledged it, as a rule,
 * and the connection knows when it sent what was acknowledged last (RACK, RFC 8985: `rack.mstamp`,
 * in microseconds of the monotonic clock).
 */
static __noinline int tail_ends(struct socket_state *socket, struct sock *sk, u64 now)
{
	struct request_totals *sums;
	struct tail_record *record;
	u64 sent_ns, held_ns;

	if (!socket || !sk)
		return 0;
	socket->held = 0;
	sent_ns = KERNEL_READ(struct tcp_sock, sk, rack.mstamp) * MICROSECOND_NS;
	if (sent_ns <= socket->held_ns || sent_ns > now) {
		COUNT(unknown_tails);
		return 0;
	}
	held_ns = sent_ns - socket->held_ns;
	if (held_ns < threshold_ns)
		return 0;
	sums = totals_of(socket);
	if (sums) {
		sums->tails++;
		sums->tails_ns += held_ns;
	}
	if (!within_budget(BUDGET_TAILS, tails_per_second, now)) {
		COUNT(tail_budget);
		return 0;
	}
	record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	if (!record) {
		COUNT(lost_ring_full);
		return 0;
	}
	record->type = RECORD_TAIL;
	record->seq = socket->seq;
	record->socket = socket->id;
	record->written_ns = socket->held_ns;
	record->sent_ns = sent_ns;
	record->latency_ns = socket->timing == UNTIMED ? 0 :
							 socket->last_send_ns - socket->ready_ns;
	record->bytes_out = socket->bytes_out;
	record->bytes = socket->held_bytes;
	record->tgid = socket->tgid;
	record->tid = socket->send_tid;
	record->local_port = socket->local_port;
	__builtin_memset(record->pad, 0, sizeof(record->pad));
	submit(record);
	return 0;
}
