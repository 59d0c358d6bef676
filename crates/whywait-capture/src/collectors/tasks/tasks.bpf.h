/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Which task a thread works for, as it reads or writes: where one thread works for many, its id
 * says nothing of whose a call is. No function of the program is hooked for that: a system call
 * saves the registers, and Go has the goroutine in one of them. Python's interpreter has the
 * frames of what it runs in a list.
 */
#pragma once

#include "collectors/tasks/records.h"
#include "core/state.bpf.h"

/* The processes of which it is known how to find out, by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_RUNTIMES);
	__type(key, u32);
	__type(value, struct runtime);
} runtimes SEC(".maps");

/* The states that Python's interpreter has of its threads: addresses in their process. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_PYTHON_THREADS);
	__type(key, u32);
	__type(value, u64);
} python_threads SEC(".maps");

/* There was one: until then nobody looks. */
volatile bool runtimes_known = false;

/* A thread, or a process with the id of its first one, begins, begins another program, or ends. */
static __always_inline void forget_runtime(u32 tid)
{
	if (!runtimes_known)
		return;
	bpf_map_delete_elem(&runtimes, &tid);
	bpf_map_delete_elem(&python_threads, &tid);
}

/* Deeper stacks of Python tell nothing. */
#define PYTHON_FRAMES 100
#define OWNED_BY_GENERATOR 1

/* A thread's frames, from the innermost one on. */
struct python_frames {
	const struct runtime *runtime;
	u64 frame; /* 0: that was all */
	u64 task;
};

static long look_at_frame(u32 index, struct python_frames *frames)
{
	const struct runtime *runtime = frames->runtime;
	u64 frame = frames->frame, outer = 0;
	u8 owner = 0;

	if (!frame ||
	    bpf_probe_read_user(&owner, sizeof(owner), (void *)(frame + runtime->owner)) ||
	    bpf_probe_read_user(&outer, sizeof(outer), (void *)(frame + runtime->previous)))
		return 1;
	if (owner == OWNED_BY_GENERATOR)
		frames->task = frame;
	frames->frame = outer;
	return 0;
}

/* Reads the innermost frame of a thread by its state; 0: it has none. Whether it could be read. */
static __always_inline bool read_innermost(const struct runtime *runtime, u64 state, u64 *frame)
{
	if (bpf_probe_read_user(frame, sizeof(*frame), (void *)(state + runtime->current)))
		return false;
	return !runtime->current_in_cframe ||
	       !bpf_probe_read_user(frame, sizeof(*frame),
				    (void *)(*frame + runtime->current_in_cframe - 1));
}

/*
 * The coroutine that a thread of Python runs: the outermost of its frames that a generator owns,
 * which lies within that. While its loop runs callbacks of its own there is none.
 */
static __noinline u64 python_task(const struct runtime *runtime, u32 tid)
{
	u64 *state = bpf_map_lookup_elem(&python_threads, &tid);
	struct python_frames frames = { .runtime = runtime };

	if (!state || !runtime || !read_innermost(runtime, *state, &frames.frame))
		return 0;
	bpf_loop(PYTHON_FRAMES, look_at_frame, &frames, 0);
	return frames.frame ? 0 : frames.task;
}

/* Not static, so that it is verified once for a program. */
__noinline u64 running_task(u32 tgid, u32 tid)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct runtime *runtime = bpf_map_lookup_elem(&runtimes, &tgid);
	struct pt_regs *regs;

	if (!runtime || task->flags & (PF_IO_WORKER | PF_USER_WORKER))
		return 0;
	if (runtime->kind != RUNTIME_GO)
		return tid && runtime->kind == RUNTIME_PYTHON ? python_task(runtime, tid) : 0;
	regs = user_registers(task);
	return PT_REGS_IP(regs) - runtime->code < runtime->code_bytes ? GO_TASK(regs) : 0;
}

/* The task for which a thread reads or writes, as an address of its process; 0: not known. */
static __always_inline u64 task_of(const struct thread *thread)
{
	return unlikely(runtimes_known) && !thread->uring ?
		       running_task(thread->tgid, thread->tid) :
		       0;
}

/*
 * The same as it reads a request, where that costs next to nothing: it is done for each of them.
 * (Python's loops read before they run a task.)
 */
static __always_inline u64 goroutine_of(const struct thread *thread)
{
	return thread->uring ? 0 : running_task(thread->tgid, 0);
}
