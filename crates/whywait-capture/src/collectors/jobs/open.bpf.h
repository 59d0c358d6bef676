/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Jobs that are open. */
#pragma once

#include "collectors/sockets/alone.bpf.h"
#include "collectors/sockets/requests.bpf.h"

/*
 * Jobs that are open at once. A set has so many ways: where all are taken, the oldest is given up.
 */
#define JOBS 1024
#define JOB_WAYS 8

/* As of a connection with one request. */
struct socket_state jobs[JOBS] SEC(".bss.jobs");
/* Whose each is; 0: free. */
u64 job_keys[JOBS] SEC(".bss.workers");

static __always_inline u32 job_set(u64 key)
{
	return (key * 0x9e3779b97f4a7c15 >> 32) * JOB_WAYS & (JOBS - JOB_WAYS);
}

/* The open job with this key: its place and 1; 0: there is none. */
__noinline u32 find_job(u64 key)
{
	u32 set = job_set(key);

	for (u32 way = 0; way < JOB_WAYS; way++) {
		u32 place = (set + way) & (JOBS - 1);

		if (NOW(job_keys[place]) == key)
			return place + 1;
	}
	return 0;
}

/* A place for a job. */
__noinline u32 take_job(u64 key)
{
	u32 set = job_set(key), oldest = set;
	u64 oldest_ns = ~0ULL;

	for (u32 way = 0; way < JOB_WAYS; way++) {
		u32 place = (set + way) & (JOBS - 1);

		if (NOW(job_keys[place]) == key ||
		    (!NOW(job_keys[place]) &&
		     !__sync_val_compare_and_swap(&job_keys[place], 0, key)))
			return place;
		if (jobs[place].recv_ns < oldest_ns) {
			oldest_ns = jobs[place].recv_ns;
			oldest = place;
		}
	}
	oldest &= JOBS - 1;
	COUNT(jobs_given_up);
	NOW(job_keys[oldest]) = key;
	return oldest;
}

/* A job of a thread, whose message came then. */
static __always_inline void make_job(struct socket_state *job, struct thread *thread, u8 kind,
				     u32 peer, u64 came_ns, u64 now, u32 bytes, u64 on_cpu_ns)
{
	begins_alone(job, thread, came_ns, now, bytes, on_cpu_ns);
	job->kind = kind;
	job->peer = PEER_OTHER;
	job->exchange.peer = peer;
	job->exchange.send_tid = 0;
	job->exchange.arrived_ns = 0;
	job->maybe = 0;
}

/* It is known when the job ended. */
__noinline int job_is_done(u32 place, u64 now)
{
	struct socket_state *job = &jobs[place & (JOBS - 1)];

	if (job->last_send_ns - job->ready_ns >= threshold_ns)
		job->emitted = send_request(job, now);
	if (!job->emitted)
		count_request(job);
	NOW(job_keys[place & (JOBS - 1)]) = 0;
	return 0;
}

/* In the end: what is still being worked on, or is done and was not said to be. */
static long job_stays(u32 index, void *ctx)
{
	u32 place = index & (JOBS - 1);
	u64 now = bpf_ktime_get_ns();

	if (!job_keys[place] || jobs[place].maybe)
		return 0;
	if (jobs[place].last_send_ns)
		job_is_done(place, now);
	else if (now - jobs[place].ready_ns >= threshold_ns &&
		 thread_by_id(jobs[place].recv_tid))
		send_request(&jobs[place], now);
	return 0;
}

SEC("syscall")
int end_jobs(void *ctx)
{
	bpf_loop(JOBS, job_stays, 0, 0);
	return 0;
}
