/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* What is kept of a connection that the target made: its last exchange. */
#pragma once

#include "core/state.bpf.h"

/* It is no exchange's: a pair of sockets, say. */
#define PEER_NONE 0xffffffff

struct exchange {
	u64 first_send_ns; /* 0: there was none yet */
	u64 last_send_ns;
	u64 arrived_ns;
	u64 first_read_ns; /* 0: no reply yet */
	u64 last_read_ns;
	u64 connect_ns; /* until the first is over */
	u64 connected_ns;
	u64 bytes_out;
	u64 bytes_in;
	u64 task; /* for which the first byte was written: see task_of */
	/* Where it may begin that seemed to begin before: see may_reply_to_later. */
	u64 later_ns; /* 0: nowhere */
	u64 later_task;
	u64 paused_ns; /* so long nothing was sent before that */
	u32 later_out; /* … and so much had been */
	u32 peer; /* its number and 1; 0: not looked for yet */
	u32 send_tid;
	u32 read_tid;
	u32 tgid;
	u32 fd; /* … and 1; 0: not known */
	u32 seq;
	u32 retransmits; /* of the connection, until the last exchange */
	u8 in_flight; /* it counts there */
	u8 open; /* its connection does */
	u8 over : 4; /* it is in the sums, whole */
	/* it is none: a broker was asked for a message, see jobs.bpf.h and polled.bpf.h */
	u8 fetches : 4;
	u8 pushed : 4; /* what is read now is no reply */
	u8 timing : 4; /* TIMED…: whether it is known when the reply came */
	u32 counted_in; /* bytes that are in the sums */
	/* Of a broker that is polled: see polled.bpf.h. */
	u32 asked_ms; /* so long it may wait for a message */
	u32 empty_in; /* an answer without one is no longer; 0: none was seen */
};
