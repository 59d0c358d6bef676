/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* What a futex word's surroundings say of the lock, and sums of the short sleeps on each word. */

#define NR_FUTEX 202
/* include/uapi/linux/futex.h */
#define FUTEX_LOCK_PI 6
#define FUTEX_LOCK_PI2 13
#define FUTEX_CMD_MASK 0x7f
#define FUTEX_TID_MASK 0x3fffffff

/* A word's first sleeps are told, however short: so its kind of wait has a stack. */
#define TOLD_OF_EACH_WORD 2

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
	if (!bpf_probe_read_user(&owner, sizeof(owner), (void *)(address + 8)) && thread_by_id(owner)) {
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
	thread->timeout = regs->r10 != 0;
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
 * As tell_short_futex, of a word for which the thread has summed up nothing: it takes a place for
 * it from another one. Not static, so that it is verified once for a program.
 */
__noinline int tell_other_futex(struct thread *thread, u64 slept_ns)
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
	if (state->told < TOLD_OF_EACH_WORD) {
		state->told++;
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
 * Adds a short sleep, or one of a storm, to its word's sums, or says that it is to be told one by
 * one. A thread sleeps on the same few words again and again: it sums up its sleeps on them by
 * itself, and what all threads share is touched when it comes to another word.
 */
static __always_inline bool tell_short_futex(struct thread *thread, u64 slept_ns)
{
	u64 address = summed_under(thread);
	u32 place = RECENT_FUTEXES;
	struct recent_futex *recent;

#pragma unroll
	for (u32 i = 0; i < RECENT_FUTEXES; i++)
		place = thread->recent_futexes[i] == address ? i : place;
	if (unlikely(place >= RECENT_FUTEXES))
		return tell_other_futex(thread, slept_ns);
	recent = &thread->futexes[place];
	recent->count++;
	recent->total_ns += slept_ns;
	if (slept_ns > recent->longest_ns)
		recent->longest_ns = slept_ns;
	return false;
}
