/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Ends of responses that the kernel held back. */
#pragma once

#include "core/layout.h"

/* The end of a response: it was written, and not sent before the peer had acknowledged the rest. */
struct tail_record {
	u32 type;
	u32 seq; /* of the request … */
	u64 socket; /* … and its connection, as request_record has them */
	u64 written_ns; /* when it was written */
	u64 sent_ns; /* when it went out */
	u64 latency_ns; /* of the request until then; 0: not known */
	u64 bytes_out; /* of the whole response */
	u32 bytes; /* of what was held back */
	u32 tgid;
	u32 tid; /* who wrote it */
	u16 local_port;
	u8 pad[2];
};
