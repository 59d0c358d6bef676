/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Pushes: what a server sends unasked, to one connection after another. Of a round, in which none
 * gets it twice, it is known how long it took from the first connection to the last, and which
 * connection the others waited for.
 *
 * That a message goes to all does not show: that a thread wrote to another connection next might be
 * chance. It is none if the thread did so in one go, without a sleep in between. Where it slept, it
 * was for the connection if that one had no room and got the rest, and the next connection followed
 * on that in one go, with nothing for anybody else meanwhile; or if it slept in the write itself.
 */
#pragma once

#include "core/peer.bpf.h"
#include "collectors/pushes/records.h"
#include "collectors/pushes/state.bpf.h"
#include "collectors/sockets/descriptor.bpf.h"
#include "collectors/sockets/requests.bpf.h"
#include "collectors/sockets/sent.bpf.h"

/* So much of a response's head is looked at. */
#define RESPONSE_HEAD 512
#define HTTP_1_1 0x312e312f50545448 /* "HTTP/1.1" */
#define STATUS_101 0x31303120 /* " 101" */
#define END_OF_HEAD 0x0a0d0a0d

struct response_head {
	u64 words[RESPONSE_HEAD / 8];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct response_head);
} response_heads SEC(".maps");

/* One of the words in `text/event-stream`: wherever that begins, one lies on a multiple of 8. */
static __always_inline bool is_of_events(u64 word)
{
	switch (word) {
	case 0x6576652f74786574: /* text/eve */
	case 0x6e6576652f747865: /* ext/even, and so on */
	case 0x746e6576652f7478:
	case 0x2d746e6576652f74:
	case 0x732d746e6576652f:
	case 0x74732d746e657665:
	case 0x7274732d746e6576:
	case 0x657274732d746e65:
		return true;
	}
	return false;
}

static __always_inline bool begins_with(const u8 *head, const char *word, u32 length)
{
	for (u32 i = 0; i < length; i++)
		if (head[i] != word[i])
			return false;
	return true;
}

/* `>3` of RESP3, or `*3` and a word that only subscribers get. */
static __always_inline bool pushes_of_redis(const u8 *head)
{
	if (head[1] < '1' || head[1] > '9' || head[2] != '\r')
		return false;
	if (head[0] == '>')
		return true;
	return head[0] == '*' && (begins_with(head + 4, "$7\r\nmessage", 11) ||
				  begins_with(head + 4, "$8\r\npmessage", 12) ||
				  begins_with(head + 4, "$8\r\nsmessage", 12));
}

/* PUBLISH of MQTT, alone: its length is that of what is left, and it has a topic. */
static __always_inline bool pushes_of_mqtt(const u8 *head, u32 bytes)
{
	u32 length = head[1] & 127, at = 2, topic;
	u64 left;

	if (head[0] >> 4 != 3)
		return false;
	if (head[1] >= 128) {
		length |= (head[2] & 127) << 7;
		at = 3;
		if (head[2] >= 128) {
			length |= head[3] << 14;
			at = 4;
		}
	}
	__builtin_memcpy(&left, head, sizeof(left));
	left >>= 8 * at;
	topic = (left & 255) << 8 | (left >> 8 & 255);
	return length + at == bytes && topic && topic + 2 <= length && (left >> 16 & 255) >= ' ';
}

static __always_inline bool pushes_of_nats(const u8 *head)
{
	return begins_with(head, "MSG ", 4) || begins_with(head, "HMSG ", 5);
}

/* A text or binary frame of a websocket (RFC 6455, 5.2), alone and unmasked, as a server's are. */
static __always_inline bool is_frame(const u8 *head, u32 bytes)
{
	u32 length = head[2] << 8 | head[3];

	if ((head[0] & 0xb0) != 0x80 || (head[0] & 15) < 1 || (head[0] & 15) > 2)
		return false;
	if (head[1] < 126)
		return bytes == 2u + head[1];
	if (head[1] == 126)
		return bytes == 4 + length;
	length = (u32)head[6] << 24 | head[7] << 16 | head[8] << 8 | head[9];
	return head[1] == 127 && bytes == 10 + length;
}

/*
 * What a server writes is by its protocol a message that nobody asked for. `frames`: so is any
 * frame of a websocket. Not static, as above.
 */
__noinline int is_unasked(const struct thread *thread, u32 bytes, bool frames)
{
	u8 head[SENT_HEAD] = {};

	if (!thread || !sent_head(head, thread, bytes))
		return 0;
	return (frames && is_frame(head, bytes)) || pushes_of_redis(head) ||
	       pushes_of_mqtt(head, bytes) || pushes_of_nats(head);
}

struct events_search {
	const struct response_head *head;
	u32 bytes;
	u32 found;
};

static long look_at_word(u32 i, struct events_search *search)
{
	if (i >= RESPONSE_HEAD / 8 || 8 * i >= search->bytes)
		return 1;
	search->found = is_of_events(search->head->words[i]);
	return search->found;
}

/*
 * The first response of a connection, as far as whywait sees: it may be the last. After `101` (RFC
 * 9110, 15.2.2) the connection is websockets' as a rule, and an event stream (`text/event-stream`)
 * has no end. What is written then answers nothing. A stream's head is written alone, as a rule: of
 * others no more is looked at.
 */
__noinline int look_at_head(struct socket_state *socket, const struct thread *thread, u32 bytes)
{
	struct events_search search = {};
	struct response_head *head;
	u32 zero = 0, end = 0;
	struct sent_call call;
	u64 words[2] = {};

	if (!socket || !thread)
		return 0;
	socket->pushes++;
	sends(&call, thread);
	if (!call.data || bytes < 16 ||
	    bpf_probe_read_user(words, sizeof(words), (void *)call.data) || words[0] != HTTP_1_1)
		return 0;
	if ((u32)words[1] == STATUS_101) {
		socket->pushes = PUSHES;
		/* What comes now may be HTTP/2 (RFC 7540, 3.2). */
		socket->multiplex = MULTIPLEX_OLD + LOOKS;
		return 0;
	}
	if (bytes >= RESPONSE_HEAD ||
	    bpf_probe_read_user(&end, sizeof(end), (void *)(call.data + bytes - 4)) ||
	    end != END_OF_HEAD)
		return 0;
	head = bpf_map_lookup_elem(&response_heads, &zero);
	barrier_var(bytes);
	if (!head ||
	    bpf_probe_read_user(head->words, bytes & (RESPONSE_HEAD - 1), (void *)call.data))
		return 0;
	search.head = head;
	search.bytes = bytes;
	bpf_loop(RESPONSE_HEAD / 8, look_at_word, &search, 0);
	if (search.found)
		socket->pushes = PUSHES;
	return 0;
}

/*
 * What is written is no answer, nor a part of one: a message to a subscriber. It is looked at where
 * it comes late for an answer, so long after the connection was read or written to. `answered`:
 * what was read has its answer, so that a frame of a websocket is none.
 */
static __always_inline bool is_push(struct socket_state *socket, const struct thread *thread,
				    u32 bytes, u64 after_ns, bool answered)
{
	bool known = socket->pushes == PUSHES;

	if (likely(!known && (after_ns < threshold_ns || socket->pushes == PUSHES_NOT)))
		return false;
	if (!is_unasked(thread, bytes, answered)) {
		socket->pushes += !known;
		return false;
	}
	socket->pushes = PUSHES;
	return true;
}

/*
 * What was read is a PONG of websockets (RFC 6455, 5.5.3), alone: it answers a server's PING. Not
 * static, as above.
 */
__noinline int is_pong(const struct thread *thread, u32 bytes)
{
	u8 head[2] = {};
	u64 at;

	if (!thread || thread->uring)
		return 0;
	at = read_into(bpf_get_current_task_btf());
	if (!at || bpf_probe_read_user(head, sizeof(head), (void *)at))
		return 0;
	/* Masked, as all of a client: four bytes more. */
	return head[0] == 0x8a && head[1] >= 128 && bytes == 6 + (head[1] & 127u);
}

static __always_inline struct push_round *round_of(const struct thread *thread)
{
	return &rounds[thread->tid & (ROUNDS - 1)];
}

/* The round is over: a record, if it took long. */
static __noinline int push_round_ends(const struct thread *thread, u64 now)
{
	struct push_record *record;
	struct push_round *round;

	if (!thread)
		return 0;
	round = round_of(thread);
	if (round->connections < 2 || round->reached_ns - round->first_ns < threshold_ns)
		goto out;
	if (!within_budget(PUSHES, now)) {
		COUNT(push_budget);
		goto out;
	}
	record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	if (!record) {
		COUNT(lost_ring_full);
		goto out;
	}
	record->type = RECORD_PUSH;
	record->tgid = thread->tgid;
	record->first_ns = round->first_ns;
	record->last_ns = round->reached_ns;
	record->held_ns = round->held_ns;
	record->holder = round->holder;
	record->tid = thread->tid;
	record->connections = round->connections;
	record->after = round->after;
	record->local_port = round->local_port;
	record->family = round->family;
	record->peer_port = round->peer_port;
	__builtin_memset(record->pad, 0, sizeof(record->pad));
	__builtin_memcpy(record->peer, round->peer, sizeof(record->peer));
	submit(record);
out:
	round->first_ns = 0;
	return 0;
}

static __always_inline bool has_no_room(struct sock *sk)
{
	return KERNEL_READ(struct sock, sk, sk_wmem_queued) >=
	       KERNEL_READ(struct sock, sk, sk_sndbuf);
}

/* The thread's last sleep was in a call as this one, for the same descriptor. */
static __always_inline bool slept_in_write(const struct thread *thread)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u32 fd = writes_to(thread);

	return fd && thread->nr == call_number(user_registers(task)) &&
	       (u32)thread->args[0] == fd - 1;
}

/* The next connection waited for this one. */
static __always_inline void is_held_by(struct push_round *round, u64 holder, u64 ns)
{
	round->held_ns += ns;
	round->after++;
	if (ns > round->longest_ns) {
		round->longest_ns = ns;
		round->holder = holder;
		__builtin_memcpy(round->peer, round->stalled_peer, sizeof(round->peer));
		round->peer_port = round->stalled_port;
	}
}

/*
 * A thread has written something to an accepted connection that answers nothing. Not static, as
 * above.
 */
__noinline int push_is_written(struct socket_state *socket, const struct thread *thread)
{
	bool again, same, slept, in_write, goes_on;
	struct push_round *round;
	struct sock *sk;
	u64 now;

	if (!socket || !thread)
		return 0;
	sk = sk_of(socket);
	now = thread->io_ns;
	round = round_of(thread);
	if (round->tid != thread->tid) {
		round->tid = thread->tid;
		round->first_ns = 0;
	}
	same = round->last == socket->id;
	again = socket->pushed_by == thread->tid && socket->pushed_round == round->number;
	slept = thread->back_ns > round->written_ns;
	in_write = slept && slept_in_write(thread);
	/* The rest of a message, or the message for the next connection: else it is another one. */
	goes_on = same ? !slept || in_write || round->stalled_ns : (!slept || in_write) && !again;
	if (round->first_ns && !goes_on)
		push_round_ends(thread, now);
	if (!round->first_ns) {
		round->first_ns = now;
		round->written_ns = now;
		round->stalled_ns = 0;
		round->held_ns = 0;
		round->longest_ns = 0;
		round->holder = 0;
		round->connections = 0;
		round->after = 0;
		round->number++;
		round->local_port = socket->local_port;
		round->family = socket->family;
		same = false;
	}
	if (!same) {
		/* Until it was written to last: what the next one takes is its own. */
		u64 ns = round->stalled_ns ? round->written_ns - round->stalled_ns : 0;

		if (ns >= threshold_ns)
			is_held_by(round, round->last, ns);
		else if (round->after)
			round->after++;
		round->stalled_ns = 0;
		round->connections++;
		round->reached_ns = now;
		socket->pushed_by = thread->tid;
		socket->pushed_round = round->number;
	}
	if (!round->stalled_ns && (in_write || has_no_room(sk))) {
		round->stalled_ns = in_write ? round->written_ns : now;
		read_peer(round->stalled_peer, sk, socket->family);
		round->stalled_port = BPF_CORE_READ(sk, __sk_common.skc_dport);
	}
	round->last = socket->id;
	round->written_ns = now;
	return 0;
}
