/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* How many threads a connection wakes. */
#pragma once

#include "core/layout.h"

/* What became of connections at a port. */
struct herd_sum {
	u64 events; /* connections that woke somebody in a poll */
	u64 extra_wakes; /* threads that they woke beyond the first */
	u64 most_woken; /* by one of them */
	u64 dry_wakes; /* woken, and back to sleep without a byte read or written */
	u64 dry_cpu_ns; /* what that took */
	u64 reuseport; /* listening sockets with SO_REUSEPORT that were seen there */
};
