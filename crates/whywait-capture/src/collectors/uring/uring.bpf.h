/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * io_uring: how long operations are with the kernel, how long what they return lies unreaped, and
 * what of what the program has prepared lies unsubmitted. Sums for all; records only for what is
 * slow.
 *
 * The submission and completion of each operation are seen as they happen. When the program takes a
 * completion, or puts an entry into the queue, is not: no system call is needed for it. But both
 * move a counter in memory shared with the kernel. It is looked at with the first operation of each
 * batch, when the program waits, with each sample, and by user space every few milliseconds: what
 * had not moved at two looks in a row had not moved in between.
 */
#pragma once

#include "core/threads.bpf.h"
#include "collectors/uring/looks.bpf.h"

/* include/uapi/linux/io_uring.h */
#define IORING_SETUP_SQPOLL 2
#define IORING_CQE_F_MORE 2
#define IORING_CQE_F_NOTIF 8
#define IORING_OP_TIMEOUT 11
#define REQ_F_CQE_SKIP (1u << 6) /* that of IOSQE_CQE_SKIP_SUCCESS */

#define EINTR_LIKE(res) \
	((res) == -11 || (res) == -62 || (res) == -125) /* EAGAIN, ETIME, ECANCELED: no failures */

#define URING_SLOTS 16384 /* a power of two: operations that are with the kernel */
/* Every so many-th operation is recorded, whatever it was. */
#define URING_SAMPLED 1024
/*
 * io_uring_complete passes the completion as it is in the queue (Linux 6.14), before as several
 * numbers.
 */
const volatile bool complete_passes_cqe = true;

/*
 * An operation that the kernel has. Found by its request's address, which the kernel uses again
 * soon.
 */
struct uring_slot {
	u64 req;
	u64 at_ns;
	u32 flags;
	u32 opcode;
	s32 fd;
	u32 tid;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, URING_SLOTS);
	__type(key, u32);
	__type(value, struct uring_slot);
} uring_slots SEC(".maps");

static __always_inline bool uring_is_worker(const struct task_struct *task)
{
	return task->flags & (PF_IO_WORKER | PF_USER_WORKER | PF_KTHREAD);
}

/* The current thread enters the kernel for the ring. */
static __always_inline void uring_used(u32 index, struct uring_state *ring)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *thread;

	if (uring_is_worker(task)) {
		/* The kernel's poller. */
		if (ring->flags & IORING_SETUP_SQPOLL && ring->sqpoll_tid != task->pid) {
			ring->sqpoll_tid = task->pid;
			thread = thread_of(task);
			if (thread)
				thread->uring = index + 1;
		}
		return;
	}
	if (ring->user_tid != task->pid) {
		if (ring->user_tid)
			ring->users_changed++;
		ring->user_tid = task->pid;
		thread = thread_of(task);
		if (thread)
			thread->uring = index + 1;
	}
}

/*
 * A ring that is no more. Its slot is user space's from now on, which reads its sums and frees it.
 */
static __always_inline void uring_ends(u32 index)
{
	uring_keys[index & (URING_RINGS - 1)] = URING_CLOSED;
	__sync_fetch_and_add(&urings_closed, 1);
}

static long clear_uring_sum(u32 opcode, u32 *index)
{
	struct uring_sum *sum = uring_sum_of(*index, opcode);

	if (sum)
		__builtin_memset(sum, 0, sizeof(*sum));
	return 0;
}

/*
 * Follows a ring from now on: its index, or -1. Not static, so that it is verified once for a
 * program.
 */
__noinline s32 uring_begin(u64 ctx, u32 origin, u32 tgid, u32 tid, s32 fd)
{
	struct io_ring_ctx *from = (struct io_ring_ctx *)ctx;
	u32 at = uring_key(ctx), index = URING_RINGS;
	s32 old = uring_index(ctx);
	struct uring_state *ring;

	/* In the memory of one that was closed. */
	if (old >= 0)
		uring_ends(old);
	for (u32 i = 0; i < URING_PROBES; i++) {
		u32 free = (at + i) & (URING_RINGS - 1);

		if (__sync_val_compare_and_swap(&uring_keys[free], URING_FREE, ctx) == URING_FREE) {
			index = free;
			break;
		}
	}
	ring = uring_at(index); /* 0 if there is no such index */
	if (!ring) {
		COUNT(lost_rings);
		return -1;
	}
	__builtin_memset(ring, 0, sizeof(*ring));
	ring->looking = 1;
	ring->ctx = ctx;
	ring->rings = (u64)BPF_CORE_READ(from, rings);
	ring->id = __sync_fetch_and_add(&next_uring_id, 1) + 1;
	ring->origin = origin;
	ring->tgid = tgid;
	ring->creator_tid = tid;
	ring->fd = fd;
	ring->flags = BPF_CORE_READ(from, flags);
	ring->sq_entries = BPF_CORE_READ(from, sq_entries);
	ring->cq_entries = BPF_CORE_READ(from, cq_entries);
	ring->tail = BPF_CORE_READ(from, cached_cq_tail);
	ring->head = BPF_CORE_READ(from, rings, cq.head);
	ring->first_ns = ring->look_ns = ring->not_pending_ns = bpf_ktime_get_ns();
	bpf_loop(URING_OPCODES, clear_uring_sum, &index, 0);
	ring->looking = 0;
	return index;
}

/* A ring that was not seen before: the target's, if one of its threads is at work for it. */
static __noinline s32 uring_discover(u64 ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return thread_of(task) ? uring_begin(ctx, URING_FIRST_EVENT, task->tgid, 0, -1) : -1;
}

static __always_inline u32 uring_hash(u64 req)
{
	return (low_half(req) >> 6) * 0x9e3779b1u >> 18;
}

static __always_inline struct uring_slot *uring_slot_of(u64 req)
{
	u32 at = uring_hash(req);

#pragma unroll
	for (u32 i = 0; i < URING_PROBES; i++) {
		u32 index = (at + i) & (URING_SLOTS - 1);
		struct uring_slot *slot = bpf_map_lookup_elem(&uring_slots, &index);

		if (slot && slot->req == req)
			return slot;
	}
	return 0;
}

/* A free slot; if there is none near, another operation's. */
static __always_inline struct uring_slot *uring_slot_for(u64 req, struct uring_state *ring)
{
	u32 at = uring_hash(req), index;
	struct uring_slot *slot;

#pragma unroll
	for (u32 i = 0; i < URING_PROBES; i++) {
		index = (at + i) & (URING_SLOTS - 1);
		slot = bpf_map_lookup_elem(&uring_slots, &index);
		if (slot && (!slot->req || slot->req == req))
			return slot;
	}
	ring->lost_ops++;
	return bpf_map_lookup_elem(&uring_slots, &at);
}

/*
 * Entries are submitted. Those that a library keeps to itself until then were prepared since the
 * last ones were submitted, or since the program was woken for a completion, and nobody knows when.
 */
static __always_inline void uring_held_back(struct uring_state *ring, u32 entries, u64 now)
{
	if (ring->away_ns && now > ring->away_ns && now - ring->away_ns >= threshold_ns &&
	    entries <= ring->sq_entries)
		ring->held_back_ns += (now - ring->away_ns) * entries;
	ring->away_ns = now;
}

SEC("tp_btf/io_uring_submit_req")
int BPF_PROG(io_uring_submit_req, struct io_kiocb *req)
{
	struct io_ring_ctx *uring = UNTRUSTED(struct io_kiocb, req)->ctx;
	struct io_rings *rings = uring->rings;
	struct uring_state *ring;
	struct uring_slot *slot;
	u32 flags = URING_OP_COUNTED;
	s32 index;
	u64 now;

	index = uring_index((u64)uring);
	if (index < 0) {
		/* Read once more: as a number, which the verifier makes of no pointer. */
		index = uring_discover((u64)BPF_CORE_READ(req, ctx));
		if (index < 0)
			return 0;
	}
	ring = uring_at(index);
	if (!ring)
		return 0;
	now = bpf_ktime_get_ns();
	if (uring->cached_sq_head - rings->sq.head == 1) {
		struct uring_view view;

		uring_used(index, ring);
		if (ring->rings != (u64)rings) {
			/* Resized. */
			ring->rings = (u64)rings;
			ring->sq_entries = uring->sq_entries;
			ring->cq_entries = uring->cq_entries;
		}
		uring_read(&view, (u64)uring, (u64)rings);
		uring_look(index, ring, &view, now, LOOK_SUBMIT);
		ring->batches++;
		uring_held_back(ring, view.sq_tail - view.sq_head, now);
		if (view.sq_tail - view.sq_head >= ring->sq_entries)
			ring->full_batches++;
	}
	if (req->flags & REQ_F_CQE_SKIP) {
		flags = 0;
		ring->unordered = 1;
	} else
		ring->submitted++;
	slot = uring_slot_for((u64)req, ring);
	if (!slot)
		return 0;
	slot->req = (u64)req;
	slot->at_ns = now;
	slot->flags = flags;
	slot->opcode = req->opcode;
	slot->fd = req->cqe.fd;
	slot->tid = ring->user_tid;
	return 0;
}

static __noinline int uring_send_op(u32 index, struct uring_slot *slot, u64 now, s32 res)
{
	struct uring_state *ring = uring_at(index);
	struct uring_op_record *record;

	if (!slot || !ring)
		return 0;
	if (!within_budget(URING_OPS, now)) {
		COUNT(uring_op_budget);
		return 0;
	}
	record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	if (!record) {
		COUNT(lost_ring_full);
		return 0;
	}
	record->type = RECORD_URING_OP;
	record->ring = ring->id;
	record->submit_ns = slot->at_ns;
	record->complete_ns = now;
	record->fd = slot->fd;
	record->res = res;
	record->opcode = slot->opcode;
	record->flags = slot->flags & ~URING_OP_COUNTED;
	record->kind = 0;
	record->tid = slot->tid;
	submit(record);
	return 0;
}

static __always_inline u64 uring_file_kind(u64 req)
{
	u64 file = (u64)KERNEL_READ(struct io_kiocb, req, file);
	u64 inode;

	if (!file)
		return 0;
	inode = (u64)KERNEL_READ(struct file, file, f_inode);
	if (!inode)
		return 0;
	return 1ull << (KERNEL_READ(struct inode, inode, i_mode) >> 12 & 15);
}

/* An operation took so long in the kernel. */
static __always_inline void uring_add_to_sum(struct uring_sum *sum, u32 flags, u64 ns)
{
	u32 bucket;

	sum->kernel_ns += ns;
	sum->timed++;
	if (ns > sum->kernel_max_ns)
		sum->kernel_max_ns = ns;
	if (flags & (URING_OP_PUNTED | URING_OP_POLLED)) {
		if (flags & URING_OP_PUNTED) {
			sum->punted_ns += ns;
			sum->punted_timed++;
		}
		if (flags & URING_OP_POLLED) {
			sum->polled_ns += ns;
			sum->polled_timed++;
		}
	}
	bucket = log2_u64(ns);
	if (bucket < URING_BUCKETS)
		sum->kernel[bucket]++;
}

SEC("tp_btf/io_uring_complete")
int io_uring_complete(u64 *args)
{
	u64 ctx = args[0], req = args[1];
	struct uring_state *ring;
	struct uring_slot *slot;
	struct uring_sum *sum;
	u32 opcode, flags, tail;
	bool first, fails;
	s32 index, res;
	u64 rings, now, ns;

	index = uring_index(ctx);
	if (index < 0)
		return 0;
	ring = uring_at(index);
	if (!ring)
		return 0;
	if (complete_passes_cqe) {
		struct io_uring_cqe *cqe = (struct io_uring_cqe *)args[2];

		res = cqe->res;
		flags = cqe->flags;
	} else {
		res = args[3];
		flags = args[4];
	}
	rings = (u64)KERNEL_READ(struct io_ring_ctx, ctx, rings);
	tail = KERNEL_READ(struct io_ring_ctx, ctx, cached_cq_tail);
	/*
	 * Completions are put into the queue in batches, some 100 ns apart, and published together:
	 * the clock need not be read for each.
	 */
	first = (s32)(tail - KERNEL_READ(struct io_rings, rings, cq.tail)) <= 1;
	if (first || !(tail & 7) || !ring->batch_ns)
		ring->batch_ns = now = bpf_ktime_get_ns();
	else
		now = ring->batch_ns;
	slot = req ? uring_slot_of(req) : 0;
	opcode = slot ? slot->opcode :
		 req  ? KERNEL_READ(struct io_kiocb, req, opcode) :
			URING_OPCODES - 1;
	opcode &= URING_OPCODES - 1;
	if (first) {
		struct uring_view view;

		uring_read(&view, ctx, rings);
		uring_look(index, ring, &view, now, LOOK_COMPLETE);
		if (!ring->away_ns)
			ring->away_ns = now;
	}
	if (!ring->mark_ns) {
		ring->mark = tail - 1;
		ring->mark_opcode = opcode;
		ring->mark_ns = now;
	}
	ring->completed++;
	sum = uring_sum_of(index, opcode);
	if (!sum)
		return 0;
	if (!sum->completed)
		ring->opcodes |= 1ull << opcode;
	sum->completed++;
	if (first && req && !(flags & IORING_CQE_F_NOTIF))
		sum->kinds |= uring_file_kind(req);
	fails = res < 0 && !EINTR_LIKE(res);
	if (fails) {
		sum->failed++;
		ring->failed++;
	}
	if (flags & IORING_CQE_F_NOTIF) {
		ring->finished++;
		return 0;
	}
	if (flags & IORING_CQE_F_MORE) {
		sum->more++;
		ring->unordered = 1;
	}
	if (!slot) {
		/* Of a ring that was there before, it may have been submitted before. */
		if (req && ring->origin == URING_CREATED)
			ring->lost_ops++;
		return 0;
	}
	ns = now > slot->at_ns ? now - slot->at_ns : 0;
	uring_add_to_sum(sum, slot->flags, ns);
	if (!(sum->timed & (URING_SAMPLED - 1)))
		slot->flags |= URING_OP_SAMPLED;
	if (ns >= threshold_ns || fails || slot->flags & URING_OP_SAMPLED)
		uring_send_op(index, slot, now, res);
	if (slot->flags & URING_OP_COUNTED && !(flags & IORING_CQE_F_MORE))
		ring->finished++;
	slot->req = 0;
	return 0;
}

/* What happened to an operation on its way. */
static __always_inline void uring_detour(struct io_kiocb *req, u32 what)
{
	s32 index = uring_index((u64)UNTRUSTED(struct io_kiocb, req)->ctx);
	struct uring_slot *slot;
	struct uring_sum *sum;

	if (index < 0)
		return;
	sum = uring_sum_of(index, req->opcode);
	slot = uring_slot_of((u64)req);
	if (!sum || !slot || slot->flags & what)
		return;
	slot->flags |= what;
	if (what == URING_OP_PUNTED)
		sum->punted++;
	else
		sum->polled++;
}

SEC("tp_btf/io_uring_queue_async_work")
int BPF_PROG(io_uring_queue_async_work, struct io_kiocb *req)
{
	uring_detour(req, URING_OP_PUNTED);
	return 0;
}

SEC("tp_btf/io_uring_poll_arm")
int BPF_PROG(io_uring_poll_arm, struct io_kiocb *req)
{
	uring_detour(req, URING_OP_POLLED);
	return 0;
}

SEC("tp_btf/io_uring_cqring_wait")
int io_uring_cqring_wait(u64 *args)
{
	u64 ctx = args[0];
	struct uring_state *ring;
	struct uring_view view;
	s32 index = uring_index(ctx);

	if (index < 0)
		return 0;
	ring = uring_at(index);
	if (!ring)
		return 0;
	ring->waits++;
	uring_used(index, ring);
	uring_read(&view, ctx, (u64)KERNEL_READ(struct io_ring_ctx, ctx, rings));
	uring_look(index, ring, &view, bpf_ktime_get_ns(), LOOK_ONLY);
	if (view.cached_cq_tail == view.cq_head)
		ring->away_ns = 0;
	/* It came for something else: what it has to submit, if anything, has no slot. */
	if (ring->submitted == ring->wait_submitted && view.cq_head == ring->wait_head &&
	    ring->submitted - ring->finished + view.cached_cq_tail - view.cq_head >=
		    ring->sq_entries)
		ring->stalled_waits++;
	ring->wait_submitted = ring->submitted;
	ring->wait_head = view.cq_head;
	return 0;
}

SEC("tp_btf/io_uring_cqe_overflow")
int io_uring_cqe_overflow(u64 *args)
{
	s32 index = uring_index(args[0]);
	struct uring_state *ring;
	u32 flags = args[3];

	if (index < 0)
		return 0;
	ring = uring_at(index);
	if (!ring)
		return 0;
	ring->overflows++;
	if (!(flags & IORING_CQE_F_MORE))
		ring->finished++;
	return 0;
}

SEC("tp_btf/io_uring_create")
int io_uring_create(u64 *args)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *thread = thread_of(task);
	s32 index;

	if (!thread) {
		/* In the memory of one of the target's that was closed. */
		s32 old = uring_index(args[1]);

		if (old >= 0)
			uring_ends(old);
		return 0;
	}
	COUNT(events);
	index = uring_begin(args[1], URING_CREATED, task->tgid, task->pid, (s32)args[0]);
	if (index >= 0)
		thread->uring = index + 1;
	return 0;
}

SEC("tp_btf/io_uring_register")
int io_uring_register(u64 *args)
{
	/* opcode: IORING_REGISTER_BUFFERS 0, FILES 2, FILES2 13, BUFFERS2 15 */
	s32 index = uring_index(args[0]);
	struct uring_state *ring;
	u32 opcode = args[1];

	if (index < 0 || (s64)args[4] < 0)
		return 0;
	ring = uring_at(index);
	if (!ring)
		return 0;
	if (opcode == 0 || opcode == 15)
		ring->buffers = args[3];
	else if (opcode == 2 || opcode == 13)
		ring->files = args[2];
	return 0;
}

/* With each sample: how it stood with the ring while the thread did what it did. */
__noinline int uring_sample(struct thread *thread, u64 now)
{
	struct uring_sample_record *record;
	struct uring_state *ring;
	struct uring_view view;
	u64 from, rings;
	u32 index;

	if (!thread || !thread->uring)
		return 0;
	index = (thread->uring - 1) & (URING_RINGS - 1);
	ring = uring_at(index);
	if (!ring || !ring->ctx || uring_keys[index] != ring->ctx || ring->tgid != thread->tgid)
		return 0;
	/* A ring that was closed: its memory is another's by now. */
	from = ring->ctx;
	rings = ring->rings;
	if ((u64)KERNEL_READ(struct io_ring_ctx, from, rings) != rings ||
	    KERNEL_READ(struct io_rings, rings, sq_ring_entries) != ring->sq_entries)
		return 0;
	uring_read(&view, from, rings);
	if (view.cached_cq_tail - view.cq_head > ring->cq_entries ||
	    view.sq_tail - view.cached_sq_head > ring->sq_entries)
		return 0;
	uring_look(index, ring, &view, now, LOOK_ELSEWHERE);
	record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	if (!record) {
		COUNT(lost_ring_full);
		return 0;
	}
	record->type = RECORD_URING_SAMPLE;
	record->ring = ring->id;
	record->at_ns = now;
	record->tid = thread->tid;
	record->unreaped = view.cached_cq_tail - view.cq_head;
	record->oldest_ns = ring->mark_ns && (s32)(ring->mark - view.cq_head) >= 0 ? ring->mark_ns :
										     0;
	record->pending = view.sq_tail - view.cached_sq_head;
	record->in_flight = ring->submitted > ring->finished ? ring->submitted - ring->finished : 0;
	record->on_cpu_ns = on_cpu_now(thread, now);
	record->runnable_ns = thread->parts[PART_RUNNABLE];
	submit(record);
	return 0;
}
