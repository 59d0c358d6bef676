/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* User stacks of sleeps that are over, and of those who ended them. */
#pragma once

#include "core/layout.h"

/*
 * Where a thread was when it had its long sleeps since the previous record of this kind, followed
 * by `stack_len` bytes of the user stack. By none if this stack was sent before, under `stack_key`;
 * or if there is none, and the key is 0.
 */
struct user_stack_record {
	u32 type;
	u32 stack_len;
	u32 tid;
	u32 tgid;
	u64 ip, sp, bp, lr;
	u64 kept[2]; /* registers in which interpreters have their frame and instruction */
	/* by which later records of the thread refer to this stack; 0: they will not */
	u64 stack_key;
};

/* A function of an interpreter's on a thread's stack. */
struct interpreted_function {
	u64 code; /* its code object; 0: the frame is C's */
	u64 instruction;
	u64 last; /* its frame says that it is the last one of a call of the interpreter's loop */
};

/*
 * The functions of an interpreter's on the stack that the next record of a thread has, innermost
 * first: followed by `stack_len` bytes of interpreted_function.
 */
struct functions_record {
	u32 type;
	u32 stack_len;
	u32 tid;
	u32 more; /* there are outer ones beyond these */
	u64 ip, sp;
	u64 at_ns; /* of a sample; 0: of a sleep's stack */
};

/* Where a thread is whose stack has a frame that is larger than what is copied. */
struct large_frame_key {
	u32 tgid;
	u32 pad;
	u64 ip;
};

/*
 * A piece of the stack that the next record of a thread has, from behind a large frame: followed by
 * `stack_len` bytes of it.
 */
struct stack_behind_record {
	u32 type;
	u32 stack_len;
	u32 tid;
	u32 distance; /* of its begin from the stack pointer */
	u64 ip, sp;
};

/*
 * Where a thread was when it ended another one's long sleep. Followed by `stack_len` bytes of the
 * waker's user stack; by none if this stack was sent before, under `stack_key`.
 */
struct waker_record {
	u32 type;
	u32 stack_len;
	u32 tid; /* who slept */
	u32 seq; /* which sleep */
	u32 waker_tid;
	u32 waker_tgid;
	u64 ip, sp, bp, lr;
	u64 stack_key;
};
