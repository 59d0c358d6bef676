/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * What depends on the processor. Of registers bpf_tracing.h has most (PT_REGS_IP and others).
 *
 * System calls have x86-64's numbers everywhere, in BPF and in recordings: those of another
 * processor are turned into them here, so that nothing else has to know which it was.
 */
#pragma once

#include "core/vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "core/arm64_calls.h"

#if defined(__TARGET_ARCH_x86)

/* Which system call a thread is in, -1: none. */
static __always_inline s32 call_number(const struct pt_regs *regs)
{
	return (s32)regs->orig_ax;
}

/* Where a function returns to that keeps that in a register; 0: none does. */
#define LINK_REGISTER(regs) 0

/* In which interpreters have their frame and instruction. */
#define KEPT_REGISTER(regs) ((regs)->r14)
#define OTHER_KEPT_REGISTER(regs) ((regs)->r15)

/* Where Go has the goroutine that runs. */
#define GO_TASK(regs) ((regs)->r14)

/* … and what a function is given first, and gives back (its internal ABI, since 1.17). */
#define GO_ARGUMENT_1(regs) ((regs)->ax)
#define GO_ARGUMENT_2(regs) ((regs)->bx)
#define GO_RESULT(regs) ((regs)->ax)

/* Where the C library has a thread's own data. */
#define THREAD_POINTER(task) ((task)->thread.fsbase)

/* `struct epoll_event` as programs have it. */
#define EPOLL_EVENT_BYTES 12

#elif defined(__TARGET_ARCH_arm64)

#define FIRST_COMMON_CALL 424
/* Added to the number of a call that x86-64 does not have. */
#define NO_SUCH_CALL 1024

#define CALL(number, of_x86) [number] = (of_x86) + 1,
static const u16 numbers_of_x86[512] = { ARM64_CALLS(CALL) };
#undef CALL

static __always_inline s32 call_number(const struct pt_regs *regs)
{
	u32 number = regs->syscallno, known;

	if (number >= FIRST_COMMON_CALL)
		return number;
	barrier_var(number);
	known = numbers_of_x86[number & 511];
	return known ? known - 1 : number + NO_SUCH_CALL;
}

#define LINK_REGISTER(regs) (__PT_REGS_CAST(regs)->regs[30])
#define KEPT_REGISTER(regs) (__PT_REGS_CAST(regs)->regs[19])
#define OTHER_KEPT_REGISTER(regs) (__PT_REGS_CAST(regs)->regs[20])
#define GO_TASK(regs) (__PT_REGS_CAST(regs)->regs[28])
#define GO_ARGUMENT_1(regs) (__PT_REGS_CAST(regs)->regs[0])
#define GO_ARGUMENT_2(regs) (__PT_REGS_CAST(regs)->regs[1])
#define GO_RESULT(regs) (__PT_REGS_CAST(regs)->regs[0])
#define THREAD_POINTER(task) ((task)->thread.uw.tp_value)
#define EPOLL_EVENT_BYTES 16

#endif
