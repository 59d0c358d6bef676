/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* What a futex word's surroundings say of the lock, and sums of the short sleeps on each word. */
#pragma once

#include "core/threads.bpf.h"

/* include/uapi/linux/futex.h */
#define FUTEX_LOCK_PI 6
#define FUTEX_LOCK_PI2 13
#define FUTEX_CMD_MASK 0x7f
#define FUTEX_TID_MASK 0x3fffffff

/* Where no owner was found so many times in a row none is looked for the next 250 times. */
#define OWNERLESS_AFTER 4

/*
 * The owner of a mutex of glibc's. Locks of others have the same value, but something else beside
 * the word; and a look into user memory costs as much as all else that a switch does.
 */
static __always_inline void read_owner(struct thread *thread, u64 address)
{
	u32 place = address >> 4 & (OWNERLESS_WORDS - 1), owner = 0;

	if (thread->ownerless[place] != (u32)address) {
		thread->ownerless[place] = address;
		thread->ownerless_times[place] = 0;
	} else if (thread->ownerless_times[place] >= OWNERLESS_AFTER) {
		thread->ownerless_times[place]++; /* 0 again after 255 */
		return;
	}
	if (!bpf_probe_read_user(&owner, sizeof(owner), (void *)(address + 8)) &&
	    thread_by_id(owner)) {
		thread->word_tells = WORD_TELLS_OWNER;
		thread->owner = owner;
		thread->ownerless_times[place] = 0;
	} else {
		thread->ownerless_times[place]++;
	}
}

/*
 * Who holds a lock is in user memory, beside the word, where it is at all. Read by the thread that
 * is about to sleep:
 *  - glibc's pthread_mutex_t (val 2: locked, with waiters) has the owner's tid 8 bytes after the
 *    word (sysdeps/nptl/bits/struct_mutex.h).
 *  - a priority-inheriting lock has it in the word itself.
 *  - parking_lot parks each thread on a word of its own (val 1, ThreadParker in ThreadData) and has
 *    the key of what the thread queues for, the lock's address, at the start of the same struct, 32
 *    bytes before.
 * Other users of the same values have other things there: user space takes an owner only if it is
 * one of the process's threads, and a key only if the stack is parking_lot's.
 */
static __always_inline void read_futex(struct thread *thread, const struct pt_regs *regs)
{
	u64 address = thread->args[0];
	u32 op = thread->args[1] & FUTEX_CMD_MASK;
	u32 value = thread->args[2];

	thread->word_tells = 0;
	thread->timeout = PT_REGS_PARM4_SYSCALL(regs) != 0;
	if (op == FUTEX_LOCK_PI || op == FUTEX_LOCK_PI2) {
		thread->word_tells = WORD_TELLS_OWNER;
		thread->owner = 0;
		bpf_probe_read_user(&thread->owner, sizeof(thread->owner), (void *)address);
		thread->owner &= FUTEX_TID_MASK;
	} else if (value == 2) {
		read_owner(thread, address);
	} else if (value == 1) {
		thread->word_tells = WORD_TELLS_LOCK;
		thread->lock = 0;
		bpf_probe_read_user(&thread->lock, sizeof(thread->lock), (void *)(address - 32));
	}
}
