/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Messages that close a connection and belong to no response: TLS's close_notify, HTTP/2's GOAWAY,
 * and the FIN that comes behind them.
 */
#pragma once

#include "collectors/sockets/requests.bpf.h"

/* The peer's FIN has come, and there is nothing else to read. */
static __always_inline bool only_fin(struct sock *sk)
{
	return unlikely(sk->sk_shutdown & RCV_SHUTDOWN) && is_tcp(sk) && tcp_unread(sk) <= 1;
}

#define CLOSING_NS 1000000000

/*
 * Whether so many bytes may close a connection: the records of TLS that have an alert
 * of 2 bytes (close_notify), or a GOAWAY of HTTP/2, 17 bytes, with what the cipher adds to that.
 * (RFC 8446, 5.2: 22 bytes; RFC 5288: 29; RFC 7905: 21; CBC: its blocks.)
 */
static __always_inline bool is_closing_size(int bytes)
{
	switch (bytes) {
	case 17: /* without TLS */
	case 24:
	case 39: /* TLS 1.3 */
	case 31:
	case 46: /* 1.2 with AES-GCM */
	case 23:
	case 38: /* … with ChaCha20-Poly1305 */
	case 53:
	case 69:
	case 85: /* … with AES-CBC */
		return true;
	}
	return false;
}

/*
 * What was just read, `bytes` and what lies there behind them, is the peer's own closing message,
 * or its end has come behind it. (A library may read the head of a record before the rest.)
 */
static __always_inline bool peer_leaves(const struct socket_state *socket, int bytes)
{
	struct sock *sk = sk_of(socket);

	if (KERNEL_READ(struct sock, sk, sk_shutdown) & RCV_SHUTDOWN)
		return true;
	return is_closing_size(socket->tcp ? bytes + tcp_unread(sk) : bytes);
}

/*
 * What was written last was a closing message if `ends`: the response ended before. If not it was
 * an answer, and as slow as that.
 */
__noinline int settle_closing(struct socket_state *socket, bool ends, u64 now)
{
	if (!socket || !socket->closing)
		return 0;
	socket->closing = 0;
	if (!ends) {
		if (!socket->emitted)
			socket->emitted = send_request(socket, now);
		return 0;
	}
	COUNT(closings);
	socket->last_send_ns = socket->answered.last_send_ns;
	socket->send_tid = socket->answered.send_tid;
	__builtin_memcpy(socket->service, socket->answered.service, sizeof(socket->service));
	return 0;
}

/*
 * Whether these bytes may be no part of the response: a closing message, long after it. A server
 * sends one when a connection is idle. It was one if the connection then ends, or the peer says the
 * same; if not, an answer (of a request beside others on the same connection, say). That a thread
 * asked for the next request meanwhile tells nothing: some loops wait in a poll and read only what
 * is there, others read before they answer until there is nothing left.
 */
static __always_inline bool may_be_closing(struct socket_state *socket, int ret, u64 now)
{
	if (!is_closing_size(ret))
		return false;
	if (!socket->closing) {
		if (now - socket->last_send_ns < CLOSING_NS)
			return false;
		socket->closing = 1;
		socket->answered.last_send_ns = socket->last_send_ns;
		socket->answered.send_tid = socket->send_tid;
		__builtin_memcpy(socket->answered.service, socket->service,
				 sizeof(socket->service));
	}
	return true;
}

/*
 * A unix socket has ended that was not read to its end. What was slow of what it answered was sent
 * when it was.
 */
static __always_inline void unix_socket_ended(struct socket_state *socket)
{
	if (socket->role != SOCKET_SERVER || !socket->ready_ns || !socket->last_send_ns)
		return;
	settle_closing(socket, true, 0);
	if (!socket->emitted)
		count_request(socket);
	socket->ready_ns = 0;
}
