/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Where kernels differ. */
#pragma once

#include "core/arch.bpf.h"
#include "core/vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "collectors/sched/records.h"

/*
 * Which way the code goes that runs a million times a second. What is rare is then put behind it:
 * each line of a hook's code is fetched anew, as what the kernel and the program do in between
 * fills the processor's first cache for code several times over.
 */
#ifndef likely
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#endif

/* include/linux/preempt.h */
#define SERVING_SOFTIRQ_BIT 0x100u
#define HARDIRQ_MASK 0xf0000u
#define NMI_MASK 0xf00000u

/*
 * A call costs some 10 ns where returns go through a thunk (AMD's Safe RET): 24 to ask for a task's
 * registers, 35 to read a word by bpf_probe_read_kernel, as measured in a loop; a plain load 2. So
 * addresses that came as numbers are made into pointers that may be loaded from, where the kernel
 * can (Linux 6.2): bpf_rdonly_cast is no call but a promise.
 */
extern void *bpf_rdonly_cast(const void *obj, u32 btf_id) __weak __ksym;

#define AS_KERNEL(type, address) \
	((type *)bpf_rdonly_cast((void *)(address), bpf_core_type_id_kernel(type)))

/*
 * For loads of pointers from an object that the verifier trusts: to find out whether it may trust
 * the pointer, too, it goes four times through the names of all the kernel's types
 * (btf_nested_type_is_trusted in kernel/bpf/btf.c), which takes a millisecond for each such load on
 * each way through a program. They made a third of the time that loading took.
 */
#define UNTRUSTED(type, pointer) \
	(bpf_ksym_exists(bpf_rdonly_cast) ? AS_KERNEL(type, pointer) : (pointer))

/* Reads a field of a kernel object whose address came as a number. */
#define KERNEL_READ(type, address, field)                                     \
	(bpf_ksym_exists(bpf_rdonly_cast) ? AS_KERNEL(type, address)->field : \
					    BPF_CORE_READ((type *)(address), field))

/* The lower half of an address: the verifier lets no program calculate with whole ones. */
static __always_inline u32 low_half(u64 address)
{
	u32 low = address;

	asm volatile("" : "+w"(low)); /* before anything is done with it */
	return low;
}

/*
 * How far a thread's saved registers are from where its kernel stack begins; the same for all. 0:
 * not known yet.
 */
u32 registers_at = 0;

static __noinline int learn_registers(struct task_struct *task)
{
	u32 at = low_half((u64)bpf_task_pt_regs(task)) - low_half((u64)task->stack);

	if (at < 1 << 20)
		registers_at = at;
	return 0;
}

/* The registers with which a thread entered the kernel. */
static __always_inline struct pt_regs *user_registers(struct task_struct *task)
{
	u32 at = registers_at;

	if (bpf_ksym_exists(bpf_rdonly_cast)) {
		if (likely(at))
			return AS_KERNEL(struct pt_regs, (u64)task->stack + at);
		learn_registers(task);
	}
	return (struct pt_regs *)bpf_task_pt_regs(task);
}

/* Linux < 5.18 does not pass the previous state to sched_switch; the loader finds out from BTF. */
const volatile bool switch_passes_state = true;

/*
 * On x86-64 the preemption count is a per-CPU variable, and BPF finds per-CPU variables by name
 * only where the kernel's symbol table lists data (CONFIG_KALLSYMS_ALL). So it is found by its
 * distance from another one that every task points to: its run queue. The loader takes the distance
 * from BTF; without one, every wake counts as made by the current task.
 */
const volatile bool preempt_count_known = false;
const volatile s64 preempt_count_from_runqueue = 0;

/* … and so is what KVM says of the time that this virtual CPU had to do without a real one. */
const volatile bool steal_known = false;
const volatile s64 steal_from_runqueue = 0;

static __always_inline u64 runqueue_of(struct task_struct *task)
{
	return (u64)UNTRUSTED(struct task_struct, task)->se.cfs_rq->rq;
}

/*
 * How long this CPU stood still since the machine began, because its host had others run, in
 * nanoseconds; `task` is the current one.
 */
static __always_inline u64 stolen_so_far(struct task_struct *task)
{
	return steal_known ? KERNEL_READ(struct kvm_steal_time,
					 runqueue_of(task) + steal_from_runqueue, steal) :
			     0;
}

static __always_inline u32 preempt_count(struct task_struct *task)
{
	u32 count = 0;
	u64 runqueue;

#if defined(__TARGET_ARCH_arm64)
	/* It has its place in the task. */
	return task->thread_info.preempt.count;
#endif
	if (!preempt_count_known)
		return 0;
	runqueue = runqueue_of(task);
	if (bpf_ksym_exists(bpf_rdonly_cast))
		return AS_KERNEL(struct refcount_struct, runqueue + preempt_count_from_runqueue)
			->refs.counter;
	if (bpf_probe_read_kernel(&count, sizeof(count),
				  (void *)(runqueue + preempt_count_from_runqueue)))
		return 0;
	return count;
}

/*
 * In which context the current code runs; `task` is the current one. Without a preemption count
 * every wake counts as made by the current task.
 */
static __always_inline u32 current_context(struct task_struct *task)
{
	u32 count = preempt_count(task);

	if (count & (HARDIRQ_MASK | NMI_MASK))
		return WAKE_HARDIRQ;
	if (count & SERVING_SOFTIRQ_BIT)
		return WAKE_SOFTIRQ;
	return WAKE_TASK;
}
