/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* What is kept for each ring of the target, and for each of its opcodes. */
#pragma once

#include "core/state.bpf.h"

#define URING_PROBES 4

/* Which file operations are io_uring's: found out with a ring of whywait's own. */
volatile u64 uring_fops = 0;
volatile s32 uring_own_fd = 0;
u32 next_uring_id = 0;
/* Kernel addresses of the target's rings. */
u64 uring_keys[URING_RINGS] = {};
/* How many have been closed so far. */
volatile u32 urings_closed = 0;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, URING_RINGS);
	__type(key, u32);
	__type(value, struct uring_state);
} urings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, URING_RINGS *URING_OPCODES);
	__type(key, u32);
	__type(value, struct uring_sum);
} uring_sums SEC(".maps");

static __always_inline u32 uring_key(u64 ctx)
{
	return (low_half(ctx) >> 8) * 0x9e3779b1u >> 25;
}

static __always_inline s32 uring_index(u64 ctx)
{
	u32 at = uring_key(ctx);

#pragma unroll
	for (u32 i = 0; i < URING_PROBES; i++) {
		u32 index = (at + i) & (URING_RINGS - 1);

		if (uring_keys[index] == ctx)
			return index;
	}
	return -1;
}

static __always_inline struct uring_state *uring_at(u32 index)
{
	return bpf_map_lookup_elem(&urings, &index);
}

static __always_inline struct uring_sum *uring_sum_of(u32 index, u32 opcode)
{
	u32 at = (index & (URING_RINGS - 1)) * URING_OPCODES + (opcode & (URING_OPCODES - 1));

	return bpf_map_lookup_elem(&uring_sums, &at);
}
