/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Jobs: a worker has a message from a broker on a connection that it made, works, and then asks for
 * the next one, or acknowledges it. Nobody calls a worker. What it asks a broker is no call either:
 * the answer takes as long as there is nothing to do.
 *
 * What is such an ask says asks.bpf.h: what asks to wait (Redis' commands that block, Kafka's Fetch,
 * SQS' ReceiveMessage), or says that a message is done with (AMQP 0-9-1, NATS JetStream).
 *
 * The job begins when the kernel has the message. Who asks for messages one by one has one at a
 * time: so the job ends when its worker asks for the next, whatever connection of a pool that goes
 * over. Where a broker sends unasked (that is so where messages are acknowledged) the job is the
 * connection's. Who gives messages to others has handed them on: see handed.bpf.h.
 */
#pragma once

#include "collectors/jobs/asks.bpf.h"
#include "collectors/jobs/polled.bpf.h"

/*
 * No more than this brings no message: Redis' answer that there is none (5), a heartbeat of AMQP
 * (8), NATS' PING (6).
 */
#define NO_MESSAGE 8

static __always_inline u64 worker_at(const struct socket_state *socket)
{
	return 1ULL << 62 | socket->id;
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
	if (unlikely(exchange->fetches && !exchange->over && exchange->first_send_ns)) {
		if (socket->broker == BROKER_IS_POLLED)
			return poll_is_answered(socket, arrivals, thread, bytes);
		return fetch_is_answered(socket, arrivals, thread, bytes);
	}
	if (unlikely(thread->asked == ASKED_AND_RESTS))
		worker_goes_on(exchange, thread);
	/* Who asks for messages waits for one sooner or later. */
	if (unlikely(socket->broker == BROKER_NONE &&
		     thread->io_ns - exchange->first_send_ns >= threshold_ns))
		socket->broker = 0;
	return exchange_reads(socket, arrivals, thread, thread->io_ns, bytes);
}

/*
 * A worker of SQS has deleted a message, which is a call. It may have others, which came with it:
 * the next one of these begins. Where there is none, it asks for more, and this one was none.
 */
static __noinline int message_is_deleted(struct thread *thread, u32 bytes)
{
	u64 key, came_ns, now;
	struct socket_state *job;
	u32 place, peer;

	if (!thread)
		return 0;
	now = thread->io_ns;
	key = worker_of(thread);
	place = find_job(key);
	if (!place)
		return 0;
	place = (place - 1) & (JOBS - 1);
	job = &jobs[place];
	came_ns = job->ready_ns;
	peer = job->exchange.peer;
	job_ends(thread, key, bytes);
	job = &jobs[take_job(key) & (JOBS - 1)];
	make_job(job, thread, WORK_JOB, peer, came_ns, now, 0, thread->io_on_cpu_ns);
	job->recv_task = unlikely(runtimes_known) ? goroutine_of(thread) : 0;
	return 0;
}

/* What a worker had was no message, as it has asked for the next one without a word on it. */
static __always_inline void was_no_message(const struct thread *thread)
{
	u32 place = find_job(worker_of(thread));

	if (place)
		NOW(job_keys[(place - 1) & (JOBS - 1)]) = 0;
}

/* Whether what was written is a part of what asks for a message: a body behind its head. */
static __always_inline bool goes_on_asking(const struct socket_state *socket)
{
	const struct exchange *exchange = &socket->exchange;

	return socket->broker == BROKER_IS_TOLD && exchange->fetches && !exchange->over &&
	       exchange->first_send_ns;
}

/* A thread has written `bytes` to a connection that it made and of which that is looked at. */
static __always_inline enum sent client_writes(struct socket_state *socket,
					       struct thread *thread, u32 bytes)
{
	u32 sent = what_is_sent(socket, thread, bytes);
	bool fetches = sent == SENT_FETCHES || sent == SENT_POLLS || sent == SENT_RECEIVES;

	switch (sent) {
	case SENT_FETCHES:
		job_ends(thread, worker_of(thread), bytes);
		break;
	case SENT_POLLS:
		polls_broker(socket, thread, bytes);
		break;
	case SENT_RECEIVES:
		was_no_message(thread);
		break;
	case SENT_DELETES:
		message_is_deleted(thread, bytes);
		break;
	case SENT_ACKNOWLEDGES:
		job_ends(thread, worker_at(socket), bytes);
		break;
	case SENT_ASKS:
		fetches = goes_on_asking(socket);
		break;
	}
	if (unlikely(socket->broker == BROKER_SENDS || sent >= SENT_PREFACE))
		exchange_is_none(socket);
	else
		exchange_writes(socket, thread, thread->io_ns, bytes, fetches);
	return sent;
}
