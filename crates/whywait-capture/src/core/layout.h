/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* What several layouts have in common. */
#pragma once

#include "core/vmlinux.h"

/* Has a type in BTF, and so in Rust, that no variable and no map names. */
#define IN_BTF(type, name) const type *name##_in_btf __attribute__((unused))

#define KERNEL_FRAMES 48
#define MAX_STACK_BYTES 32768

/* The kinds of time. The order is that of `Part` in crate whywait-events. */
enum part {
	PART_ON_CPU,
	PART_RUNNABLE,
	PART_LOCK,
	PART_THREAD,
	PART_DISK,
	PART_NETWORK,
	PART_TIMER,
	PART_URING,
	PART_PAGE_FAULT,
	PART_UNKNOWN,
	PART_COUNT,
};
IN_BTF(enum part, part);
