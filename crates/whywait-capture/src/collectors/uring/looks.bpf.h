/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Looks at the heads and tails of a ring: what has moved since the look before. */
#pragma once

#include "core/bits.bpf.h"
#include "collectors/uring/state.bpf.h"

#define IORING_SQ_NEED_WAKEUP 1 /* include/uapi/linux/io_uring.h */

/* What the shared memory says. */
struct uring_view {
	u32 sq_head; /* published: what the program knows to be submitted */
	u32 sq_tail;
	u32 cq_head;
	u32 cq_tail; /* published */
	u32 cached_sq_head; /* submitted */
	u32 cached_cq_tail; /* completed */
	u32 sq_flags;
};

static __always_inline void uring_read(struct uring_view *view, u64 ctx, u64 rings)
{
	view->sq_head = KERNEL_READ(struct io_rings, rings, sq.head);
	view->sq_tail = KERNEL_READ(struct io_rings, rings, sq.tail);
	view->cq_head = KERNEL_READ(struct io_rings, rings, cq.head);
	view->cq_tail = KERNEL_READ(struct io_rings, rings, cq.tail);
	view->sq_flags = KERNEL_READ(struct io_rings, rings, sq_flags.counter);
	view->cached_sq_head = KERNEL_READ(struct io_ring_ctx, ctx, cached_sq_head);
	view->cached_cq_tail = KERNEL_READ(struct io_ring_ctx, ctx, cached_cq_tail);
}

static __always_inline void uring_send_lag(const struct uring_state *ring, u32 what, u64 from_ns,
					   u64 low_ns, u64 now, u32 count)
{
	struct uring_lag_record *record;

	if (!within_budget(URING_LAGS, now)) {
		COUNT(uring_lag_budget);
		return;
	}
	record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	if (!record) {
		COUNT(lost_ring_full);
		return;
	}
	record->type = RECORD_URING_LAG;
	record->ring = ring->id;
	record->from_ns = from_ns;
	record->low_ns = low_ns;
	record->high_ns = now;
	record->what = what;
	record->opcode = what == LAG_UNREAPED ? ring->mark_opcode : 0;
	record->tid = ring->user_tid;
	record->count = count;
	submit(record);
}

/*
 * One completion is followed at a time: the first that comes after the last one was reaped. Now it
 * is.
 */
static __always_inline void uring_mark_reaped(u32 index, struct uring_state *ring, u32 unreaped,
					      u64 now)
{
	u64 low_ns = ring->look_ns > ring->mark_ns ? ring->look_ns - ring->mark_ns : 0;
	struct uring_sum *sum = uring_sum_of(index, ring->mark_opcode);

	if (sum) {
		u32 bucket = log2_u64(low_ns);

		sum->marks++;
		sum->mark_low_ns += low_ns;
		sum->mark_high_ns += now - ring->mark_ns;
		if (bucket < URING_BUCKETS)
			sum->unreaped[bucket]++;
	}
	if (low_ns >= threshold_ns)
		uring_send_lag(ring, LAG_UNREAPED, ring->mark_ns, ring->mark_ns + low_ns, now,
			       unreaped);
	ring->mark_ns = 0;
}

enum uring_look { LOOK_ONLY, LOOK_SUBMIT, LOOK_COMPLETE, LOOK_ELSEWHERE };

/*
 * Takes in what has moved since the last look. The last interval counts as what it was at its end,
 * but for what happens right now: operations come and go in batches, and all else is as the last
 * batch left it.
 */
static __always_inline int uring_take_in(u32 index, struct uring_state *ring,
					 const struct uring_view *view, u64 now, u32 why)
{
	u32 tail = view->cached_cq_tail, head = view->cq_head;
	u32 unreaped, pending, slots, most, still, flight;
	u64 since_ns;

	if (__sync_lock_test_and_set(&ring->looking, 1))
		return 0;
	if (now <= ring->look_ns || head - ring->head > tail - ring->head)
		/*
		 * another CPU's look overtook this one; or the program has put nonsense into its
		 * memory
		 */
		goto out;
	since_ns = now - ring->look_ns;
	flight = ring->submitted > ring->finished ? ring->submitted - ring->finished : 0;
	unreaped = tail - ring->head;
	if (why == LOOK_COMPLETE && unreaped)
		unreaped--;
	slots = flight + unreaped;
	/*
	 * The most that were taken at once goes by what is not reaped now: a look may have been
	 * missed since. A clock's tick, and another CPU, may see an operation that is just being
	 * completed both in flight and unreaped: that sees those in flight only.
	 */
	most = flight + (tail - head) - (why == LOOK_COMPLETE && tail != head);
	if (why == LOOK_ELSEWHERE)
		most = tail == head ? flight : 0;
	if (most > ring->max_slots) {
		ring->max_slots = most;
		ring->at_max_ns = 0;
	}
	if (unreaped > ring->max_unreaped)
		ring->max_unreaped = unreaped;
	ring->observed_ns += since_ns;
	ring->slot_ns += since_ns * slots;
	ring->flight_ns += since_ns * flight;
	if (!slots)
		ring->idle_ns += since_ns;
	else if (slots * 8 >= ring->max_slots * 7)
		ring->at_max_ns += since_ns;
	if (slots >= ring->sq_entries)
		ring->at_depth_ns += since_ns;
	ring->unreaped_high_ns += since_ns * unreaped;
	still = ring->tail - head;
	if ((s32)still > 0)
		ring->unreaped_low_ns += since_ns * still;
	ring->reaped += head - ring->head;
	if (head != ring->head) {
		u32 at = ring->moves++ & (URING_MOVES - 1);

		ring->moved_from[at] = ring->head;
		ring->moved_ns[at] = ring->look_ns;
	}

	if (ring->mark_ns && (s32)(head - ring->mark) > 0)
		uring_mark_reaped(index, ring, unreaped, now);

	/*
	 * While a batch is being submitted its entries are not pending any more, but were until
	 * now.
	 */
	pending = view->sq_tail - (why == LOOK_SUBMIT ? view->sq_head : view->cached_sq_head);
	if (pending > ring->sq_entries)
		pending = 0;
	ring->queued_low_ns += since_ns * (ring->pending < pending ? ring->pending : pending);
	ring->queued_high_ns += since_ns * pending;
	if (ring->pending && pending && (view->sq_flags & IORING_SQ_NEED_WAKEUP))
		ring->asleep_ns += since_ns;
	if (why == LOOK_SUBMIT || !pending) {
		if (ring->pending_ns && now - ring->pending_ns >= threshold_ns)
			uring_send_lag(ring, LAG_UNSUBMITTED, ring->pending_ns, now, now, pending);
		ring->pending_ns = 0;
		ring->not_pending_ns = now;
		ring->pending = 0;
	} else {
		if (!ring->pending_ns)
			ring->pending_ns = now;
		ring->pending = pending;
	}
	ring->head = head;
	ring->tail = tail;
	ring->look_ns = now;
out:
	asm volatile("" ::: "memory");
	*(volatile u32 *)&ring->looking = 0;
	return 0;
}

/* A function that the verifier goes through once. */
__noinline int uring_look(u32 index, struct uring_state *ring, struct uring_view *view, u64 now,
			  u32 why)
{
	if (!ring || !view)
		return 0;
	return uring_take_in(index, ring, view, now, why);
}
