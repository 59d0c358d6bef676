/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* What was slow lately, which decides how often the clock of the samples ticks: see clock.rs. */
#pragma once

#include "core/state.bpf.h"

/* For how long anything was slow so far, and until when: see was_slow. */
volatile u64 slow_ns = 0;
volatile u64 slow_until_ns = 0;

/* A request, or an interval without I/O, that took less is none that samples are asked about. */
#define SLOW_NS 1000000

/*
 * Something took `ns` of the time from `from_ns` to `to_ns`, and where in the program it did is for
 * samples to tell. What was slow at the same time, as the requests are that wait for one another,
 * counts once. (CPUs that add to this at once may lose what one of them adds; what is slow comes
 * again.)
 */
static __always_inline void was_slow(u64 from_ns, u64 to_ns, u64 ns)
{
	u64 until_ns = slow_until_ns;

	if (to_ns <= until_ns || ns < SLOW_NS)
		return;
	if (from_ns > until_ns)
		until_ns = from_ns;
	slow_ns += to_ns - until_ns < ns ? to_ns - until_ns : ns;
	slow_until_ns = to_ns;
}
