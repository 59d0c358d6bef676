/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Exchanges, and their peers. */
#pragma once

#include "core/layout.h"

/* So many peers have sums of their own; all others share those of the number 0. */
#define MAX_PEERS 128

/* An exchange that was slow, or one of a few that were not. */
struct exchange_record {
	u32 type;
	u32 seq;
	u64 socket;
	u64 connect_ns; /* of the connection's first: when it was begun; 0: not seen */
	u64 connected_ns;
	u64 first_send_ns;
	u64 last_send_ns;
	u64 arrived_ns; /* 0: not known, or no reply came */
	u64 first_read_ns; /* 0: no reply was read */
	u64 last_read_ns;
	u64 gone_ns; /* its connection ended without a reply; 0: no */
	u64 bytes_out;
	u64 bytes_in;
	u64 task; /* an address in the process, for identity only; 0: not known */
	u32 tgid;
	u32 send_tid;
	u32 read_tid;
	s32 fd;
	u32 peer;
	u32 srtt_us;
	u32 rtt_min_us;
	u32 retransmits;
	u32 kind; /* WORK_HTTP2: a stream's */
	u32 unused;
};

/* What tells peers apart. */
struct peer_key {
	u8 address[16]; /* IPv4's as those of IPv6 that stand for them */
	u64 unix_address; /* kernel address of the listener's, for identity only */
	u16 port; /* in the network's order */
	u16 family;
	u8 pad[4];
};
IN_BTF(struct peer_key, peer_key);

#define UNIX_PATH 108

struct peer {
	u32 number; /* from 1 */
	u32 tgid; /* of a unix socket: the process that listens */
	u32 path_len;
	u8 path[UNIX_PATH];
};
IN_BTF(struct peer, peer);

#define EXCHANGE_BUCKETS 288 /* 8 to the power of two: up to four minutes */

/* One for each CPU and peer. What is taken back on one CPU may have been added on another. */
struct peer_sums {
	u64 count; /* a reply was read */
	u64 unanswered;
	u64 slow;
	u64 total_ns;
	u64 max_ns;
	u64 sending_ns; /* from the first byte sent to the last */
	u64 first_ns; /* from the first byte sent until a reply was read */
	u64 unread_ns; /* until then a reply lay there */
	u64 bytes_out;
	u64 bytes_in;
	u64 connections;
	u64 connects; /* of these: begun while they were watched */
	u64 connect_ns;
	u64 failed; /* connections that did not come about */
	u64 retried; /* connections for which a SYN was sent again, … */
	u64 retried_ns; /* … and how long these took until they were made, or were not */
	u64 rtt_min_us; /* the connection's, of each exchange */
	u64 retransmits;
	u32 latency[EXCHANGE_BUCKETS];
};
IN_BTF(struct peer_sums, peer_sums);

/* What all CPUs have in common of a peer. */
struct peer_now {
	s32 in_flight; /* sent, and no reply was read */
	s32 most_in_flight;
	s32 open; /* connections */
	s32 most_open;
} __attribute__((aligned(64)));
IN_BTF(struct peer_now, peer_now);
