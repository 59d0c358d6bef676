/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * What the BPF programs say to user space. Declared once: the Rust side takes these layouts from
 * the object's BTF through the skeleton. Every record starts with its type.
 */
#ifndef WHYWAIT_EVENTS_H
#define WHYWAIT_EVENTS_H

#define COMM_LEN 16
#define KERNEL_FRAMES 48
#define MAX_STACK_BYTES 32768

/* The kinds of time. The order is that of `Part` in crate whywait-events. */
enum part {
	PART_ON_CPU,
	PART_RUNNABLE,
	PART_LOCK,
	PART_THREAD,
	PART_DISK,
	PART_NETWORK,
	PART_TIMER,
	PART_URING,
	PART_PAGE_FAULT,
	PART_UNKNOWN,
	PART_COUNT,
};

enum record_type {
	RECORD_THREAD = 1,
	RECORD_WAIT,
	RECORD_BUSY,
	RECORD_REQUEST,
	RECORD_SAMPLE,
	RECORD_SLEEPER,
	RECORD_USER_STACK,
	RECORD_WAKER,
	RECORD_PREEMPTED,
};

/* The order is that of `ThreadChange`. */
enum thread_change { THREAD_FOUND, THREAD_FORK, THREAD_EXEC, THREAD_RENAME, THREAD_EXIT };

/* The order is that of `WakeContext`. */
enum wake_context { WAKE_UNKNOWN, WAKE_TASK, WAKE_SOFTIRQ, WAKE_HARDIRQ, WAKE_EXIT };

struct thread_record {
	u32 type;
	u32 change;
	u64 at_ns;
	u32 tid;
	u32 tgid;
	u32 parent_tid;
	u32 parent_tgid;
	char comm[COMM_LEN];
};

/* A sleep, as both `wait_record` and `sleeper_record` tell it. */
struct sleep {
	u32 tid;
	u32 tgid;
	u32 seq; /* counts the thread's sleeps */
	s32 nr; /* system call, -1: none */
	u64 args[3];
	u64 out_ns;
	u64 epoll; /* kernel address of the epoll instance: for identity only, never written to a recording */
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
	u64 ip, sp; /* of the program while it slept: the stack that follows is that of this sleep if it has the same */
	u64 stack_key; /* of the thread's user stack that was told before; 0: none */
	u64 kernel_key; /* of this kernel stack, or if none follows, of the thread's that was told before; 0: none */
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

/* Since it lost its CPU, without having gone to sleep, a thread had none. */
struct preempted_record {
	u32 type;
	u32 tid;
	u32 tgid;
	u32 pad;
	u64 out_ns;
	u64 in_ns;
};

struct request_record {
	u32 type;
	u32 seq;
	u64 socket;
	u64 epoll; /* kernel address, for identity only */
	u64 ready_ns;
	u64 recv_ns;
	u64 first_send_ns;
	u64 last_send_ns;
	u64 bytes_in;
	u64 bytes_out;
	u64 unserved_wakeup_ns;
	u32 tgid;
	u32 recv_tid;
	u32 send_tid;
	s32 fd;
	u16 local_port;
	u8 read_armed; /* 0 no, 1 yes, 2 unknown */
	u8 before_accept;
	u32 pad;
	u64 service[PART_COUNT];
	u64 taken_ns; /* until then what was read lay in a ring of io_uring for certain; 0: not known */
};

/* Followed by `stack_len` bytes of the user stack from `sp` upwards. */
struct sample_record {
	u32 type;
	u32 cpu;
	u64 at_ns;
	u32 tid;
	u32 tgid;
	u64 ip, sp, bp;
	u32 stack_len;
	s32 kernel_stack_len;
	u32 futile; /* in a poll, in a stretch in which no byte has moved */
	u32 periods; /* of the dense clock, for which it stands */
	u64 kernel_stack[KERNEL_FRAMES];
};

/* Written by the sweep over sleeping threads. Followed by `stack_len` bytes of the user stack. */
struct sleeper_record {
	u32 type;
	u32 stack_len;
	struct sleep sleep;
	u64 ip, sp, bp;
	u64 now_ns;
	u32 pad;
	s32 kernel_stack_len;
	u64 kernel_stack[KERNEL_FRAMES];
};

/*
 * Where a thread was when it had its long sleeps since the previous record of this kind, followed
 * by `stack_len` bytes of the user stack. By none if this stack was told before, under `stack_key`;
 * or if there is none, and the key is 0.
 */
struct user_stack_record {
	u32 type;
	u32 stack_len;
	u32 tid;
	u32 tgid;
	u64 ip, sp, bp;
	u64 stack_key; /* by which later records of the thread refer to this stack; 0: they will not */
};

/*
 * Where a thread was when it ended another one's long sleep. Followed by `stack_len` bytes of the
 * waker's user stack; by none if this stack was told before, under `stack_key`.
 */
struct waker_record {
	u32 type;
	u32 stack_len;
	u32 tid; /* who slept */
	u32 seq; /* which sleep */
	u32 waker_tid;
	u32 waker_tgid;
	u64 ip, sp, bp;
	u64 stack_key;
};

/* The short sleeps on a futex word. */
struct futex_key {
	u64 address;
	u32 tgid;
	u32 pad;
};

struct futex_sum {
	u64 count;
	u64 total_ns;
	u64 longest_ns;
};

#include "uring_events.h"

/* One for each CPU. Every reason for losing something has its own. The names are the recording's. */
struct counters {
	u64 events; /* tracepoint hits that concerned the target */
	u64 lost_ring_full; /* events ring: record dropped */
	u64 lost_stack_ring_full; /* samples ring: sample dropped */
	u64 lost_thread_storage; /* a thread could not be followed: no memory for its state */
	u64 lost_socket_storage; /* a socket could not be followed */
	u64 lost_wait_budget; /* long waits over the rate that is sent; their time is in the thread's totals */
	u64 preempted_budget; /* long stretches without a CPU over the rate that is sent; their time is in the thread's totals */
	u64 lost_request_budget; /* slow requests over the rate that is sent one by one; they are in the sums */
	u64 sleeper_no_stack; /* the stack of a sleeping thread could not be read */
	u64 sleeper_moved; /* it woke while its stack was read: dropped */
	u64 sample_no_stack; /* user stack of a sample could not be read */
	u64 user_stack_unread; /* long sleeps whose user stack could not be asked for or read */
	u64 user_stack_budget; /* long sleeps over the rate at which user stacks are read */
	u64 waker_stack_budget; /* wakes of long sleeps over the rate at which the waker's stack is read */
	u64 lost_futexes; /* short sleeps on futex words beyond those that are kept apart */
	u64 lost_rings; /* io_uring instances beyond those that can be followed */
	u64 uring_op_budget; /* told operations over the rate that is sent; they are in the sums */
	u64 uring_lag_budget; /* the same of told lags */
	u64 storm_waits; /* long sleeps over the rate at which those of a storm are sent; they are in their object's sums */
	u64 unmatched_wakes; /* a thread came back and no wake had been seen */
	u64 unseen_switches; /* a thread was running that had not been seen getting its CPU */
	u64 lost_calls; /* bursts: the ring was full */
	u64 calls_counted_only; /* bursts: calls beyond those that are told */
	u64 lost_socket_cpu; /* a connection found no slot for its CPU time */
	u64 farewells; /* responses that were followed by one: see may_be_farewell */
	u64 began_later; /* requests that came behind something that wanted no answer: see may_begin_later */
	u64 stolen_ns; /* threads were on a CPU that stood still, because the host had others run */
};

#define LATENCY_BUCKETS 512 /* 8 to the power of two */

/* One for each CPU: the requests that were not sent one by one. */
struct request_totals {
	u64 count;
	u64 slow;
	u64 max_ns;
	u64 total_ns;
	u64 unserved_ns;
	u64 unserved_wakeup_ns;
	u64 service[PART_COUNT];
	u64 latency[LATENCY_BUCKETS];
};

_Static_assert(sizeof(struct thread_record) == 48, "layout of thread_record");
_Static_assert(sizeof(struct sleep) == 72 + 8 * PART_COUNT, "layout of sleep");
_Static_assert(sizeof(struct wait_record) == 72 + sizeof(struct sleep), "layout of wait_record");
_Static_assert(sizeof(struct busy_record) == 48, "layout of busy_record");
_Static_assert(sizeof(struct preempted_record) == 32, "layout of preempted_record");
_Static_assert(sizeof(struct request_record) == 112 + 8 * PART_COUNT, "layout of request_record");
_Static_assert(sizeof(struct sample_record) == 64 + 8 * KERNEL_FRAMES, "layout of sample_record");
_Static_assert(sizeof(struct user_stack_record) == 48, "layout of user_stack_record");
_Static_assert(sizeof(struct waker_record) == 56, "layout of waker_record");
_Static_assert(sizeof(struct futex_key) == 16, "layout of futex_key");
_Static_assert(sizeof(struct sleeper_record) == 48 + sizeof(struct sleep) + 8 * KERNEL_FRAMES, "layout of sleeper_record");

#endif
