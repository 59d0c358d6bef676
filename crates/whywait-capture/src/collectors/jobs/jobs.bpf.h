/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Jobs: a worker has a message from a broker on a connection that it made, works, and then asks for
 * the next one, or acknowledges it. Nobody calls a worker. What it asks a broker is no call either:
 * the answer takes as long as there is nothing to do.
 *
 * What is such an ask says asks.bpf.h: what asks to wait (Redis' commands that block, Kafka's
 * Fetch, SQS' ReceiveMessage), or says that a message is done with (AMQP 0-9-1). Where messages
 * have names see named.bpf.h.
 *
 * The job begins when the kernel has the message. Who asks for messages one by one has one at a
 * time: so the job ends when its worker asks for the next, whatever connection of a pool that goes
 * over. Where a broker sends unasked (that is so where messages are acknowledged) the job is the
 * connection's. Who gives messages to others has handed them on: see handed.bpf.h.
 */
#pragma once

#include "collectors/jobs/asks.bpf.h"
#include "collectors/jobs/named.bpf.h"
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
	came_ns = answer_came(socket, arrivals, bytes, thread->io_ns);
	exchange->over = 1;
	if (bytes > NO_MESSAGE) {
		slept_until(thread, came_ns);
		thread->asked = ASKED_OTHERWISE;
		message_is_read(thread, came_ns, exchange->peer);
		if (reads_its_own(exchange, thread))
			job_begins(socket, thread, worker_of(thread), came_ns, bytes);
	}
	return 0;
}

/*
 * Whether a job that may be none is none: more has come, and the worker had nothing to do until
 * then. It has slept for it, or, where another thread reads, done next to nothing since it was done
 * with the last one, and sleeps on a futex.
 */
static __always_inline bool none_at_hand(const struct socket_state *job,
					 const struct thread *reader)
{
	struct thread *worker;

	if (!job->maybe)
		return false;
	if (job->recv_tid == reader->tid)
		return reader->rest_nr == reader->nr &&
		       reader->rest_at == (u32)reader->args[0] &&
		       reader->wake_ns > job->recv_ns;
	worker = thread_by_id(job->recv_tid);
	return worker && worker->state == THREAD_SLEEPING && worker->nr == NR_FUTEX &&
	       worker->parts[PART_ON_CPU] - job->at_recv[PART_ON_CPU] < threshold_ns &&
	       worker->parts[PART_NETWORK] == job->at_recv[PART_NETWORK] &&
	       worker->parts[PART_TIMER] == job->at_recv[PART_TIMER] &&
	       worker->parts[PART_DISK] == job->at_recv[PART_DISK];
}

/* Something was read that a broker has sent unasked. */
static __noinline int broker_sent(struct socket_state *socket, const struct arrivals *arrivals,
				  struct thread *thread, u32 bytes)
{
	struct exchange *job;
	u64 key, came_ns;
	u32 place;

	if (!socket || !thread)
		return 0;
	was_read(socket, thread->io_ns);
	came_ns = noted_arrival(socket, arrivals, bytes, thread->io_ns);
	/* Some read the head of a frame first. */
	slept_until(thread, came_ns);
	thread->asked = ASKED_OTHERWISE;
	if (bytes <= NO_MESSAGE)
		return 0;
	key = worker_at(socket);
	place = find_job(key);
	/* More of the message, or the next one, which waits until this one is done with. */
	if (place && !none_at_hand(&jobs[(place - 1) & (JOBS - 1)], thread)) {
		job = &jobs[(place - 1) & (JOBS - 1)].exchange;
		if (!job->arrived_ns)
			job->arrived_ns = came_ns;
		return 0;
	}
	message_is_read(thread, came_ns, socket->exchange.peer);
	job_begins(socket, thread, key, came_ns, bytes);
	return 0;
}

/*
 * Something was read from what may be, or is, a broker whose messages have names. Whether it is:
 * one of them has come, or had.
 */
static __always_inline bool names_were_read(struct socket_state *socket,
					    const struct arrivals *arrivals,
					    struct thread *thread, u32 bytes)
{
	u64 came_ns;

	if (socket->broker != BROKER_NAMES && !reads_message(thread))
		return false;
	was_read(socket, thread->io_ns);
	if (!socket->exchange.peer)
		has_peer(socket);
	came_ns = noted_arrival(socket, arrivals, bytes, thread->io_ns);
	if (names_come(socket, thread, came_ns, bytes)) {
		if (socket->broker != BROKER_NAMES)
			leaves_exchange(&socket->exchange);
		socket->broker = BROKER_NAMES;
		reads_names(thread);
	}
	return socket->broker == BROKER_NAMES;
}

static __always_inline int answer_is_read(struct socket_state *socket,
					  const struct arrivals *arrivals, struct thread *thread,
					  u32 bytes)
{
	const struct exchange *exchange = &socket->exchange;

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
	if (unlikely(socket->broker < BROKER_NONE || socket->broker == BROKER_NAMES) &&
	    names_were_read(socket, arrivals, thread, bytes))
		return 0;
	return exchange_reads(socket, arrivals, thread, thread->io_ns, bytes);
}

/* A thread has read `bytes` from a connection that it made. */
static __noinline int client_reads(struct socket_state *socket, const struct arrivals *arrivals,
				   struct thread *thread, u32 bytes)
{
	if (!socket)
		return 0;
	answer_is_read(socket, arrivals, thread, bytes);
	if (unlikely(socket->broker == BROKER_IS_TOLD && runtimes_known))
		handles_are_read(socket, arrivals, thread, bytes);
	return 0;
}

/*
 * Who is done with a message is another thread than the job seemed to be whose: several work on
 * what one connection brings. It began when it was done with the one before, or when this one came.
 */
static __noinline int is_of_another(struct socket_state *job, const struct thread *thread)
{
	if (!job || !thread || job->recv_tid == thread->tid || !thread->done_ns)
		return 0;
	job->recv_tid = thread->tid;
	job->recv_ns = thread->done_ns;
	job->only_on_cpu = 0;
	__builtin_memcpy(job->at_recv, thread->at_done, sizeof(job->at_recv));
	if (thread->done_ns < job->ready_ns) {
		/* Until then it had nothing to do, and slept for who hands on what comes. */
		job->at_recv[PART_THREAD] += job->ready_ns - thread->done_ns;
		job->recv_ns = job->ready_ns;
	}
	return 0;
}

/*
 * Whether who is done with a message slept for other events since it had it: it is a loop, which
 * may be at several of them, or tells only what others are done with.
 */
static __always_inline bool is_of_a_loop(const struct socket_state *job,
					 const struct thread *thread)
{
	return job->recv_tid == thread->tid && thread->rested_ns > job->recv_ns &&
	       is_epoll_call(thread->rest_nr);
}

/*
 * A worker has said that it is done with a message. It may have others, which came with it or
 * since: the next one of these begins. Where there is none it sleeps for more, or asks for more,
 * and this one was none.
 */
static __noinline int message_is_done(struct socket_state *socket, struct thread *thread, u64 key,
				      u32 bytes)
{
	struct socket_state *job;
	bool of_a_loop;
	u64 came_ns;
	u32 place;

	if (!socket || !thread)
		return 0;
	place = find_job(key);
	if (!place)
		return 0;
	job = &jobs[(place - 1) & (JOBS - 1)];
	came_ns = job->exchange.arrived_ns ? job->exchange.arrived_ns : job->ready_ns;
	is_of_another(job, thread);
	of_a_loop = is_of_a_loop(job, thread);
	job_ends(thread, key, bytes);
	if (of_a_loop)
		return 0;
	thread->done_ns = thread->io_ns;
	__builtin_memcpy(thread->at_done, thread->parts, sizeof(thread->at_done));
	thread->at_done[PART_ON_CPU] = thread->io_on_cpu_ns;
	job_begins(socket, thread, key, came_ns, 0);
	place = find_job(key);
	if (place)
		jobs[(place - 1) & (JOBS - 1)].maybe = 1;
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
	u32 sent = socket->broker == BROKER_NAMES ? SENT_NAMES :
						    what_is_sent(socket, thread, bytes);
	bool fetches = sent == SENT_FETCHES || sent == SENT_POLLS || sent == SENT_RECEIVES;

	if (unlikely(socket->broker == BROKER_IS_TOLD && runtimes_known))
		asks_with_handles(socket, thread, bytes, sent == SENT_RECEIVES,
				  sent == SENT_DELETES,
				  sent == SENT_ASKS && socket->exchange.first_send_ns &&
					  !socket->exchange.first_read_ns &&
					  !socket->exchange.over);
	switch (sent) {
	case SENT_FETCHES:
		job_ends(thread, worker_of(thread), bytes);
		break;
	case SENT_POLLS:
		polls_broker(socket, thread);
		break;
	case SENT_RECEIVES:
		was_no_message(thread);
		break;
	case SENT_DELETES:
		message_is_done(socket, thread, worker_of(thread), bytes);
		break;
	case SENT_ACKNOWLEDGES:
		message_is_done(socket, thread, worker_at(socket), bytes);
		break;
	case SENT_NAMES:
		names_are_done(socket, thread, bytes);
		break;
	case SENT_ASKS:
		fetches = goes_on_asking(socket);
		break;
	}
	if (unlikely(socket->broker >= BROKER_SENDS || sent >= SENT_PREFACE))
		exchange_is_none(socket);
	else
		exchange_writes(socket, thread, thread->io_ns, bytes, fetches);
	return sent;
}
