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
