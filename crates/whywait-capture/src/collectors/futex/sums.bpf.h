/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Sums of the short sleeps on each futex word, and of those of a storm. */
#pragma once

#include "core/state.bpf.h"
#include "core/calls.bpf.h"

/* A word's first sleeps are recorded, however short: so its kind of wait has a stack. */
#define RECORDED_OF_EACH_WORD 2

struct futex_state {
	struct futex_sum sum;
	u64 recorded;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct futex_key);
	__type(value, struct futex_state);
} futexes SEC(".maps");

/*
 * Adds what a thread has summed up for the word in one of its places to the sums of all threads.
 * The word is in `futexes`. The place is free then.
 */
static __always_inline void settle_futex(struct thread *thread, u32 place)
{
	struct recent_futex *recent = &thread->futexes[place];
	struct futex_key key = { .address = thread->recent_futexes[place], .tgid = thread->tgid };
	struct futex_state *state;

	thread->recent_futexes[place] = 0;
	if (!recent->count)
		return;
	state = bpf_map_lookup_elem(&futexes, &key);
	if (state) {
		__sync_fetch_and_add(&state->sum.count, recent->count);
		__sync_fetch_and_add(&state->sum.total_ns, recent->total_ns);
		if (recent->longest_ns > state->sum.longest_ns)
			state->sum.longest_ns = recent->longest_ns;
	}
	recent->count = 0;
}

/* The thread ends, or becomes another program. */
static __always_inline void settle_futexes(struct thread *thread)
{
	for (int i = 0; i < RECENT_FUTEXES; i++)
		settle_futex(thread, i);
}

/*
 * What a sleep is summed up under: the futex word; or the call and the descriptor, marked by the
 * highest bit, which no address of a program has.
 */
static __always_inline u64 summed_under(const struct thread *thread)
{
	if (thread->nr == NR_FUTEX)
		return thread->args[0];
	return 1ull << 63 | (u64)(thread->nr & 0xffff) << 32 | (u32)thread->args[0];
}

/*
 * As record_short_futex, of a word for which the thread has summed up nothing: it takes a place for
 * it from another one. Not static, so that it is verified once for a program.
 */
__noinline int record_other_futex(struct thread *thread, u64 slept_ns)
{
	struct futex_state *state, none = {};
	struct futex_key key = {};
	u32 place;

	if (!thread)
		return false;
	key.address = summed_under(thread);
	key.tgid = thread->tgid;
	state = bpf_map_lookup_elem(&futexes, &key);
	if (!state) {
		if (bpf_map_update_elem(&futexes, &key, &none, BPF_ANY)) {
			COUNT(lost_futexes);
			return false;
		}
		state = bpf_map_lookup_elem(&futexes, &key);
		if (!state)
			return false;
	}
	if (state->recorded < RECORDED_OF_EACH_WORD) {
		state->recorded++;
		return true;
	}
	place = thread->next_futex;
	if (place >= RECENT_FUTEXES)
		place = 0;
	thread->next_futex = place + 1;
	settle_futex(thread, place);
	thread->recent_futexes[place] = key.address;
	thread->futexes[place].count = 1;
	thread->futexes[place].total_ns = slept_ns;
	thread->futexes[place].longest_ns = slept_ns;
	return false;
}

/*
 * Adds a short sleep, or one of a storm, to its word's sums, or says that it is to be recorded one
 * by one. A thread sleeps on the same few words again and again: it sums up its sleeps on them by
 * itself, and what all threads share is touched when it comes to another word. Not static, so that
 * it is verified once for a program.
 */
__noinline int record_short_futex(struct thread *thread, u64 slept_ns)
{
	u32 place = RECENT_FUTEXES;
	struct recent_futex *recent;
	u64 address;

	if (!thread)
		return false;
	address = summed_under(thread);
#pragma unroll
	for (u32 i = 0; i < RECENT_FUTEXES; i++)
		place = thread->recent_futexes[i] == address ? i : place;
	if (unlikely(place >= RECENT_FUTEXES))
		return record_other_futex(thread, slept_ns);
	recent = &thread->futexes[place];
	recent->count++;
	recent->total_ns += slept_ns;
	if (slept_ns > recent->longest_ns)
		recent->longest_ns = slept_ns;
	return false;
}
