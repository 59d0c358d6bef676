/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Questions in datagrams, on sockets that the target bound and did not connect: a datagram that is
 * read is a question, and the next that is sent to the same peer is its answer.
 *
 * Who asked and when was noted when it came: arrivals.bpf.h. Where that cannot be known (a reader
 * on another CPU was quicker than the note) the thread tells: who answers after it has read one
 * question answers that.
 *
 * Whom an answer is for stands in the call that sends it. Several questions of one peer are told
 * apart by their first two bytes, where answers begin with the same: DNS has its id there.
 *
 * What the target asks itself is in calls.bpf.h.
 */
#pragma once

#include "collectors/cpu/cpu.bpf.h"
#include "collectors/datagrams/arrivals.bpf.h"
#include "collectors/datagrams/calls.bpf.h"
#include "collectors/datagrams/questions.bpf.h"
#include "collectors/dns/dns.bpf.h"
#include "collectors/sockets/sent.bpf.h"

#define MSG_ERRQUEUE 0x2000
/* of `sk_userlocks`: the program has named address or port */
#define BOUND_LOCKS 12
/* So many answers with the questions' first two bytes, and none without, tell. */
#define ECHOES 8
/* What the kernel's range of ephemeral ports begins with where it cannot be read. */
#define EPHEMERAL_PORTS 32768

/* The program has named its address. */
static __always_inline bool is_bound(const struct datagram_socket *socket)
{
	struct sock *sk = (struct sock *)socket->sk;

	return BPF_CORE_READ_BITFIELD_PROBED(sk, sk_userlocks) & BOUND_LOCKS;
}

/*
 * It was there before, and the program has named its address: what it sends may answer what it read
 * then.
 */
static __always_inline bool was_bound(const struct datagram_socket *socket)
{
	u64 followed_ns = sockets_followed_ns;

	return socket->family != AF_UNIX && (!followed_ns || socket->found_ns < followed_ns) &&
	       is_bound(socket);
}

/* The first port that the kernel gives to sockets of which the program names none. */
static __always_inline u16 first_ephemeral_port(u64 sk)
{
	u64 at = (u64)KERNEL_READ(struct sock, sk, __sk_common.skc_net.net);
	u32 range = 0;

	if (!at || !bpf_core_field_exists(struct net, ipv4.ip_local_ports))
		return EPHEMERAL_PORTS;
	at += bpf_core_field_offset(struct net, ipv4.ip_local_ports);
	if (bpf_core_field_exists(struct local_ports___seqlock, range))
		at += bpf_core_field_offset(struct local_ports___seqlock, range);
	else if (bpf_core_field_exists(struct local_ports, range))
		at += bpf_core_field_offset(struct local_ports, range);
	else
		return EPHEMERAL_PORTS;
	return bpf_probe_read_kernel(&range, sizeof(range), (void *)at) ? EPHEMERAL_PORTS : range;
}

/*
 * What a socket is for that was there before whywait, of which the first datagram that is seen may
 * be a question or an answer: who asks has a port that the kernel has given it, as a rule, and
 * who is asked has not. Where both have one or neither has, that tells nothing. Not static, so that
 * it is verified once.
 */
__noinline u32 role_by_ports(u64 sk, u16 peer)
{
	u16 first, own;

	if (!peer)
		return DATAGRAM_NEW;
	own = KERNEL_READ(struct sock, sk, __sk_common.skc_num);
	first = first_ephemeral_port(sk);
	peer = __builtin_bswap16(peer);
	if ((own >= first) == (peer >= first))
		return DATAGRAM_NEW;
	return peer >= first ? DATAGRAM_ASKED : DATAGRAM_ASKS;
}

/*
 * The same by what was read, and by what was sent before: what comes from the one who was sent
 * something answers that, as far as is known.
 */
static __always_inline u8 role_by_arrival(const struct datagram_socket *socket,
					  const struct arrival *arrival)
{
	u8 role = role_by_ports(socket->sk, arrival->port);

	if (role != DATAGRAM_NEW)
		return role;
	if (socket->sent_to && arrival->peer)
		return arrival->peer == socket->sent_to ? DATAGRAM_ASKS : DATAGRAM_ASKED;
	/* It was in the queue before, and what comes next tells; or there are no notes. */
	if (!arrival->peer && (socket->ring || socket->sent_to))
		return DATAGRAM_NEW;
	return DATAGRAM_ASKED;
}

/* What a socket is for on which something was read first, as far as can be told. */
static __always_inline u8 role_by_read(const struct datagram_socket *socket)
{
	if (is_connected(socket->sk))
		return DATAGRAM_ASKS;
	/*
	 * It was there before, and nobody has named its address: what it reads may answer what it
	 * asked then.
	 */
	if (socket->family != AF_UNIX && socket->found_ns < sockets_followed_ns &&
	    !is_bound(socket))
		return DATAGRAM_ASKS;
	return DATAGRAM_ASKED;
}

/* What a datagram that the program has sent or read begins with. */
static __always_inline bool begins_as_quic(u64 at)
{
	u64 word = 0;

	return at && !bpf_probe_read_user(&word, sizeof(word), (void *)at) && is_quic_head(word);
}

/*
 * Whether the socket speaks QUIC, in which a datagram is no question: both sides have sent what
 * opens a connection.
 */
static __always_inline bool speaks_quic(const struct datagram_socket *socket)
{
	return socket->quic == (QUIC_HEARD | QUIC_SAID);
}

/*
 * A thread has read from a socket for datagrams. True: it was no question, and may be a name's
 * answer. Not static, so that it is verified once, whatever way the socket's state was found.
 */
__noinline int datagram_was_read(struct datagram_socket *socket, struct thread *thread, int ret,
				 int flags)
{
	struct arrival arrival = {};
	u8 serves = PROCESS_SERVES;
	bool looked = false, noted = false;
	bool connected;
	u32 tgid;
	u64 at;
	u16 id;

	if (!socket || !thread)
		return 0;
	connected = is_connected(socket->sk);
	tgid = thread->tgid; /* Linux 6.1 takes no key from within what is passed here */
	if (ret >= 0 && !(flags & MSG_ERRQUEUE) && unlikely(socket->role == DATAGRAM_NEW)) {
		if (was_bound(socket) && !connected) {
			looked = true;
			noted = which_arrival(socket, thread->tid, &arrival);
			socket->role = role_by_arrival(socket, &arrival);
		} else {
			socket->role = role_by_read(socket);
		}
		if (socket->role == DATAGRAM_ASKED)
			bpf_map_update_elem(&processes, &tgid, &serves, BPF_EXIST);
	}
	if (socket->role != DATAGRAM_ASKED || connected) {
		if (ret <= 0 || flags & MSG_ERRQUEUE)
			return 1;
		if (unlikely(socket->quic == QUIC_SAID) &&
		    begins_as_quic(read_into(bpf_get_current_task_btf())))
			socket->quic |= QUIC_HEARD;
		if (unlikely(speaks_quic(socket))) {
			COUNT(datagrams_quic);
			return 0;
		}
		call_is_answered(socket, thread, ret);
		return 1;
	}
	if (ret < 0 || flags & MSG_ERRQUEUE)
		return 0;
	if (unlikely(speaks_quic(socket))) {
		COUNT(datagrams_quic);
		return 0;
	}
	if (!looked)
		noted = which_arrival(socket, thread->tid, &arrival);
	/* An answer in QUIC will tell, and without one it was no question. */
	if (unlikely(arrival.quic)) {
		socket->quic |= QUIC_HEARD;
		return 0;
	}
	if (!noted)
		COUNT(datagrams_untimed);
	at = thread->uring ? 0 : read_into(bpf_get_current_task_btf());
	id = first_bytes(at);
	if (unlikely(at && id != arrival.id))
		look_around(socket, &arrival, id);
	question_is_read(socket, thread, &arrival, ret);
	return 0;
}

/* A thread has read from a socket that is no stream: `ret` bytes, or that error. */
static __always_inline int datagram_is_read(struct sock *sk, struct thread *thread, int ret,
					    int flags)
{
	struct datagram_socket *socket;

	if (!sk || !thread || !is_datagram(sk))
		return 0;
	socket = datagram_socket_of(sk);
	if (!socket)
		socket = datagram_socket_begins(
			sk, is_connected((u64)sk) ? DATAGRAM_ASKS : DATAGRAM_NEW, ret >= 0);
	if (socket && !datagram_was_read(socket, thread, ret, flags))
		return 0;
	return dns_answers(sk, thread->io_ns, ret);
}

/*
 * Whom a call sends to, 0: not known; the port, and the first two bytes. A function of its own, as
 * quic_is_sent is: see asked_peer.
 */
static __noinline u32 addressee(const struct datagram_socket *socket, struct thread *thread,
				u16 *port, u16 *id)
{
	struct dns_address address = {};
	struct sent_call call;
	u64 words[2] = {};
	u32 peer;

	if (!socket || !thread || !port || !id)
		return 0;
	*port = 0;
	sends(&call, thread);
	*id = first_bytes(call.data);
	if (socket->family == AF_UNIX) {
		peer = thread->sent_to;
		thread->sent_to = 0;
		return peer;
	}
	if (!call.address || bpf_probe_read_user(&address, 8, (void *)call.address))
		return 0;
	*port = address.port;
	if (address.family == AF_INET)
		return hash_of_address(0, *(u32 *)address.rest, address.port);
	if (address.family != AF_INET6 ||
	    bpf_probe_read_user(words, sizeof(words), (void *)(call.address + 8)))
		return 0;
	return hash_of_address(words[0], words[1], address.port);
}

/* The open question that is answered by what goes to `peer`: its place and 1; 0: none. */
static __always_inline u32 question_of(const struct datagram_socket *socket,
				       const struct thread *thread, u32 peer, u16 id)
{
	u32 place = peer ? find_question(question_tag(socket, peer, id), id) : 0;
	const struct question *question;

	if (likely(place))
		return place;
	/* It was read before the id told such questions apart, … */
	if (peer && socket->by_id) {
		place = find_question(peer_tag(socket, peer), id);
		if (place && questions[(place - 1) & (QUESTIONS - 1)].id == id)
			return place;
	}
	/* … or it is one of which it is not known who asked, with the same first two bytes, … */
	place = find_question(question_tag(socket, 0, id), id);
	if (place && peer && questions[(place - 1) & (QUESTIONS - 1)].id == id)
		return place;
	/* … or the one that the thread has read last, if it may be that one's. */
	place = thread->question;
	if (!place)
		return 0;
	question = &questions[(place - 1) & (QUESTIONS - 1)];
	if (!NOW(question_keys[(place - 1) & (QUESTIONS - 1)]) || question->state.sk != socket->sk ||
	    question->state.recv_tid != thread->tid || (peer && question->peer))
		return 0;
	COUNT(datagrams_by_thread);
	return place;
}

/* Whether answers begin as their questions do. */
static __always_inline void look_for_echo(struct datagram_socket *socket, u16 asked, u16 id)
{
	if (asked != id) {
		socket->other = 1;
		return;
	}
	if (socket->other || socket->by_id || id == socket->last_id)
		return;
	socket->last_id = id;
	if (++socket->echoes >= ECHOES)
		socket->by_id = 1;
}

/* Whether what was sent is QUIC's. */
static __noinline bool quic_is_sent(struct datagram_socket *socket, const struct thread *thread,
				    u32 bytes)
{
	struct sent_call call;

	if (!socket || !thread)
		return false;
	if (speaks_quic(socket))
		return true;
	if (socket->family == AF_UNIX || (socket->quic != QUIC_HEARD && bytes < QUIC_BEGINS))
		return false;
	sends(&call, thread);
	if (begins_as_quic(call.data))
		socket->quic |= QUIC_SAID;
	return speaks_quic(socket);
}

/*
 * A thread has sent `ret` bytes through a socket for datagrams. True: it was no answer, and may ask
 * for a name. Not static, as above.
 */
__noinline int datagram_was_sent(struct datagram_socket *socket, struct thread *thread, int ret)
{
	struct question *question;
	u32 place, peer;
	u16 id = 0, port;

	if (!socket || !thread)
		return 0;
	if (unlikely(quic_is_sent(socket, thread, ret))) {
		COUNT(datagrams_quic);
		return 0;
	}
	if (socket->role == DATAGRAM_NEW && !was_bound(socket))
		socket->role = DATAGRAM_ASKS;
	if (socket->role == DATAGRAM_NEW) {
		socket->sent_to = addressee(socket, thread, &port, &id);
		if (role_by_ports(socket->sk, port) != DATAGRAM_ASKS)
			return 1;
		socket->role = DATAGRAM_ASKS;
	}
	if (socket->role != DATAGRAM_ASKED) {
		call_is_sent(socket, thread, ret);
		return 1;
	}
	thread->open.bytes_out += ret;
	cpu_answers(thread, socket->id, thread->io_on_cpu_ns);
	peer = addressee(socket, thread, &port, &id);
	place = question_of(socket, thread, peer, id);
	if (!place) {
		COUNT(datagrams_unasked);
		return 1;
	}
	place = (place - 1) & (QUESTIONS - 1);
	question = &questions[place];
	if (peer && question->peer)
		look_for_echo(socket, question->id, id);
	socket->answered = 1;
	question_is_answered(question, thread, ret);
	NOW(question_keys[place]) = 0;
	return 0;
}

/* A thread has sent `ret` bytes through a socket that is no stream. */
static __always_inline int datagram_is_sent(struct sock *sk, struct thread *thread, int ret)
{
	struct datagram_socket *socket;

	if (!sk || !thread || !is_datagram(sk))
		return 0;
	socket = datagram_socket_of(sk);
	if (!socket)
		socket = datagram_socket_begins(
			sk, sockets_followed_ns ? DATAGRAM_ASKS : DATAGRAM_NEW, 0);
	if (socket && !datagram_was_sent(socket, thread, ret))
		return 0;
	return dns_asks(sk, thread, thread->io_ns);
}

/* In the end: what nobody has answered. */
static long question_stays(u32 index, void *ctx)
{
	u32 place = index & (QUESTIONS - 1);
	struct question *question = &questions[place];
	struct thread *reader;
	u64 now;

	if (!question_keys[place])
		return 0;
	now = bpf_ktime_get_ns();
	question_is_left(place, now);
	/* Whoever has read no other since may be at it still. Others may want no answer. */
	reader = thread_by_id(question->state.recv_tid);
	if (question->state.role == SOCKET_SERVER && reader && reader->question == place + 1 &&
	    question->answers && now - question->state.ready_ns >= threshold_ns)
		send_request(&question->state, now);
	return 0;
}

/* In the end: what found no room in the sockets that strangers ask. */
SEC("iter/bpf_sk_storage_map")
int count_dropped_datagrams(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct datagram_socket *socket = ctx->value;
	struct sock *sk = ctx->sk;
	s32 dropped;

	if (!socket || !sk || !socket->id || socket->role == DATAGRAM_ASKS)
		return 0;
	dropped = datagrams_dropped(sk) - socket->drops;
	if (dropped > 0)
		COUNT_MORE(datagrams_dropped, dropped);
	return 0;
}

SEC("syscall")
int count_unanswered_datagrams(void *ctx)
{
	bpf_loop(QUESTIONS, question_stays, 0, 0);
	return 0;
}
