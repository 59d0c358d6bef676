/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* What is kept for each thread and each socket of the target, and the maps that keep it. */
#pragma once

#include "core/compat.bpf.h"
#include "core/records.h"

/* Options, set before loading so that the verifier drops what is not used. */
const volatile u64 threshold_ns = 1000000;
/* A sleeping thread's stack is read once it has slept for this long. */
const volatile u64 sweep_min_ns = 4000000;
const volatile u32 stack_bytes = 8192;
/* So much that is slow has the sampling clock tick at its faster rate: see clock.rs. */
const volatile u64 dense_clock_ns = 5000000;
/* Sleeps of a storm that are longer than so many times the threshold are recorded all the same. */
#define STORM_THRESHOLDS 8
/*
 * For benchmarks: the hooks that run for each event do nothing. What that costs is the kernel's
 * part of the cost.
 */
const volatile bool hooks_do_nothing = false;
/* The target is several servers, whose requests are counted apart. */
const volatile bool servers_apart = false;
/*
 * For a test: switches from this process are not seen, as on kernels that do not trace what some
 * processes do. 0: all are.
 */
const volatile u32 untraced_process = 0;
/*
 * The kernel has bpf_task_work_schedule_resume: a thread can leave its stack whatever it slept in.
 */
const volatile bool user_stacks_exact = false;

/*
 * Set by user space for the last sweep: every sleeping thread is recorded, however short its sleep.
 */
volatile bool sweep_all = false;
/* Set when reads and writes are seen: before that a thread that moves bytes seems to move none. */
volatile bool sockets_followed = false;
/*
 * Set when the clock of the samples ticks on every CPU: what the host takes is looked at often
 * enough to know when it did.
 */
volatile bool clock_ticks = false;
/*
 * How often its rate was set so far, and what it is, in nanoseconds; and whether it stands in for a
 * host that does not tell when a CPU stood still: see stolen.bpf.h.
 */
volatile u64 clock_set = 0;
const volatile u64 clock_period_ns = 0;
const volatile bool clock_tells_stolen = false;
/* It ticks at its slower rate. */
volatile bool clock_is_sparse = false;
/* User space sleeps, and is to be woken for what cannot wait. */
volatile bool user_space_sleeps = false;
/* Which pass over the target's files is being made: first the listeners, then the connections. */
volatile u32 file_pass = 0;
/* What was there before this was there before whywait. */
volatile u64 began_ns = 0;
/* Reads and writes are seen since then. */
volatile u64 sockets_followed_ns = 0;
/* The same in jiffies. */
u64 began_jiffies = 0;
/* The recording ends: the books on sockets are being closed. */
bool sockets_are_closed = false;

/* There is nothing to be read, or no room: a socket does not block (errno.h). */
#define EAGAIN 11

enum thread_state {
	THREAD_RUNNING,
	THREAD_RUNNABLE,
	THREAD_SLEEPING,
	THREAD_ROBBED, /* it runs, and its CPU stood still: see stolen.bpf.h */
};
IN_BTF(enum thread_state, thread_state);

/*
 * Sums of a thread's short sleeps on one futex word, or of a storm's on one descriptor, that are
 * not in `futexes` yet.
 */
struct recent_futex {
	u64 total_ns;
	u64 longest_ns;
	u64 count;
};

#define WORD_TELLS_OWNER 1
#define WORD_TELLS_LOCK 2

#define RECENT_FUTEXES 6
#define OWNERLESS_WORDS 4
#define KNOWN_KERNEL_STACKS 4

/* A user stack that user space has had, and what tells it: see known_stack.bpf.h. */
#define KNOWN_STACKS 8
#define KNOWN_WORDS 16
#define STACK_TOP_BYTES 512

struct known_stack {
	u64 ip;
	u64 sp; /* 0: none */
	u64 key;
	u64 sent_ns;
	u32 words;
	u32 bytes; /* up to the last of them */
	u8 at[KNOWN_WORDS]; /* which words of the stack are return addresses */
};

struct stack_top {
	u64 words[STACK_TOP_BYTES / 8];
};

/* Of `cpu_answered_ns`. */
#define WROTE_INSTEAD (~0ULL)

/* A kernel stack that user space has had: see kernel_key. */
struct known_kernel_stack {
	u64 key;
	u64 sent_ns;
};

/*
 * By line of the cache: what each switch needs, what each read and write needs, and what only a
 * record does. The tables of threads begin at a page (BPF_F_MMAPABLE), so that a state begins at a
 * line.
 */
struct thread {
	u32 tid; /* 0: not followed (yet, or any more), see threads.bpf.h */
	u32 claimed; /* by the thread of this id */
	u32 tgid;
	s32 nr;
	u64 in_ns; /* last got a CPU */
	u64 out_ns; /* last left the CPU, or was last known to sleep */
	u64 wake_ns;
	u32 waker_tid;
	u32 waker_tgid;
	u8 wake_context;
	/* Of jobs: see handed.bpf.h and polled.bpf.h. */
	u8 fetches; /* it has messages from a broker */
	u8 handed; /* it was given such ones: HANDED_… */
	u8 asked; /* it has asked a broker that is polled for more: ASKED… */
	u32 seq;
	u8 state;
	u8 family; /* of the system call that it sleeps in */
	u8 waker_in_target;
	u8 since_before;
	u8 uninterruptible;
	u8 io_wait;
	u8 timeout;
	u8 stack_asked; /* STACK_…: it will leave its stack */
	/* The second line. */
	u64 args[3];
	u64 ip, sp; /* of the program that it sleeps in */
	u64 stack_key; /* of the user stack that it sleeps in, 0: not known */
	/* got its CPU after its last sleep; `in_ns` moves on when it is preempted, this does not */
	u64 back_ns;
	/* it sleeps in an epoll instance for the first time: recorded however short the sleep */
	u8 record_poll;
	u8 interruptible; /* it sleeps for a wake or a signal, and is not stopped */
	u8 serves; /* it works for a request of `cpu_port` */
	u8 suspected;
	u8 progressed; /* a byte moved since it last went to sleep in a poll */
	u8 short_sleeps; /* in a row: see SHORT_SLEEPS */
	u8 word_tells; /* WORD_…: what was read beside the word of its futex wait */
	u8 storm; /* its sleep is added to its word's sums, however long it was */
	/* The third and fourth. */
	u64 parts[PART_COUNT]; /* nanoseconds of each kind so far, up to the last switch */
	/* The thread's last I/O (poll, read or write), and its totals then. 0: it has done none. */
	u64 io_ns;
	u64 io_on_cpu_ns;
	u64 io_runnable_ns;
	/* What its CPU time is for: see cpu.bpf.h. */
	u64 cpu_mark_ns; /* its on-CPU total when it was last charged */
	u64 progress_on_cpu_ns; /* … and when a byte last moved */
	u64 interval_on_cpu_ns; /* … or it slept in a poll */
	/* The fifth. */
	struct listener_sum open; /* not yet added to the sum of `cpu_port` */
	u32 dry_samples; /* samples in polls since a byte last moved */
	u16 herd_port; /* it was woken for a connection there: see herd.bpf.h */
	u16 cpu_port;
	/* The sixth: sleeps in polls, and connections. */
	u64 herd_on_cpu_ns;
	u64 poll_sleeps;
	u64 dry_sleeps;
	u64 window_ns;
	u32 window_samples;
	u32 window_sleeps;
	u32 window_dry;
	s32 epfd;
	u64 cpu_socket; /* the connection for which it works, 0: none: see socket_cpu.bpf.h */
	/*
	 * … and its on-CPU total when it wrote to that last; 0: it has only read from it;
	 * WROTE_INSTEAD: it has only written to it, and read another one before
	 */
	u64 cpu_answered_ns;
	/* Three for sleeps on futexes. */
	u64 recent_futexes
		/* which ones `futexes` has the sums of, 0: none; see summed_under */
		[RECENT_FUTEXES];
	u32 next_futex; /* the place that is given away next */
	u32 ended;
	struct recent_futex futexes[RECENT_FUTEXES];
	/*
	 * Words beside which no owner was found: the lowest half of their address, and how often in
	 * a row.
	 */
	u32 ownerless[OWNERLESS_WORDS];
	u8 ownerless_times[OWNERLESS_WORDS];
	u32 known_tags[KNOWN_STACKS]; /* see slot_with */
	struct known_stack known[KNOWN_STACKS];
	struct known_kernel_stack known_kernel[KNOWN_KERNEL_STACKS];
	u64 at_row[PART_COUNT]; /* `parts` after the last record */
	u64 epoll;
	u64 lock; /* of the futex wait, as `word_tells` says: see read_futex */
	u32 owner;
	u32 stack_seq; /* the sleep whose stack was read last */
	u32 uring; /* the ring that it uses: its index and 1; 0: none */
	/* Counted while bursts last: see burst.bpf.h. */
	u32 burst_id;
	u64 burst_calls;
	u64 burst_polls;
	/*
	 * how far its ring was when the clock found it in io_uring_enter last: see uring_progress
	 */
	u64 uring_seen;
	u32 burst_recorded;
	u32 known_next; /* the slot of `known` that is taken next */
	/* When its CPU had stood still last, and for how long, while it ran: not in `parts` yet. */
	u64 stolen_until_ns;
	u64 stolen_ns;
	/* It left its CPU then because its cgroup had used up its CPU time. */
	u64 throttled_ns;
	u64 futile_ns;
	u64 user_samples;
	u64 system_samples;
	/* Of datagrams: the question that it has read last, its place and 1; 0: none. */
	u32 question;
	u32 sent_to; /* who has just got what it sends through a unix socket, as a hash */
	/* Of jobs: it was given the last one through this descriptor, … */
	u32 handed_fd; /* … or this futex */
	u32 handed_by; /* … by this thread */
	u32 answers; /* … and so often it has answered it since */
	u32 rest_seq; /* its last sleep there, … */
	u64 rest_on_cpu_ns; /* … and its on-CPU total since */
	u64 reads; /* its reads until it began with the job, in calls; 0: not known */
	u64 answer_reads; /* … until it answered last, … */
	u64 rest_reads; /* … and until it slept for more */
	u32 free_seq; /* its last sleep when it answered, or had its turn to read */
	u32 unanswered; /* so often it was woken as if it were given one, and did not answer */
	/* In this call, with this argument, it sleeps until there is a message; it did last then. */
	s32 rest_nr;
	u32 rest_at;
	u64 rested_ns;
	/* … when it was done with the last one that it had, and its totals then; 0: never */
	u64 done_ns;
	u64 at_done[PART_COUNT];
	u32 tls; /* the connection in TLS that it has read or written last: its place, and 1 */
} __attribute__((aligned(64)));

/* The target's processes: a unix socket on which one of them listens is the target's. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, u32);
	__type(value, u8);
} processes SEC(".maps");

/* Which server a process is of, from 1. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, u32);
	__type(value, u32);
} servers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct counters);
} counters SEC(".maps");

/*
 * What is recorded one by one: at most so many a second and CPU. A line here is all that a new
 * budget needs.
 */
#define BUDGETS(BUDGET)                                                                            \
	BUDGET(WAITS, 20000)                                                                       \
	/*                                                                                         \
	 * Of these, at most this many sleeps on futexes, and this many for descriptors to become  \
	 * readable, at a place of which the thread had its stack read, and shorter than           \
	 * STORM_THRESHOLDS times the threshold. Those beyond are added to their object's sums.    \
	 */                                                                                        \
	BUDGET(STORM, 1000)                                                                        \
	BUDGET(READ_STORM, 500)                                                                    \
	/*                                                                                         \
	 * … and sleeps on futexes that a thread of the target ended soon: most of their length    \
	 * was a wait for a CPU.                                                                   \
	 */                                                                                        \
	BUDGET(QUEUED_STORM, 50)                                                                   \
	BUDGET(PREEMPTED, 1000)                                                                    \
	BUDGET(CPU_WAITS, 1000)                                                                    \
	BUDGET(REQUESTS, 5000)                                                                     \
	BUDGET(EXCHANGES, 5000)                                                                    \
	BUDGET(TAILS, 2000)                                                                        \
	BUDGET(ABANDONED, 1000)                                                                    \
	BUDGET(DNS, 1000)                                                                          \
	/* … of what prepares statements for later. */                                            \
	BUDGET(NAMES, 1000)                                                                        \
	BUDGET(FIELDS, 100000)                                                                     \
	BUDGET(PUSHES, 1000)                                                                       \
	BUDGET(STACKS, 2000)                                                                       \
	BUDGET(WAKERS, 1000)                                                                       \
	BUDGET(KNOWN_WAKERS, 4000)                                                                 \
	BUDGET(URING_OPS, 500)                                                                     \
	BUDGET(URING_LAGS, 1000)

#define BUDGET_KIND(name, per_second) BUDGET_##name,
enum budget_kind { BUDGETS(BUDGET_KIND) BUDGET_COUNT };

#define BUDGET_PER_SECOND(name, per_second) PER_SECOND_##name = per_second,
enum budget_per_second { BUDGETS(BUDGET_PER_SECOND) };

struct budget {
	u64 window_ns;
	u64 used;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, BUDGET_COUNT);
	__type(key, u32);
	__type(value, struct budget);
} budgets SEC(".maps");

#define COUNT_MORE(field, more)                                                      \
	do {                                                                         \
		u32 zero_ = 0;                                                       \
		struct counters *counters_ = bpf_map_lookup_elem(&counters, &zero_); \
		if (counters_)                                                       \
			counters_->field += (more);                                  \
	} while (0)
#define COUNT(field) COUNT_MORE(field, 1)

static __always_inline bool take_from_budget(u32 kind, u32 per_second, u64 now)
{
	struct budget *budget = bpf_map_lookup_elem(&budgets, &kind);

	if (!budget)
		return false;
	if (now - budget->window_ns > 100000000) {
		budget->window_ns = now;
		budget->used = 0;
	}
	return budget->used++ < per_second / 10;
}

static __always_inline bool budget_used_up(u32 kind, u32 per_second, u64 now)
{
	struct budget *budget = bpf_map_lookup_elem(&budgets, &kind);

	return budget && now - budget->window_ns <= 100000000 && budget->used >= per_second / 10;
}

/* Whether one more record of this kind may be sent in this tenth of a second. */
#define within_budget(name, now) take_from_budget(BUDGET_##name, PER_SECOND_##name, now)
/* Whether within_budget would say no. */
#define used_up(name, now) budget_used_up(BUDGET_##name, PER_SECOND_##name, now)

/* So many bytes cannot wait: a ring has room for 64 times as many. */
#define MANY_BYTES (256 << 10)

/*
 * The flags to submit a record to `ring` with. `urgent`: it is of something that will not be there
 * for long.
 */
static __always_inline u64 wakeup_for(void *ring, bool urgent)
{
	if (!user_space_sleeps ||
	    (!urgent && bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA) < MANY_BYTES))
		return BPF_RB_NO_WAKEUP;
	user_space_sleeps = false;
	return BPF_RB_FORCE_WAKEUP;
}

/* Of `records`, that can wait. */
static __always_inline void submit(void *record)
{
	bpf_ringbuf_submit(record, wakeup_for(&records, false));
}

static __always_inline void follow_process(u32 tgid)
{
	u8 one = 1;

	bpf_map_update_elem(&processes, &tgid, &one, BPF_ANY);
}

/* 0: of none that is kept apart. */
static __always_inline u32 server_of(u32 tgid)
{
	u32 *server = servers_apart ? bpf_map_lookup_elem(&servers, &tgid) : 0;

	return server ? *server : 0;
}

/* A new process is of its parent's server. It stays there when it ends: its sockets are counted. */
static __always_inline void inherit_server(u32 parent, u32 child)
{
	u32 server = server_of(parent);

	if (server)
		bpf_map_update_elem(&servers, &child, &server, BPF_ANY);
	else if (servers_apart)
		bpf_map_delete_elem(&servers, &child);
}

static __always_inline bool is_running(const struct thread *thread)
{
	return thread->state == THREAD_RUNNING || thread->state == THREAD_ROBBED;
}

/*
 * On-CPU time up to now of a thread that runs. Of one that was not seen getting its CPU nothing is
 * known.
 */
static __always_inline u64 on_cpu_now(const struct thread *thread, u64 now)
{
	return thread->parts[PART_ON_CPU] +
	       (thread->in_ns && now > thread->in_ns ? now - thread->in_ns : 0);
}

/*
 * The same, to be recorded: without what the host took of it so far. A thread that only spins comes
 * by no hook that would put it right.
 */
static __always_inline u64 own_on_cpu_now(const struct thread *thread, u64 now)
{
	u64 on_cpu_ns = on_cpu_now(thread, now);
	u64 stolen_ns = thread->state == THREAD_ROBBED ? thread->stolen_ns : 0;

	return on_cpu_ns > stolen_ns ? on_cpu_ns - stolen_ns : 0;
}

/* What is open under `fd` of `task`. 0: nothing. */
static __always_inline struct file *file_of(struct task_struct *task, u32 fd)
{
	struct fdtable *fdt = BPF_CORE_READ(task, files, fdt);
	struct file **table = BPF_CORE_READ(fdt, fd);
	struct file *file = 0;

	if (!table || fd >= BPF_CORE_READ(fdt, max_fds))
		return 0;
	return bpf_probe_read_kernel(&file, sizeof(file), table + fd) ? 0 : file;
}

/* The kernel address of the epoll instance under `fd` of `task`: its identity. */
static __always_inline u64 epoll_of(struct task_struct *task, u32 fd)
{
	struct file *file = file_of(task, fd);

	return file ? (u64)BPF_CORE_READ(file, private_data) : 0;
}

#define INODE_TYPE 0170000 /* S_IFMT and S_IFSOCK, include/uapi/linux/stat.h */
#define INODE_SOCKET 0140000

static __always_inline bool is_socket(struct task_struct *task, u32 fd)
{
	struct file *file = file_of(task, fd);

	return file && (BPF_CORE_READ(file, f_inode, i_mode) & INODE_TYPE) == INODE_SOCKET;
}
