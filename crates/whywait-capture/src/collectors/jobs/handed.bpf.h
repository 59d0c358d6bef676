/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Jobs that are handed on: who asks the broker for messages gives each to a helper, a process or a
 * thread that sleeps in a read of a pipe or a socket until there is one. The thread with the
 * messages wakes it from that sleep, it works, and then sleeps in a read of the same descriptor
 * again. What the first one does with a message is then none of the job.
 *
 * Which message a helper was given does not show. They are taken to be given in the order in which
 * they came: the job begins when the oldest one did that nobody was given.
 */
#pragma once

#include "collectors/jobs/open.bpf.h"
#include "core/calls.bpf.h"

/* Threads that have messages, and how many of each may wait. */
#define FETCHERS 64
#define MESSAGES 256

/* Messages that a thread has read and given to nobody, by when they came. */
struct fetched {
	u32 tid; /* whose; 0: nobody's */
	u32 peer; /* whom they came from, as in an exchange */
	u32 first; /* the number of the oldest, … */
	u32 end; /* … and of the next one that is read */
	u32 helpers; /* so many are at work */
	u64 read_ns; /* the last one was read */
	u64 came_ns[MESSAGES];
};

struct fetched fetched[FETCHERS] SEC(".bss.messages");

/* A thread has read a message that came then. Not static: verified once. */
__noinline int message_is_read(struct thread *thread, u64 came_ns, u32 peer)
{
	struct fetched *own;
	u64 now = bpf_ktime_get_ns();

	if (!thread)
		return 0;
	thread->fetches = 1;
	own = &fetched[thread->tid & (FETCHERS - 1)];
	if (own->tid != thread->tid) {
		if (own->tid && thread_by_id(own->tid))
			return 0;
		own->tid = thread->tid;
		own->first = own->end;
		own->helpers = 0;
	}
	/* Where nobody is at work for long, those that are left were no jobs, or were not given. */
	if (!own->helpers && now - own->read_ns >= threshold_ns)
		own->first = own->end;
	own->peer = peer;
	own->read_ns = now;
	own->came_ns[own->end & (MESSAGES - 1)] = came_ns;
	own->end++;
	if (own->end - own->first > MESSAGES)
		own->first = own->end - MESSAGES;
	return 0;
}

static __always_inline bool sleeps_in_read(const struct thread *thread)
{
	return thread->nr == NR_READ || thread->nr == NR_RECVFROM;
}

static __always_inline u64 helper_key(const struct thread *thread)
{
	return 1ULL << 61 | thread->tid;
}

/* It has a job that it was given, or has done it and was given none since. */
static __always_inline struct socket_state *job_of_helper(const struct thread *thread)
{
	u32 place = thread->handed ? find_job(helper_key(thread)) : 0;

	return place ? &jobs[(place - 1) & (JOBS - 1)] : 0;
}

/* Of what the thread has, the oldest is given away: when it came. */
static __always_inline u64 give_message(struct fetched *from, u64 now)
{
	from->helpers++;
	/* Else it came with another one, and is not known. */
	if (from->first == from->end)
		return now;
	return from->came_ns[from->first++ & (MESSAGES - 1)];
}

/*
 * A thread that has messages wakes another one, which sleeps in a read. (It may write a message in
 * pieces: what it wakes the same one for before it sleeps itself is the same.)
 */
__noinline int hands_over(struct thread *by, struct thread *thread, u64 now)
{
	struct socket_state *job;
	struct fetched *from;
	u32 part;

	if (!by || !thread)
		return 0;
	from = &fetched[by->tid & (FETCHERS - 1)];
	if (from->tid != by->tid)
		return 0;
	job = job_of_helper(thread);
	if (job) {
		/* It is at work, and waits for something else. */
		if (!job->last_send_ns || thread->handed_fd != (u32)thread->args[0])
			return 0;
		if (by->back_ns <= job->recv_ns) {
			job->first_send_ns = 0;
			job->last_send_ns = 0;
			from->helpers++;
			return 0;
		}
		job_is_done(find_job(helper_key(thread)) - 1, now);
	}
	job = &jobs[take_job(helper_key(thread)) & (JOBS - 1)];
	make_job(job, thread, WORK_HANDED_JOB, from->peer, give_message(from, now), now, 0,
		 thread->parts[PART_ON_CPU]);
	job->exchange.send_tid = by->tid;
	/* It is on its way only now. */
	job->unserved_wakeup_ns = 0;
	/* The sleep that ends here is none of it, and is not in the thread's sums yet. */
	part = part_of_sleep(thread->family, thread->uninterruptible, thread->io_wait, WAKE_TASK,
			     true);
	if (part < PART_COUNT && thread->out_ns < now)
		job->at_recv[part] += now - thread->out_ns;
	thread->handed = 1;
	thread->handed_fd = (u32)thread->args[0];
	thread->handed_by = by->tid;
	return 0;
}

/* A helper sleeps in a read of the descriptor from which it has its jobs: it is done with one. */
__noinline int helper_rests(struct thread *thread, u64 now)
{
	struct socket_state *job;
	struct fetched *from;

	if (!thread)
		return 0;
	job = job_of_helper(thread);
	if (!job || job->last_send_ns)
		return 0;
	account_service(job, thread, now, thread->parts[PART_ON_CPU]);
	job->first_send_ns = now;
	job->last_send_ns = now;
	job->send_tid = thread->tid;
	from = &fetched[thread->handed_by & (FETCHERS - 1)];
	if (from->tid == thread->handed_by && from->helpers)
		from->helpers--;
	return 0;
}
