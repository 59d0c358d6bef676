/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * When the data came that a thread reads. It comes on one CPU and is read on another, as a rule,
 * and to look at what the other has written is what each of them would wait for longest. So its
 * time is noted in a line of the cache that only those write to who bring data, and the reader
 * looks there
 *  - if the request may be a slow one, which is known when it is answered: what comes on a
 *    connection that was read at a time cannot have waited for longer than since then;
 *  - if it is not, for each eighth request, which stands for eight in the sums. Where there are
 *    few, for all of them.
 */
#pragma once

#include "collectors/sockets/sockets.bpf.h"

/* Loaded or stored here and now: another CPU may be at it. */
#define NOW(field) (*(volatile typeof(field) *)&(field))

/* Of one whose state is not at hand; others have a field for it. */
static __always_inline bool is_tcp(struct sock *sk)
{
	return is_inet_stream(sk) && sk->sk_protocol == IPPROTO_TCP;
}

static __always_inline u32 unix_packets(struct sock *sk)
{
	return KERNEL_READ(struct sock, sk, sk_receive_queue.qlen);
}

static __always_inline u32 tcp_read_up_to(struct sock *sk)
{
	return KERNEL_READ(struct tcp_sock, sk, copied_seq);
}

static __always_inline u32 tcp_written_up_to(struct sock *sk)
{
	return KERNEL_READ(struct tcp_sock, sk, write_seq);
}

/*
 * How many bytes have come and were not read; the end of all takes one of TCP's numbers, too (as
 * for SIOCINQ, net/ipv4/tcp.c).
 */
static __always_inline u32 tcp_unread(struct sock *sk)
{
	return KERNEL_READ(struct tcp_sock, sk, rcv_nxt) - tcp_read_up_to(sk);
}

/*
 * How far a socket was read: the number of TCP's next byte. Others do not tell; of them, how often
 * they were read.
 */
static __always_inline u32 read_up_to(const struct socket_state *socket)
{
	return socket->tcp ? tcp_read_up_to(sk_of(socket)) : NOW(socket->read_to);
}

/* As read_up_to, of one that is not TCP's, for those who bring data. */
static __noinline u32 times_read(struct sock *sk)
{
	struct socket_state *socket = socket_of(sk);

	return socket ? NOW(socket->read_to) : 0;
}

/*
 * When the packet came that is just being taken in. TCP reads the clock as it begins with one
 * (tcp_mstamp_refresh), and its data is ready in the same breath: that saves reading the clock
 * again, which is a third of what the hook of an arrival costs.
 */
static __always_inline u64 packet_ns(struct sock *sk)
{
	u64 ns = 0;

	if (bpf_core_field_exists(struct tcp_sock, tcp_clock_cache) && is_tcp(sk))
		ns = KERNEL_READ(struct tcp_sock, sk, tcp_clock_cache);
	return ns ? ns : bpf_ktime_get_ns();
}

/*
 * Data has come. Of all that comes until something is read the first counts. If something was read
 * since, the hook of that read may be under way on another CPU and needs the note: it is kept
 * beside the new one. (What splice moves to a pipe no hook tells of. A unix socket does not tell
 * how far it was read, but that there was nothing left to be read.)
 */
static __always_inline void note_arrival(struct arrivals *arrivals, struct sock *sk)
{
	u32 at = is_tcp(sk) ? tcp_read_up_to(sk) : times_read(sk);
	u64 ns = arrivals->ns;

	if (unlikely(!ns))
		arrivals->before_accept = !UNTRUSTED(struct sock, sk)->sk_socket;
	else if (at == arrivals->at && (arrivals->family != AF_UNIX || unix_packets(sk) > 1))
		return;
	/*
	 * In this order, so that a note is never taken for another one's time: see noted_arrival.
	 */
	NOW(arrivals->before_at) = arrivals->at;
	NOW(arrivals->before_ns) = ns;
	NOW(arrivals->at) = at;
	NOW(arrivals->ns) = packet_ns(sk);
}

/*
 * When that came of which `bytes` were read last: with the note that tells how far the socket had
 * been read before. Where none does (TLS in the kernel takes more from TCP than it hands on), with
 * the first since the read before. Or else it lay there already, behind other data, and nobody
 * knows: `otherwise`.
 */
__noinline u64 noted_arrival(const struct socket_state *socket, const struct arrivals *arrivals,
			     u32 bytes, u64 otherwise)
{
	u32 at, before_at, from, to;
	u64 ns, before_ns;

	if (!socket || !arrivals)
		return otherwise;
	from = socket->read_before;
	to = socket->read_to;
	ns = NOW(arrivals->ns);
	at = NOW(arrivals->at);
	before_ns = NOW(arrivals->before_ns);
	before_at = NOW(arrivals->before_at);
	if (!socket->tcp) {
		if (before_ns && before_at == from &&
		    (at != from || unix_packets(sk_of(socket))))
			return before_ns;
		return ns && at == from ? ns : otherwise;
	}
	if (ns && at == to - bytes)
		return ns;
	if (before_ns && before_at == to - bytes)
		return before_ns;
	if (before_ns && before_at - from < to - from)
		return before_ns;
	if (ns && at - from < to - from)
		return ns;
	return otherwise;
}

/* So many requests on a CPU are all timed. */
#define FEW_REQUESTS 10000
/* One in so many of the others is. */
#define TIMED_SHARE 8

/* A request has been read for the first time: when it came, as far as that has to be known. */
static __always_inline u64 arrival_of(struct socket_state *socket, const struct arrivals *arrivals,
				      u32 bytes, u64 read_before_ns, u64 now)
{
	struct request_totals *sums;

	socket->timing = TIMED;
	if (unlikely(!read_before_ns || now - read_before_ns >= threshold_ns || !socket->tcp))
		return noted_arrival(socket, arrivals, bytes, now);
	sums = totals_of(socket);
	if (unlikely(!sums || sums->count < FEW_REQUESTS))
		return noted_arrival(socket, arrivals, bytes, now);
	socket->after_ns = read_before_ns;
	/* Chosen by the clock's lowest digits, so that no pattern of the peer's is met. */
	if (likely(now / 16 % TIMED_SHARE)) {
		socket->timing = UNTIMED;
		return now;
	}
	socket->timing = TIMED_FOR_MANY;
	return noted_arrival(socket, arrivals, bytes, now);
}

/* The request may be a slow one, or more of it is about to be read: when it came is to be known. */
static __always_inline void must_be_timed(struct socket_state *socket,
					  const struct arrivals *arrivals)
{
	if (unlikely(socket->timing == UNTIMED))
		socket->ready_ns =
			noted_arrival(socket, arrivals, socket->bytes_in, socket->ready_ns);
	socket->timing = TIMED;
}

static __always_inline void was_read(struct socket_state *socket, u64 now)
{
	socket->read_ns = now;
	socket->read_before = socket->read_to;
	NOW(socket->read_to) = socket->tcp ? read_up_to(socket) : socket->read_to + 1;
}

/* Since when there lies something of which nothing was read, 0: nothing that is known of. */
static __always_inline u64 unread_since(const struct socket_state *socket,
					const struct arrivals *arrivals)
{
	if (!arrivals || (socket->family == AF_UNIX && !unix_packets(sk_of(socket))))
		return 0;
	return read_up_to(socket) == NOW(arrivals->at) ? NOW(arrivals->ns) : 0;
}
