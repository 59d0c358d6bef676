/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Connections that carry several requests at once: what is read on them after a response need not
 * be the next request. They are recognised
 *  - by how HTTP/2 begins, in the first bytes that are read, where the reader has put them; of a
 *    connection that was there before whywait, by a read that is frames of HTTP/2 and nothing else.
 *    That one bit is all that is kept of them;
 *  - by data that the peer sent before it had all of the response: TCP's acknowledgements tell.
 *    Who asks one thing at a time does not do that, in however many pieces requests and responses
 *    come. What is left of a request that was answered before all of it was read has no answer of
 *    its own. And a few times prove nothing: a TLS server sends tickets after the handshake.
 */
#pragma once

#include "collectors/sockets/arrivals.bpf.h"

/* So many answers to data that came too early tell. */
#define OVERLAPS 4
/* So many requests' first reads are looked at, of a connection that was there before. */
#define LOOKS 16

/*
 * How the connection's preface begins, which is no request of HTTP/1: RFC 9113, 3.4. Some servers
 * read so much before they decide what it is.
 */
#define PREFACE_BYTES 14
#define PREFACE_0 0x5448202a20495250 /* "PRI * HT" */
#define PREFACE_1 0x0000302e322f5054 /* "TP/2.0" */

static __always_inline bool is_multiplexed(const struct socket_state *socket)
{
	return socket->multiplex >= MULTIPLEX_OVERLAPS && socket->multiplex <= MULTIPLEX_STREAMS;
}

/* Its streams are followed, or clear text of TLS may show that they are to be. */
static __always_inline bool may_have_streams(const struct socket_state *socket)
{
	return (u8)(socket->multiplex - MULTIPLEX_STREAMS) <=
	       MULTIPLEX_TLS_EARLY - MULTIPLEX_STREAMS;
}

static __always_inline bool may_be_in_tls(const struct socket_state *socket)
{
	return (u8)(socket->multiplex - MULTIPLEX_TLS) <= MULTIPLEX_TLS_EARLY - MULTIPLEX_TLS;
}

/* It is one from now on, and has been all the time. */
static __noinline int found_multiplexed(struct socket_state *socket, u8 how)
{
	struct request_totals *sums;

	socket->multiplex = how;
	sums = totals_of(socket);
	if (!sums)
		return 0;
	if (how == MULTIPLEX_HTTP2)
		sums->http2_connections++;
	else
		sums->overlapping_connections++;
	/* The request that is just ending is counted there. */
	if (socket->seq)
		sums->multiplexed += socket->seq - 1;
	return 0;
}

/* Where the call that a thread is in has put what it read; 0: not known. */
static __always_inline u64 read_into(struct task_struct *task)
{
	struct pt_regs *regs = user_registers(task);
	u64 given = PT_REGS_PARM2_SYSCALL(regs), vector = given, base = 0;

	switch (call_number(regs)) {
	case 0: /* read */
	case 45: /* recvfrom */
		return given;
	case 47: /* recvmsg: msg_iov */
		if (bpf_probe_read_user(&vector, sizeof(vector), (void *)(given + 16)))
			return 0;
		break;
	case 19: /* readv */
		break;
	default:
		return 0;
	}
	return bpf_probe_read_user(&base, sizeof(base), (void *)vector) ? 0 : base;
}

static __always_inline bool is_preface_at(const void *bytes)
{
	const u64 *words = bytes;
	u32 last = *(const u32 *)(bytes + 8);

	return words[0] == PREFACE_0 && last == (u32)PREFACE_1 &&
	       *(const u16 *)(bytes + 12) == PREFACE_1 >> 32;
}

static __always_inline bool is_preface(u64 at, u32 bytes)
{
	u64 words[2] = {};

	return bytes >= PREFACE_BYTES && !bpf_probe_read_user(words, PREFACE_BYTES, (void *)at) &&
	       is_preface_at(words);
}

#define FRAME_HEAD 9
#define FRAME_ASKS (1 << 30)
#define FRAME_OF_ALL (1 << 29)
#define FRAME_LENGTH (FRAME_OF_ALL - 1)
#define LONGEST_FRAME 16384 /* unless the peer allows more */
/* So many frames in one read are gone through. */
#define FRAMES 16

/*
 * How long the frame is whose head is there; -1: that is no head of a frame that a client may send
 * (RFC 9113, 4.1 and 6). FRAME_ASKS: it begins a request; FRAME_OF_ALL: it is of the connection, as
 * a client's that only reads what is pushed. Not static, so that it is verified once.
 */
__noinline int client_frame(u64 at)
{
	u8 head[FRAME_HEAD] = {};
	u32 length, stream, flags;
	bool of_client;

	if (bpf_probe_read_user(head, sizeof(head), (void *)at))
		return -1;
	length = (u32)head[0] << 16 | (u32)head[1] << 8 | head[2];
	stream = (u32)head[5] << 24 | (u32)head[6] << 16 | (u32)head[7] << 8 | head[8];
	of_client = stream % 2 && !(stream >> 31);
	flags = head[4];
	if (length > LONGEST_FRAME)
		return -1;
	switch (head[3]) {
	case 0: /* DATA */
		return of_client && !(flags & ~0x09) ? length : -1;
	case 1: /* HEADERS, all of them */
		return of_client && length && !(flags & ~0x2d) && flags & 0x04 ?
			       length | FRAME_ASKS :
			       -1;
	case 2: /* PRIORITY */
		return of_client && length == 5 && !flags ? length : -1;
	case 3: /* RST_STREAM */
		return of_client && length == 4 && !flags ? length : -1;
	case 4: /* SETTINGS */
		return !stream && length % 6 == 0 && !(flags & ~0x01) ? length | FRAME_OF_ALL : -1;
	case 6: /* PING */
		return !stream && length == 8 && !(flags & ~0x01) ? length | FRAME_OF_ALL : -1;
	case 8: /* WINDOW_UPDATE */
		return (!stream || of_client) && length == 4 && !flags ? length | FRAME_OF_ALL : -1;
	}
	return -1;
}

/* As much may be told by bytes that were read. */
enum frames { FRAMES_NOT, FRAMES_ARE, FRAMES_MAY_BE };

/*
 * Whether these bytes are frames of HTTP/2, from the first to the last, and ask for something, or
 * are several of the connection; one of these they may be. Some servers read the head of a frame
 * first: then the rest is all that is still `unread`, or they may be, if there is room for another
 * frame behind it.
 */
__noinline int are_frames(u64 at, u32 bytes, u32 unread)
{
	u32 asks = 0, of_all = 0, done = 0;

	for (int i = 0; i < FRAMES && bytes - done >= FRAME_HEAD; i++) {
		int frame = client_frame(at + done);
		u32 length = frame & FRAME_LENGTH;

		if (frame < 0)
			return FRAMES_NOT;
		asks |= frame & FRAME_ASKS;
		of_all += !!(frame & FRAME_OF_ALL);
		done += FRAME_HEAD + length;
		if (done == bytes)
			return asks || of_all > 1 ? FRAMES_ARE :
			       of_all		  ? FRAMES_MAY_BE :
						    FRAMES_NOT;
		if (done <= bytes)
			continue;
		if (!asks || bytes != FRAME_HEAD || unread < length)
			return FRAMES_NOT;
		if (unread == length)
			return FRAMES_ARE;
		return unread - length >= FRAME_HEAD ? FRAMES_MAY_BE : FRAMES_NOT;
	}
	return FRAMES_NOT;
}

/* What shows that a connection is one of HTTP/2; or that nothing was asked yet. */
enum http2 { HTTP2_NOT, HTTP2_PREFACE, HTTP2_FRAMES, HTTP2_LATER };

/*
 * How the head of the PROXY protocol begins, in which a proxy says who its client is: version 1,
 * which is a line, and 2, which ends with the length of the rest (proxy-protocol.txt of HAProxy).
 */
#define PROXY_1 0x43542059584f5250 /* "PROXY TC" */
#define PROXY_1_MOST 107
#define PROXY_2 0x510a0d000a0d0a0d
#define PROXY_2_HEAD 16

/* Whether a connection begins with such a head, and whether that is all that was read (`alone`). */
static __always_inline bool is_proxy_head(u64 at, u32 bytes, bool *alone)
{
	u64 words[2] = {};
	u8 end[3] = {};

	if (bytes < PROXY_2_HEAD || bpf_probe_read_user(words, sizeof(words), (void *)at))
		return false;
	if (words[0] == PROXY_2) {
		*alone = bytes == PROXY_2_HEAD + __builtin_bswap16(words[1] >> 48);
		return true;
	}
	if (words[0] != PROXY_1)
		return false;
	/* What follows on the line would have one of its own. */
	*alone = bytes <= PROXY_1_MOST &&
		 !bpf_probe_read_user(end, sizeof(end), (void *)(at + bytes - 3)) &&
		 end[0] != '\n' && end[2] == '\n';
	return true;
}

/* The first bytes that are read, or the first that whywait sees: what they show (HTTP2_…). */
__noinline int look_at_bytes(struct socket_state *socket, struct thread *thread, u32 bytes)
{
	struct task_struct *task = bpf_get_current_task_btf();
	bool is_new, alone = false;
	u8 left, seen;
	u64 at;

	if (!socket || !thread)
		return HTTP2_NOT;
	is_new = socket->multiplex == MULTIPLEX_NEW;
	seen = socket->multiplex & MULTIPLEX_HEAD;
	left = socket->multiplex > MULTIPLEX_OLD ? socket->multiplex & (MULTIPLEX_OLD - 1) : 0;
	socket->multiplex = left > 1 ? socket->multiplex - 1 : MULTIPLEX_NONE;
	/* What an io_uring ring reads, it reads whatever the call is. */
	if (thread->uring || task->flags & (PF_IO_WORKER | PF_USER_WORKER))
		return HTTP2_NOT;
	at = read_into(task);
	if (!at)
		return HTTP2_NOT;
	if (is_preface(at, bytes))
		return HTTP2_PREFACE;
	if (is_new && unlikely(is_proxy_head(at, bytes, &alone))) {
		socket->multiplex = MULTIPLEX_OLD + LOOKS;
		return alone ? HTTP2_LATER : HTTP2_NOT;
	}
	if (!left)
		return HTTP2_NOT;
	switch (are_frames(at, bytes, socket->tcp ? tcp_unread(sk_of(socket)) : 0)) {
	case FRAMES_ARE:
		return HTTP2_FRAMES;
	case FRAMES_MAY_BE:
		/* Two of them are no chance. */
		if (seen)
			return HTTP2_FRAMES;
		if (left > 1)
			socket->multiplex |= MULTIPLEX_HEAD;
	}
	return HTTP2_NOT;
}

/* The peer has not got all that was written: what was read it has sent before that. */
static __always_inline bool sent_too_early(struct sock *sk)
{
	return KERNEL_READ(struct tcp_sock, sk, snd_una) !=
	       KERNEL_READ(struct tcp_sock, sk, write_seq);
}

/* What seems to be the next request has been read: is it? Says what shows HTTP/2. */
static __always_inline int look_for_others(struct socket_state *socket, struct thread *thread,
					   u32 bytes)
{
	u8 known = socket->multiplex;

	if (unlikely(known == MULTIPLEX_NEW || known > MULTIPLEX_OLD))
		return look_at_bytes(socket, thread, bytes);
	if (likely(known < MULTIPLEX_OVERLAPS) && socket->last_send_ns && socket->tcp &&
		 unlikely(sent_too_early(sk_of(socket))))
		socket->multiplex = known | 1;
	return HTTP2_NOT;
}

static __always_inline bool came_too_early(const struct socket_state *socket)
{
	return socket->multiplex < MULTIPLEX_OVERLAPS && socket->multiplex & 1;
}

/*
 * More was read before the answer. If that did not come too early, it may be all that is to be
 * answered, and what came before the rest of an earlier request.
 */
static __always_inline void look_for_rest(struct socket_state *socket)
{
	if (unlikely(came_too_early(socket)) && !sent_too_early(sk_of(socket)))
		socket->multiplex--;
}

/* It is being answered. */
static __always_inline void look_for_overlap(struct socket_state *socket)
{
	if (likely(!came_too_early(socket)))
		return;
	if (++socket->multiplex == MULTIPLEX_NONE + 2 * OVERLAPS)
		found_multiplexed(socket, MULTIPLEX_OVERLAPS);
}
