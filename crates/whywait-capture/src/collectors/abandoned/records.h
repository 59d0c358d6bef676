/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Requests that were answered for clients that had gone. */
#pragma once

#include "core/layout.h"

/* A request of which the client had gone before anything of the response was written. */
struct abandoned_record {
	u32 type;
	u32 seq; /* of the request … */
	u64 socket; /* … and its connection, as request_record has them */
	u64 ready_ns;
	u64 recv_ns;
	u64 gone_ns; /* when the client's FIN or RST came */
	u64 ended_ns; /* when the response was written, or that failed */
	u64 cpu_ns; /* of the thread that read, until then; 0: another one wrote */
	u32 tgid;
	u32 recv_tid;
	u32 send_tid;
	u16 local_port;
	u16 family;
	u16 peer_port; /* in the network's order */
	u8 fin; /* it was a FIN, and a RST came for an answer */
	u8 alone; /* the thread served no other connection since it read it */
	u8 pad[4];
	u8 peer[16];
};
