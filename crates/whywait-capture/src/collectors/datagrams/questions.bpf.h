/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Questions that are open: those that were read on a socket that the target bound, and its own.
 */
#pragma once

#include "collectors/cpu/cpu.bpf.h"
#include "collectors/datagrams/state.bpf.h"
#include "collectors/dns/dns.bpf.h"
#include "collectors/exchanges/exchanges.bpf.h"
#include "collectors/sockets/alone.bpf.h"
#include "collectors/sockets/descriptor.bpf.h"
#include "collectors/sockets/own.bpf.h"
#include "collectors/sockets/requests.bpf.h"

/* The set of those questions. */
static __always_inline u32 question_set(u32 tag)
{
	return (tag >> 1) * QUESTION_WAYS & (QUESTIONS - QUESTION_WAYS);
}

#define QUESTION_KEY(tag, id) ((u64)(tag) << 32 | (u64)(id) << 16 | 1)

/* By these, and then by its time, a question is chosen: the least of all. */
#define QUESTION_HAS_OTHER_ID (1ULL << 61)
#define QUESTION_IS_OTHER (1ULL << 62)

/* 1 or 0. The compiler is not to make a branch of it. */
static __always_inline u64 not_zero(u64 number)
{
	asm volatile("" : "+r"(number));
	number = -number >> 63;
	asm volatile("" : "+r"(number));
	return number;
}

/*
 * The open question with this hash, and this id if there is one, or else the oldest: its place and
 * 1; 0: there is none. Not static, so that it is verified once for a program.
 */
__noinline u32 find_question(u32 tag, u32 id)
{
	u64 wanted = QUESTION_KEY(tag, id), best = QUESTION_IS_OTHER;
	u32 set = question_set(tag), found = 0;

	for (u32 way = 0; way < QUESTION_WAYS; way++) {
		u32 place = (set + way) & (QUESTIONS - 1);
		u64 differs = NOW(question_keys[place]) ^ wanted;
		u64 rank = questions[place].state.recv_ns, less;

		/* Without branches: the verifier would follow each through all that are left. */
		rank |= not_zero(differs >> 32) * QUESTION_IS_OTHER;
		rank |= not_zero(differs & 0xffff0000) * QUESTION_HAS_OTHER_ID;
		less = (rank - best) >> 63;
		best += (rank - best) * less;
		found += (place + 1 - found) * (u32)less;
	}
	return found;
}

/* Nobody has answered it, and nobody will. Not static, so that it is verified once. */
__noinline int question_is_left(u32 place, u64 now)
{
	struct question *question = &questions[place & (QUESTIONS - 1)];
	struct peer peer = {};
	struct peer_sums *sums;
	struct exchange *exchange;

	if (question->state.role == SOCKET_SERVER) {
		COUNT(datagrams_unanswered);
		return 0;
	}
	exchange = &question->state.exchange;
	if (!question->answers || now - exchange->first_send_ns < threshold_ns)
		return 0;
	exchange->peer = number_of(&question->to, &peer);
	sums = exchange->peer == PEER_NONE ? 0 : sums_of(exchange);
	if (!sums)
		return 0;
	sums->unanswered++;
	sums->bytes_out += exchange->bytes_out;
	send_exchange(&question->state, 0, now);
	return 0;
}

/* A place for a question: its number. The oldest of its set is given up where there is no room. */
__noinline u32 take_question(u32 tag, u32 id)
{
	u32 set = question_set(tag), oldest = set;
	u64 oldest_ns = ~0ULL;

	for (u32 way = 0; way < QUESTION_WAYS; way++) {
		u32 place = (set + way) & (QUESTIONS - 1);
		u64 ns = questions[place].state.recv_ns;

		if (!NOW(question_keys[place]) &&
		    !__sync_val_compare_and_swap(&question_keys[place], 0, QUESTION_KEY(tag, id)))
			return place;
		if (ns < oldest_ns) {
			oldest_ns = ns;
			oldest = place;
		}
	}
	oldest &= QUESTIONS - 1;
	question_is_left(oldest, bpf_ktime_get_ns());
	NOW(question_keys[oldest]) = QUESTION_KEY(tag, id);
	return oldest;
}

static __always_inline u32 peer_tag(const struct datagram_socket *socket, u32 peer)
{
	return hash_of((u64)peer << 32 | low_half(socket->id));
}

static __always_inline u32 question_tag(const struct datagram_socket *socket, u32 peer, u16 id)
{
	u32 tag = peer_tag(socket, peer);

	return socket->by_id ? hash_of((u64)id << 32 | tag) : tag;
}

/* The first two bytes of what a thread of the target has sent or read, at that address. */
static __always_inline u16 first_bytes(u64 at)
{
	u16 id = 0;

	return at && !bpf_probe_read_user(&id, sizeof(id), (void *)at) ? id : 0;
}

/* Answered by nobody so far: a question. Not static, so that it is verified once. */
__noinline int question_is_read(struct datagram_socket *socket, struct thread *thread,
				const struct arrival *arrival, u32 bytes)
{
	struct question *question, *same;
	struct socket_state *state;
	u32 tag, place;

	if (!socket || !thread || !arrival)
		return 0;
	tag = question_tag(socket, arrival->peer, arrival->id);
	place = arrival->peer ? find_question(tag, arrival->id) : 0;
	if (place) {
		same = &questions[(place - 1) & (QUESTIONS - 1)];
		if (same->id == arrival->id && same->print == arrival->print)
			COUNT(datagrams_retried);
	}
	place = take_question(tag, arrival->id) & (QUESTIONS - 1);
	question = &questions[place];
	question->peer = arrival->peer;
	question->id = arrival->id;
	question->print = arrival->print;
	question->answers = socket->answered;
	state = &question->state;
	begins_alone(state, thread, arrival->ns, thread->io_ns, bytes, thread->io_on_cpu_ns);
	state->sk = socket->sk;
	state->local_port = socket->port;
	state->family = socket->family;
	state->kind = WORK_DATAGRAM;
	state->peer = PEER_OTHER;
	if (names_wanted && !thread->uring)
		keep_dns_question(state->id, state->seq, thread->tgid,
				  read_into(bpf_get_current_task_btf()));
	state->recv_task = unlikely(runtimes_known) ? goroutine_of(thread) : 0;
	thread->question = place + 1;
	cpu_serves(thread, socket->port, socket->id, bytes, thread->io_on_cpu_ns);
	return 0;
}

/* What is sent answers this question. Not static, as above. */
__noinline int question_is_answered(struct question *question, const struct thread *thread,
				    u32 bytes)
{
	struct socket_state *state;
	u64 now;

	if (!question || !thread)
		return 0;
	now = thread->io_ns;
	state = &question->state;
	state->first_send_ns = now;
	state->last_send_ns = now;
	state->send_tid = thread->tid;
	state->bytes_out = bytes;
	account_service(state, thread, now, thread->io_on_cpu_ns);
	COUNT(datagrams_answered);
	if (unlikely(now - state->ready_ns >= threshold_ns)) {
		state->fd = thread->tgid == state->tgid ? writes_to(thread) : 0;
		if (unlikely(runtimes_known))
			state->send_task = task_of(thread);
		state->emitted = send_request(state, now);
	}
	if (!state->emitted)
		count_request(state);
	return 0;
}
