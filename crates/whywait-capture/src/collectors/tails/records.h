/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Ends of responses that were at the peer long after they were written. */
#pragma once

#include "core/layout.h"

/* What held back the end of a response after it was written. */
enum tail_reason {
	TAIL_SENT, /* nothing, as far as known when it was written */
	TAIL_NAGLE, /* the peer had not acknowledged the rest: Nagle's algorithm */
	TAIL_WINDOW, /* the peer had no room for it */
	TAIL_NETWORK, /* the congestion window, or something else that spreads it over time */
	TAIL_LOST, /* it was sent again */
};

IN_BTF(enum tail_reason, tail_reason);

/* A response that was at the peer long after it was written, or was held up before. */
struct tail_record {
	u32 type;
	u32 seq; /* of the request … */
	u64 socket; /* … and its connection, as request_record has them */
	u64 written_ns; /* when its end was written */
	u64 sent_ns; /* when that went out, for the last time */
	u64 latency_ns; /* of the request until it was written; 0: not known */
	u64 bytes_out; /* of the whole response */
	/* For so long, since the response before, the connection was limited by … */
	u64 window_ns; /* … the peer's window … */
	u64 buffer_ns; /* … and by its send buffer, which has room for so many bytes: */
	u32 buffer_bytes;
	u32 room_bytes; /* the peer has room for so many */
	u32 bytes; /* of the response that were not sent when its end was written */
	u32 tgid;
	u32 tid; /* who wrote it */
	u32 retransmits; /* packets that were sent again while it was under way, … */
	u32 timeouts; /* … of these: because nothing came back for long */
	u16 local_port;
	u16 family;
	u16 peer_port; /* in the network's order */
	u8 reason; /* TAIL_… */
	u8 unacknowledged; /* the peer did not have all of it in the end */
	u8 buffer_set; /* the size of the buffer is the program's own */
	u8 pad[3];
	u8 peer[16];
};
