/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Helpers: processes or threads that sleep in a read of a pipe or a socket until they are given a
 * message. Who gives it wakes them from that sleep, they work, and sleep there again.
 *
 * There may be two hands. A thread is given messages through memory, is done with each at once, and
 * has written it to a child process, which answers later (Python's multiprocessing.Pool): it writes
 * and wakes a thread of its parent. So it is known that the first one only hands on.
 *
 * A job ends with the last answer before the helper sleeps for the next message. It may have that
 * without a sleep: then it has read as often again as it does for one. (The kernel counts each
 * thread's reads, `ioac.syscr`. Jobs may read, too: where one message was not as many reads as
 * another one, or several not a multiple, reads count for nothing.)
 */
#pragma once

#include "collectors/jobs/messages.bpf.h"
#include "collectors/tasks/tasks.bpf.h"
#include "core/calls.bpf.h"

static __always_inline bool sleeps_in_read(const struct thread *thread)
{
	return thread->nr == NR_READ || thread->nr == NR_RECVFROM;
}

/*
 * A child process that was woken so often, and sleeps without an answer, is none that helps; nor is
 * a thread that slept on while there were so many messages that nobody was given.
 */
#define TRIES 4

static __always_inline bool is_helper(const struct thread *thread)
{
	return thread->handed == HANDED_BY_READ || thread->handed == HANDED_PERHAPS;
}

/* The reads of the thread that runs, in calls that are over; 0: the kernel does not count them. */
static __always_inline u64 own_reads(void)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return bpf_core_field_exists(task->ioac.syscr) ? BPF_CORE_READ(task, ioac.syscr) : 0;
}

/* A thread has no helper's job any more. */
static __always_inline void forget_job(const struct thread *thread)
{
	u32 place = find_job(helper_key(thread));

	if (place)
		NOW(job_keys[(place - 1) & (JOBS - 1)]) = 0;
}

/* What a thread was perhaps given was nothing. */
static __always_inline void is_no_helper(struct thread *thread)
{
	forget_job(thread);
	thread->handed = ++thread->unanswered < TRIES ? HANDED_NOTHING : NO_HELPER;
}

/*
 * A thread that has messages, or hands on another one's, wakes another thread, which sleeps in a
 * read. (It may write a message in pieces: what it wakes the same one for before it sleeps itself
 * is the same.)
 */
__noinline int hands_over(struct thread *by, struct thread *thread, u64 now)
{
	struct socket_state *job;
	struct fetched *from;
	u32 fetcher;

	if (!by || !thread)
		return 0;
	fetcher = by->handed == HANDS_ON ? by->handed_by : by->tid;
	from = &fetched[fetcher & (FETCHERS - 1)];
	if (from->tid != fetcher)
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
	if (from->went_on && from->first == from->end)
		from->too_far = 1;
	/* Who hands on had written them, and it slept as there were no more. */
	if (by->handed == HANDS_ON) {
		u64 ns = by->out_ns < thread->out_ns ? by->out_ns : thread->out_ns;

		were_taken(from, ns - threshold_ns);
	}
	is_given(from, thread, give_message(from, now), now);
	/* Else nobody looked when it fell asleep. */
	thread->reads = is_helper(thread) ? thread->rest_reads : 0;
	thread->handed = HANDED_BY_READ;
	return 0;
}

/*
 * Whether a thread that has messages, or was told of them, wakes another one of its process that
 * has nothing to do with them.
 */
static __always_inline bool tells(const struct thread *by, const struct thread *thread)
{
	return by->tgid == thread->tgid && !thread->handed && !thread->fetches &&
	       (by->fetches == FETCHES || by->handed == IS_TOLD || by->handed == HANDED_BY_WORD);
}

static __always_inline void is_told(const struct thread *by, struct thread *thread)
{
	thread->handed = IS_TOLD;
	thread->handed_by = by->fetches ? by->tid : by->handed_by;
	thread->handed_fd = (u32)thread->args[0];
}

/* Who was told of a message wakes a child process from a read: perhaps it only hands it on. */
static __always_inline void may_hand_on(struct thread *by, struct thread *thread, u64 now)
{
	struct fetched *from = &fetched[by->handed_by & (FETCHERS - 1)];
	struct socket_state *job;
	u64 came_ns;
	u32 place;

	if (from->tid != by->handed_by)
		return;
	/* What it has itself is this one's. */
	place = by->handed == HANDED_BY_WORD ? find_job(helper_key(by)) : 0;
	if (place) {
		if (jobs[(place - 1) & (JOBS - 1)].last_send_ns)
			return;
		came_ns = jobs[(place - 1) & (JOBS - 1)].ready_ns;
		NOW(job_keys[(place - 1) & (JOBS - 1)]) = 0;
	} else {
		came_ns = give_message(from, now);
	}
	job = is_given(from, thread, came_ns, now);
	job->maybe = 1;
	job->exchange.send_tid = by->tid;
	by->handed = MAY_HAND_ON;
	thread->handed = HANDED_PERHAPS;
	thread->reads = 0;
}

/*
 * Who has the messages has asked for more since a helper was given this one, or sleeps for it. (It
 * may have slept for it since it read the last one, when who hands that on did not do so yet.)
 */
static __always_inline bool is_done(const struct thread *giver, const struct fetched *from,
				    const struct socket_state *job)
{
	if (giver->asked == ASKED || giver->asked == ASKED_AND_RESTS)
		return true;
	if (giver->rest_nr)
		return giver->rested_ns >= job->recv_ns || giver->rested_ns > from->read_ns;
	return giver->state == THREAD_SLEEPING &&
	       (giver->family == CALL_POLL || sleeps_in_read(giver));
}

/*
 * The child process answers: whether the one that woke it only hands on, and who has the messages
 * was done with this one, too.
 */
static __always_inline bool hands_it_on(struct socket_state *job, struct fetched *from,
					const struct thread *giver, const struct thread *thread,
					u64 now)
{
	struct thread *hand = thread_by_id(job->exchange.send_tid);

	if (!hand || hand->handed_by != from->tid)
		return false;
	if (hand->handed == MAY_HAND_ON) {
		/* It has slept for the next one for a while. */
		if (!is_done(giver, from, job) || hand == thread || hand->state != THREAD_SLEEPING ||
		    hand->nr != NR_FUTEX || now - hand->out_ns < threshold_ns) {
			hand->handed = HANDED_NOTHING;
			return false;
		}
		hand->handed = HANDS_ON;
		from->hand = hand->tid;
	}
	job->exchange.send_tid = from->tid;
	return hand->handed == HANDS_ON;
}

/* A helper has read so often for one message, or several. */
static __always_inline void learn_reads(struct fetched *from, const struct socket_state *job,
					u64 since, u64 reads)
{
	u32 least, more = reads - since;
	bool one;

	if (!since || !more)
		return;
	one = from->first == from->end && from->read_ns < job->recv_ns;
	least = from->least_reads ? from->least_reads : more;
	if (more < least) {
		from->reads_vary |= least % more != 0;
		least = more;
	} else {
		from->reads_vary |= more % least != 0 || (one && more != least);
	}
	from->least_reads = least;
}

/* A helper has answered, or was given its turn to read: if it goes on, then from now on. */
static __always_inline void is_free_since(struct thread *thread, u64 now, u64 on_cpu_ns)
{
	thread->done_ns = now;
	thread->free_seq = thread->seq;
	__builtin_memcpy(thread->at_done, thread->parts, sizeof(thread->at_done));
	thread->at_done[PART_ON_CPU] = on_cpu_ns;
}

/* It has done nothing from then until `ns`. */
static __always_inline bool was_free_until(const struct thread *thread, u64 ns)
{
	return thread->answers &&
	       ns - thread->done_ns -
			       (thread->parts[PART_RUNNABLE] - thread->at_done[PART_RUNNABLE]) <
		       threshold_ns;
}

/* Whether a helper that has answered was done then: it did not say that it begins. */
static __always_inline bool was_done(const struct thread *thread, const struct socket_state *job)
{
	return thread->answers && thread->done_ns - job->recv_ns >= threshold_ns;
}

/* Whether a helper that answers now was done when it answered last, and has read since. */
static __always_inline bool read_between(const struct thread *thread,
					 const struct socket_state *job, u64 reads, u64 now)
{
	return was_done(thread, job) && thread->answer_reads && reads != thread->answer_reads &&
	       now - thread->done_ns >= threshold_ns;
}

/* A helper that has not slept for more may have read the next message, or several. */
__noinline int goes_on(struct thread *thread, bool answers, u64 reads, u64 now, u64 on_cpu_ns)
{
	struct socket_state *job;
	struct fetched *from;
	u32 messages, waiting;
	u64 came_ns, since_ns;
	bool is_free;

	if (!thread)
		return 0;
	from = &fetched[thread->handed_by & (FETCHERS - 1)];
	if (from->tid != thread->handed_by || from->too_far || from->reads_vary)
		return 0;
	waiting = from->end - from->first;
	job = job_of_helper(thread);
	is_free = thread->answers && thread->seq - thread->free_seq <= 1;
	if (!thread->reads && answers && job && read_between(thread, job, reads, now)) {
		thread->reads = thread->answer_reads;
		messages = 2;
		is_free = true;
	} else if (!from->least_reads) {
		return 0;
	} else if (!thread->reads) {
		thread->reads = reads - from->least_reads;
		return 0;
	} else {
		messages = (u32)(reads - thread->reads) / from->least_reads;
		if (messages < 2 || !waiting)
			return 0;
		/* Who gives each its own does it when that has answered. */
		if (!from->hand && !(job && was_done(thread, job) && reads != thread->answer_reads))
			return 0;
		thread->reads += (messages - 1) * from->least_reads;
	}
	if (!waiting)
		return 0;
	if (job) {
		if (!job->last_send_ns)
			job_is_paused(job, thread, now, on_cpu_ns);
		job_is_done(find_job(helper_key(thread)) - 1, now);
	}
	since_ns = is_free ? thread->done_ns : now;
	/* Of those between nothing is known. */
	messages = messages - 2 < waiting - 1 ? messages - 2 : waiting - 1;
	from->first += messages;
	COUNT_MORE(jobs_given_up, messages);
	came_ns = give_message(from, now);
	if (job && from->helpers)
		from->helpers--;
	if (is_free) {
		job = has_message(from, thread, came_ns, since_ns, thread->at_done[PART_ON_CPU]);
		__builtin_memcpy(job->at_recv, thread->at_done, sizeof(job->at_recv));
	} else {
		has_message(from, thread, came_ns, since_ns, on_cpu_ns);
	}
	from->went_on = 1;
	return 0;
}

/* A helper writes, and wakes a thread of the process that has the messages. */
__noinline int answers(struct thread *by, struct thread *thread, u64 now)
{
	struct socket_state *job;
	struct thread *giver;
	struct fetched *from;
	u64 reads, on_cpu_ns;

	if (!by || !thread)
		return 0;
	from = &fetched[by->handed_by & (FETCHERS - 1)];
	giver = thread_by_id(by->handed_by);
	if (from->tid != by->handed_by || !giver || giver->tgid != thread->tgid)
		return 0;
	reads = own_reads();
	on_cpu_ns = on_cpu_now(by, now);
	goes_on(by, true, reads, now, on_cpu_ns);
	job = job_of_helper(by);
	if (!job)
		return 0;
	if (by->handed == HANDED_PERHAPS) {
		job->maybe = 0;
		if (!hands_it_on(job, from, giver, thread, now)) {
			if (from->helpers)
				from->helpers--;
			/* It was asked for something, and tells who asked. */
			if (job->exchange.send_tid == thread->tid)
				by->unanswered = TRIES;
			is_no_helper(by);
			return 0;
		}
		by->handed = HANDED_BY_READ;
		from->hand_fd = by->handed_fd;
	}
	if (from->hand && from->hand != thread->tid && !is_helper(thread) && !thread->fetches) {
		if (thread->handed == HANDED_BY_WORD)
			forget_job(thread);
		thread->handed = GETS_ANSWERS;
		thread->handed_by = from->tid;
	}
	/* Else it may have said that it begins. */
	if (now - (by->answers ? by->done_ns : job->recv_ns) >= threshold_ns)
		learn_reads(from, job, by->answers ? by->answer_reads : by->reads, reads);
	by->answer_reads = reads;
	job_is_paused(job, by, now, on_cpu_ns);
	by->answers++;
	is_free_since(by, now, on_cpu_ns);
	return 0;
}

/* An unknown process wakes a thread that helpers wake when they have done: it is one. */
static __always_inline void is_one_more(struct thread *by, const struct thread *thread)
{
	struct fetched *from = &fetched[thread->handed_by & (FETCHERS - 1)];

	if (from->tid != thread->handed_by || by->tgid == thread->tgid || !from->least_reads)
		return;
	by->handed = HANDED_BY_READ;
	by->handed_by = from->tid;
	by->handed_fd = from->hand_fd;
	by->reads = own_reads() - from->least_reads;
	by->answers = 0;
	/* This one it has done with. */
	if (from->first != from->end)
		from->first++;
}

/* A thread wakes another one, which does not sleep on a futex. */
__noinline int wakes_reader(struct thread *by, struct thread *thread, u32 is_child, u64 now)
{
	bool polls, reads;

	if (!by || !thread)
		return 0;
	reads = sleeps_in_read(thread);
	polls = thread->family == CALL_POLL;
	if (reads && (by->fetches || by->handed == HANDS_ON))
		return hands_over(by, thread, now);
	if (is_helper(by))
		return reads || polls ? answers(by, thread, now) : 0;
	if ((reads || polls) && thread->handed == GETS_ANSWERS && !by->handed)
		is_one_more(by, thread);
	else if (polls && tells(by, thread))
		is_told(by, thread);
	else if (reads && is_child && !thread->handed &&
		 (by->handed == HANDED_BY_WORD || by->handed == IS_TOLD ||
		  by->handed == MAY_HAND_ON))
		may_hand_on(by, thread, now);
	return 0;
}

/*
 * A helper is woken from a futex by another process: it is its turn to read where both have their
 * messages from, and it has done nothing meanwhile. (It may be a lock that jobs have. Then it has
 * more to do until it reads, or answers.)
 */
__noinline int has_its_turn(struct thread *by, struct thread *thread, u64 now)
{
	struct socket_state *job;
	struct fetched *from;

	if (!by || !thread)
		return 0;
	if (thread->handed != HANDED_BY_READ || by->tgid == thread->tgid)
		return 0;
	job = job_of_helper(thread);
	if (!thread->answers) {
		if (!job || job->last_send_ns)
			return 0;
		/* It has answered who was awake. */
		job_is_paused(job, thread, thread->out_ns, thread->parts[PART_ON_CPU]);
		thread->answers = 1;
		thread->answer_reads = 0;
	} else if (!was_free_until(thread, thread->out_ns)) {
		return 0;
	} else if (job) {
		from = &fetched[thread->handed_by & (FETCHERS - 1)];
		if (from->tid == thread->handed_by && from->helpers && !--from->helpers)
			from->idle_ns = now;
		job_is_done(find_job(helper_key(thread)) - 1, now);
	}
	is_free_since(thread, now, thread->parts[PART_ON_CPU]);
	add_this_sleep(thread->at_done, thread, now);
	return 0;
}

/* All messages that who hands them on was told of are written, and none is left to be read. */
static __always_inline void none_is_left(struct fetched *from, u64 now)
{
	const struct thread *hand = from->hand ? thread_by_id(from->hand) : 0;

	/* It may not have been told of the last one yet. */
	if (hand && now - from->read_ns >= threshold_ns && hand->handed == HANDS_ON &&
	    hand->state == THREAD_SLEEPING && hand->nr == NR_FUTEX)
		from->first = from->end;
}

/* A helper sleeps in a read of the descriptor from which it has its jobs: it is done with one. */
__noinline int helper_rests(struct thread *thread, u64 now)
{
	struct socket_state *job;
	struct fetched *from;
	u64 reads;

	if (!thread)
		return 0;
	reads = own_reads();
	goes_on(thread, false, reads, now, thread->parts[PART_ON_CPU]);
	from = &fetched[thread->handed_by & (FETCHERS - 1)];
	job = job_of_helper(thread);
	if (job && (!job->last_send_ns || thread->answers)) {
		if (from->tid == thread->handed_by) {
			if (from->helpers && !--from->helpers)
				from->idle_ns = now;
			/* Else it may have a piece of a message only. */
			if (thread->handed == HANDED_BY_READ &&
			    (thread->answers || now - job->recv_ns >= threshold_ns))
				learn_reads(from, job, thread->reads, reads);
		}
		if (!was_free_until(thread, now))
			job_is_paused(job, thread, now, thread->parts[PART_ON_CPU]);
	}
	if (from->tid == thread->handed_by)
		none_is_left(from, now);
	thread->rest_reads = reads;
	thread->answers = 0;
	if (thread->handed == HANDED_PERHAPS && job) {
		struct thread *hand = thread_by_id(job->exchange.send_tid);

		if (hand && hand->handed == MAY_HAND_ON)
			hand->handed = HANDED_NOTHING;
		is_no_helper(thread);
	}
	return 0;
}

/* A helper sleeps. */
static __always_inline void helper_sleeps(struct thread *thread, u64 now)
{
	if (sleeps_in_read(thread) && thread->handed_fd == (u32)thread->args[0])
		helper_rests(thread, now);
	else if (thread->handed == HANDED_BY_READ)
		goes_on(thread, false, own_reads(), now, thread->parts[PART_ON_CPU]);
}
