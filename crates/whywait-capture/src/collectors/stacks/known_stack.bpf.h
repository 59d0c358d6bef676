/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * A storm of long sleeps happens at few places. The first sleep at a place brings its user stack;
 * for a second from then on the same thread's sleeps there refer to that stack by its key, so that
 * neither the copying nor a limit on it decides how many long sleeps have a stack.
 *
 * It is the same place if the instruction and stack pointers are the same, and so are those of the
 * first 64 words of the stack that looked like return addresses when the stack was copied: the
 * calls nearest to the sleep, 16 at most. What is not compared are frames farther up. For them to
 * differ, two callers' frames would have to be equally large, and all calls between them and the
 * sleep the same. Frames that an interpreter keeps elsewhere are not seen here at all: user space
 * turns this off for the whole recording as soon as it meets such a stack, and uses no key that led
 * to one.
 */
#pragma once

#include "core/state.bpf.h"

#define KNOWN_FOR_NS 1000000000
/*
 * A kernel stack is what its system call makes of it: there is nothing farther up that would
 * differ.
 */
#define KERNEL_KNOWN_FOR_NS 8000000000
/*
 * With fewer return addresses within sight frames are so large that the caller's caller may not be
 * among them.
 */
#define KNOWN_MIN_WORDS 2

#define STACK_PIECE 1024

/*
 * What is compared, in scratch: neither sched_switch nor sched_waking is interrupted by the other.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct stack_top);
} stack_tops SEC(".maps");

/* Cleared by user space, for good. */
volatile bool stacks_repeat = true;

static __always_inline u64 mix(u64 key, u64 word)
{
	return (key ^ key >> 32 ^ word) * 0x9e3779b97f4a7c15;
}

/*
 * The key of a stack: a sum of products, which a CPU can work out side by side, and the same number
 * of them for every stack, so that the verifier has one way to follow. Unused places repeat the
 * first one. Not static, so that it is verified once.
 */
__noinline u64 stack_key_of(const struct known_stack *known, const struct stack_top *top)
{
	u64 key;

	if (!known || !top)
		return 0;
	key = mix(known->ip, known->sp);
#pragma unroll
	for (u32 i = 0; i < KNOWN_WORDS; i++)
		key += (top->words[known->at[i] & (STACK_TOP_BYTES / 8 - 1)] >> 1) *
		       (0x9e3779b97f4a7c15 + (u64)i * 0x3c6ef372fe94f82a);
	key ^= key >> 29;
	return key ? key : 1;
}

static __always_inline u32 place_tag(u64 ip, u64 sp)
{
	u32 tag = mix(ip, sp) >> 32;

	return tag ? tag : 1;
}

/*
 * A thread sleeps, and wakes others, at a handful of places, and any slot takes any of them: if two
 * had to share one, their stacks would be copied at every turn. The slots' tags lie side by side,
 * so that looking for one costs no more than a line of the cache.
 */
static __always_inline u32 slot_with(const struct thread *thread, u32 tag)
{
	u32 found = KNOWN_STACKS;

#pragma unroll
	for (u32 i = 0; i < KNOWN_STACKS; i++)
		found = thread->known_tags[i] == tag ? i : found;
	return found;
}

/* What is kept of the place, 0: nothing. */
static __always_inline struct known_stack *known_place(struct thread *thread, u64 ip, u64 sp)
{
	u32 slot = slot_with(thread, place_tag(ip, sp));
	struct known_stack *known = &thread->known[slot & (KNOWN_STACKS - 1)];

	return slot < KNOWN_STACKS && known->sp == sp && known->ip == ip ? known : 0;
}

/* Where to keep it: where it was, or in place of the one that has been there for longest. */
static __always_inline struct known_stack *place_to_know(struct thread *thread, u64 ip, u64 sp)
{
	u32 tag = place_tag(ip, sp), slot = slot_with(thread, tag);

	if (slot >= KNOWN_STACKS)
		slot = thread->known_next++;
	slot &= KNOWN_STACKS - 1;
	thread->known_tags[slot] = tag;
	return &thread->known[slot];
}

/*
 * Above this address no frame of the stack at `sp` is, as far as is known: the kernel has the first
 * thread begin below its arguments, and where a C library made a thread its own data lie
 * above its stack. Another stack, a coroutine's say, is not near either. The thread has the memory
 * that is current here. Not static: for the verifier the result is any number, and it follows one
 * way through the copying.
 */
__noinline u64 stack_top(u64 sp, u64 thread_pointer)
{
	struct mm_struct *mm = UNTRUSTED(struct task_struct, bpf_get_current_task_btf())->mm;
	u64 top = mm ? KERNEL_READ(struct mm_struct, (u64)mm, start_stack) : 0;

	if (sp >= top || top - sp > MAX_STACK_BYTES)
		top = thread_pointer;
	return sp < top ? top : ~0ull;
}

static __always_inline u64 stack_top_of(struct task_struct *task, u64 sp)
{
	return stack_top(sp, THREAD_POINTER(UNTRUSTED(struct task_struct, task)));
}

/*
 * Copies a user stack from `sp` upwards and says how many bytes: `stack_bytes`, but not more than
 * goes to its top, and enough to recognise it by. A stack ends at a page's end, so pieces that end
 * on multiples of their size are either wholly mapped or not at all. The first piece is the shorter
 * one. (What is above the top is cold, as a rule, and so is where it would go: beside a server with
 * thread-per-connection that was a quarter of what a sample cost.)
 */
static __always_inline u32 copy_user_stack(void *to, u64 sp, u64 top)
{
	u64 done = 0;

	for (u32 i = 0; i < MAX_STACK_BYTES / STACK_PIECE; i++) {
		u32 piece = STACK_PIECE - ((sp + done) & (STACK_PIECE - 1));
		u64 at = done, last = stack_bytes - STACK_PIECE;

		/* The first is for the verifier, which knows `i`. */
		if (i > stack_bytes / STACK_PIECE || done >= last)
			break;
		if (sp + done >= top && done >= STACK_TOP_BYTES)
			break;
		/*
		 * Never true, as was just seen. But the compiler may have compared another copy
		 * than it uses, and the verifier of Linux 6.1 does not see that both have the same
		 * bounds.
		 */
		asm volatile("if %[at] < %[last] goto +1\n\t%[at] = 0"
			     : [at] "+r"(at)
			     : [last] "r"(last));
		if (bpf_probe_read_user(to + at, piece, (void *)(sp + done)))
			break;
		done += piece;
	}
	return done;
}

struct learning {
	struct known_stack *known;
	const u64 *copied;
	u64 ip, from, to; /* where the sleep is, and the program's own code */
};

static int learn_word(u32 at, struct learning *learning)
{
	struct known_stack *known = learning->known;
	u64 word;

	if (at >= STACK_TOP_BYTES / 8)
		return 1;
	word = learning->copied[at];
	/*
	 * In the program itself; or near where it sleeps, in a library, and no pointer to data,
	 * which is aligned.
	 */
	if (!(word >= learning->from && word < learning->to) &&
	    !((word & 7) && word >> 40 == learning->ip >> 40))
		return 0;
	if (known->words >= KNOWN_WORDS)
		return 1;
	if (!known->words)
		__builtin_memset(known->at, at, sizeof(known->at));
	known->at[known->words & (KNOWN_WORDS - 1)] = at;
	known->words++;
	known->bytes = (at + 1) * sizeof(u64);
	return 0;
}

/*
 * Keeps what tells this stack, of which `copied` is the top, when it comes again; its thread has
 * the memory that is current here. Says its key, or 0 if it has too little to be recognised by. Not
 * static, so that it is verified once and not on each way that leads to it.
 */
__noinline u64 learn_stack(struct thread *thread, u64 ip, u64 sp, const struct stack_top *copied,
			   u64 now)
{
	struct mm_struct *mm = UNTRUSTED(struct task_struct, bpf_get_current_task_btf())->mm;
	struct learning learning = { .ip = ip };
	struct known_stack *known;

	if (!thread || !copied)
		return 0;
	known = place_to_know(thread, ip, sp);
	known->sp = 0;
	known->words = 0;
	if (!stacks_repeat || !mm)
		return 0;
	learning.known = known;
	learning.copied = copied->words;
	learning.from = mm->start_code;
	learning.to = mm->end_code;
	bpf_loop(STACK_TOP_BYTES / 8, learn_word, &learning, 0);
	if (known->words < KNOWN_MIN_WORDS)
		return 0;
	known->ip = ip;
	known->sp = sp;
	known->sent_ns = now;
	known->key = stack_key_of(known, copied);
	return known->key;
}

/* Whether the stack there was sent a moment ago, as far as two pointers tell. */
static __always_inline bool was_sent(const struct known_stack *known, u64 now)
{
	return known && now - known->sent_ns <= KNOWN_FOR_NS && stacks_repeat;
}

/* … the one in which a sleeping thread sleeps. */
static __always_inline bool knows_place(struct thread *thread, u64 now)
{
	return was_sent(known_place(thread, thread->ip, thread->sp), now);
}

/*
 * The key of the stack of the current thread, or of one with the same memory that sleeps, if user
 * space has had this stack a moment ago, or 0. Not static, so that it is verified once and not on
 * each way that leads to it.
 */
__noinline u64 recognise_stack(struct thread *thread, u64 ip, u64 sp, u64 now)
{
	struct known_stack *known;
	struct stack_top *top;
	u32 zero = 0, bytes;

	if (!thread)
		return 0;
	known = known_place(thread, ip, sp);
	if (!was_sent(known, now))
		return 0;
	top = bpf_map_lookup_elem(&stack_tops, &zero);
	bytes = known->bytes;
	if (!top || bytes > sizeof(*top) || bpf_probe_read_user(top, bytes, (void *)sp))
		return 0;
	return stack_key_of(known, top) == known->key ? known->key : 0;
}
