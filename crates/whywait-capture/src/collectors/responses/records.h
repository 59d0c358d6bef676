/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Responses that are under way, as they are when somebody looks. */
#pragma once

#include "core/layout.h"

/* Which look it is. */
enum responses_look { RESPONSES_FIRST, RESPONSES_BETWEEN, RESPONSES_LAST };

IN_BTF(enum responses_look, responses_look);

/* A connection that the target accepted, and on which a response is under way. */
struct response_record {
	u32 type;
	u32 tgid; /* 0: not known */
	u64 socket; /* as request_record has it */
	u64 acknowledged; /* bytes, since it is looked at; at the first look none */
	u64 since_ns; /* it is looked at: since the look before, or since it was asked for */
	u64 asked_ago_ns; /* so long ago the client sent last; 0: not known */
	u64 sent_ago_ns; /* … and the kernel to the client */
	u64 window_ns; /* of the time since then: the client had no room for more … */
	u64 buffer_ns; /* … or the send buffer was full, and the client had room … */
	u64 network_ns; /* … or others were on their way; 0 if all is sent at the look */
	u32 seq; /* the request that was read last; 0: none was seen */
	u32 tid; /* the thread that wrote last; 0: none was seen */
	u32 unacknowledged; /* bytes that were written, and the client does not have yet */
	u16 local_port;
	u16 family;
	u16 peer_port; /* in the network's order */
	u8 pad[6];
	u8 peer[16];
};
