/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* What is kept of the messages that a thread sends to several connections. */
#pragma once

#include "core/layout.h"

/* What a connection is for, beside requests. */
enum pushes {
	PUSHES_UNKNOWN, /* nothing was written yet */
	/* Less: its first response was looked at, and so many late ones, which do not tell. */
	PUSHES_NOT = 16,
	PUSHES, /* websockets, streams of events, subscribers */
};

/*
 * A thread sends a message to several connections, one after another. Threads share places by the
 * lowest bits of their ids: few send messages.
 */
struct push_round {
	u32 tid;
	u32 number; /* which round it is: connections that have had it know */
	u64 first_ns; /* 0: none is under way */
	u64 reached_ns; /* the last connection got it */
	u64 written_ns; /* anything was written last */
	u64 stalled_ns; /* since then the last one has no room; 0: it has */
	u8 stalled_peer[16]; /* that one's */
	u64 held_ns; /* others waited so long for such ones, … */
	u64 longest_ns; /* … at most for this one: */
	u64 holder;
	u64 last; /* the connection that was written to last */
	u32 connections;
	u32 after; /* so many had it after one of these waits */
	u16 local_port;
	u16 family;
	u8 peer[16]; /* the holder's */
	u16 peer_port;
	u16 stalled_port;
};

#define ROUNDS 256

struct push_round rounds[ROUNDS] SEC(".bss.rounds");
