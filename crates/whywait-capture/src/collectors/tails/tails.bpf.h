/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Responses after they were written: what holds back their ends, and when they went out.
 *  - Nagle's algorithm (RFC 896) sends less than a full segment only when the peer has acknowledged
 *    all that was sent before, and a peer that waits for the rest acknowledges late (RFC 1122,
 *    4.2.3.2; Linux: 40 ms).
 *  - A peer that does not read has no room for more: its window is closed.
 *  - What was lost is sent again.
 * It is looked for where a response is written in several pieces or is large, and where packets are
 * sent again, and shows in what the connection knows. Other responses cost nothing.
 */
#pragma once

#include "core/peer.bpf.h"
#include "collectors/sockets/arrivals.bpf.h"
#include "collectors/sockets/multiplexed.bpf.h"
#include "collectors/tails/records.h"

/* A response of so many bytes may find a window closed, or a send buffer full. */
#define LARGE_RESPONSE 16384

/* The values of `nonagle` (include/net/tcp.h): 0 stands for Nagle's algorithm. */
#define NAGLE 0
#define MICROSECOND_NS 1000
/*
 * Of enum tcp_ca_state (include/uapi/linux/tcp.h): what came back showed a loss (a fast
 * retransmission). In other states nothing came back for long: a timeout, or a tail loss probe.
 */
#define CA_RECOVERY 3
/* Of enum tcp_chrono (include/linux/tcp.h). */
#define CHRONO_BUSY 1 /* … by nothing of these two, while bytes are on their way */
#define CHRONO_WINDOW 2
#define CHRONO_BUFFER 3
/* Of `sk_userlocks` (include/net/sock.h): the program has called SO_SNDBUF. */
#define SNDBUF_LOCK 1

/* In requests.bpf.h. */
__noinline u32 bucket_of(u64 ns);

/* What holds back bytes that were just written, and how many these are. */
__noinline u32 held_back(const struct socket_state *socket, u32 *bytes)
{
	u32 written, sent, unsent, in_flight, room, segment;
	struct sock *sk;

	if (!socket || !bytes || !socket->tcp)
		return TAIL_SENT;
	sk = sk_of(socket);
	written = KERNEL_READ(struct tcp_sock, sk, write_seq);
	sent = KERNEL_READ(struct tcp_sock, sk, snd_nxt);
	unsent = written - sent;
	*bytes = unsent;
	if (!unsent)
		return TAIL_SENT;
	segment = KERNEL_READ(struct tcp_sock, sk, mss_cache);
	room = KERNEL_READ(struct tcp_sock, sk, snd_una) +
	       KERNEL_READ(struct tcp_sock, sk, snd_wnd) - sent;
	if ((s32)(room - (unsent < segment ? unsent : segment)) < 0)
		return TAIL_WINDOW;
	in_flight = KERNEL_READ(struct tcp_sock, sk, packets_out);
	if (unsent >= segment || !in_flight ||
	    in_flight >= KERNEL_READ(struct tcp_sock, sk, snd_cwnd) ||
	    BPF_CORE_READ_BITFIELD_PROBED((struct tcp_sock *)sk, nonagle) != NAGLE)
		return TAIL_NETWORK;
	return TAIL_NAGLE;
}

/* More of a response was written, or much of it at once. */
static __always_inline void look_for_tail(struct socket_state *socket,
					  const struct arrivals *arrivals)
{
	u32 bytes = 0, reason = held_back(socket, &bytes);

	socket->held = reason;
	if (likely(!reason))
		return;
	socket->held_bytes = bytes;
	must_be_timed(socket, arrivals);
}

/* How long so many jiffies are; 0: not known. */
static __always_inline u64 jiffies_ns(u32 jiffies, u64 now)
{
	u64 passed = bpf_jiffies64() - began_jiffies;

	return began_jiffies && passed ? jiffies * ((now - began_ns) / passed) : 0;
}

/* For how long the connection was limited by this, in jiffies. */
static __always_inline u32 limited_by(struct sock *sk, u32 what)
{
	u32 so_far;

	if (what == CHRONO_BUSY)
		so_far = KERNEL_READ(struct tcp_sock, sk, chrono_stat[CHRONO_BUSY - 1]);
	else if (what == CHRONO_WINDOW)
		so_far = KERNEL_READ(struct tcp_sock, sk, chrono_stat[CHRONO_WINDOW - 1]);
	else
		so_far = KERNEL_READ(struct tcp_sock, sk, chrono_stat[CHRONO_BUFFER - 1]);

	if (BPF_CORE_READ_BITFIELD_PROBED((struct tcp_sock *)sk, chrono_type) == what)
		so_far += (u32)bpf_jiffies64() - KERNEL_READ(struct tcp_sock, sk, chrono_start);
	return so_far;
}

/*
 * What a response met on its way: when its end went out, and what it waited for. By now the peer
 * has acknowledged it, as a rule, and the connection knows when it sent what was acknowledged last
 * (RACK, RFC 8985: `rack.mstamp`, in microseconds of the monotonic clock).
 */
struct tail_end {
	u64 sent_ns; /* 0: not known, or at once */
	u64 window_ns;
	u64 buffer_ns;
	u32 reason;
	u32 retransmits;
	u32 buffer_bytes;
	u32 room_bytes;
	bool buffer_set;
	bool unacknowledged;
};

/* A FIN has a number of its own. */
static __always_inline u32 unacknowledged_of(struct sock *sk)
{
	return KERNEL_READ(struct tcp_sock, sk, write_seq) -
	       KERNEL_READ(struct tcp_sock, sk, snd_una);
}

static __always_inline void tail_met(struct socket_state *socket, u64 now, struct tail_end *end)
{
	struct sock *sk = sk_of(socket);
	u32 window = limited_by(sk, CHRONO_WINDOW), buffer = limited_by(sk, CHRONO_BUFFER);
	u32 dsacks = KERNEL_READ(struct tcp_sock, sk, dsack_dups);

	end->sent_ns = 0;
	end->window_ns = 0;
	end->buffer_ns = 0;
	end->reason = socket->held;
	/* What the peer had already was not lost. */
	end->retransmits = dsacks - socket->dsacks >= socket->retransmits ? 0 : socket->retransmits;
	if (!socket->limits_unknown) {
		end->window_ns = jiffies_ns(window - socket->window_limited, now);
		end->buffer_ns = jiffies_ns(buffer - socket->buffer_limited, now);
	}
	socket->limits_unknown = 0;
	socket->window_limited = window;
	socket->buffer_limited = buffer;
	socket->dsacks = dsacks;
	if (end->retransmits)
		end->reason = TAIL_LOST;
	end->buffer_bytes = KERNEL_READ(struct sock, sk, sk_sndbuf);
	end->buffer_set = BPF_CORE_READ_BITFIELD_PROBED(sk, sk_userlocks) & SNDBUF_LOCK;
	end->room_bytes = KERNEL_READ(struct tcp_sock, sk, snd_wnd);
	end->unacknowledged = unacknowledged_of(sk) > 1;
	if (end->unacknowledged)
		end->sent_ns = sockets_are_closed ? now : 0;
	else if (end->reason && !is_multiplexed(socket))
		end->sent_ns = KERNEL_READ(struct tcp_sock, sk, rack.mstamp) * MICROSECOND_NS;
}

/* A record of a response that met nothing so far; NULL: there is no room for one. */
static __always_inline struct tail_record *tail_of(const struct socket_state *socket, u64 now)
{
	struct sock *sk = sk_of(socket);
	struct tail_record *record;

	if (!within_budget(TAILS, now)) {
		COUNT(tail_budget);
		return 0;
	}
	record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	if (!record) {
		COUNT(lost_ring_full);
		return 0;
	}
	__builtin_memset(record, 0, sizeof(*record));
	record->type = RECORD_TAIL;
	record->seq = socket->seq;
	record->socket = socket->id;
	record->written_ns = socket->last_send_ns;
	record->latency_ns = socket->timing == UNTIMED ? 0 :
							 socket->last_send_ns - socket->ready_ns;
	record->bytes_out = socket->bytes_out;
	record->tgid = socket->tgid;
	record->tid = socket->send_tid;
	record->local_port = socket->local_port;
	record->family = socket->family;
	record->peer_port = BPF_CORE_READ(sk, __sk_common.skc_dport);
	read_peer(record->peer, sk, socket->family);
	return record;
}

static __noinline int send_tail(const struct socket_state *socket, const struct tail_end *end,
				u64 now)
{
	struct tail_record *record = tail_of(socket, now);

	if (!record)
		return 0;
	record->sent_ns = end->sent_ns;
	record->window_ns = end->window_ns;
	record->buffer_ns = end->buffer_ns;
	record->buffer_bytes = end->buffer_bytes;
	record->room_bytes = end->room_bytes;
	record->buffer_set = end->buffer_set;
	record->bytes = socket->held ? socket->held_bytes : 0;
	record->retransmits = end->retransmits;
	record->timeouts = end->retransmits ? socket->timeouts : 0;
	record->reason = end->reason;
	record->unacknowledged = end->unacknowledged;
	submit(record);
	return 0;
}

/*
 * Whether it may be the send buffer that made a response slow: the program has set its size, and
 * the peer has room for more. (The kernel's own count has not the time in which the buffer was full
 * because Nagle's algorithm held back the rest of it.)
 */
static __always_inline bool slow_by_buffer(const struct socket_state *socket,
					   const struct tail_end *end)
{
	return end->buffer_set && end->buffer_bytes < end->room_bytes &&
	       end->buffer_bytes < socket->bytes_out && socket->timing != UNTIMED &&
	       socket->last_send_ns - socket->ready_ns >= threshold_ns;
}

/*
 * The response is over: how its end got to the peer, if that took long, goes into the sums. Not
 * static: see sk_of.
 */
__noinline int tail_ends(struct socket_state *socket, const struct arrivals *arrivals, u64 now)
{
	struct request_totals *sums;
	struct tail_end end = {};
	u64 latency_ns, late_ns;
	u32 bucket;

	if (!socket || !socket->tcp || !socket->last_send_ns)
		return 0;
	/* What the connection has met since is what came after the response. */
	if (socket->pushes == PUSHES)
		return 0;
	tail_met(socket, now, &end);
	late_ns = end.sent_ns > socket->last_send_ns && end.sent_ns <= now ?
			  end.sent_ns - socket->last_send_ns :
			  0;
	if (end.reason && !late_ns)
		COUNT(unknown_tails);
	if (!late_ns)
		end.sent_ns = socket->last_send_ns;
	sums = totals_of(socket);
	if (sums && end.retransmits)
		sums->retransmitted++;
	if (late_ns >= threshold_ns)
		must_be_timed(socket, arrivals);
	if (sums && late_ns >= threshold_ns) {
		latency_ns = socket->last_send_ns - socket->ready_ns;
		sums->tails++;
		sums->tails_ns += late_ns;
		bucket = bucket_of(latency_ns);
		if (bucket < LATENCY_BUCKETS)
			sums->wire_from[bucket]++;
		bucket = bucket_of(latency_ns + late_ns);
		if (bucket < LATENCY_BUCKETS)
			sums->wire_to[bucket]++;
		if (latency_ns + late_ns > sums->wire_max_ns)
			sums->wire_max_ns = latency_ns + late_ns;
	}
	if (late_ns >= threshold_ns || end.retransmits || end.window_ns >= threshold_ns ||
	    end.buffer_ns >= threshold_ns || slow_by_buffer(socket, &end))
		send_tail(socket, &end, now);
	socket->held = TAIL_SENT;
	socket->retransmits = 0;
	return 0;
}

/*
 * The target closes the connection, and its FIN is about to go out. If the peer has all of the
 * response, when its end went out is known now, and the FIN's time will be in its place soon.
 */
static __always_inline void tail_before_fin(struct socket_state *socket,
					    const struct arrivals *arrivals, u64 now)
{
	if (likely(!socket->held && !socket->retransmits) || !socket->ready_ns)
		return;
	if (!unacknowledged_of(sk_of(socket)))
		tail_ends(socket, arrivals, now);
}

/* Whether the peer has acknowledged all but the FIN. */
static __always_inline bool only_fin_is_out(struct sock *sk)
{
	u8 state = KERNEL_READ(struct sock, sk, __sk_common.skc_state);

	return unacknowledged_of(sk) <= 1 && state != TCP_ESTABLISHED && state != TCP_CLOSE_WAIT;
}

/*
 * A packet is sent again. Those of a response count, from when the request was read; a FIN on its
 * own keeps nobody waiting.
 */
SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(tcp_retransmit_skb, struct sock *sk)
{
	struct socket_state *socket;

	if (hooks_do_nothing)
		return 0;
	socket = socket_of(sk);
	if (!socket || socket->role != SOCKET_SERVER || !socket->ready_ns || !socket->recv_ns)
		return 0;
	COUNT(events);
	if (socket->retransmits == 255 || only_fin_is_out(sk))
		return 0;
	socket->retransmits++;
	if (BPF_CORE_READ_BITFIELD_PROBED((struct inet_connection_sock *)sk, icsk_ca_state) !=
	    CA_RECOVERY)
		socket->timeouts++;
	return 0;
}
