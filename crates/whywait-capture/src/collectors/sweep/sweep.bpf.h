/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Stacks of sleeping threads, read from outside while they sleep: exact, and free of cost for the
 * target's own path. Each sleep that is long enough is read once. User space looks into the table
 * of threads first: as long as it finds none that this would read (thread_table.rs), it need not
 * have all threads walked.
 */
#pragma once

#include "collectors/sched/sched.bpf.h"
#include "collectors/stacks/functions.bpf.h"
#include "core/bits.bpf.h"

/*
 * So much of an interpreter's frame is read: all that is asked for lies within (user space sees to
 * that). The bounds of an offset are a power of two: for the verifier a mask holds everywhere.
 */
#define FRAME_BYTES 80
#define OLD_FRAME_BYTES 112
#define FRAME_OFFSETS 128

struct sweep_scratch {
	struct sleeper_record record;
	u8 stack[MAX_STACK_BYTES];
	struct functions_record functions;
	struct interpreted_function interpreted[MOST_FUNCTIONS];
	u8 frame[FRAME_OFFSETS + 8];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct sweep_scratch);
} sweep_buffer SEC(".maps");

/*
 * What a thread polls: the descriptor in place of the address, unless it does something else by
 * now. It slept before whywait came, or its memory could not be read when it went to sleep.
 */
static __always_inline void name_polled_later(struct task_struct *task, struct thread *thread)
{
	u64 place = thread->args[0];
	struct polled one = {}, two = {};
	bool both = thread->args[1] == 2;
	s32 fd;

	if (bpf_copy_from_user_task(&one, sizeof(one), (void *)place, task, 0) ||
	    (both &&
	     bpf_copy_from_user_task(&two, sizeof(two), (void *)(place + sizeof(one)), task, 0)))
		return;
	fd = polled_one(task, one.fd, two.fd, both);
	if (fd >= 0)
		__sync_val_compare_and_swap(&thread->args[0], place, (u64)fd);
}

/* The highest number of descriptors that a select of the C library's has. */
#define SELECT_DESCRIPTORS 1024

/* What a select waits to read. */
struct selection {
	struct task_struct *task;
	u64 place; /* of the descriptors' bits */
	u64 count; /* of them */
	u64 only; /* the word that has one */
	u64 number; /* of its first bit */
	u64 several; /* words have one, or it cannot be read */
};

static long look_at_selected(u32 i, struct selection *selection)
{
	u64 before = (u64)i * 64, word;

	if (before >= selection->count)
		return 1;
	if (bpf_copy_from_user_task(&word, sizeof(word),
				    (void *)(selection->place + i * sizeof(word)), selection->task,
				    0)) {
		selection->several = 1;
		return 1;
	}
	if (selection->count - before < 64)
		word &= (1ULL << (selection->count - before)) - 1;
	if (!word)
		return 0;
	selection->several = selection->only != 0;
	selection->only = word;
	selection->number = before;
	return selection->several;
}

/*
 * The same of a select that waits for one descriptor to be readable, and for nothing else.
 */
static __always_inline void name_selected(struct task_struct *task, struct thread *thread)
{
	u64 place = thread->args[1];
	struct selection selection = {
		.task = task,
		.place = place,
		.count = thread->args[0],
	};

	bpf_loop(SELECT_DESCRIPTORS / 64, look_at_selected, &selection, 0);
	if (!selection.several && selection.only && !(selection.only & (selection.only - 1)))
		__sync_val_compare_and_swap(&thread->args[1], place,
					    selection.number + log2_u64(selection.only));
}

static __always_inline bool selects_to_read(const struct thread *thread)
{
	return (thread->nr == NR_SELECT || thread->nr == NR_PSELECT6) && !thread->args[2] &&
	       thread->args[0] <= SELECT_DESCRIPTORS;
}

struct copying {
	struct task_struct *task;
	struct sweep_scratch *scratch;
	u64 sp;
	u64 done; /* bytes */
};

static long copy_piece(u32 i, struct copying *copying)
{
	u64 done = copying->done, from = copying->sp + done;
	u32 piece = STACK_PIECE - (from & (STACK_PIECE - 1));

	/*
	 * A record must fit into the reader's buffer, which the kernel makes 8 pages large:
	 * MAX_STACK_BYTES.
	 */
	if (done >= stack_bytes - STACK_PIECE || done > MAX_STACK_BYTES - 2 * STACK_PIECE ||
	    bpf_copy_from_user_task(copying->scratch->stack + done, piece, (void *)from,
				    copying->task, 0))
		return 1;
	copying->done = done + piece;
	return 0;
}

/* The functions of a thread, as functions.bpf.h has them, of another process. */
struct sleeper_functions {
	struct task_struct *task;
	struct sweep_scratch *scratch;
	const struct runtime *runtime;
	u64 frame;
	u32 count;
	u32 unread;
};

static __always_inline u64 word_of_frame(const struct sweep_scratch *scratch, u32 offset)
{
	return *(u64 *)(scratch->frame + (offset & (FRAME_OFFSETS - 1)));
}

static long copy_function(u32 index, struct sleeper_functions *walk)
{
	const struct runtime *runtime = walk->runtime;
	struct sweep_scratch *scratch = walk->scratch;
	struct interpreted_function *function;
	u32 bytes = runtime->last_by == LAST_IS_EACH ? OLD_FRAME_BYTES : FRAME_BYTES;
	bool ends;

	if (!walk->frame || index >= MOST_FUNCTIONS)
		return 1;
	if (bpf_copy_from_user_task(scratch->frame, bytes, (void *)walk->frame, walk->task, 0)) {
		walk->unread = 1;
		return 1;
	}
	function = &scratch->interpreted[index];
	ends = ends_call(runtime, scratch->frame[runtime->last & (FRAME_OFFSETS - 1)]);
	function->code = ends && runtime->last_by == LAST_IS_SHIM ?
				 0 :
				 word_of_frame(scratch, runtime->code_object);
	function->instruction = word_of_frame(scratch, runtime->instruction);
	function->last = ends;
	walk->frame = word_of_frame(scratch, runtime->previous);
	walk->count = index + 1;
	return 0;
}

static __always_inline bool word_of(struct task_struct *task, u64 *word, u64 at)
{
	return !bpf_copy_from_user_task(word, sizeof(*word), (void *)at, task, 0);
}

/* Whether there are functions, and all could be copied. */
static __noinline bool copy_functions(struct task_struct *task, struct sweep_scratch *scratch,
				      struct thread *thread)
{
	struct sleeper_functions walk = { .task = task, .scratch = scratch };
	u64 pointer = THREAD_POINTER(task), state = 0, of = 0;
	u32 tgid, tid;
	struct runtime *runtime;
	u64 *known;

	if (!scratch || !thread)
		return false;
	tgid = thread->tgid;
	tid = thread->tid;
	runtime = bpf_map_lookup_elem(&runtimes, &tgid);
	if (!runtime || runtime->kind == RUNTIME_GO)
		return false;
	if (runtime->state)
		state = tid == tgid ? runtime->state : 0;
	else if (runtime->own_state && !word_of(task, &state, pointer + runtime->own_state))
		state = 0;
	if (!state && !runtime->state) {
		known = bpf_map_lookup_elem(&python_threads, &tid);
		state = known ? *known : 0;
	}
	if (!state ||
	    (!runtime->state && (!word_of(task, &of, state + runtime->thread_pointer) ||
				 of != pointer)) ||
	    !word_of(task, &walk.frame, state + runtime->current))
		return false;
	if (runtime->current_in_cframe &&
	    !word_of(task, &walk.frame, walk.frame + runtime->current_in_cframe - 1))
		return false;
	walk.runtime = runtime;
	bpf_loop(MOST_FUNCTIONS, copy_function, &walk, 0);
	scratch->functions.type = RECORD_FUNCTIONS;
	scratch->functions.stack_len = walk.count * sizeof(struct interpreted_function);
	scratch->functions.tid = tid;
	scratch->functions.more = walk.frame != 0;
	scratch->functions.at_ns = 0;
	return walk.count && !walk.unread;
}

SEC("iter.s/task")
int sweep(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct sweep_scratch *scratch;
	struct sleeper_record *record;
	struct thread *thread;
	struct pt_regs *regs;
	struct copying copying = {};
	u32 zero = 0, seq;
	u64 now, sp, done, functions = 0;

	if (!task)
		return 0;
	thread = thread_of(task);
	if (!thread)
		return 0;
	now = bpf_ktime_get_ns();
	/* The last sweep also tells of intervals without I/O that have not ended. */
	if (sweep_all && thread->io_ns &&
	    !(thread->state == THREAD_SLEEPING && thread->io_ns >= thread->out_ns))
		thread_did_io_until(thread,
				    thread->state == THREAD_SLEEPING ? thread->out_ns : now);
	if (thread->state != THREAD_SLEEPING)
		return 0;
	seq = thread->seq;
	if (thread->stack_seq == seq + 1 || (!sweep_all && now - thread->out_ns < sweep_min_ns))
		return 0;
	scratch = bpf_map_lookup_elem(&sweep_buffer, &zero);
	if (!scratch)
		return 0;
	record = &scratch->record;
	record->type = RECORD_SLEEPER;
	/* It slept before whywait came: the lock's owner was not read when it went to sleep. */
	if (thread->since_before && thread->nr == NR_FUTEX && (u32)thread->args[2] == 2 &&
	    !thread->word_tells &&
	    !bpf_copy_from_user_task(&thread->owner, sizeof(thread->owner),
				     (void *)(thread->args[0] + 8), task, 0))
		thread->word_tells = WORD_TELLS_OWNER;
	if (polls_few(thread) && thread->args[0] >= DESCRIPTORS)
		name_polled_later(task, thread);
	if (selects_to_read(thread) && thread->args[1] >= DESCRIPTORS)
		name_selected(task, thread);
	fill_sleep(&record->sleep, thread);
	regs = user_registers(task);
	record->ip = PT_REGS_IP(regs);
	record->sp = sp = PT_REGS_SP(regs);
	record->bp = PT_REGS_FP(regs);
	record->lr = LINK_REGISTER(regs);
	record->kept[0] = KEPT_REGISTER(regs);
	record->kept[1] = OTHER_KEPT_REGISTER(regs);
	record->now_ns = now;
	record->pad = 0;
	record->kernel_stack_len =
		bpf_get_task_stack(task, record->kernel_stack, sizeof(record->kernel_stack), 0);
	copying.task = task;
	copying.scratch = scratch;
	copying.sp = sp;
	bpf_loop(MAX_STACK_BYTES / STACK_PIECE, copy_piece, &copying, 0);
	done = copying.done;
	if (runtimes_known && done <= MAX_STACK_BYTES / 2 && copy_functions(task, scratch, thread))
		functions = scratch->functions.stack_len;
	if (thread->seq != seq || thread->state != THREAD_SLEEPING) {
		COUNT(sleeper_moved);
		return 0;
	}
	/* For the verifier, which else sees another copy of a size compared than used. */
	barrier_var(functions);
	barrier_var(done);
	if (functions > sizeof(scratch->interpreted))
		return 0;
	/* When the reader's buffer is full the kernel comes back to this task with an empty one. */
	if (functions) {
		scratch->functions.ip = record->ip;
		scratch->functions.sp = sp;
		if (bpf_seq_write(ctx->meta->seq, &scratch->functions,
				  sizeof(scratch->functions) + functions))
			return 0;
	}
	record->stack_len = done;
	if (done > MAX_STACK_BYTES)
		return 0;
	if (bpf_seq_write(ctx->meta->seq, scratch, sizeof(*record) + done))
		return 0;
	thread->stack_seq = seq + 1;
	if (!done)
		COUNT(sleeper_no_stack);
	return 0;
}
