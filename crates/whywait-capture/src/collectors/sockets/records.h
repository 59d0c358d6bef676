/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Requests. */
#pragma once

#include "core/layout.h"

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
	u8 since_before; /* it was there before whywait was */
	u8 unaccepted; /* its connection is in the accept queue */
	u8 multiplexed; /* its connection carries several at once */
	u8 own; /* its client is the target itself, see own.bpf.h */
	u32 kind; /* WORK_… */
	u32 broker; /* of a job: the peer that it came from, as in exchange_record, … */
	u32 handed_by; /* … and the thread that handed it on */
	u32 pad;
	/* of a stream that went on after its first message: when it was over; 0: not so, or not yet */
	u64 ended_ns;
	u64 gone_ns; /* its connection ended without an answer; 0: no */
	u64 service[PART_COUNT];
	/* until then what was read lay in an io_uring ring for certain; 0: not known */
	u64 taken_ns;
	u64 recv_task; /* addresses in the process, for identity only; 0: not known */
	u64 send_task;
};

#define LATENCY_BUCKETS 512 /* 8 to the power of two */

/*
 * Whose requests are counted together: others', the target's own to itself, jobs, and jobs that
 * were handed on.
 */
enum whose { WHOSE_OTHERS, WHOSE_OWN, WHOSE_JOBS, WHOSE_HANDED_JOBS, WHOSE_COUNT };
IN_BTF(enum whose, whose);

/* One for each CPU, and each of these: those that were not sent one by one. */
struct request_totals {
	u64 count;
	u64 slow;
	u64 max_ns;
	u64 total_ns;
	u64 unserved_ns;
	u64 unserved_wakeup_ns;
	u64 multiplexed; /* on connections that carry several at once; also of those sent, before */
	u64 http2_connections; /* … of these, by what shows it */
	u64 overlapping_connections;
	u64 tails; /* responses of which the end was at the peer long after it was written, … */
	u64 tails_ns; /* … for so long, together */
	u64 wire_max_ns; /* the longest latency of these with that, … */
	u64 retransmitted; /* responses of which packets were sent again */
	u64 abandoned; /* answered for clients that had gone before, … */
	u64 abandoned_ns; /* … of that, the time after they had, … */
	u64 abandoned_cpu_ns; /* … and the CPU time, at most */
	u64 service[PART_COUNT];
	u64 latency[LATENCY_BUCKETS];
	u32 wire_from[LATENCY_BUCKETS]; /* … their latency without, … */
	u32 wire_to[LATENCY_BUCKETS]; /* … and with it */
};
