/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * What the target asks through a socket that is for that: an exchange, if what is read there begins
 * with the same two bytes. Other datagrams that are sent may want no answer.
 */
#pragma once

#include "collectors/datagrams/questions.bpf.h"
#include "collectors/sockets/sent.bpf.h"

/* What is sent so often without an answer wants none. */
#define MANY_SENT 64

/*
 * Whom a datagram goes to, by the socket or by the call, and where its bytes are; 0: not known. A
 * function of its own, since all that call each other may have 512 bytes of stack.
 */
static __noinline u64 asked_peer(struct peer_key *key, struct sock *sk, const struct thread *thread)
{
	struct dns_address address = {};
	struct sent_call call;

	if (!key || !sk || !thread)
		return 0;
	sends(&call, thread);
	key->family = AF_INET;
	if (KERNEL_READ(struct sock, sk, __sk_common.skc_dport)) {
		inet_peer(sk, KERNEL_READ(struct sock, sk, __sk_common.skc_family), key);
		return call.data;
	}
	if (!call.address || bpf_probe_read_user(&address, 8, (void *)call.address))
		return 0;
	key->port = address.port;
	if (address.family == AF_INET6)
		return bpf_probe_read_user(key->address, 16, (void *)(call.address + 8)) ?
			       0 :
			       call.data;
	key->address[10] = 0xff;
	key->address[11] = 0xff;
	__builtin_memcpy(&key->address[12], address.rest, 4);
	return address.family == AF_INET ? call.data : 0;
}

/* The target asks. The same again belongs to the same exchange. */
static __noinline int call_is_sent(struct datagram_socket *socket, const struct thread *thread,
				   u32 bytes)
{
	struct peer_key to = {};
	struct exchange *exchange;
	struct question *question;
	u32 tag, place;
	u64 data;
	u16 id;

	if (!socket || !thread || socket->family == AF_UNIX || socket->sent >= MANY_SENT)
		return 0;
	socket->sent++;
	data = asked_peer(&to, (struct sock *)socket->sk, thread);
	if (!data)
		return 0;
	id = first_bytes(data);
	tag = hash_of((u64)id << 32 | low_half(socket->id));
	place = find_question(tag, id);
	question = &questions[(place - 1) & (QUESTIONS - 1)];
	if (!place || question->id != id) {
		place = take_question(tag, id);
		question = &questions[place & (QUESTIONS - 1)];
		question->to = to;
		question->id = id;
		question->state.id = __sync_fetch_and_add(&next_socket_id, 1) + 1;
		question->state.role = SOCKET_CLIENT;
		question->state.sk = socket->sk;
		question->state.family = socket->family;
		question->state.recv_ns = thread->io_ns;
		exchange = &question->state.exchange;
		__builtin_memset(exchange, 0, sizeof(*exchange));
		exchange->first_send_ns = thread->io_ns;
		exchange->task = task_of(thread);
		exchange->tgid = thread->tgid;
		exchange->fd = writes_to(thread);
		exchange->seq = 1;
		if (names_wanted)
			keep_dns_question(question->state.id, 1, thread->tgid, data);
	}
	exchange = &question->state.exchange;
	question->answers = socket->answered || to.port == __builtin_bswap16(DNS_PORT);
	exchange->last_send_ns = thread->io_ns;
	exchange->send_tid = thread->tid;
	exchange->bytes_out += bytes;
	return 0;
}

/* The target reads what may be an answer. Not static, so that it is verified once. */
__noinline int call_is_answered(struct datagram_socket *socket, const struct thread *thread,
				u32 bytes)
{
	struct exchange *exchange;
	struct question *question;
	struct peer_sums *sums;
	struct peer peer = {};
	u32 place;
	u64 now;
	u16 id;

	if (!socket || !thread || socket->family == AF_UNIX || thread->uring)
		return 0;
	now = thread->io_ns;
	socket->sent = 0;
	id = first_bytes(read_into(bpf_get_current_task_btf()));
	place = find_question(hash_of((u64)id << 32 | low_half(socket->id)), id);
	if (!place)
		return 0;
	place = (place - 1) & (QUESTIONS - 1);
	question = &questions[place];
	exchange = &question->state.exchange;
	if (question->id != id || question->state.role != SOCKET_CLIENT)
		return 0;
	exchange->peer = number_of(&question->to, &peer);
	sums = exchange->peer == PEER_NONE ? 0 : sums_of(exchange);
	if (sums && !socket->answered)
		sums->connections++;
	socket->answered = 1;
	exchange->first_read_ns = now;
	exchange->last_read_ns = now;
	exchange->read_tid = thread->tid;
	exchange->bytes_in = bytes;
	exchange->timing = TIMED;
	if (sums) {
		count_exchange(&question->state, now);
		if (now - exchange->first_send_ns >= threshold_ns || short_has_room(now))
			send_exchange(&question->state, 0, now);
	}
	NOW(question_keys[place]) = 0;
	return 0;
}
