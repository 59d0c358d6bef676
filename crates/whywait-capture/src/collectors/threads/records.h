/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Threads that begin, change and end. */
#pragma once

#include "core/layout.h"

#define COMM_LEN 16

enum thread_change { THREAD_FOUND, THREAD_FORK, THREAD_EXEC, THREAD_RENAME, THREAD_EXIT };
IN_BTF(enum thread_change, thread_change);

struct thread_record {
	u32 type;
	u32 change;
	u64 at_ns;
	u32 tid;
	u32 tgid;
	u32 parent_tid;
	u32 parent_tgid;
	char comm[COMM_LEN];
};
