/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * io_uring: what is kept for each ring and each of its opcodes, and the records of single things.
 */
#pragma once

#include "core/layout.h"

#define URING_RINGS 128 /* a power of two */
#define URING_OPCODES 64
#define URING_MOVES 8 /* a power of two */
#define URING_BUCKETS 40 /* powers of two of nanoseconds: up to 9 minutes */

/* What stands in `uring_keys` where there is no ring. */
enum uring_key {
	URING_FREE,
	URING_CLOSED, /* user space has not read its sums; the kernel may make another ring there */
};
IN_BTF(enum uring_key, uring_key);

/* How a ring came to be known. */
enum uring_origin { URING_CREATED, URING_FOUND, URING_FIRST_EVENT };
IN_BTF(enum uring_origin, uring_origin);

/*
 * A ring. Times at which its heads and tails were looked at bound what happened in between: `low`
 * counts what was so at both ends of an interval, `high` what may have been so in any of it.
 */
struct uring_state {
	u64 ctx; /* kernel address: for identity only, never written to a recording */
	u64 rings; /* the same of its shared memory */
	u64 first_ns;
	u32 id;
	u32 origin;
	u32 tgid;
	u32 creator_tid;
	u32 user_tid; /* who entered the kernel for it last */
	u32 sqpoll_tid;
	s32 fd;
	u32 sq_entries;
	u32 cq_entries;
	u32 flags; /* IORING_SETUP_* */
	u32 files; /* registered */
	u32 buffers;
	/* As of the last look. */
	u32 looking; /* somebody looks: others leave it */
	u32 head;
	u32 tail;
	u32 pending; /* published and not submitted */
	u64 look_ns;
	u64 batch_ns;
	u64 not_pending_ns; /* when nothing was pending last */
	u64 pending_ns; /* since when something is known to be pending; 0: nothing is */
	u64 mark_ns; /* when the marked completion came; 0: none is marked */
	u32 mark; /* its number in the queue */
	u32 mark_opcode;
	u32 max_slots;
	u32 max_unreaped;
	/* Sums. */
	u64 opcodes; /* bits: those that were seen */
	u64 submitted;
	u64 batches; /* times that operations were submitted */
	u64 full_batches; /* of those: the submission queue was full */
	u64 users_changed; /* times that another thread entered than before */
	u64 completed;
	u64 finished; /* completed for good */
	u64 failed;
	u64 reaped;
	u64 overflows;
	u64 waits;
	u64 observed_ns;
	u64 idle_ns; /* no slot was taken */
	u64 slot_ns; /* slots taken, times nanoseconds */
	u64 flight_ns; /* of that: the kernel had the operation */
	u64 at_max_ns; /* at least 7/8 of `max_slots` were taken, since there were that many */
	u64 at_depth_ns; /* as many as the submission queue has entries, or more */
	u64 queued_low_ns;
	u64 queued_high_ns;
	u64 unreaped_low_ns;
	u64 unreaped_high_ns;
	u64 asleep_ns; /* something was pending and the kernel's poller slept */
	u64 wait_submitted; /* `submitted` when a thread waited last */
	/* waits with all entries taken, since the last of which nothing was submitted or taken */
	u64 stalled_waits;
	u32 wait_head;
	u32 pad;
	u64 lost_ops; /* operations whose submission was not seen or had to be forgotten */
	u64 memory_limits; /* sends of its thread that met a limit of the memory for sockets */
	/* since when the program may have prepared entries without being seen; 0: it waits */
	u64 away_ns;
	/*
	 * for how long those may have been, of entries that were submitted after a threshold or
	 * longer
	 */
	u64 held_back_ns;
	/*
	 * The last times that the program took completions: up to which, and until when that was
	 * seen.
	 */
	u64 moves;
	u64 moved_ns[URING_MOVES];
	u32 moved_from[URING_MOVES];
	/* Reads of requests whose completions are to come, as of `read_tail`: see taken.bpf.h. */
	u32 read_tail;
	u32 reads;
	u32 unordered; /* not each operation has one completion */
	u32 pad2;
};

/* Of a ring and an opcode. */
struct uring_sum {
	u64 completed;
	u64 failed;
	u64 punted;
	u64 polled;
	u64 kinds; /* bits: kinds of files, S_IFMT >> 12 */
	u64 kernel_ns; /* from submission to completion */
	u64 kernel_max_ns;
	u64 punted_ns; /* of `kernel_ns`: of operations that were punted */
	u64 more; /* completions that were not the operation's last */
	u64 timed; /* how many are in `kernel_ns` */
	u64 punted_timed;
	u64 polled_ns; /* of `kernel_ns`: of operations that waited for readiness */
	u64 polled_timed;
	/*
	 * completions that were followed until they were reaped: the first of each batch that is
	 * reaped
	 */
	u64 marks;
	u64 mark_low_ns;
	u64 mark_high_ns;
	u64 kernel[URING_BUCKETS];
	u64 unreaped[URING_BUCKETS]; /* marks by their lower bound */
};

enum uring_op_flag {
	URING_OP_PUNTED = 1,
	URING_OP_POLLED = 2,
	URING_OP_COUNTED = 4,
	URING_OP_SAMPLED = 8,
};
IN_BTF(enum uring_op_flag, uring_op_flag);

struct uring_op_record {
	u32 type;
	u32 ring;
	u64 submit_ns;
	u64 complete_ns;
	s32 fd;
	s32 res;
	u32 opcode;
	u32 flags; /* URING_OP_* */
	u32 kind; /* of file, S_IFMT >> 12 */
	u32 tid; /* who submitted */
};

/* The thread that uses a ring was on a CPU when the sampling clock ticked. */
struct uring_sample_record {
	u32 type;
	u32 ring;
	u64 at_ns;
	/* when the oldest completion that is not reaped came, as far as is known; 0: not known */
	u64 oldest_ns;
	u32 tid;
	u32 unreaped;
	u32 pending;
	u32 in_flight;
	u64 on_cpu_ns; /* of the thread so far */
	u64 runnable_ns;
};

enum uring_lag { LAG_UNREAPED, LAG_UNSUBMITTED };
IN_BTF(enum uring_lag, uring_lag);

/* Something waited for the program for at least the threshold. */
struct uring_lag_record {
	u32 type;
	u32 ring;
	u64 from_ns;
	u64 low_ns; /* it waited at least until then */
	u64 high_ns; /* and no longer than until then */
	u32 what; /* LAG_… */
	u32 opcode;
	u32 tid; /* who should have */
	u32 count; /* how many waited in the end */
};

#define URING_NO_FILE 16 /* beyond the kinds of files */

/* An operation that the kernel still has. */
struct uring_pending_record {
	u32 type;
	u32 ring;
	u64 submit_ns;
	u64 seen_ns;
	s32 fd;
	u32 opcode;
	u32 tid; /* who submitted */
	u32 kind; /* of file, S_IFMT >> 12, or URING_NO_FILE */
	u32 socket_type; /* SOCK_…; 0: it is no socket */
	u32 closed; /* the descriptor is another file's by now, or nobody's */
	u32 in_flight; /* operations of the ring that the kernel has */
	u32 pad;
};
