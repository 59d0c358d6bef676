/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Sockets: when the kernel had a request's first byte, when the target read it and when it wrote
 * the response. All requests go into sums; only slow ones become records.
 */
#pragma once

#include "core/bits.bpf.h"
#include "collectors/names/names.bpf.h"
#include "collectors/samples/slow.bpf.h"
#include "collectors/sockets/arrivals.bpf.h"
#include "collectors/sockets/multiplexed.bpf.h"
#include "collectors/tasks/tasks.bpf.h"
#include "collectors/tails/tails.bpf.h"

#define MSG_PEEK 2
#define EPOLLIN 1
#define EPOLLONESHOT (1U << 30)
/*
 * The first epoll registration of the socket's file; where there is none, `fd` is its descriptor,
 * -1: not known.
 */
static __always_inline void fill_registration(struct request_record *record, struct sock *sk,
					      s32 fd)
{
	struct hlist_head *head = BPF_CORE_READ(sk, sk_socket, file, f_ep);
	struct hlist_node *first = 0;
	struct epitem *item;
	u32 events;

	record->epoll = 0;
	record->fd = fd;
	record->read_armed = 2;
	if (!head)
		return;
	first = BPF_CORE_READ(head, first);
	if (!first)
		return;
	item = (struct epitem *)((u64)first - bpf_core_field_offset(struct epitem, fllink));
	record->epoll = (u64)BPF_CORE_READ(item, ep);
	record->fd = BPF_CORE_READ(item, ffd.fd);
	/*
	 * What is delivered once (EPOLLONESHOT) has no mask until it is armed again, while the
	 * thread that it was delivered to is at work: whether it was armed for this request is not
	 * known then.
	 */
	events = BPF_CORE_READ(item, event.events);
	if (events & EPOLLIN || !(events & EPOLLONESHOT))
		record->read_armed = !!(events & EPOLLIN);
}

/*
 * Sends the request as it stands, and says whether it could be. Not static, so that it is verified
 * once for a program.
 */
__noinline bool send_request(struct socket_state *socket, u64 now)
{
	struct request_record *record;

	if (!socket)
		return false;
	if (!within_budget(REQUESTS, now)) {
		COUNT(lost_request_budget);
		return false;
	}
	if (names_wanted)
		put_name(socket, socket->seq, socket->tgid, now);
	record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	if (!record) {
		COUNT(lost_ring_full);
		return false;
	}
	record->type = RECORD_REQUEST;
	record->seq = socket->seq;
	record->socket = socket->id;
	record->ready_ns = socket->ready_ns;
	record->recv_ns = socket->recv_ns;
	record->first_send_ns = socket->first_send_ns;
	record->last_send_ns = socket->last_send_ns;
	record->bytes_in = socket->bytes_in;
	record->bytes_out = socket->bytes_out;
	record->unserved_wakeup_ns = socket->unserved_wakeup_ns;
	record->tgid = socket->tgid;
	record->recv_tid = socket->recv_tid;
	record->send_tid = socket->send_tid;
	record->local_port = socket->local_port;
	record->before_accept = socket->before_accept;
	record->since_before = socket->ready_ns < began_ns;
	record->unaccepted = !socket->recv_ns &&
			     !KERNEL_READ(struct sock, sk_of(socket), sk_socket);
	record->multiplexed = is_multiplexed(socket);
	record->own = socket->peer == PEER_OWN;
	record->kind = socket->kind;
	record->broker = 0;
	record->handed_by = socket->kind == WORK_HANDED_JOB ? socket->exchange.send_tid : 0;
	record->pad = 0;
	if (unlikely(socket->kind >= WORK_JOB) && socket->exchange.peer != PEER_NONE)
		record->broker = socket->exchange.peer - 1;
	record->ended_ns = socket->kind == WORK_HTTP2 ? socket->ended_ns : 0;
	record->gone_ns = socket->gone == GONE && !socket->last_send_ns ? now : 0;
	__builtin_memcpy(record->service, socket->service, sizeof(record->service));
	record->taken_ns = socket->taken_ns;
	record->recv_task = runtimes_known ? socket->recv_task : 0;
	record->send_task = runtimes_known && socket->last_send_ns ? socket->send_task : 0;
	was_slow(socket->recv_ns, socket->last_send_ns,
		 socket->last_send_ns - socket->recv_ns - socket->service[PART_RUNNABLE]);
	fill_registration(record, sk_of(socket), (s32)(socket->fd - 1));
	submit(record);
	return true;
}

/* log-linear: 8 buckets to the power of two */
static __always_inline u32 latency_bucket(u64 ns)
{
	u32 exponent;

	if (ns < 8)
		return ns;
	exponent = log2_u64(ns);
	return ((exponent - 2) << 3) + ((ns >> (exponent - 3)) & 7);
}

/* As latency_bucket, for what is rare: verified once for a program. */
__noinline u32 bucket_of(u64 ns)
{
	return latency_bucket(ns);
}

/* An answered request, into the sums. Not static, so that it is verified once for a program. */
__noinline int count_request(const struct socket_state *socket)
{
	struct request_totals *sums;
	u64 latency_ns, many;
	u32 bucket;

	sums = socket ? totals_of(socket) : 0;
	if (!sums)
		return 0;
	sums->count++;
	if (unlikely(is_multiplexed(socket)))
		sums->multiplexed++;
	if (likely(socket->timing == UNTIMED))
		return 0;
	many = socket->timing == TIMED_FOR_MANY ? TIMED_SHARE : 1;
	latency_ns = socket->last_send_ns - socket->ready_ns;
	if (latency_ns >= threshold_ns)
		sums->slow++;
	sums->total_ns += many * latency_ns;
	if (latency_ns > sums->max_ns)
		sums->max_ns = latency_ns;
	sums->unserved_ns += many * (socket->recv_ns - socket->ready_ns);
	sums->unserved_wakeup_ns += many * socket->unserved_wakeup_ns;
	if (socket->only_on_cpu) {
		u64 on_cpu_ns = socket->service[PART_ON_CPU];
		u64 lay_ns =
			socket->taken_ns > socket->recv_ns ? socket->taken_ns - socket->recv_ns : 0;

		if (lay_ns > on_cpu_ns)
			lay_ns = on_cpu_ns;
		sums->service[PART_URING] += many * lay_ns;
		sums->service[PART_ON_CPU] += many * (on_cpu_ns - lay_ns);
	} else {
		for (int i = 0; i < PART_COUNT; i++)
			sums->service[i] += many * socket->service[i];
	}
	bucket = latency_bucket(latency_ns);
	if (bucket < LATENCY_BUCKETS)
		sums->latency[bucket] += many;
	return 0;
}

#define COUNTED 2 /* of `emitted`: it is in the sums before its end */

/*
 * An answer on a unix socket whose state goes with it, and whose end may not be seen: counted as
 * soon as it begins.
 */
static __noinline int count_at_once(struct socket_state *socket)
{
	count_request(socket);
	socket->emitted = COUNTED;
	return 0;
}

/*
 * The request is over that is more than an answer written in one go: what was sent as a record is
 * sent once more with its final end. Not static, so that it is verified once for a program.
 */
__noinline int long_request_ends(struct socket_state *socket, const struct arrivals *arrivals,
				 u64 now)
{
	if (!socket)
		return 0;
	if (socket->held || socket->retransmits || socket->bytes_out >= LARGE_RESPONSE)
		tail_ends(socket, arrivals, now);
	if (socket->emitted) {
		/*
		 * Sent when the first byte of the response was written: say how it ended if that
		 * was not all.
		 */
		if (socket->last_send_ns > socket->first_send_ns && socket->emitted != COUNTED)
			send_request(socket, now);
	} else if (!socket->last_send_ns) {
		must_be_timed(socket, arrivals);
		/*
		 * Never answered. Data that nobody read is recorded if it waited for long; an end
		 * of file is no request, and what a subscriber says wants no answer, as a rule.
		 */
		if ((socket->recv_ns ? socket->bytes_in && socket->pushes != PUSHES : 1) &&
		    now - socket->ready_ns >= threshold_ns)
			send_request(socket, now);
	} else {
		count_request(socket);
	}
	return 0;
}

/* The request is over: into the sums, as a rule. */
static __always_inline void request_ends(struct socket_state *socket,
					 const struct arrivals *arrivals, u64 now)
{
	if (!socket->ready_ns)
		return;
	if (unlikely(socket->held || socket->retransmits || socket->emitted ||
		     !socket->last_send_ns || socket->bytes_out >= LARGE_RESPONSE))
		long_request_ends(socket, arrivals, now);
	else
		count_request(socket);
	socket->ready_ns = 0;
	socket->last_send_ns = 0;
}

static __always_inline void request_begins(struct socket_state *socket,
					   const struct arrivals *arrivals, u64 ready_ns)
{
	socket->before_accept = !socket->seq && arrivals && arrivals->before_accept;
	socket->seq++;
	socket->before_in += socket->bytes_in;
	socket->before_out += socket->bytes_out;
	socket->recent_out = socket->recent_out / 2 + socket->bytes_out;
	socket->ready_ns = ready_ns;
	socket->recv_ns = 0;
	socket->first_send_ns = 0;
	socket->last_send_ns = 0;
	socket->bytes_in = socket->next_in;
	socket->next_in = 0;
	socket->written_to = socket->tcp ? tcp_written_up_to(sk_of(socket)) : 0;
	socket->bytes_out = 0;
	socket->unserved_wakeup_ns = 0;
	socket->recv_tid = 0;
	socket->send_tid = 0;
	socket->emitted = 0;
	socket->closing = 0;
	socket->held = TAIL_SENT;
	socket->retransmits = 0;
	socket->timeouts = 0;
	socket->later.ready_ns = 0;
	socket->fd = 0;
	socket->uring = 0;
	socket->taken_ns = 0;
	if (unlikely(!socket->only_on_cpu))
		__builtin_memset(socket->service, 0, sizeof(socket->service));
	socket->only_on_cpu = 1;
	socket->service[PART_ON_CPU] = 0;
}

/* As account_service, of all but the most. Not static, so that it is verified once. */
__noinline int account_parts(struct socket_state *socket, const struct thread *thread, u64 now,
			     u64 on_cpu_ns)
{
	if (!socket || !thread)
		return 0;
	socket->only_on_cpu = 0;
	if (thread->tid == socket->recv_tid) {
		for (int i = 0; i < PART_COUNT; i++)
			socket->service[i] = thread->parts[i] - socket->at_recv[i];
		socket->service[PART_ON_CPU] = on_cpu_ns - socket->at_recv[PART_ON_CPU];
		return 0;
	}
	/*
	 * Another thread answers: until it was woken (or came to it) the request waited for
	 * threads.
	 */
	__builtin_memset(socket->service, 0, sizeof(socket->service));
	if (thread->back_ns > socket->recv_ns) {
		u64 woken = thread->wake_ns > socket->recv_ns && thread->wake_ns < thread->back_ns ?
				    thread->wake_ns :
				    thread->back_ns;

		socket->service[PART_THREAD] = woken - socket->recv_ns;
		socket->service[PART_RUNNABLE] = thread->back_ns - woken;
		socket->service[PART_ON_CPU] = now - thread->back_ns;
	} else {
		socket->service[PART_ON_CPU] = now - socket->recv_ns;
	}
	return 0;
}

/* How the time from the read to this write was spent. */
static __always_inline void account_service(struct socket_state *socket,
					    const struct thread *thread, u64 now, u64 on_cpu_ns)
{
	/* Most answers are written before the thread was switched even once. */
	if (likely(thread->tid == socket->recv_tid && socket->only_on_cpu && thread->in_ns &&
		   thread->in_ns <= socket->recv_ns))
		socket->service[PART_ON_CPU] = now - socket->recv_ns;
	else
		account_parts(socket, thread, now, on_cpu_ns);
}
