/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* What kind of wait a sleep was, from the blocked system call (x86-64 numbers) and who ended it. */
#pragma once

#include "core/compat.bpf.h"
#include "core/layout.h"
#include "collectors/sched/records.h"

enum call_family {
	CALL_NONE, /* in no system call */
	CALL_FUTEX,
	CALL_POLL, /* epoll, poll and select */
	CALL_SOCKET,
	CALL_STREAM, /* read and write: socket, pipe, eventfd or file */
	CALL_FILE,
	CALL_SLEEP,
	CALL_URING,
	CALL_CHILD,
	CALL_OTHER,
	CALL_FAMILIES,
};

/*
 * Tables and no switches: a load where a switch is a chain of comparisons, each of which the
 * verifier follows to the program's end. What is not in a table is CALL_OTHER.
 */
#define CALL_NUMBERS 512
#define CALL_KNOWN 0x80
#define CALL_IS_EPOLL 0x40
#define CALL_FAMILY 0xf

#define KNOWN(family) CALL_KNOWN | CALL_##family

static const u8 families[CALL_NUMBERS] = {
	[202] = KNOWN(FUTEX), /* futex */
	[449] = KNOWN(FUTEX), /* futex_waitv */
	[455] = KNOWN(FUTEX), /* futex_wait */
	[7] = KNOWN(POLL), /* poll */
	[23] = KNOWN(POLL), /* select */
	[232] = KNOWN(POLL) | CALL_IS_EPOLL, /* epoll_wait */
	[270] = KNOWN(POLL), /* pselect6 */
	[271] = KNOWN(POLL), /* ppoll */
	[281] = KNOWN(POLL) | CALL_IS_EPOLL, /* epoll_pwait */
	[441] = KNOWN(POLL) | CALL_IS_EPOLL, /* epoll_pwait2 */
	[42] = KNOWN(SOCKET), /* connect */
	[43] = KNOWN(SOCKET), /* accept */
	[44] = KNOWN(SOCKET), /* sendto */
	[45] = KNOWN(SOCKET), /* recvfrom */
	[46] = KNOWN(SOCKET), /* sendmsg */
	[47] = KNOWN(SOCKET), /* recvmsg */
	[288] = KNOWN(SOCKET), /* accept4 */
	[299] = KNOWN(SOCKET), /* recvmmsg */
	[307] = KNOWN(SOCKET), /* sendmmsg */
	[0] = KNOWN(STREAM), /* read */
	[1] = KNOWN(STREAM), /* write */
	[19] = KNOWN(STREAM), /* readv */
	[20] = KNOWN(STREAM), /* writev */
	[40] = KNOWN(STREAM), /* sendfile */
	[275] = KNOWN(STREAM), /* splice */
	[17] = KNOWN(FILE), /* pread64 */
	[18] = KNOWN(FILE), /* pwrite64 */
	[26] = KNOWN(FILE), /* msync */
	[74] = KNOWN(FILE), /* fsync */
	[75] = KNOWN(FILE), /* fdatasync */
	[162] = KNOWN(FILE), /* sync */
	[277] = KNOWN(FILE), /* sync_file_range */
	[285] = KNOWN(FILE), /* fallocate */
	[295] = KNOWN(FILE), /* preadv */
	[296] = KNOWN(FILE), /* pwritev */
	[306] = KNOWN(FILE), /* syncfs */
	[35] = KNOWN(SLEEP), /* nanosleep */
	[230] = KNOWN(SLEEP), /* clock_nanosleep */
	[426] = KNOWN(URING), /* io_uring_enter */
	[61] = KNOWN(CHILD), /* wait4 */
	[247] = KNOWN(CHILD), /* waitid */
};

#undef KNOWN

#define NR_READ 0
#define NR_POLL 7
#define NR_SELECT 23
#define NR_PSELECT6 270
#define NR_PPOLL 271
#define NR_RECVFROM 45
#define NR_RECVMSG 47
#define NR_FUTEX 202

/* What the table has on a call, 0: nothing. */
static __always_inline u8 known_call(s32 nr)
{
	u32 number = nr;

	if (number >= CALL_NUMBERS)
		return 0;
	/*
	 * Masked once more, because the comparison may have been made on another copy than the
	 * verifier sees used.
	 */
	barrier_var(number);
	return families[number & (CALL_NUMBERS - 1)];
}

static __always_inline enum call_family call_family(s32 nr)
{
	u8 call = known_call(nr);

	if (call)
		return call & CALL_FAMILY;
	return nr == -1 ? CALL_NONE : CALL_OTHER;
}

static __always_inline bool is_epoll_call(s32 nr)
{
	return known_call(nr) & CALL_IS_EPOLL;
}

/* Who ended a sleep. The first ones are those of `wake_context`. */
enum { BY_UNKNOWN, BY_THREAD, BY_SOFTIRQ, BY_HARDIRQ, BY_EXIT, BY_STRANGER, BY_COUNT = 8 };
_Static_assert(BY_THREAD == WAKE_TASK && BY_SOFTIRQ == WAKE_SOFTIRQ && BY_HARDIRQ == WAKE_HARDIRQ &&
		       BY_EXIT == WAKE_EXIT,
	       "the order of wake_context");

#define EACH(asleep, blocked)                              \
	{                                                  \
		[0 ... BY_COUNT - 1] = { asleep, blocked } \
	}
#define BOTH(part) { part, part }

/*
 * By family, by who ended it, and whether it was uninterruptible or counted as a wait for a device.
 */
static const u8 parts_of_sleeps[16][BY_COUNT][2] = {
	/* Not in a system call, yet asleep: a page fault. Stopped threads sleep interruptibly. */
	[CALL_NONE] = EACH(PART_UNKNOWN, PART_PAGE_FAULT),
	[CALL_FUTEX] = {
		[BY_UNKNOWN] = BOTH(PART_UNKNOWN),
		[BY_THREAD] = BOTH(PART_THREAD),
		[BY_SOFTIRQ] = BOTH(PART_UNKNOWN),
		[BY_HARDIRQ] = BOTH(PART_TIMER),
		[BY_EXIT] = BOTH(PART_UNKNOWN),
		[BY_STRANGER] = BOTH(PART_THREAD),
	},
	/*
	 * Loopback delivers in a soft interrupt, as a network card does; a timeout is a hard
	 * interrupt.
	 */
	[CALL_POLL] = {
		[BY_UNKNOWN] = BOTH(PART_UNKNOWN),
		[BY_THREAD] = BOTH(PART_THREAD),
		[BY_SOFTIRQ] = BOTH(PART_NETWORK),
		[BY_HARDIRQ] = BOTH(PART_TIMER),
		[BY_EXIT] = BOTH(PART_UNKNOWN),
		[BY_STRANGER] = BOTH(PART_NETWORK),
	},
	[CALL_SOCKET] = EACH(PART_NETWORK, PART_NETWORK),
	[CALL_STREAM] = {
		[BY_UNKNOWN] = { PART_UNKNOWN, PART_DISK },
		[BY_THREAD] = { PART_THREAD, PART_DISK },
		[BY_SOFTIRQ] = { PART_NETWORK, PART_DISK },
		[BY_HARDIRQ] = { PART_TIMER, PART_DISK },
		[BY_EXIT] = { PART_UNKNOWN, PART_DISK },
		[BY_STRANGER] = { PART_NETWORK, PART_DISK },
	},
	[CALL_FILE] = EACH(PART_DISK, PART_DISK),
	[CALL_SLEEP] = EACH(PART_TIMER, PART_TIMER),
	[CALL_URING] = EACH(PART_URING, PART_URING),
	[CALL_CHILD] = EACH(PART_THREAD, PART_THREAD),
	/* Who is woken by a thread of the program waited for that, as for the lock of its memory map. */
	[CALL_OTHER] = {
		[BY_UNKNOWN] = { PART_UNKNOWN, PART_DISK },
		[BY_THREAD] = { PART_UNKNOWN, PART_THREAD },
		[BY_SOFTIRQ] = { PART_UNKNOWN, PART_DISK },
		[BY_HARDIRQ] = { PART_UNKNOWN, PART_DISK },
		[BY_EXIT] = { PART_UNKNOWN, PART_DISK },
		[BY_STRANGER] = { PART_UNKNOWN, PART_DISK },
	},
};

#undef EACH
#undef BOTH

/* `by_target`: the thread that made the wake belongs to the target. The flags are 0 or 1. */
static __always_inline u32 part_of_sleep(u32 family, u32 uninterruptible, u32 io_wait, u32 context,
					 u32 by_target)
{
	u32 by = context == WAKE_TASK && !by_target ? BY_STRANGER : context;

	return parts_of_sleeps[family & 15][by & (BY_COUNT - 1)][(uninterruptible | io_wait) & 1];
}
