/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Jobs: a worker has a message from a broker on a connection that it made, works, and then asks for
 * the next one, or acknowledges it. Nobody calls a worker. What it asks a broker is no call either:
 * the answer takes as long as there is nothing to do.
 *
 * Whether what a program sends is such an ask shows in its first bytes, and in nothing else: what a
 * slow peer takes to answer looks the same. So they are looked at, where the writer has them. The
 * rule is the protocol's, not a program's: what asks to wait (Redis: commands that block), and what
 * says that a message is done with (AMQP 0-9-1, NATS JetStream).
 *
 * The job begins when the kernel has the message. Who asks for messages one by one has one at a
 * time: so the job ends when its worker asks for the next, whatever connection of a pool that goes
 * over. Where a broker sends unasked (that is so where messages are acknowledged) the job is the
 * connection's. Who gives messages to others has handed them on: see handed.bpf.h.
 */
#pragma once

#include "collectors/exchanges/exchanges.bpf.h"
#include "collectors/jobs/handed.bpf.h"
#include "collectors/sockets/multiplexed.bpf.h"
#include "collectors/sockets/sent.bpf.h"

/*
 * No more than this brings no message: Redis' answer that there is none (5), a heartbeat of AMQP
 * (8), NATS' PING (6).
 */
#define NO_MESSAGE 8

enum sent {
	SENT_ASKS, /* or tells something: a call */
	SENT_FETCHES, /* it asks for a message, and to wait until there is one */
	SENT_ACKNOWLEDGES, /* a message is done with */
	SENT_PREFACE, /* HTTP/2 is spoken from now on, … */
	SENT_FRAME, /* … or has been, as it seems: it begins as a frame does */
};

/* `BLPOP`, `BRPOPLPUSH`, `BLMOVE`, `BZPOPMIN` and so on; `XREAD`, `XREADGROUP`. */
static __always_inline bool waits_at_redis(const u8 *head, u32 bytes)
{
	u32 at, lines = 0;
	u8 name[4];

	if (!bytes || head[0] != '*')
		return false;
	/* `*3\r\n$5\r\nBLPOP\r\n`: how many words, how long the first is, and that. */
	for (at = 1; at < 14; at++)
		if (head[at] == '\n' && ++lines == 2)
			break;
	if (lines < 2 || at + 5 > bytes)
		return false;
	for (int i = 0; i < 4; i++)
		name[i] = head[(at + 1 + i) & (SENT_HEAD - 1)] | 0x20;
	if (name[0] == 'b')
		return name[1] == 'l' || name[1] == 'r' || name[1] == 'z';
	return name[0] == 'x' && name[1] == 'r' && name[2] == 'e' && name[3] == 'a';
}

/* A frame with basic.ack (80), basic.reject (90) or basic.nack (120) of AMQP 0-9-1. */
static __always_inline bool acknowledges_amqp(const u8 *head, u32 bytes)
{
	return bytes >= 21 && head[0] == 1 && !head[3] && !head[4] && !head[5] && head[6] == 13 &&
	       !head[7] && head[8] == 60 && !head[9] &&
	       (head[10] == 80 || head[10] == 90 || head[10] == 120);
}

/* `PUB $JS.ACK.…`: what acknowledges a message of JetStream. */
static __always_inline bool acknowledges_nats(const u8 *head, u32 bytes)
{
	return bytes >= 12 && head[0] == 'P' && head[1] == 'U' && head[2] == 'B' &&
	       head[4] == '$' && head[5] == 'J' && head[6] == 'S' && head[7] == '.' &&
	       head[8] == 'A' && head[9] == 'C' && head[10] == 'K' && head[11] == '.';
}

/* Whether what was sent last begins as a frame of HTTP/2 does. */
static __always_inline bool sends_frame(const struct thread *thread, u32 bytes)
{
	struct sent_call call;

	sends(&call, thread);
	return call.data && bytes >= FRAME_HEAD && client_frame(call.data) >= 0;
}

/* What a thread has just sent on a connection that it made. Not static: verified once. */
__noinline u32 what_is_sent(struct socket_state *socket, const struct thread *thread, u32 bytes)
{
	u8 head[SENT_HEAD] __attribute__((aligned(8))) = {};
	u32 looked_at;

	if (!socket || !thread)
		return SENT_ASKS;
	looked_at = sent_head(head, thread, bytes);
	if (waits_at_redis(head, looked_at)) {
		socket->broker = BROKER_IS_ASKED;
		return SENT_FETCHES;
	}
	if (acknowledges_amqp(head, looked_at) || acknowledges_nats(head, looked_at)) {
		socket->broker = BROKER_SENDS;
		return SENT_ACKNOWLEDGES;
	}
	if (looked_at >= PREFACE_BYTES && is_preface_at(head))
		return SENT_PREFACE;
	if (socket->broker < BROKER_NONE)
		socket->broker++;
	if (socket->multiplex > MULTIPLEX_OLD && sends_frame(thread, bytes))
		return SENT_FRAME;
	return SENT_ASKS;
}

/* Who has a message that was asked for: the goroutine, or the thread. */
static __always_inline u64 worker_of(const struct thread *thread)
{
	u64 goroutine = unlikely(runtimes_known) ? goroutine_of(thread) : 0;

	return goroutine ? goroutine ^ (u64)thread->tgid << 48 : 1ULL << 63 | thread->tid;
}

static __always_inline u64 worker_at(const struct socket_state *socket)
{
	return 1ULL << 62 | socket->id;
}

/* A worker has a message of `bytes` that came then. */
static __noinline int job_begins(const struct socket_state *socket,
				 struct thread *thread, u64 key, u64 came_ns, u32 bytes)
{
	struct socket_state *job;
	u64 now = thread->io_ns;

	if (!socket || !thread)
		return 0;
	job = &jobs[take_job(key) & (JOBS - 1)];
	make_job(job, thread, WORK_JOB, socket->exchange.peer, came_ns, now, bytes,
		 thread->io_on_cpu_ns);
	job->recv_task = unlikely(runtimes_known) ? goroutine_of(thread) : 0;
	return 0;
}

/* Its worker asks for the next one, or is done with it. */
static __noinline int job_ends(struct thread *thread, u64 key, u32 bytes)
{
	u64 now = thread->io_ns;
	struct socket_state *job;
	u32 place = find_job(key);

	if (!place || !thread)
		return 0;
	place = (place - 1) & (JOBS - 1);
	job = &jobs[place];
	job->first_send_ns = now;
	job->last_send_ns = now;
	job->send_tid = thread->tid;
	job->bytes_out = bytes;
	account_service(job, thread, now, thread->io_on_cpu_ns);
	if (unlikely(runtimes_known))
		job->send_task = task_of(thread);
	job_is_done(place, now);
	return 0;
}

/* A broker's answer to a fetch has been read: what else is read of it is no call's reply. */
static __noinline int fetch_is_answered(struct socket_state *socket,
					const struct arrivals *arrivals,
					struct thread *thread, u32 bytes)
{
	struct exchange *exchange;
	u64 came_ns;

	if (!socket)
		return 0;
	exchange = &socket->exchange;
	was_read(socket, thread->io_ns);
	came_ns = noted_arrival(socket, arrivals, bytes, thread->io_ns);
	/* It was there before it was asked for: the answer to something else, that came late. */
	if (came_ns < exchange->first_send_ns)
		came_ns = exchange->first_send_ns;
	exchange->over = 1;
	COUNT(jobs_fetches);
	COUNT_MORE(jobs_waited_ns, came_ns - exchange->first_send_ns);
	if (bytes > NO_MESSAGE) {
		message_is_read(thread, came_ns, exchange->peer);
		job_begins(socket, thread, worker_of(thread), came_ns, bytes);
	}
	return 0;
}

/* Something was read that a broker has sent unasked. */
static __noinline int broker_sent(struct socket_state *socket, const struct arrivals *arrivals,
				  struct thread *thread, u32 bytes)
{
	u64 key, came_ns;

	if (!socket)
		return 0;
	was_read(socket, thread->io_ns);
	if (bytes <= NO_MESSAGE)
		return 0;
	came_ns = noted_arrival(socket, arrivals, bytes, thread->io_ns);
	key = worker_at(socket);
	/* More of the message, or the next one, which waits until this one is done with. */
	if (find_job(key))
		return 0;
	message_is_read(thread, came_ns, socket->exchange.peer);
	job_begins(socket, thread, key, came_ns, bytes);
	return 0;
}

/* A thread has read `bytes` from a connection that it made. */
static __noinline int client_reads(struct socket_state *socket, const struct arrivals *arrivals,
				   struct thread *thread, u32 bytes)
{
	const struct exchange *exchange;

	if (!socket)
		return 0;
	exchange = &socket->exchange;
	if (unlikely(socket->broker == BROKER_SENDS))
		return broker_sent(socket, arrivals, thread, bytes);
	if (unlikely(exchange->fetches && !exchange->over && exchange->first_send_ns))
		return fetch_is_answered(socket, arrivals, thread, bytes);
	/* Who asks for messages waits for one sooner or later. */
	if (unlikely(socket->broker == BROKER_NONE &&
		     thread->io_ns - exchange->first_send_ns >= threshold_ns))
		socket->broker = 0;
	return exchange_reads(socket, arrivals, thread, thread->io_ns, bytes);
}

/* A thread has written `bytes` to a connection that it made and of which that is looked at. */
static __always_inline enum sent client_writes(struct socket_state *socket,
					       struct thread *thread, u32 bytes)
{
	u32 sent = what_is_sent(socket, thread, bytes);

	if (unlikely(sent == SENT_FETCHES))
		job_ends(thread, worker_of(thread), bytes);
	if (unlikely(sent == SENT_ACKNOWLEDGES))
		job_ends(thread, worker_at(socket), bytes);
	if (unlikely(socket->broker == BROKER_SENDS || sent >= SENT_PREFACE))
		exchange_is_none(socket);
	else
		exchange_writes(socket, thread, thread->io_ns, bytes, sent == SENT_FETCHES);
	return sent;
}
