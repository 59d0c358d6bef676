/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Jobs that are handed on: who asks the broker for messages gives each to a helper, a process or a
 * thread that sleeps in a read of a pipe or a socket until there is one: see helpers.bpf.h. What
 * the first one does with a message is then none of the job.
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

#include "collectors/jobs/helpers.bpf.h"
#include "collectors/futex/futex.bpf.h"
#include "collectors/tasks/tasks.bpf.h"
#include "core/calls.bpf.h"

/* A condition variable has several words, which its sleepers use in turn. */
#define CONDITION_BYTES 64
/*
 * Who waits for an interpreter's lock looks again so soon, at least: Python's 5 ms. It is at work.
 * (Who waits for messages may, too, but has nothing to do meanwhile.)
 */
#define LOOKS_AGAIN_NS 10000000
#define FUTEX_WAIT 0
#define FUTEX_CLOCK_REALTIME 256

static __always_inline u64 worker_key(const struct thread *thread)
{
	return 1ULL << 63 | thread->tid;
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
		job_is_paused(job, thread, since_ns, thread->parts[PART_ON_CPU]);
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

/*
 * A thread that has messages wakes another one of its process, which sleeps on a futex. (Where one
 * thread looks after signals for all, as in Ruby, the same sleeps in a poll when it is its turn.)
 */
__noinline int hands_over_by_word(struct thread *by, struct thread *thread, u64 now)
{
	struct fetched *from;
	u32 place, first, word;

	if (!by || !thread)
		return 0;
	from = &fetched[by->tid & (FETCHERS - 1)];
	if (from->tid != by->tid || thread->handed == MAY_HAND_ON)
		return 0;
	/* They are given to helpers, as long as there is who does that. */
	if (from->hand && thread_by_id(from->hand))
		return 0;
	if (!from->hands_on) {
		if (from->first != from->end && tells(by, thread))
			is_told(by, thread);
		return 0;
	}
	/* So short a sleep elsewhere than where it rests is for a lock, as an interpreter's. */
	if (now - thread->out_ns < threshold_ns &&
	    !(thread->handed == HANDED_BY_WORD && sleeps_at_word(thread)))
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
	/* All that came before it slept were taken, or it would not have. */
	were_taken(from, thread->out_ns);
	first = from->first;
	if (were_passed_by(from, now) >= TRIES) {
		/* It does something else: a JVM's compiler, a collector of garbage. */
		from->first = first;
		thread->handed = HANDED_NOTHING;
		return 0;
	}
	word = thread->handed_fd;
	is_given(from, thread, give_message(from, now), now);
	if (thread->nr != NR_FUTEX)
		thread->handed_fd = word;
	thread->handed = HANDED_BY_WORD;
	return 0;
}

/*
 * A thread that is given messages wakes another one from its rest: there is one for it, too (who
 * takes one of several wakes the next). All that are there came since it rests: else it would have
 * taken them, or it rests no more, and waits for a lock.
 */
__noinline int passes_on(struct thread *thread, u64 now)
{
	struct fetched *from;
	u32 place;

	if (!thread)
		return 0;
	from = &fetched[thread->handed_by & (FETCHERS - 1)];
	if (from->tid != thread->handed_by || !from->hands_on) {
		has_rested(thread);
		return 0;
	}
	if (from->first == from->end) {
		from->awake = thread->tid;
		from->awake_ns = now;
	} else if (from->was_read_ns[from->first & (MESSAGES - 1)] > thread->out_ns) {
		rests_from(thread, thread->out_ns);
		place = find_job(helper_key(thread));
		if (place)
			job_is_done(place - 1, now);
		is_given(from, thread, give_message(from, now), now);
	}
	has_rested(thread);
	return 0;
}

static __always_inline bool is_fellow(const struct thread *by, const struct thread *thread)
{
	return by && by->handed == HANDED_BY_WORD && by->handed_by == thread->handed_by &&
	       by->tgid == thread->tgid;
}

/* Whether a thread (0: none) has messages, or has to do with another one's. */
static __always_inline bool has_to_do_with_jobs(const struct thread *thread)
{
	if (!thread)
		return false;
	return NOW(thread->fetches) || NOW(thread->handed);
}

/* A thread wakes that is given messages, or by one that gives them. `by`: if the target's. */
static __always_inline void wakes_to_work(struct thread *by, struct thread *thread,
					  struct task_struct *task, u64 now)
{
	if (thread->nr != NR_FUTEX) {
		if (by && by->fetches == FETCHES && by->tgid == thread->tgid &&
		    thread->handed == HANDED_BY_WORD && thread->family == CALL_POLL)
			hands_over_by_word(by, thread, now);
		else if (by)
			wakes_reader(by, thread,
				     BPF_CORE_READ(task, real_parent, tgid) == by->tgid, now);
		return;
	}
	if (by && by->fetches == FETCHES && by->tgid == thread->tgid && !thread->fetches &&
	    thread->handed != HANDS_ON && !looks_again(thread, task))
		hands_over_by_word(by, thread, now);
	else if (thread->handed == HANDED_BY_WORD && sleeps_at_word(thread) &&
		 is_fellow(by, thread))
		passes_on(thread, now);
	else if (thread->handed == HANDED_BY_WORD && sleeps_at_word(thread))
		has_rested(thread);
	else if (by && tells(by, thread) && !looks_again(thread, task))
		is_told(by, thread);
	else if (by)
		has_its_turn(by, thread, now);
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
	/* It may be late with one. */
	if (ns >= threshold_ns)
		own->hands_on /= 2;
	else if (own->hands_on < HANDS_ON_MOST)
		own->hands_on++;
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
	job_is_paused(job, thread, now, thread->parts[PART_ON_CPU]);
	thread->asked = ASKED_AND_RESTS;
	return 0;
}

/* Whether a thread that was told of a message sleeps where it did before. */
static __always_inline bool sleeps_as_before(const struct thread *thread)
{
	return sleeps_at_word(thread) ||
	       (thread->family == CALL_POLL && (u32)thread->args[0] == thread->handed_fd);
}

/* A thread that has, or had, messages falls asleep. */
static __always_inline void sleeps_after_work(struct thread *thread, u64 now)
{
	if (thread->asked)
		worker_rests(thread, now);
	if (is_helper(thread))
		helper_sleeps(thread, now);
	else if (thread->handed == HANDED_BY_WORD && sleeps_at_word(thread))
		rests_from(thread, now);
	else if (thread->handed == IS_TOLD && sleeps_as_before(thread))
		thread->handed = HANDED_NOTHING;
}
