/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Sleeps, and time without a CPU or without I/O. */
#pragma once

#include "core/layout.h"

/* Who made a wake. */
enum wake_context { WAKE_UNKNOWN, WAKE_TASK, WAKE_SOFTIRQ, WAKE_HARDIRQ, WAKE_EXIT };
IN_BTF(enum wake_context, wake_context);

/* A sleep, as both `wait_record` and `sleeper_record` tell it. */
struct sleep {
	u32 tid;
	u32 tgid;
	u32 seq; /* counts the thread's sleeps */
	s32 nr; /* system call, -1: none */
	u64 args[3];
	u64 out_ns;
	/* kernel address of the epoll instance: for identity only, never written to a recording */
	u64 epoll;
	u64 lock; /* futex: what 32 bytes before the word says, see read_futex */
	u32 owner; /* futex: what 8 bytes after the word says, see read_futex */
	u8 since_before;
	u8 uninterruptible;
	u8 io_wait;
	u8 timeout;
	u64 segment[PART_COUNT]; /* since the thread's previous record */
};

struct wait_record {
	u32 type;
	u32 wake_context;
	struct sleep sleep;
	u64 wake_ns; /* 0: not seen */
	u64 in_ns;
	u32 waker_tid;
	u32 waker_tgid;
	u32 stack_follows; /* a user_stack_record will say where in the program this sleep was */
	s32 kernel_stack_len; /* bytes of the kernel stack that hold addresses, or an error */
	/*
	 * of the program while it slept: the stack that follows is that of this sleep if it has the
	 * same
	 */
	u64 ip, sp;
	u64 stack_key; /* of the thread's user stack that was sent before; 0: none */
	/*
	 * of this kernel stack, or if none follows, of the thread's that was sent before; 0: none
	 */
	u64 kernel_key;
};

/* A wait_record that is followed by its kernel stack. */
struct whole_wait_record {
	struct wait_record wait;
	u64 kernel_stack[KERNEL_FRAMES];
};

struct busy_record {
	u32 type;
	u32 tid;
	u32 tgid;
	u32 pad;
	u64 start_ns;
	u64 end_ns;
	u64 on_cpu_ns;
	u64 runnable_ns;
};

/* Why a thread that could run had no CPU. */
enum cpu_wait_why {
	CPU_WAIT_TASK, /* another one had it; none where `by_tid` is 0 */
	CPU_WAIT_QUOTA, /* its cgroup had used up its CPU time */
	CPU_WAIT_HOST, /* its CPU stood still */
};
IN_BTF(enum cpu_wait_why, cpu_wait_why);

/* A thread could have run and had no CPU. */
struct cpu_wait_record {
	u32 type;
	u32 tid;
	u32 tgid;
	u32 why;
	u64 from_ns;
	u64 in_ns;
	u64 by_ran_ns; /* for how long `by_tid` had had the CPU at a stretch when it left it */
	u32 by_tid; /* 0: nobody, the CPU was idle */
	u32 by_tgid;
	u32 by_kernel; /* a thread of the kernel */
	u32 pad;
	u8 by_comm[16]; /* the process's name */
};

/* Since it lost its CPU, without having gone to sleep, a thread had none. */
struct preempted_record {
	u32 type;
	u32 tid;
	u32 tgid;
	u32 pad;
	u64 out_ns;
	u64 in_ns;
};
