/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* The sums of short sleeps on futex words. */
#pragma once

#include "core/layout.h"

struct futex_key {
	u64 address;
	u32 tgid;
	u32 pad;
};

struct futex_sum {
	u64 count;
	u64 total_ns;
	u64 longest_ns;
};
