/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Functions of Python and PHP, as they are when a thread's stack is copied. They are not on it: the
 * interpreter has them in a list. Who reads that later finds the thread elsewhere, and where its
 * threads take turns, nearly always.
 */
#pragma once

#include "collectors/stacks/records.h"
#include "collectors/tasks/tasks.bpf.h"
#include "core/threads.bpf.h"

/* Of deeper stacks these, the innermost ones. */
#define MOST_FUNCTIONS 128
#define OWNED_BY_C 3

static __always_inline bool ends_call(const struct runtime *runtime, u8 last)
{
	return runtime->last_by == LAST_IS_SHIM ? last == OWNED_BY_C :
						  (last & runtime->last_mask) ||
							  runtime->last_by == LAST_IS_EACH;
}

struct functions_walk {
	const struct runtime *runtime;
	struct interpreted_function *functions;
	u64 frame;
	u32 count;
	u32 unread;
};

static long read_function(u32 index, struct functions_walk *walk)
{
	const struct runtime *runtime = walk->runtime;
	u64 frame = walk->frame;
	struct interpreted_function *function;
	u8 last = 0;
	bool ends;

	if (!frame || index >= MOST_FUNCTIONS)
		return 1;
	function = walk->functions + index;
	if (bpf_probe_read_user(&last, sizeof(last), (void *)(frame + runtime->last)) ||
	    bpf_probe_read_user(&function->code, sizeof(function->code),
				(void *)(frame + runtime->code_object)) ||
	    bpf_probe_read_user(&function->instruction, sizeof(function->instruction),
				(void *)(frame + runtime->instruction)) ||
	    bpf_probe_read_user(&walk->frame, sizeof(walk->frame),
				(void *)(frame + runtime->previous))) {
		walk->unread = 1;
		return 1;
	}
	ends = ends_call(runtime, last);
	if (ends && runtime->last_by == LAST_IS_SHIM)
		function->code = 0;
	function->last = ends;
	walk->count = index + 1;
	return 0;
}

/*
 * The state that the interpreter has of a thread, as an address of its process. A thread of Python
 * has it among its own data, whenever it has begun.
 */
static __always_inline u64 state_of(const struct runtime *runtime, const struct thread *thread,
				    u64 thread_pointer)
{
	u64 state = 0, of = 0;
	u32 tid = thread->tid;
	u64 *known;

	if (runtime->state)
		return tid == thread->tgid ? runtime->state : 0;
	if (runtime->own_state &&
	    bpf_probe_read_user(&state, sizeof(state),
				(void *)(thread_pointer + runtime->own_state)))
		state = 0;
	if (!state) {
		known = bpf_map_lookup_elem(&python_threads, &tid);
		state = known ? *known : 0;
	}
	if (!state || bpf_probe_read_user(&of, sizeof(of), (void *)(state + runtime->thread_pointer)))
		return 0;
	return of == thread_pointer ? state : 0;
}

/* Fills a record of MOST_FUNCTIONS. Whether there is any, and all could be read. */
static __noinline bool read_functions(struct functions_record *record,
				      const struct runtime *runtime, u64 state)
{
	struct functions_walk walk = { .runtime = runtime };

	if (!record || !runtime || !read_innermost(runtime, state, &walk.frame))
		return false;
	walk.functions = (struct interpreted_function *)(record + 1);
	bpf_loop(MOST_FUNCTIONS, read_function, &walk, 0);
	record->stack_len = walk.count * sizeof(struct interpreted_function);
	record->more = walk.frame != 0;
	return walk.count && !walk.unread;
}

/*
 * Tells the functions of a thread whose stack is copied next, and that has the memory that is
 * current here: in the ring that its stack will be in, and where it was.
 */
static __always_inline void send_functions(void *ring, const struct thread *thread,
					   u64 thread_pointer, u64 ip, u64 sp, u64 at_ns)
{
	u32 tgid = thread->tgid;
	struct functions_record *record;
	struct runtime *runtime;
	u64 state;

	if (likely(!runtimes_known))
		return;
	runtime = bpf_map_lookup_elem(&runtimes, &tgid);
	if (!runtime || runtime->kind == RUNTIME_GO)
		return;
	state = state_of(runtime, thread, thread_pointer);
	if (!state)
		return;
	record = bpf_ringbuf_reserve(
		ring, sizeof(*record) + MOST_FUNCTIONS * sizeof(struct interpreted_function), 0);
	/* A stack without them is looked at from outside. */
	if (!record)
		return;
	record->type = RECORD_FUNCTIONS;
	record->tid = thread->tid;
	record->ip = ip;
	record->sp = sp;
	record->at_ns = at_ns;
	if (read_functions(record, runtime, state))
		bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	else
		bpf_ringbuf_discard(record, BPF_RB_NO_WAKEUP);
}
