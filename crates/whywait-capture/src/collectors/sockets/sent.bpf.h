/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* What the call by which a thread is sending was given, and how that begins. */
#pragma once

#include "core/bits.bpf.h"
#include "core/calls.bpf.h"
#include "core/state.bpf.h"

/* So much of what is sent is looked at. */
#define SENT_HEAD 32

/* Where the address is, and where the data. */
struct sent_call {
	u64 address;
	u64 data;
};

/* Not static, so that it is verified once for a program. */
__noinline int sends(struct sent_call *call, const struct thread *thread)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs = user_registers(task);
	u64 given = PT_REGS_PARM2_SYSCALL(regs), head[3] = {};

	if (!call || !thread)
		return 0;
	call->address = 0;
	call->data = 0;
	if (thread->uring || task->flags & (PF_IO_WORKER | PF_USER_WORKER))
		return 0;
	switch (call_number(regs)) {
	case 1: /* write */
		call->data = given;
		return 0;
	case 44: /* sendto */
		call->data = given;
		call->address = PT_REGS_PARM5_SYSCALL(regs);
		return 0;
	case 46: /* sendmsg: msg_name, msg_namelen, msg_iov */
	case 307: /* sendmmsg: the first one's */
		if (bpf_probe_read_user(head, sizeof(head), (void *)given))
			return 0;
		call->address = head[0];
		given = head[2];
		break;
	case 20: /* writev */
		break;
	default:
		return 0;
	}
	if (bpf_probe_read_user(&call->data, sizeof(call->data), (void *)given))
		call->data = 0;
	return 0;
}

/*
 * The first bytes of the `bytes` that a thread has just sent: how many are in `head`, of which the
 * rest is left as it was. 0: they are not known.
 */
static __always_inline u32 sent_head(u8 head[SENT_HEAD], const struct thread *thread, u32 bytes)
{
	u32 looked_at = bytes < SENT_HEAD ? bytes : SENT_HEAD - 1;
	struct sent_call call;

	sends(&call, thread);
	/* The compiler knows that it is small, and the verifier is to see it. */
	barrier_var(looked_at);
	if (!call.data ||
	    bpf_probe_read_user(head, looked_at & (SENT_HEAD - 1), (void *)call.data))
		return 0;
	return looked_at;
}
