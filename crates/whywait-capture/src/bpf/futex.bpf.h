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

/*
 * Who holds a lock is in user memory, beside the word, where it is at all. Read by the thread that is about to sleep:
 *  - glibc's pthread_mutex_t (val 2: locked, with waiters) has the owner's tid 8 bytes after the word
 *    (sysdeps/nptl/bits/struct_mutex.h).
 *  - a priority-inheriting lock has it in the word itself.
 *  - parking_lot parks each thread on a word of its own (val 1, ThreadParker in ThreadData) and has the key of what the
 *    thread queues for, the lock's address, at the start of the same struct, 32 bytes before.
 * Other users of the same values have other things there: user space takes an owner only if it is one of the process's
 * threads, and a key only if the stack is parking_lot's.
 */
static __always_inline void read_futex(struct thread *thread, const struct pt_regs *regs)
{
	u64 address = thread->args[0];
	u32 op = thread->args[1] & FUTEX_CMD_MASK;
	u32 value = thread->args[2];

	thread->owner = 0;
	thread->lock = 0;
	thread->timeout = regs->r10 != 0;
	if (op == FUTEX_LOCK_PI || op == FUTEX_LOCK_PI2) {
		bpf_probe_read_user(&thread->owner, sizeof(thread->owner), (void *)address);
		thread->owner &= FUTEX_TID_MASK;
	} else if (value == 2) {
		bpf_probe_read_user(&thread->owner, sizeof(thread->owner), (void *)(address + 8));
	} else if (value == 1) {
		bpf_probe_read_user(&thread->lock, sizeof(thread->lock), (void *)(address - 32));
	}
}

/* Adds what a thread has summed up for a word to the sums of all threads. The word is in `futexes`. */
static __always_inline void settle_futex(struct recent_futex *recent, u32 tgid)
{
	struct futex_key key = { .address = recent->address, .tgid = tgid };
	struct futex_state *state;

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
	recent->address = 0;
}

/* The thread ends, or becomes another program. */
static __always_inline void settle_futexes(struct thread *thread)
{
	for (int i = 0; i < RECENT_FUTEXES; i++)
		settle_futex(&thread->futexes[i], thread->tgid);
}

/* Adds a sleep to what the thread has summed up for its word. */
static __always_inline void add_to_recent(struct recent_futex *recent, u64 slept_ns)
{
	recent->count++;
	recent->total_ns += slept_ns;
	if (slept_ns > recent->longest_ns)
		recent->longest_ns = slept_ns;
}

static __always_inline struct recent_futex *recent_slot(struct thread *thread)
{
	u64 address = thread->args[0];

	return &thread->futexes[(address >> 2 ^ address >> 6) & (RECENT_FUTEXES - 1)];
}

/* As tell_short_futex, of a word that is not in `recent`, which it takes over. */
static __noinline bool tell_other_futex(struct thread *thread, struct recent_futex *recent, u64 slept_ns)
{
	struct futex_key key = { .address = thread->args[0], .tgid = thread->tgid };
	struct futex_state *state, none = {};

	settle_futex(recent, thread->tgid);
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
	recent->address = key.address;
	recent->count = 1;
	recent->total_ns = slept_ns;
	recent->longest_ns = slept_ns;
	return false;
}

/*
 * Adds a short sleep to its word's sums, or says that it is to be told one by one. A thread sleeps on the same few words again
 * and again: it sums up its sleeps on them by itself, and what all threads share is touched when it comes to another word.
 */
static __always_inline bool tell_short_futex(struct thread *thread, u64 slept_ns)
{
	struct recent_futex *recent = recent_slot(thread);

	if (recent->address != thread->args[0])
		return tell_other_futex(thread, recent, slept_ns);
	add_to_recent(recent, slept_ns);
	return false;
}
