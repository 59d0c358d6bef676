/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Threads that sleep. */
#pragma once

#include "core/layout.h"
#include "collectors/sched/records.h"

/* Written by the sweep over sleeping threads. Followed by `stack_len` bytes of the user stack. */
struct sleeper_record {
	u32 type;
	u32 stack_len;
	struct sleep sleep;
	u64 ip, sp, bp, lr;
	u64 kept[2]; /* registers in which interpreters have their frame and instruction */
	u64 now_ns;
	u32 pad;
	s32 kernel_stack_len;
	u64 kernel_stack[KERNEL_FRAMES];
};
