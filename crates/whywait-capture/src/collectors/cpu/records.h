/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* What CPU time was for. */
#pragma once

#include "core/layout.h"

enum suspicion { SUSPECT_SPINS = 1, SUSPECT_WOKEN_FOR_NOTHING };

/* A thread that seems to poll without moving anything: to be looked at more closely. */
struct suspect_record {
	u32 type;
	u32 reason;
	u64 at_ns;
	u32 tid;
	u32 tgid;
};

/* What was used for the requests that came in at a port. Totals. */
struct listener_sum {
	u64 cpu_ns;
	u64 futile_ns; /* of that: in intervals of polling in which no byte moved */
	u64 requests;
	u64 bytes_in;
	u64 bytes_out;
	u64 user_samples;
	u64 system_samples;
};

struct listener_key {
	u32 tgid;
	u32 port; /* 0: unix sockets */
};

/* A thread's totals; `open` is what it has not yet added to the sum of `open_port`. */
struct cpu_record {
	u32 type;
	u32 tid;
	u32 tgid;
	u32 open_port;
	u64 at_ns;
	u64 on_cpu_ns;
	u64 runnable_ns;
	u64 futile_ns;
	u64 user_samples;
	u64 system_samples;
	u64 poll_sleeps;
	/* poll sleeps that something ended, and nothing was read or written before the next one */
	u64 dry_sleeps;
	u64 calls; /* system calls and, of these, polls, while bursts count them */
	u64 polls;
	struct listener_sum open;
};

/* What was used for the requests of a connection: totals. */
struct socket_record {
	u32 type;
	u32 tgid; /* that read from it last */
	u64 socket;
	u64 at_ns;
	u64 cpu_ns;
	u64 answering_ns; /* of that: between its reads and its answers */
	u64 futile_ns;
	u64 bytes_in;
	u64 bytes_out;
	u32 user_samples;
	u32 system_samples;
	u32 requests;
	u16 local_port;
	u16 peer_port; /* in network order */
	u16 family;
	u16 pad[3];
	u8 peer[16]; /* its address: the first 4 bytes, or all */
};
