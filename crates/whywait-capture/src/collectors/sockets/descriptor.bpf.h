/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Which descriptor a thread uses. */
#pragma once

#include "core/state.bpf.h"

/*
 * The descriptor that a thread is just writing to, and 1; 0: not known. What an io_uring ring
 * writes, it writes whatever the call is.
 */
static __always_inline u32 writes_to(struct task_struct *task, const struct thread *thread)
{
	struct pt_regs *regs = user_registers(task);

	if (thread->uring || task->flags & (PF_IO_WORKER | PF_USER_WORKER))
		return 0;
	switch (call_number(regs)) {
	case 1: /* write */
	case 20: /* writev */
	case 40: /* sendfile */
	case 44: /* sendto */
	case 46: /* sendmsg */
	case 307: /* sendmmsg */
		return (u32)PT_REGS_PARM1_SYSCALL(regs) + 1;
	}
	return 0;
}
