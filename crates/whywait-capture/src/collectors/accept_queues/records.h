/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Accept queues. */
#pragma once

#include "core/layout.h"

/* A listener, as one of the processes that have it open does. */
struct accept_queue_record {
	u32 type;
	u32 tgid;
	u64 listener;
	u32 fd;
	u32 queued;
	u32 limit;
	u32 dropped; /* since it was made */
	u16 local_port;
	u8 defers; /* TCP_DEFER_ACCEPT */
	u8 pad[5];
};
