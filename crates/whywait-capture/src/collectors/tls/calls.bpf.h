/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Calls of TLS libraries, at probes in the program that user space sets (mod.rs): what they have
 * read and written in clear text is gone through as what is read and written on a socket is, from
 * the head of a frame to the next one.
 *
 * Whose it is a library does not say. The first clear text of a session is of the connection that
 * its thread has read last; of Go's, which another goroutine may read, the object has the
 * descriptor. It has to be what HTTP/2 begins with, and the connection one of which no clear text
 * was seen; of a connection that was there before it has to consist of frames.
 */
#pragma once

#include "collectors/sched/sched.bpf.h"
#include "collectors/tls/sockets.bpf.h"

/* Descriptors that can be looked up. */
#define TLS_DESCRIPTORS (1 << 20)
/* Nothing moves more at once. */
#define TLS_MOST_BYTES 0x7fffffff

/* A connection that is followed, by its socket's cookie: its place and 1; 0: it is not. */
static long find_this_followed(u32 i, struct followed_search *search)
{
	u32 place = (low_half(search->cookie) + i) & (FOLLOWED - 1);

	if (NOW(followed[place].cookie) != search->cookie)
		return 0;
	search->found = place + 1;
	return 1;
}

/*
 * Of Go's tls.Conn, whose first field is a net.Conn: if that is a *net.TCPConn, its place. There a
 * pointer leads to the netFD, of which the descriptor comes after fdmu (internal/poll/fd_unix.go).
 */
static __noinline u32 tls_place_of_go(u64 session)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct followed_search search = {};
	u64 connection = 0, net_fd = 0;
	struct file *file = 0, **files;
	struct fdtable *table;
	struct socket *socket;
	struct sock *sk;
	u32 fd = 0;

	if (bpf_probe_read_user(&connection, sizeof(connection), (void *)(session + 8)) ||
	    bpf_probe_read_user(&net_fd, sizeof(net_fd), (void *)connection) ||
	    bpf_probe_read_user(&fd, sizeof(fd), (void *)(net_fd + 16)))
		return 0;
	table = BPF_CORE_READ(task, files, fdt);
	if (!table || fd >= TLS_DESCRIPTORS || fd >= BPF_CORE_READ(table, max_fds))
		return 0;
	files = BPF_CORE_READ(table, fd);
	if (bpf_probe_read_kernel(&file, sizeof(file), files + fd) || !file)
		return 0;
	/* What is no socket has something else there, of which no place has the cookie. */
	socket = BPF_CORE_READ(file, private_data);
	sk = BPF_CORE_READ(socket, sk);
	search.cookie = BPF_CORE_READ(sk, __sk_common.skc_cookie.counter);
	if (search.cookie)
		bpf_loop(FOLLOWED_TRIES, find_this_followed, &search, 0);
	return search.found;
}

/* A connection is one of HTTP/2. */
static __noinline int tls_is_http2(struct followed *connection, const struct tls_caller *caller,
				   const struct tls_call *call, u32 place, u32 preface)
{
	struct tls_session key = { .session = call->session, .tgid = caller->tgid };
	struct tls_place found = { .place = place, .tag = connection->tag };

	connection->from_preface = preface;
	connection->framers[OF_CLIENT].skip = preface ? PREFACE_LENGTH : 0;
	connection->framers[OF_CLIENT].have = 0;
	if (!preface)
		connection->framers[OF_SERVER].seeks = SEEKS;
	if (connection->calls)
		COUNT(calls_connections);
	else
		COUNT(streams_connections);
	COUNT(tls_http2);
	bpf_map_update_elem(&tls_sessions, &key, &found, BPF_ANY);
	barrier();
	NOW(connection->tls) = TLS_HTTP2;
	return 0;
}

/* The place of a session, and 1; 0: it is not followed. */
static __noinline u32 tls_place(const struct tls_caller *caller, const struct tls_call *call,
				const struct thread *thread, u32 go)
{
	struct tls_session key = { .session = call->session, .tgid = caller->tgid };
	struct tls_place *known = bpf_map_lookup_elem(&tls_sessions, &key);
	struct followed *connection;
	u32 place;

	if (known) {
		connection = followed_at(known->place);
		if (connection->tag == known->tag && NOW(connection->cookie))
			return known->place + 1;
	}
	place = go ? tls_place_of_go(call->session) : 0;
	if (!place)
		place = thread->tls;
	if (!place)
		return 0;
	connection = followed_at(place - 1);
	/* Who begins is the client. */
	return NOW(connection->cookie) && connection->calls == (u8)caller->writes &&
			       (connection->tls == TLS_UNKNOWN || connection->tls == TLS_SOUGHT) ?
		       place :
		       0;
}

/* Goes through clear text from one head to the next. */
static __always_inline void tls_go_through(struct walk *walk, struct framer *framer, u64 at,
					   u32 bytes)
{
	framer->left.at = at;
	framer->left.piece = bytes;
	framer->left.vectors = 0;
	framer->left.bytes = bytes;
	bpf_loop(MOST_STEPS, next_frame, walk, 0);
	framer->lost |= framer->left.bytes != 0;
}

/*
 * Of a connection that was there before: whether its clear text was frames, from the beginning of
 * one piece to the end of another, and asks for something.
 */
static __noinline bool tls_were_frames(struct followed *connection, struct framer *framer)
{
	bool are = !framer->lost;

	if (are && (!framer->asks || framer->skip || framer->have))
		return false;
	framer->tries = 0;
	framer->asks = 0;
	framer->have = 0;
	framer->skip = 0;
	framer->lost = 0;
	if (!are && !--connection->tls_looks)
		connection->tls = TLS_OTHER;
	return are;
}

/* So many bytes of clear text were read or written. */
static __always_inline int tls_moves(const struct tls_caller *caller,
				     const struct tls_call *call, struct thread *thread, u32 bytes,
				     u32 go)
{
	u32 place = tls_place(caller, call, thread, go);
	struct walk walk = { .thread = thread };
	struct followed *connection;
	struct framer *framer;
	bool sought_now, begins;

	if (!place)
		return 0;
	walk.place = (place - 1) & (FOLLOWED - 1);
	connection = followed_at(walk.place);
	walk.of_client = connection->calls == (u8)caller->writes;
	framer = &connection->framers[walk.of_client & 1];
	if (framer->lost)
		return 0;
	framer->now_ns = thread->io_ns;
	if (connection->calls && caller->writes) {
		framer->task = task_of(thread);
		framer->fd = connection->writes_to;
	}
	if (unlikely(connection->tls < TLS_HTTP2)) {
		if (is_preface(call->at, bytes))
			tls_is_http2(connection, caller, call, walk.place, true);
		else
			/* Or it was read before there were probes. */
			connection->tls = TLS_SOUGHT;
	}
	sought_now = connection->tls == TLS_SOUGHT;
	begins = !framer->tries;
	framer->tries = sought_now;
	for (int pass = 0; pass < 3; pass++) {
		tls_go_through(&walk, framer, call->at, bytes);
		if (likely(!sought_now))
			break;
		/* What came before was none: it may be that they begin here. */
		if (framer->lost && !begins) {
			tls_were_frames(connection, framer);
			begins = true;
			framer->tries = 1;
			continue;
		}
		if (!tls_were_frames(connection, framer))
			return 0;
		tls_is_http2(connection, caller, call, walk.place, false);
		/* Of more than one piece the others are gone. */
		if (!begins)
			return 0;
		sought_now = false;
	}
	if (unlikely(framer->seeks))
		sought(framer, walk.place);
	return 0;
}

/* Whether a function of C has moved something, and how much. */
static __always_inline u32 tls_moved(struct pt_regs *regs, const struct tls_call *call)
{
	s32 moved = (s32)PT_REGS_RC(regs);
	u64 count = 0;

	if (moved <= 0)
		return 0;
	if (!call->count_at)
		return moved;
	if (bpf_probe_read_user(&count, sizeof(count), (void *)call->count_at) ||
	    count > TLS_MOST_BYTES)
		return 0;
	return count;
}

/* A thread is at a probe. */
static __noinline int tls_is_at_probe(struct pt_regs *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs = user_registers(task);
	u64 does = bpf_get_attach_cookie(ctx);
	struct tls_caller caller = { .tgid = task->tgid, .writes = does & TLS_WRITES };
	struct thread *thread = thread_of(task);
	struct tls_call call = {}, *open;
	u64 now, on_cpu_ns;
	u32 bytes;

	if (!thread)
		return 0;
	caller.who = does & TLS_GO ? GO_TASK(regs) : task->pid;
	if (!(does & TLS_RETURNS)) {
		call.session = does & TLS_GO ? GO_ARGUMENT_1(regs) : PT_REGS_PARM1(regs);
		call.at = does & TLS_GO ? GO_ARGUMENT_2(regs) : PT_REGS_PARM2(regs);
		call.count_at = does & TLS_COUNTS ? PT_REGS_PARM4(regs) : 0;
		if (bpf_map_update_elem(&tls_calls, &caller, &call, BPF_ANY))
			COUNT(lost_tls_calls);
		return 0;
	}
	open = bpf_map_lookup_elem(&tls_calls, &caller);
	if (!open)
		return 0;
	call = *open;
	bpf_map_delete_elem(&tls_calls, &caller);
	bytes = does & TLS_GO ? (u32)GO_RESULT(regs) : tls_moved(regs, &call);
	if (!bytes || bytes > TLS_MOST_BYTES)
		return 0;
	COUNT(events);
	now = bpf_ktime_get_ns();
	must_run(task, thread, now);
	on_cpu_ns = on_cpu_now(thread, now);
	thread_does_io(thread, now, on_cpu_ns);
	tls_moves(&caller, &call, thread, bytes, !!(does & TLS_GO));
	return 0;
}

/*
 * Unlike programs at tracepoints these may be preempted, and run again on the same CPU meanwhile.
 * Some kernels (since 6.13, and 6.12 by now) have functions with 64 bytes of stack or more keep it
 * at one place for each CPU: then another thread's numbers are in it afterwards, addresses among
 * them, and the kernel crashes. Programs with a tail call have their stack where it always was
 * (check_max_stack_depth in kernel/bpf/verifier.c), so there is one, which is never made.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} tls_nowhere SEC(".maps");

bool tls_goes_nowhere = false;

/*
 * Nor are they preempted where that can be had, so that what is kept for each CPU is nobody else's
 * meanwhile: since Linux 6.15, which lets functions be called then that are verified by themselves.
 */
const volatile bool tls_disables_preemption = false;
extern void bpf_preempt_disable(void) __ksym __weak;
extern void bpf_preempt_enable(void) __ksym __weak;

static __always_inline int tls_probe(struct pt_regs *ctx)
{
	if (tls_goes_nowhere)
		bpf_tail_call(ctx, &tls_nowhere, 0);
	if (!tls_disables_preemption || !bpf_ksym_exists(bpf_preempt_disable))
		return tls_is_at_probe(ctx);
	bpf_preempt_disable();
	tls_is_at_probe(ctx);
	bpf_preempt_enable();
	return 0;
}

/* All probes of a library are set by one link, since Linux 6.6: that needs CAP_BPF only. */
SEC("uprobe.multi")
int tls_probes(struct pt_regs *ctx)
{
	return tls_probe(ctx);
}

SEC("uprobe")
int tls_probe_alone(struct pt_regs *ctx)
{
	return tls_probe(ctx);
}
