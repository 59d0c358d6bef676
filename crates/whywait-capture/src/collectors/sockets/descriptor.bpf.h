/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Which descriptor a thread uses. */
#pragma once

#include "core/state.bpf.h"

/*
 * The descriptor that the current thread is just writing to, or connects, and 1; 0: not known. What
 * an io_uring ring writes, it writes whatever the call is. Not static, so that it is verified once
 * for a program.
 */
__noinline u32 writes_to(const struct thread *thread)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs = user_registers(task);

	if (!thread || thread->uring || task->flags & (PF_IO_WORKER | PF_USER_WORKER))
		return 0;
	switch (call_number(regs)) {
	case 1: /* write */
	case 20: /* writev */
	case 40: /* sendfile */
	case 42: /* connect */
	case 44: /* sendto */
	case 46: /* sendmsg */
	case 307: /* sendmmsg */
		return (u32)PT_REGS_PARM1_SYSCALL(regs) + 1;
	}
	return 0;
}
