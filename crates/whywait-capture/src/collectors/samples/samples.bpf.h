/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * What the target's threads do while they run: a clock ticks on each CPU, and threads of the target
 * leave their stack. It has two rates (clock.rs), and says with each tick how many periods of the
 * faster one it stands for.
 */
#pragma once

#include "collectors/cpu/cpu.bpf.h"
#include "collectors/samples/slow.bpf.h"
#include "collectors/sched/sched.bpf.h"
#include "collectors/stacks/functions.bpf.h"
#include "collectors/uring/stands.bpf.h"
#include "collectors/uring/uring.bpf.h"

/* For how long a thread that runs has computed since its last I/O or its last sleep. */
static __always_inline u64 computes_ns(const struct thread *thread, u64 now)
{
	u64 since_ns = thread->io_ns >= thread->back_ns ? thread->io_on_cpu_ns :
							  thread->parts[PART_ON_CPU];
	u64 on_cpu_ns = own_on_cpu_now(thread, now);

	return on_cpu_ns > since_ns ? on_cpu_ns - since_ns : 0;
}

SEC("perf_event")
int sample(struct bpf_perf_event_data *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *thread = thread_of(task);
	struct sample_record *record;
	struct pt_regs *regs;
	u64 periods = bpf_get_attach_cookie(ctx), now = bpf_ktime_get_ns();
	u64 stolen_ns = stolen_since_tick(periods, now);
	u64 slow_seen_ns = stolen_ns;
	bool ring_stands;
	u64 sp;

	if (!thread)
		return 0;
	COUNT(events);
	regs = user_registers(task);
	send_functions(&stacks, thread, THREAD_POINTER(task), PT_REGS_IP(regs), PT_REGS_SP(regs),
		       now);
	record = bpf_ringbuf_reserve(&stacks, sizeof(*record) + stack_bytes, 0);
	if (!record) {
		COUNT(lost_stack_ring_full);
		if (stolen_ns)
			note_stolen(thread, stolen_ns, now);
		return 0;
	}
	record->type = RECORD_SAMPLE;
	record->cpu = bpf_get_smp_processor_id();
	record->at_ns = now;
	record->periods = periods;
	record->tid = thread->tid;
	record->tgid = thread->tgid;
	record->ip = PT_REGS_IP(regs);
	record->sp = sp = PT_REGS_SP(regs);
	record->bp = PT_REGS_FP(regs);
	record->lr = LINK_REGISTER(regs);
	record->kept[0] = KEPT_REGISTER(regs);
	record->kept[1] = OTHER_KEPT_REGISTER(regs);
	record->kernel_stack_len =
		bpf_get_stack(ctx, record->kernel_stack, sizeof(record->kernel_stack), 0);
	/* Before there are ways to part: the verifier follows each through all of the copying. */
	record->stack_len = copy_user_stack(record + 1, sp, stack_top_of(task, sp));
	if (!record->stack_len)
		COUNT(sample_no_stack);
	if (stolen_ns)
		note_stolen(thread, stolen_ns, now);
	/* A hook may be using the totals just now, of a thread that was seen getting its CPU. */
	if (!is_running(thread))
		must_run(task, thread, now);
	ring_stands = record->kernel_stack_len > 0 &&
		      call_family(call_number(regs)) == CALL_URING &&
		      uring_stands(thread, task, regs, now);
	record->futile = cpu_sampled(thread, record->kernel_stack_len > 0, call_number(regs),
				     ring_stands, periods, now);
	/*
	 * It would count as slow when it is over; more samples would tell where it is while it
	 * lasts.
	 */
	if (record->futile || computes_ns(thread, now) >= dense_clock_ns)
		slow_seen_ns = dense_clock_ns;
	if (slow_seen_ns)
		slow_ns += slow_seen_ns;
	bpf_ringbuf_submit(record,
			   wakeup_for(&stacks, clock_is_sparse && slow_seen_ns >= dense_clock_ns));
	uring_sample(thread, now);
	return 0;
}
