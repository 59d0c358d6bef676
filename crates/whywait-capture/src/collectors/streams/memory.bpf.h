/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Where a call that reads or writes has its bytes, in the program's memory. */
#pragma once

#include "collectors/streams/state.bpf.h"
#include "core/threads.bpf.h"

/* Finds the memory of the call that the current thread is in. False: nothing can be read there. */
static __noinline bool memory_of_call(struct call_bytes *left, const struct thread *thread)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs = user_registers(task);
	u64 given = PT_REGS_PARM2_SYSCALL(regs), message[2] = {};

	/* What an io_uring ring moves, it moves whatever the call is. */
	if (!thread || thread->uring || task->flags & (PF_IO_WORKER | PF_USER_WORKER))
		return false;
	switch (call_number(regs)) {
	case 0: /* read */
	case 1: /* write */
	case 44: /* sendto */
	case 45: /* recvfrom */
		left->at = given;
		left->piece = left->bytes;
		return true;
	case 19: /* readv */
	case 20: /* writev */
		left->vector = given;
		left->vectors = PT_REGS_PARM3_SYSCALL(regs);
		return true;
	case 46: /* sendmsg: msg_iov, msg_iovlen */
	case 47: /* recvmsg */
		if (bpf_probe_read_user(message, sizeof(message), (void *)(given + 16)))
			return false;
		left->vector = message[0];
		left->vectors = message[1];
		return true;
	}
	return false;
}
