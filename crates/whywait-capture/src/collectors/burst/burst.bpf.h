/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * A burst: for a moment every system call of the target is seen when it ends. The program is loaded
 * with the others and attached only for that moment, because it sends every process of the machine
 * through the slow way into the kernel.
 *
 * First the calls are only counted, which disturbs least: that gives the rate. Then some of each
 * thread are recorded.
 */
#pragma once

#include "core/calls.bpf.h"
#include "core/threads.bpf.h"
#include "collectors/uring/stands.bpf.h"

#define FILE_TYPE 0170000
#define FILE_SOCKET 0140000
#define NR_IOCTL 16
#define NR_EPOLL_CTL 233
#define NR_IO_URING_ENTER 426
/* include/uapi/asm-generic/ioctls.h; SIOCOUTQ is TIOCOUTQ */
#define SIOCOUTQ 0x5411
#define FIONREAD 0x541b
#define POLLFD_BYTES 8
#define FD_SET_BYTES 32

/*
 * Which burst this is; it tells calls, beyond counting them; and at most so many of each thread,
 * and altogether.
 */
volatile u32 burst_id = 0;
volatile bool burst_records = false;
const volatile u32 burst_thread_calls = 1000;
const volatile u32 burst_calls = 20000;
u64 burst_recorded = 0;
/* whywait's own thread, when it finds out what a call costs more while a burst lasts. */
volatile u32 calibrating_tid = 0;
/*
 * Its counter, with a line of the cache to itself, as a thread's is in its own state: beside what
 * the target's threads read at each call, on other CPUs, it would take twice as long.
 */
u64 calibrating_calls[8] __attribute__((aligned(64))) = {};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 << 20);
} calls SEC(".maps");

static __always_inline struct sock *sock_of(struct file *file)
{
	struct socket *socket = (struct socket *)BPF_CORE_READ(file, private_data);

	return BPF_CORE_READ(socket, sk);
}

static __always_inline void fill_call_file(struct call_record *record, struct task_struct *task)
{
	struct file *file;
	struct sock *sk;

	if (record->fd < 0)
		return;
	file = file_of(task, record->fd);
	if (!file)
		return;
	record->mode = BPF_CORE_READ(file, f_inode, i_mode);
	if ((record->mode & FILE_TYPE) != FILE_SOCKET)
		return;
	sk = sock_of(file);
	record->state = BPF_CORE_READ(sk, __sk_common.skc_state);
	record->family = BPF_CORE_READ(sk, __sk_common.skc_family);
	record->local_port = BPF_CORE_READ(sk, __sk_common.skc_num);
	record->peer_port = BPF_CORE_READ(sk, __sk_common.skc_dport);
}

static __always_inline void fill_user(struct call_record *record, u64 from, u32 len)
{
	if (len > CALL_BYTES)
		len = CALL_BYTES;
	if (len && !bpf_probe_read_user(record->bytes, len, (void *)from))
		record->bytes_len = len;
}

/*
 * What the calls' arguments point to, as far as it tells of readiness. No data that is read or
 * written is looked at.
 */
static __always_inline void fill_call_user(struct call_record *record)
{
	u64 ready = record->ret > 0 ? record->ret : 0;
	u32 value = 0;

	switch (record->nr) {
	case 232: /* epoll_wait */
	case 281: /* epoll_pwait */
	case 441: /* epoll_pwait2 */
		fill_user(record, record->args[1],
			  ready < 10 ? ready * EPOLL_EVENT_BYTES : 10 * EPOLL_EVENT_BYTES);
		break;
	case NR_POLL:
	case NR_PPOLL:
		if (ready)
			fill_user(record, record->args[0],
				  record->args[1] < 16 ? record->args[1] * POLLFD_BYTES :
							 16 * POLLFD_BYTES);
		break;
	case NR_SELECT:
	case NR_PSELECT6:
		if (!ready)
			break;
		for (int i = 0; i < 3; i++) {
			u64 set = record->args[1 + i];

			/* The kernel writes as many bytes as the highest descriptor asks for. */
			if (set)
				bpf_probe_read_user(record->bytes + i * FD_SET_BYTES, FD_SET_BYTES,
						    (void *)set);
		}
		record->bytes_len = 3 * FD_SET_BYTES;
		break;
	case NR_EPOLL_CTL:
		if (record->args[3])
			fill_user(record, record->args[3], EPOLL_EVENT_BYTES);
		break;
	case NR_IOCTL:
		/* How much is in a queue, and no other memory. */
		if (record->ret == 0 &&
		    (record->args[1] == SIOCOUTQ || record->args[1] == FIONREAD) &&
		    !bpf_probe_read_user(&value, sizeof(value), (void *)record->args[2]))
			record->value = value;
		break;
	}
}

static __always_inline void send_call(struct thread *thread, struct task_struct *task,
				      struct pt_regs *regs, s64 ret)
{
	struct call_record *record;
	struct uring_view view;
	u64 now = bpf_ktime_get_ns();

	record = bpf_ringbuf_reserve(&calls, sizeof(*record), 0);
	if (!record) {
		COUNT(lost_calls);
		return;
	}
	__builtin_memset(record, 0, sizeof(*record));
	record->type = RECORD_CALL;
	record->nr = call_number(regs);
	record->tid = thread->tid;
	record->tgid = thread->tgid;
	record->at_ns = now;
	record->on_cpu_ns = own_on_cpu_now(thread, now);
	record->args[0] = PT_REGS_PARM1_SYSCALL(regs);
	record->args[1] = PT_REGS_PARM2_SYSCALL(regs);
	record->args[2] = PT_REGS_PARM3_SYSCALL(regs);
	record->args[3] = PT_REGS_PARM4_SYSCALL(regs);
	record->ret = ret;
	record->sleeps = thread->seq;
	record->fd = record->nr == NR_EPOLL_CTL ? (s32)record->args[2] : (s32)record->args[0];
	fill_call_file(record, task);
	fill_call_user(record);
	if (record->nr == NR_IO_URING_ENTER && uring_entered(thread, task, regs, &view)) {
		((u32 *)record->bytes)[0] = view.cq_head;
		((u32 *)record->bytes)[1] = view.cached_cq_tail;
		record->bytes_len = 8;
	}
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(burst, struct pt_regs *regs, long ret)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *thread = thread_of(task);
	s32 nr = call_number(regs);

	if (!thread) {
		if (task->pid != calibrating_tid)
			return 0;
		if (call_family(nr) != CALL_POLL)
			calibrating_calls[0]++;
		return 0;
	}
	thread->burst_calls++;
	if (call_family(nr) == CALL_POLL || nr == NR_IO_URING_ENTER)
		thread->burst_polls++;
	if (!burst_records)
		return 0;
	if (thread->burst_id != burst_id) {
		thread->burst_id = burst_id;
		thread->burst_recorded = 0;
	}
	if (thread->burst_recorded >= burst_thread_calls || burst_recorded >= burst_calls) {
		COUNT(calls_counted_only);
		return 0;
	}
	thread->burst_recorded++;
	__sync_fetch_and_add(&burst_recorded, 1);
	send_call(thread, task, regs, ret);
	return 0;
}

/*
 * The sockets of a process, and whatever else is registered with epoll: under which number of the
 * program's own choosing.
 */
SEC("iter/task_file")
int burst_files(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct file_record record = {};
	struct hlist_node *first = 0;
	struct hlist_head *head;
	struct epitem *item;
	struct sock *sk;

	if (!task || !file || !thread_of(task))
		return 0;
	record.type = RECORD_FILE;
	record.fd = ctx->fd;
	record.mode = BPF_CORE_READ(file, f_inode, i_mode);
	head = file->f_ep;
	if (head)
		first = BPF_CORE_READ(head, first);
	if (first) {
		item = (struct epitem *)((u64)first - bpf_core_field_offset(struct epitem, fllink));
		record.registered = 1;
		record.data = BPF_CORE_READ(item, event.data);
		record.events = BPF_CORE_READ(item, event.events);
	}
	if ((record.mode & FILE_TYPE) == FILE_SOCKET) {
		sk = sock_of(file);
		record.state = BPF_CORE_READ(sk, __sk_common.skc_state);
		record.family = BPF_CORE_READ(sk, __sk_common.skc_family);
		record.local_port = BPF_CORE_READ(sk, __sk_common.skc_num);
		record.peer_port = BPF_CORE_READ(sk, __sk_common.skc_dport);
	} else if (!first) {
		return 0;
	}
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}
