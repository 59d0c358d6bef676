/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Messages that a thread has read from a broker and gives to others: see handed.bpf.h and
 * helpers.bpf.h.
 */
#pragma once

#include "collectors/jobs/open.bpf.h"

/* Of a thread that has messages: whether it may hand them on through memory. */
enum fetches {
	FETCHES = 1,
	FETCHES_IN_TASK, /* it has tasks that do, and sleeps for none of them */
};

enum asked {
	ASKED_NOT,
	ASKED, /* … for more than it has, … */
	ASKED_AND_RESTS, /* … and has slept since, as it does until there is more */
	ASKED_OTHERWISE, /* of a broker that is not polled: only when it sleeps so is noted */
};

/* What a thread has to do with another one's messages. */
enum handed {
	HANDED_NOTHING,
	HANDED_BY_READ, /* it was given some, and slept in a read */
	HANDED_PERHAPS, /* … by one that MAY_HAND_ON, and it has not answered yet */
	NO_HELPER, /* … and it slept for more without an answer */
	HANDED_BY_WORD, /* … on a futex */
	IS_TOLD, /* who has messages woke it from a futex */
	MAY_HAND_ON, /* … and it then woke a child process from a read */
	HANDS_ON, /* … which has answered, when it was long done with the message */
	GETS_ANSWERS, /* a thread that such child processes wake when they have done with one */
};

/* Threads that have messages, and how many of each may wait. */
#define FETCHERS 64
#define MESSAGES 256
/* With so many a thread was done at once, as far as is counted. */
#define HANDS_ON_MOST 2

/* Messages that a thread has read and given to nobody, by when they came. */
struct fetched {
	u32 tid; /* whose; 0: nobody's */
	u32 peer; /* whom they came from, as in an exchange */
	u32 first; /* the number of the oldest, … */
	u32 end; /* … and of the next one that is read */
	u32 helpers; /* so many are at work */
	/* It was done with the last ones at once, and slept for more: it works on none itself. */
	u32 hands_on;
	u64 read_ns; /* the last one was read */
	u64 idle_ns; /* the last helper that was at work was done */
	/* Who hands them on (0: itself), and from which descriptor its helpers read them. */
	u32 hand, hand_fd;
	/* What a helper reads for one, in calls (0: not known), unless jobs read, too. */
	u32 least_reads, reads_vary;
	/* A helper was woken by another one when there was none yet: it takes the next one. */
	u32 awake;
	u64 awake_ns;
	/* A helper seemed to go on with the next one, and then there was none for another. */
	u32 went_on, too_far;
	u64 came_ns[MESSAGES];
	u64 was_read_ns[MESSAGES];
};

struct fetched fetched[FETCHERS] SEC(".bss.messages");

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

/* What came before `ns` was given to somebody, but for the last one. Not static: verified once. */
__noinline int were_taken(struct fetched *from, u64 ns)
{
	if (!from)
		return 0;
	for (u32 i = 0; i < MESSAGES; i++) {
		if (from->end - from->first <= 1)
			break;
		if (from->came_ns[from->first & (MESSAGES - 1)] >= ns)
			break;
		from->first++;
	}
	return 0;
}

/*
 * A thread is woken that slept on while there were messages that nobody was given: who helps would
 * have been woken for them. So others have them, who found them without a sleep, or were woken so
 * that it did not show. How many. Not static: verified once.
 */
__noinline int were_passed_by(struct fetched *from, u64 now)
{
	u32 passed = 0;

	if (!from)
		return 0;
	for (u32 i = 0; i < MESSAGES; i++) {
		if (from->end - from->first <= 1)
			break;
		if (now - from->was_read_ns[from->first & (MESSAGES - 1)] < threshold_ns)
			break;
		from->first++;
		passed++;
	}
	return passed;
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

/* A thread has a message that came then. */
static __always_inline struct socket_state *has_message(const struct fetched *from,
							struct thread *thread, u64 came_ns,
							u64 now, u64 on_cpu_ns)
{
	struct socket_state *job = &jobs[take_job(helper_key(thread)) & (JOBS - 1)];

	make_job(job, thread, WORK_HANDED_JOB, from->peer, came_ns, now, 0, on_cpu_ns);
	job->exchange.send_tid = from->tid;
	/* It is on its way only now. */
	job->unserved_wakeup_ns = 0;
	thread->handed_by = from->tid;
	thread->answers = 0;
	return job;
}

/* The part of a thread's time that its sleep is, which a thread ends; it is not in its sums yet. */
static __always_inline void add_this_sleep(u64 *parts, const struct thread *thread, u64 now)
{
	u32 part = part_of_sleep(thread->family, thread->uninterruptible, thread->io_wait,
				 WAKE_TASK, true);

	if (part < PART_COUNT && thread->out_ns < now)
		parts[part] += now - thread->out_ns;
}

/* A thread that sleeps is given a message that came then. The sleep is none of the job. */
static __always_inline struct socket_state *is_given(const struct fetched *from,
						     struct thread *thread, u64 came_ns, u64 now)
{
	struct socket_state *job = has_message(from, thread, came_ns, now,
					       thread->parts[PART_ON_CPU]);

	add_this_sleep(job->at_recv, thread, now);
	thread->handed_fd = (u32)thread->args[0];
	return job;
}

/* So it is known when it sleeps for messages again. Its sums are those at that time. */
static __always_inline void job_is_paused(struct socket_state *job, const struct thread *thread,
					  u64 now, u64 on_cpu_ns)
{
	account_service(job, thread, now, on_cpu_ns);
	job->first_send_ns = now;
	job->last_send_ns = now;
	job->send_tid = thread->tid;
}

/* A helper that another one woke takes the message that was read last, and is done with its own. */
__noinline int takes_next(struct fetched *from, u64 now)
{
	struct thread *thread;
	u32 place;

	if (!from)
		return 0;
	thread = thread_by_id(from->awake);
	if (!thread || thread->handed != HANDED_BY_WORD || thread->handed_by != from->tid)
		return 0;
	place = find_job(helper_key(thread));
	if (place && !jobs[(place - 1) & (JOBS - 1)].last_send_ns)
		return 0;
	if (place)
		job_is_done(place - 1, now);
	has_message(from, thread, give_message(from, now), now, thread->parts[PART_ON_CPU]);
	return 0;
}

/* A thread has read a message that came then. Not static: verified once. */
__noinline int message_is_read(struct thread *thread, u64 came_ns, u32 peer)
{
	struct fetched *own;
	u64 now = bpf_ktime_get_ns();

	if (!thread)
		return 0;
	thread->fetches = runtimes_known && goroutine_of(thread) ? FETCHES_IN_TASK : FETCHES;
	/* What woke it before was a lock: it has its messages itself. */
	if (unlikely(thread->handed >= HANDED_BY_WORD)) {
		u32 place = find_job(helper_key(thread));

		if (place)
			NOW(job_keys[(place - 1) & (JOBS - 1)]) = 0;
		thread->handed = HANDED_NOTHING;
	}
	own = &fetched[thread->tid & (FETCHERS - 1)];
	if (own->tid != thread->tid) {
		if (own->tid && thread_by_id(own->tid))
			return 0;
		own->tid = thread->tid;
		own->first = own->end;
		own->helpers = 0;
		own->idle_ns = 0;
		own->hands_on = 0;
		own->hand = 0;
		own->least_reads = own->reads_vary = 0;
		own->went_on = own->too_far = 0;
		own->awake = 0;
	}
	/*
	 * It slept for more, for long, and nobody was at work: those that are left were no jobs, or
	 * are given to nobody. (That its helpers are idle when it reads the next one says nothing:
	 * it may hear of that, and of this message, at once.)
	 */
	if (!own->helpers && thread->rested_ns > own->read_ns && thread->rested_ns > own->idle_ns &&
	    now - thread->rested_ns >= threshold_ns)
		own->first = own->end;
	own->peer = peer;
	own->read_ns = now;
	own->came_ns[own->end & (MESSAGES - 1)] = came_ns;
	own->was_read_ns[own->end & (MESSAGES - 1)] = now;
	own->end++;
	if (own->end - own->first > MESSAGES)
		own->first = own->end - MESSAGES;
	if (own->awake && now - own->awake_ns < threshold_ns)
		takes_next(own, now);
	own->awake = 0;
	return 0;
}
