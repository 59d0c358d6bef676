/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* What kind of wait a sleep was, from the blocked system call (x86-64 numbers) and who ended it. */
#ifndef WHYWAIT_SYSCALLS_H
#define WHYWAIT_SYSCALLS_H

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
};

static __always_inline enum call_family call_family(s32 nr)
{
	switch (nr) {
	case -1:
		return CALL_NONE;
	case 202: /* futex */
	case 449: /* futex_waitv */
	case 455: /* futex_wait */
		return CALL_FUTEX;
	case 7: /* poll */
	case 23: /* select */
	case 232: /* epoll_wait */
	case 270: /* pselect6 */
	case 271: /* ppoll */
	case 281: /* epoll_pwait */
	case 441: /* epoll_pwait2 */
		return CALL_POLL;
	case 42: /* connect */
	case 43: /* accept */
	case 44: /* sendto */
	case 45: /* recvfrom */
	case 46: /* sendmsg */
	case 47: /* recvmsg */
	case 288: /* accept4 */
	case 299: /* recvmmsg */
	case 307: /* sendmmsg */
		return CALL_SOCKET;
	case 0: /* read */
	case 1: /* write */
	case 19: /* readv */
	case 20: /* writev */
	case 40: /* sendfile */
	case 275: /* splice */
		return CALL_STREAM;
	case 17: /* pread64 */
	case 18: /* pwrite64 */
	case 26: /* msync */
	case 74: /* fsync */
	case 75: /* fdatasync */
	case 162: /* sync */
	case 277: /* sync_file_range */
	case 285: /* fallocate */
	case 295: /* preadv */
	case 296: /* pwritev */
	case 306: /* syncfs */
		return CALL_FILE;
	case 35: /* nanosleep */
	case 230: /* clock_nanosleep */
		return CALL_SLEEP;
	case 426: /* io_uring_enter */
		return CALL_URING;
	case 61: /* wait4 */
	case 247: /* waitid */
		return CALL_CHILD;
	default:
		return CALL_OTHER;
	}
}

static __always_inline bool is_epoll_call(s32 nr)
{
	return nr == 232 || nr == 281 || nr == 441;
}

/* `by_target`: the thread that made the wake belongs to the target. */
static __always_inline enum part part_of_sleep(enum call_family family, bool uninterruptible, bool io_wait,
					       u32 context, bool by_target)
{
	switch (family) {
	case CALL_NONE:
		/* Not in a system call, yet asleep: a page fault. Stopped threads sleep interruptibly. */
		return uninterruptible || io_wait ? PART_PAGE_FAULT : PART_UNKNOWN;
	case CALL_FUTEX:
		return context == WAKE_TASK ? PART_THREAD : context == WAKE_HARDIRQ ? PART_TIMER : PART_UNKNOWN;
	case CALL_POLL:
		/* Loopback delivers in a soft interrupt, as a network card does; a timeout is a hard interrupt. */
		if (context == WAKE_HARDIRQ)
			return PART_TIMER;
		if (context == WAKE_TASK)
			return by_target ? PART_THREAD : PART_NETWORK;
		return context == WAKE_SOFTIRQ ? PART_NETWORK : PART_UNKNOWN;
	case CALL_SOCKET:
		return PART_NETWORK;
	case CALL_STREAM:
		if (io_wait || uninterruptible)
			return PART_DISK;
		if (context == WAKE_SOFTIRQ)
			return PART_NETWORK;
		if (context == WAKE_TASK)
			return by_target ? PART_THREAD : PART_NETWORK;
		return context == WAKE_HARDIRQ ? PART_TIMER : PART_UNKNOWN;
	case CALL_FILE:
		return PART_DISK;
	case CALL_SLEEP:
		return PART_TIMER;
	case CALL_URING:
		return PART_URING;
	case CALL_CHILD:
		return PART_THREAD;
	default:
		return io_wait || uninterruptible ? PART_DISK : PART_UNKNOWN;
	}
}

#endif
