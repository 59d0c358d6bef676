/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Jobs that are handed on: who asks the broker for messages gives each to a helper, a process or a
 * thread that sleeps in a read of a pipe or a socket until there is one. The thread with the
 * messages wakes it from that sleep, it works, and then sleeps in a read of the same descriptor
 * again. What the first one does with a message is then none of the job.
 *
 * Which message a helper was given does not show. They are taken to be given in the order in which
 * they came: the job begins when the oldest one did that nobody was given.
 *
 * A thread may sleep on a condition variable instead. It is given messages through memory, and may
 * take several before it sleeps again: these are one job. It is over where the thread slept on that
 * word again, or until who has messages woke it, for the first time since it was at work. But who
 * works on messages itself lets go of locks meanwhile, which looks the same. Who hands them on is
 * done with each at once.
 */
#pragma once

#include "collectors/jobs/open.bpf.h"
#include "collectors/futex/futex.bpf.h"
#include "collectors/tasks/tasks.bpf.h"
#include "core/calls.bpf.h"

/* Of a thread that has messages: whether it may hand them on through memory. */
enum fetches {
	FETCHES = 1,
	FETCHES_IN_TASK, /* it has tasks that do, and sleeps for none of them */
};

enum handed {
	HANDED_NOTHING,
	HANDED_BY_READ, /* it slept in a read */
	HANDED_BY_WORD, /* … on a futex */
};

enum asked {
	ASKED_NOT,
	ASKED, /* … for more than it has, … */
	ASKED_AND_RESTS, /* … and has slept since, as it does until there is more */
	ASKED_OTHERWISE, /* of a broker that is not polled: only when it sleeps so is noted */
};

/* A condition variable has several words, which its sleepers use in turn. */
#define CONDITION_BYTES 64
/*
 * Who waits for an interpreter's lock looks again so soon, at least: Python's 5 ms. It is at work.
 * (Who waits for messages may, too, but has nothing to do meanwhile.)
 */
#define LOOKS_AGAIN_NS 10000000
#define FUTEX_WAIT 0
#define FUTEX_CLOCK_REALTIME 256

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
	/* It was done with the last one at once, and slept for more: it works on none itself. */
	u32 hands_on;
	u64 read_ns; /* the last one was read */
	u64 idle_ns; /* the last helper that was at work was done */
	u64 came_ns[MESSAGES];
};

struct fetched fetched[FETCHERS] SEC(".bss.messages");

static __always_inline u64 worker_key(const struct thread *thread)
{
	return 1ULL << 63 | thread->tid;
}

static __always_inline u64 helper_key(const struct thread *thread)
{
	return 1ULL << 61 | thread->tid;
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
	if (unlikely(thread->handed == HANDED_BY_WORD)) {
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
	own->end++;
	if (own->end - own->first > MESSAGES)
		own->first = own->end - MESSAGES;
	return 0;
}

static __always_inline bool sleeps_in_read(const struct thread *thread)
{
	return thread->nr == NR_READ || thread->nr == NR_RECVFROM;
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

/* A thread that sleeps is given a message that came then. */
static __always_inline void is_given(const struct thread *by, struct thread *thread, u32 peer,
				     u64 came_ns, u64 now)
{
	struct socket_state *job = &jobs[take_job(helper_key(thread)) & (JOBS - 1)];
	u32 part;

	make_job(job, thread, WORK_HANDED_JOB, peer, came_ns, now, 0, thread->parts[PART_ON_CPU]);
	job->exchange.send_tid = by->tid;
	/* It is on its way only now. */
	job->unserved_wakeup_ns = 0;
	/* The sleep that ends here is none of it, and is not in the thread's sums yet. */
	part = part_of_sleep(thread->family, thread->uninterruptible, thread->io_wait, WAKE_TASK,
			     true);
	if (part < PART_COUNT && thread->out_ns < now)
		job->at_recv[part] += now - thread->out_ns;
	thread->handed_fd = (u32)thread->args[0];
	thread->handed_by = by->tid;
}

/*
 * A thread that has messages wakes another one, which sleeps in a read. (It may write a message in
 * pieces: what it wakes the same one for before it sleeps itself is the same.)
 */
__noinline int hands_over(struct thread *by, struct thread *thread, u64 now)
{
	struct socket_state *job;
	struct fetched *from;

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
	is_given(by, thread, from->peer, give_message(from, now), now);
	thread->handed = HANDED_BY_READ;
	return 0;
}

/* So it is known when it sleeps for messages again. Its sums are those at that time. */
static __always_inline void job_is_paused(struct socket_state *job, const struct thread *thread,
					  u64 now)
{
	account_service(job, thread, now, thread->parts[PART_ON_CPU]);
	job->first_send_ns = now;
	job->last_send_ns = now;
	job->send_tid = thread->tid;
}

static __always_inline bool sleeps_at_word(const struct thread *thread)
{
	u32 ahead = (u32)thread->args[0] - thread->handed_fd;

	return thread->nr == NR_FUTEX &&
	       ahead + CONDITION_BYTES < 2 * CONDITION_BYTES;
}

/* It wakes from such a sleep. */
static __always_inline void has_rested(struct thread *thread)
{
	thread->rest_seq = thread->seq;
	thread->rest_on_cpu_ns = thread->parts[PART_ON_CPU];
}

/*
 * A thread sleeps, or slept from then, where it waits for messages. It does so again and again
 * while there are none: it is at work where it has slept elsewhere meanwhile, or had the CPU for
 * the threshold.
 */
static __always_inline void rests_from(struct thread *thread, u64 since_ns)
{
	struct socket_state *job = job_of_helper(thread);

	if (job && (!job->last_send_ns || thread->seq != thread->rest_seq + 1 ||
		    thread->parts[PART_ON_CPU] - thread->rest_on_cpu_ns >= threshold_ns))
		job_is_paused(job, thread, since_ns);
}

/* Whether a sleep on a futex ends soon by itself, and was for a lock. `by` is of its process. */
static __always_inline bool looks_again(const struct thread *thread, struct task_struct *task)
{
	u64 until[2] = {}, ns;

	if (!thread->timeout || thread->args[1] & FUTEX_CLOCK_REALTIME)
		return false;
	if (bpf_probe_read_user(until, sizeof(until),
				(void *)PT_REGS_PARM4_SYSCALL(user_registers(task))))
		return false;
	ns = until[0] * 1000000000 + until[1];
	if ((thread->args[1] & FUTEX_CMD_MASK) != FUTEX_WAIT)
		ns -= thread->out_ns;
	return ns < LOOKS_AGAIN_NS;
}

/* When the oldest message came that was not given to anybody, and not before `thread` slept. */
static __always_inline u64 oldest_since(struct fetched *from, const struct thread *thread, u64 now)
{
	/* All that came before it slept were taken, or it would not have. */
	for (u32 i = 0; i < 8; i++) {
		if (from->end - from->first <= 1)
			break;
		if (from->came_ns[from->first & (MESSAGES - 1)] >= thread->out_ns)
			break;
		from->first++;
	}
	return give_message(from, now);
}

/* A thread that has messages wakes another one of its process, which sleeps on a futex. */
__noinline int hands_over_by_word(struct thread *by, struct thread *thread, u64 now)
{
	struct fetched *from;
	u32 place;

	if (!by || !thread)
		return 0;
	from = &fetched[by->tid & (FETCHERS - 1)];
	if (from->tid != by->tid || !from->hands_on)
		return 0;
	rests_from(thread, thread->out_ns);
	has_rested(thread);
	/* It is told something else. */
	if (from->read_ns <= thread->out_ns)
		return 0;
	if (from->first == from->end && thread->handed != HANDED_BY_WORD)
		return 0;
	place = find_job(helper_key(thread));
	if (place)
		job_is_done(place - 1, now);
	is_given(by, thread, from->peer, oldest_since(from, thread, now), now);
	thread->handed = HANDED_BY_WORD;
	return 0;
}

/* A thread that may be given messages wakes. `by`: who woke it, if the target's. */
static __always_inline void wakes_to_work(struct thread *by, struct thread *thread,
					  struct task_struct *task, u64 now)
{
	if (thread->nr != NR_FUTEX) {
		if (by && by->fetches && sleeps_in_read(thread))
			hands_over(by, thread, now);
		return;
	}
	if (by && by->fetches == FETCHES && by->tgid == thread->tgid && !thread->fetches &&
	    !looks_again(thread, task))
		hands_over_by_word(by, thread, now);
	else if (thread->handed == HANDED_BY_WORD && sleeps_at_word(thread))
		has_rested(thread);
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
	job_is_paused(job, thread, now);
	from = &fetched[thread->handed_by & (FETCHERS - 1)];
	if (from->tid == thread->handed_by && from->helpers && !--from->helpers)
		from->idle_ns = now;
	return 0;
}

/* A thread is done with a message: whether it does next to nothing with any, but for others. */
__noinline bool hands_on(const struct thread *thread, const struct socket_state *job, u64 now)
{
	struct fetched *own;
	u64 ns;

	if (!thread || !job)
		return false;
	own = &fetched[thread->tid & (FETCHERS - 1)];
	if (own->tid != thread->tid)
		return false;
	ns = now - job->recv_ns;
	/* What it waited for a CPU is none of it. */
	if (job->recv_tid == thread->tid)
		ns -= thread->parts[PART_RUNNABLE] - job->at_recv[PART_RUNNABLE];
	own->hands_on = ns < threshold_ns;
	return own->hands_on;
}

/* Who has asked for more sleeps where it does until there is: it is done with what it had. */
__noinline int worker_rests(struct thread *thread, u64 now)
{
	struct socket_state *job;
	u32 place;

	if (!thread || thread->rest_nr != thread->nr || thread->rest_at != (u32)thread->args[0])
		return 0;
	thread->rested_ns = now;
	if (thread->asked == ASKED_OTHERWISE)
		return 0;
	place = find_job(worker_key(thread));
	if (!place)
		return 0;
	job = &jobs[(place - 1) & (JOBS - 1)];
	if (job->last_send_ns)
		return 0;
	/* Else it is somebody else's, who may take it without a sleep, and does not show then. */
	if (hands_on(thread, job, now)) {
		NOW(job_keys[(place - 1) & (JOBS - 1)]) = 0;
		return 0;
	}
	job_is_paused(job, thread, now);
	thread->asked = ASKED_AND_RESTS;
	return 0;
}

/* A thread that has, or had, messages falls asleep. */
static __always_inline void sleeps_after_work(struct thread *thread, u64 now)
{
	if (thread->asked)
		worker_rests(thread, now);
	if (thread->handed == HANDED_BY_READ && sleeps_in_read(thread) &&
	    thread->handed_fd == (u32)thread->args[0])
		helper_rests(thread, now);
	else if (thread->handed == HANDED_BY_WORD && sleeps_at_word(thread))
		rests_from(thread, now);
}
