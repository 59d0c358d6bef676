/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Samples of threads that run. */
#pragma once

#include "core/layout.h"

/* Followed by `stack_len` bytes of the user stack from `sp` upwards. */
struct sample_record {
	u32 type;
	u32 cpu;
	u64 at_ns;
	u32 tid;
	u32 tgid;
	u64 ip, sp, bp, lr;
	u64 kept[2]; /* registers in which interpreters have their frame and instruction */
	u32 stack_len;
	s32 kernel_stack_len;
	u32 futile; /* in a poll, in an interval in which no byte has moved */
	u32 periods; /* of the dense clock, for which it stands */
	u64 kernel_stack[KERNEL_FRAMES];
};
