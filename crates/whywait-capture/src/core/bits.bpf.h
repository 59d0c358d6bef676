/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Logarithms and hashes of whole numbers. */
#pragma once

#include "core/vmlinux.h"

/* The position of the highest bit in a byte. */
static const u8 log2_u8[256] = {
	[2 ... 3] = 1,	 [4 ... 7] = 2,	   [8 ... 15] = 3,    [16 ... 31] = 4,
	[32 ... 63] = 5, [64 ... 127] = 6, [128 ... 255] = 7,
};

/*
 * … in a number. (clang 14 does not get to an end on __builtin_clzll for BPF, and each branch
 * doubles what is verified.)
 */
static __always_inline u32 log2_u64(u64 value)
{
	u32 log = 0;

	for (u32 step = 32; step >= 8; step >>= 1) {
		if (value >> step) {
			value >>= step;
			log += step;
		}
	}
	return log + log2_u8[value & 255];
}

static __always_inline u32 hash_of(u64 value)
{
	value ^= value >> 32;
	value *= 0x9e3779b97f4a7c15;
	return value >> 32 | 1;
}
