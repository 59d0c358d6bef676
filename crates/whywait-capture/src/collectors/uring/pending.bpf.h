/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Operations that the kernel has had for long, looked for now and then and in the end: user space
 * walks over the target's processes, each of which may have closed the descriptors of its rings'
 * operations.
 */
#pragma once

#include "collectors/uring/uring.bpf.h"

#define URING_PENDING_NS 1000000000ull /* younger ones are under way */
#define URING_PENDING_SENT 4096 /* for each process */
#define REQ_F_FIXED_FILE 1 /* that of IOSQE_FIXED_FILE */
#define S_IFSOCK_KIND 12

/* A process whose operations are looked for, and its table of descriptors. */
struct pending_walk {
	u64 table;
	u64 now;
	u32 max_fds;
	u32 tgid;
};

/* Of the process: no part of the walk, whose value the verifier would follow through all rounds. */
u32 uring_pending_sent = 0;

static __always_inline bool uring_fd_closed(const struct pending_walk *walk, s32 fd, u64 file)
{
	u64 there = 0;

	if (!walk->table || fd < 0)
		return false;
	if ((u32)fd >= walk->max_fds)
		return true;
	if (bpf_probe_read_kernel(&there, sizeof(there), (void *)(walk->table + 8ull * (u32)fd)))
		return false;
	return there != file;
}

static __always_inline void uring_pending_file(struct uring_pending_record *record,
					       const struct pending_walk *walk, u64 req)
{
	u64 file = (u64)BPF_CORE_READ((struct io_kiocb *)req, file);
	u64 flags = BPF_CORE_READ((struct io_kiocb *)req, flags);
	struct socket *socket;

	record->kind = URING_NO_FILE;
	record->socket_type = 0;
	record->closed = 0;
	if (!file)
		return;
	record->kind = BPF_CORE_READ((struct file *)file, f_inode, i_mode) >> 12 & 15;
	if (record->kind == S_IFSOCK_KIND) {
		socket = BPF_CORE_READ((struct file *)file, private_data);
		record->socket_type = (u16)BPF_CORE_READ(socket, type);
	}
	if (!(flags & REQ_F_FIXED_FILE))
		record->closed = uring_fd_closed(walk, record->fd, file);
}

static long look_at_pending(u32 at, struct pending_walk *walk)
{
	struct uring_pending_record *record;
	struct uring_slot *slot = bpf_map_lookup_elem(&uring_slots, &at);
	struct uring_state *ring;
	s32 index;
	u64 req;

	if (!slot || !slot->req || !(slot->flags & URING_OP_COUNTED) ||
	    slot->at_ns + URING_PENDING_NS > walk->now)
		return 0;
	req = slot->req;
	/* Whose it is, if it is that operation still. */
	if (BPF_CORE_READ((struct io_kiocb *)req, opcode) != slot->opcode)
		return 0;
	index = uring_index((u64)BPF_CORE_READ((struct io_kiocb *)req, ctx));
	if (index < 0)
		return 0;
	ring = uring_at(index);
	if (!ring || ring->tgid != walk->tgid || slot->at_ns < ring->first_ns)
		return 0;
	if (uring_pending_sent >= URING_PENDING_SENT) {
		COUNT(uring_pending_budget);
		return 0;
	}
	uring_pending_sent++;
	record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	if (!record) {
		COUNT(lost_ring_full);
		return 0;
	}
	record->type = RECORD_URING_PENDING;
	record->ring = ring->id;
	record->submit_ns = slot->at_ns;
	record->seen_ns = walk->now;
	record->fd = slot->fd;
	record->opcode = slot->opcode;
	record->tid = slot->tid;
	record->in_flight = ring->submitted > ring->finished ? ring->submitted - ring->finished : 0;
	record->pad = 0;
	uring_pending_file(record, walk, req);
	submit(record);
	return 0;
}

/* Run by user space when a segment is closed, for each process, if there are rings. */
SEC("iter/task")
int pending_urings(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct pending_walk walk = {};
	struct fdtable *fdt;

	if (!task || task->pid != task->tgid)
		return 0;
	walk.now = bpf_ktime_get_ns();
	walk.tgid = task->tgid;
	uring_pending_sent = 0;
	fdt = BPF_CORE_READ(task, files, fdt);
	if (fdt) {
		walk.table = (u64)BPF_CORE_READ(fdt, fd);
		walk.max_fds = BPF_CORE_READ(fdt, max_fds);
	}
	bpf_loop(URING_SLOTS, look_at_pending, &walk, 0);
	return 0;
}
