/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Jobs from a broker that is polled (Kafka): who has messages may ask for the next ones before it
 * works on them. So a job does not end when more is asked for. It ends where its worker sleeps for
 * messages again, having asked for more; or where it reads the next ones.
 *
 * The broker answers also when there was none for as long as it may wait. Such answers are short,
 * and all alike.
 */
#pragma once

#include "collectors/exchanges/exchanges.bpf.h"
#include "collectors/jobs/handed.bpf.h"

/* A batch of records has a head of 61 bytes: no answer with one is as short as this. */
#define KAFKA_NO_RECORDS 64

/* Who has a message that was asked for: the goroutine, or the thread. */
static __always_inline u64 worker_of(const struct thread *thread)
{
	u64 goroutine = unlikely(runtimes_known) ? goroutine_of(thread) : 0;

	return goroutine ? goroutine ^ (u64)thread->tgid << 48 : worker_key(thread);
}

/*
 * Whether who has read a broker's answer is who asked for it. Else there are goroutines that
 * read and write for others, and who works on a message does not show.
 */
static __always_inline bool reads_its_own(const struct exchange *exchange,
					  const struct thread *thread)
{
	return likely(!runtimes_known) || !goroutine_of(thread) ||
	       exchange->task == task_of(thread);
}

/* A worker has a message of `bytes` that came then. */
__noinline int job_begins(const struct socket_state *socket, struct thread *thread, u64 key,
			  u64 came_ns, u32 bytes)
{
	struct socket_state *job;
	u64 now = thread ? thread->io_ns : 0;

	if (!socket || !thread)
		return 0;
	job = &jobs[take_job(key) & (JOBS - 1)];
	make_job(job, thread, WORK_JOB, socket->exchange.peer, came_ns, now, bytes,
		 thread->io_on_cpu_ns);
	job->recv_task = unlikely(runtimes_known) ? goroutine_of(thread) : 0;
	return 0;
}

/* Its worker asks for the next one, or is done with it. */
__noinline int job_ends(struct thread *thread, u64 key, u32 bytes)
{
	u64 now = thread ? thread->io_ns : 0;
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
	if (bytes)
		hands_on(thread, job, now);
	account_service(job, thread, now, thread->io_on_cpu_ns);
	if (unlikely(runtimes_known))
		job->send_task = task_of(thread);
	job_is_done(place, now);
	return 0;
}

/* In an exchange's `fetches`: it was answered, and another thread has read that than has asked. */
#define FETCHED_FOR_ANOTHER 2

/* Of the last answer: whether it took as long as the broker may wait for a message. */
static __always_inline bool was_late(const struct exchange *exchange)
{
	return exchange->arrived_ns - exchange->first_send_ns >= exchange->asked_ms * 1000000ULL;
}

/*
 * Whether it slept until this came, and so does until there is more. Else it slept for something
 * else meanwhile, or did not.
 */
static __always_inline bool slept_until(struct thread *thread, u64 came_ns)
{
	if ((thread->family != CALL_POLL && !sleeps_in_read(thread)) ||
	    thread->wake_ns - came_ns >= threshold_ns)
		return false;
	thread->rest_nr = thread->nr;
	thread->rest_at = thread->args[0];
	return true;
}

/*
 * A worker has more, which came then. Whether its last job is over: it has read both at once
 * otherwise.
 */
static __always_inline bool last_one_is_over(struct thread *thread, u64 came_ns)
{
	u64 key = worker_key(thread);
	u32 place = find_job(key);
	struct socket_state *job;

	if (!place)
		return true;
	job = &jobs[(place - 1) & (JOBS - 1)];
	if (job->last_send_ns) {
		job_is_done(place - 1, thread->io_ns);
		return true;
	}
	if (thread->io_ns - job->recv_ns < threshold_ns)
		return false;
	/* It rested in the meantime, where that was not known yet. */
	if (job->maybe && slept_until(thread, came_ns))
		NOW(job_keys[(place - 1) & (JOBS - 1)]) = 0;
	else
		job_ends(thread, key, 0);
	return true;
}

/* A thread has what a broker has answered. */
static __always_inline void polled_job_begins(struct socket_state *socket, struct thread *thread,
					      u32 bytes)
{
	u32 place;

	job_begins(socket, thread, worker_key(thread), socket->exchange.arrived_ns, bytes);
	place = find_job(worker_key(thread));
	if (place)
		jobs[(place - 1) & (JOBS - 1)].maybe = !thread->rest_nr && !thread->rest_at;
}

/* A thread has asked a broker for more, which is not in the connection's exchange yet. */
__noinline int polls_broker(struct socket_state *socket, struct thread *thread)
{
	struct exchange *exchange;

	if (!socket || !thread)
		return 0;
	exchange = &socket->exchange;
	if (exchange->fetches && exchange->first_read_ns && was_late(exchange) &&
	    (!exchange->empty_in || exchange->bytes_in < exchange->empty_in))
		exchange->empty_in = exchange->bytes_in;
	thread->asked = ASKED;
	/* Who asks for more takes what somebody else has read for it (Java's heartbeats do). */
	if (exchange->fetches == FETCHED_FOR_ANOTHER &&
	    (likely(!runtimes_known) || !goroutine_of(thread)) &&
	    last_one_is_over(thread, exchange->arrived_ns))
		polled_job_begins(socket, thread, exchange->bytes_in);
	return 0;
}

/* When the answer to a fetch came, of which `bytes` were read first: it is counted. */
static __noinline u64 answer_came(const struct socket_state *socket,
				  const struct arrivals *arrivals, u32 bytes, u64 now)
{
	u64 sent_ns = socket->exchange.first_send_ns;
	u64 came_ns = noted_arrival(socket, arrivals, bytes, now);

	/* It was there before it was asked for: the answer to something else, that came late. */
	if (came_ns < sent_ns)
		came_ns = sent_ns;
	COUNT(jobs_fetches);
	COUNT_MORE(jobs_waited_ns, came_ns - sent_ns);
	return came_ns;
}

/* A part of a broker's answer has been read. */
__noinline int poll_is_answered(struct socket_state *socket, const struct arrivals *arrivals,
				struct thread *thread, u32 bytes)
{
	struct exchange *exchange;
	u32 before, empty;

	if (!socket || !thread)
		return 0;
	exchange = &socket->exchange;
	was_read(socket, thread->io_ns);
	if (!exchange->first_read_ns) {
		exchange->arrived_ns = answer_came(socket, arrivals, bytes, thread->io_ns);
		exchange->first_read_ns = thread->io_ns;
	}
	exchange->last_read_ns = thread->io_ns;
	before = exchange->bytes_in;
	exchange->bytes_in = before + bytes;
	empty = exchange->empty_in;
	/* The first that is late has none, or how long one without is would be known. */
	if (!empty && was_late(exchange))
		return 0;
	if (empty < KAFKA_NO_RECORDS)
		empty = KAFKA_NO_RECORDS;
	if (before > empty || before + bytes <= empty)
		return 0;
	slept_until(thread, exchange->arrived_ns);
	thread->asked = ASKED_NOT;
	message_is_read(thread, exchange->arrived_ns, exchange->peer);
	/* In Go one goroutine fetches for others, in all libraries. */
	if (thread->tid != exchange->send_tid)
		exchange->fetches = FETCHED_FOR_ANOTHER;
	else if ((likely(!runtimes_known) || !goroutine_of(thread)) &&
		 last_one_is_over(thread, exchange->arrived_ns))
		polled_job_begins(socket, thread, before + bytes);
	return 0;
}

/* What it slept for was the reply to a call of the job's: it goes on. */
__noinline int worker_goes_on(const struct exchange *exchange, const struct thread *thread)
{
	struct socket_state *job;
	u32 place;

	if (!exchange || !thread || exchange->send_tid != thread->tid)
		return 0;
	place = find_job(worker_key(thread));
	if (!place)
		return 0;
	job = &jobs[(place - 1) & (JOBS - 1)];
	if (exchange->first_send_ns < job->recv_ns || exchange->first_send_ns > job->last_send_ns)
		return 0;
	job->first_send_ns = 0;
	job->last_send_ns = 0;
	return 0;
}
