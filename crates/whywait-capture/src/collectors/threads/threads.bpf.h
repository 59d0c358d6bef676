/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Threads of the target that begin, become another program, take a name and end; and those that
 * were there before.
 */
#pragma once

#include "core/calls.bpf.h"
#include "core/threads.bpf.h"
#include "collectors/cpu/cpu.bpf.h"
#include "collectors/futex/sums.bpf.h"
#include "collectors/stacks/user_stack.bpf.h"
#include "collectors/tasks/tasks.bpf.h"

/* Forgets a thread. */
static __always_inline void forget_thread(u32 tid)
{
	struct thread *thread = thread_by_id(tid);
	struct thread *in_slot = thread_slot(tid);

	if (!thread)
		return;
	*(volatile u32 *)&thread->tid = 0;
	settle_futexes(thread);
	if (thread == in_slot)
		*(volatile u32 *)&in_slot->claimed = 0;
	else if (!bpf_map_delete_elem(&more_threads, &tid))
		count_more_threads(tid, -1);
}

static __always_inline void send_thread(struct task_struct *task, u32 change,
					struct task_struct *parent, const char *comm)
{
	struct thread_record *record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);

	if (!record) {
		COUNT(lost_ring_full);
		return;
	}
	record->type = RECORD_THREAD;
	record->change = change;
	record->at_ns = bpf_ktime_get_ns();
	record->tid = task->pid;
	record->tgid = task->tgid;
	record->parent_tid = parent ? parent->pid : 0;
	record->parent_tgid = parent ? parent->tgid : 0;
	bpf_probe_read_kernel_str(record->comm, sizeof(record->comm), comm ? comm : task->comm);
	/* A process begins or ends: what is to be read of it is there while it lives. */
	bpf_ringbuf_submit(record, wakeup_for(&records, task->pid == task->tgid));
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(sched_process_fork, struct task_struct *parent, struct task_struct *child)
{
	struct thread *thread;

	forget_thread(child->pid); /* of another one, whose exit was missed */
	if (!thread_of(parent))
		return 0;
	thread = claim_thread(child);
	if (!thread) {
		COUNT(lost_thread_storage);
		return 0;
	}
	if (child->pid == child->tgid) {
		follow_process(child->tgid);
		inherit_server(parent->tgid, child->tgid);
		forget_runtime(child->tgid);
	}
	thread->state = THREAD_RUNNABLE;
	thread->out_ns = bpf_ktime_get_ns();
	publish_thread(thread, child);
	COUNT(events);
	send_thread(child, THREAD_FORK, parent, 0);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(sched_process_exec, struct task_struct *task, u32 old_tid)
{
	struct thread *thread;

	/*
	 * A thread that is not the leader takes over the leader's id when it becomes another
	 * program.
	 */
	if (!thread_by_id(old_tid))
		return 0;
	/* Words and places in memory, descriptors: nothing is what it was. */
	forget_thread(old_tid);
	forget_thread(task->pid);
	thread = claim_thread(task);
	if (!thread) {
		COUNT(lost_thread_storage);
		return 0;
	}
	follow_process(task->tgid);
	forget_runtime(old_tid);
	forget_runtime(task->tgid);
	thread->in_ns = bpf_ktime_get_ns();
	thread->state = THREAD_RUNNING;
	publish_thread(thread, task);
	COUNT(events);
	send_thread(task, THREAD_EXEC, 0, 0);
	return 0;
}

static __always_inline void adopt_worker(struct task_struct *task, const char *comm)
{
	u32 tgid = task->tgid;
	struct thread *thread;

	if (!bpf_map_lookup_elem(&processes, &tgid))
		return;
	thread = claim_thread(task);
	if (!thread) {
		COUNT(lost_thread_storage);
		return;
	}
	thread->state = THREAD_RUNNING;
	thread->in_ns = bpf_ktime_get_ns();
	publish_thread(thread, task);
	COUNT(events);
	send_thread(task, THREAD_FOUND, 0, comm);
}

SEC("tp_btf/task_rename")
int BPF_PROG(task_rename, struct task_struct *task, const char *comm)
{
	if (!thread_of(task)) {
		/*
		 * The threads that io_uring makes are recorded of in no other way: the first thing
		 * that they do is to name themselves.
		 */
		if (task->flags & PF_IO_WORKER || task->flags & PF_USER_WORKER)
			adopt_worker(task, comm);
		return 0;
	}
	COUNT(events);
	send_thread(task, THREAD_RENAME, 0, comm);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(sched_process_exit, struct task_struct *task)
{
	struct thread *thread = thread_of(task);
	u32 tid = task->pid;

	if (!thread)
		return 0;
	COUNT(events);
	cpu_exit(thread, bpf_ktime_get_ns());
	bpf_map_delete_elem(&user_stack_works, &tid);
	bpf_map_delete_elem(&processes, &tid); /* there only if it is the process's first thread */
	forget_runtime(tid);
	send_thread(task, THREAD_EXIT, 0, 0);
	forget_thread(tid);
	return 0;
}

/* Takes a thread into the target that was there before whywait. */
SEC("iter/task")
int find_threads(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct thread *thread;
	struct pt_regs *regs;
	u64 now;

	if (!task || thread_of(task))
		return 0;
	thread = claim_thread(task);
	if (!thread) {
		COUNT(lost_thread_storage);
		return 0;
	}
	follow_process(task->tgid);
	/*
	 * Before it is looked at: what happens meanwhile, or while this program is preempted, is
	 * not to be missed.
	 */
	publish_thread(thread, task);
	now = bpf_ktime_get_ns();
	if (task->on_cpu) {
		thread->in_ns = now;
		thread->state = THREAD_RUNNING;
	} else if (task->on_rq) {
		thread->out_ns = now;
		thread->state = THREAD_RUNNABLE;
	} else {
		regs = user_registers(task);
		thread->nr = call_number(regs);
		thread->ip = PT_REGS_IP(regs);
		thread->sp = PT_REGS_SP(regs);
		thread->family = call_family(thread->nr);
		thread->args[0] = PT_REGS_PARM1_SYSCALL(regs);
		thread->args[1] = PT_REGS_PARM2_SYSCALL(regs);
		thread->args[2] = PT_REGS_PARM3_SYSCALL(regs);
		thread->timeout = PT_REGS_PARM4_SYSCALL(regs) != 0;
		thread->uninterruptible = !!(task->__state & TASK_UNINTERRUPTIBLE);
		thread->io_wait = BPF_CORE_READ_BITFIELD(task, in_iowait);
		if (is_epoll_call(thread->nr)) {
			thread->epfd = (s32)thread->args[0];
			thread->epoll = epoll_of(task, thread->args[0]);
		}
		thread->since_before = 1;
		thread->out_ns = now;
		thread->state = THREAD_SLEEPING;
	}
	send_thread(task, THREAD_FOUND, 0, 0);
	return 0;
}
