/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* What is sent to several connections, one after another, and nobody has asked for. */
#pragma once

#include "core/layout.h"

/* A thread sent something to several connections, and that took long. */
struct push_record {
	u32 type;
	u32 tgid;
	u64 first_ns; /* it wrote to the first of them, … */
	u64 last_ns; /* … and to the last */
	u64 held_ns; /* of that: it waited until one of them had room */
	u64 holder; /* that one, the longest of them: as request_record has it; 0: none */
	u32 tid;
	u32 connections;
	u32 after; /* so many had it after such a wait */
	u16 local_port;
	u16 family;
	u16 peer_port; /* of the holder, in the network's order */
	u8 pad[6];
	u8 peer[16];
};
