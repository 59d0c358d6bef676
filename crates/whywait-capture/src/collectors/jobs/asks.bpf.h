/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Whether what a program sends asks a broker for messages. It shows in its first bytes, and in
 * nothing else: what a slow peer takes to answer looks the same. So they are looked at, where the
 * writer has them. The rule is the protocol's, not a program's.
 */
#pragma once

#include "collectors/jobs/named.bpf.h"
#include "collectors/jobs/open.bpf.h"
#include "collectors/sockets/multiplexed.bpf.h"
#include "collectors/sockets/sent.bpf.h"

enum sent {
	SENT_ASKS, /* or tells something: a call */
	SENT_FETCHES, /* it asks for a message, and to wait until there is one */
	SENT_POLLS, /* … whether or not it is done with the one before: Kafka */
	SENT_RECEIVES, /* … and will say which ones it is done with: SQS */
	SENT_DELETES, /* that is what it says, in a call, … */
	SENT_ACKNOWLEDGES, /* … or so that nothing replies */
	SENT_NAMES, /* … to a broker whose messages have names, or anything else */
	SENT_PREFACE, /* HTTP/2 is spoken from now on, … */
	SENT_FRAME, /* … or has been, as it seems: it begins as a frame does */
};

/* `BLPOP`, `BRPOPLPUSH`, `BLMOVE`, `BZPOPMIN` and so on; `XREAD`, `XREADGROUP`. */
static __always_inline bool waits_at_redis(const u8 *head, u32 bytes)
{
	u32 at, lines = 0;
	u8 name[4];

	if (!bytes || head[0] != '*')
		return false;
	/* `*3\r\n$5\r\nBLPOP\r\n`: how many words, how long the first is, and that. */
	for (at = 1; at < 14; at++)
		if (head[at] == '\n' && ++lines == 2)
			break;
	if (lines < 2 || at + 5 > bytes)
		return false;
	for (int i = 0; i < 4; i++)
		name[i] = head[(at + 1 + i) & (SENT_HEAD - 1)] | 0x20;
	if (name[0] == 'b')
		return name[1] == 'l' || name[1] == 'r' || name[1] == 'z';
	return name[0] == 'x' && name[1] == 'r' && name[2] == 'e' && name[3] == 'a';
}

/* A frame with basic.ack (80), basic.reject (90) or basic.nack (120) of AMQP 0-9-1. */
static __always_inline bool acknowledges_amqp(const u8 *head, u32 bytes)
{
	return bytes >= 21 && head[0] == 1 && !head[3] && !head[4] && !head[5] && head[6] == 13 &&
	       !head[7] && head[8] == 60 && !head[9] &&
	       (head[10] == 80 || head[10] == 90 || head[10] == 120);
}

/* `PUB $JS.ACK.…`: what acknowledges a message of JetStream. */
static __always_inline bool acknowledges_nats(const u8 *head, u32 bytes)
{
	return bytes >= 12 && head[0] == 'P' && head[1] == 'U' && head[2] == 'B' &&
	       head[4] == '$' && head[5] == 'J' && head[6] == 'S' && head[7] == '.' &&
	       head[8] == 'A' && head[9] == 'C' && head[10] == 'K' && head[11] == '.';
}

static __always_inline u32 big_endian(const u8 *at)
{
	return (u32)at[0] << 24 | (u32)at[1] << 16 | (u32)at[2] << 8 | at[3];
}

/* Versions of Kafka's Fetch that are known, … */
#define KAFKA_VERSIONS 24
/* … from which one its head has tags, and it has no id of a replica any more (KIP-482, KIP-903). */
#define KAFKA_TAGS 12
#define KAFKA_NO_REPLICA 15

/*
 * Kafka's Fetch (key 1), of `sent` bytes: all of a request, whose length is in its first four; then
 * key, version, a number and the client's name. The name is followed by how long the broker may
 * wait for a message: where that is, from the beginning. 0: it is none.
 */
static __always_inline u32 polls_kafka(const u8 *head, u32 bytes, u32 sent)
{
	u32 version = head[7], name, at = 14;

	if (bytes < 16 || big_endian(head) != sent - 4 || head[4] || head[5] != 1 || head[6] ||
	    version >= KAFKA_VERSIONS)
		return 0;
	name = (u32)head[12] << 8 | head[13];
	if (name != 0xffff) {
		/* ZooKeeper has a length of four bytes there, and a path. */
		if (!name || name > 255 || head[14] < ' ' || head[14] > '~')
			return 0;
		at += name;
	}
	if (version >= KAFKA_TAGS)
		at++;
	if (version < KAFKA_NO_REPLICA)
		at += 4;
	return at;
}

/* So much of a request of HTTP is looked at: Go's libraries have its headers by their names. */
#define HTTP_HEAD 1024
#define HTTP_WORDS (HTTP_HEAD / 4)

struct http_head {
	u32 words[HTTP_WORDS + 1];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct http_head);
} http_heads SEC(".maps");

/*
 * What a request of HTTP asks SQS, or what has its interface, for: `ReceiveMessage` or
 * `DeleteMessage…`, in a header (X-Amz-Target) or in the body (Action=). Four by four bytes: each
 * has one of four pairs of words somewhere, wherever it begins. Not static: verified once.
 */
__noinline u32 asks_sqs(u64 data, u32 bytes)
{
	u32 first = 0, size = bytes < HTTP_HEAD ? bytes : HTTP_HEAD;
	struct http_head *head = bpf_map_lookup_elem(&http_heads, &first);

	if (!head)
		return SENT_ASKS;
	barrier_var(size);
	if (size > HTTP_HEAD || bpf_probe_read_user(head->words, size, (void *)data))
		return SENT_ASKS;
	for (u32 i = 0; i < HTTP_WORDS - 1; i++) {
		u32 one = head->words[i], next = head->words[i + 1];

		if (i * 4 + 8 > size)
			break;
		if ((one == FOUR('R', 'e', 'c', 'e') && next == FOUR('i', 'v', 'e', 'M')) ||
		    (one == FOUR('e', 'c', 'e', 'i') && next == FOUR('v', 'e', 'M', 'e')) ||
		    (one == FOUR('c', 'e', 'i', 'v') && next == FOUR('e', 'M', 'e', 's')) ||
		    (one == FOUR('e', 'i', 'v', 'e') && next == FOUR('M', 'e', 's', 's')))
			return SENT_RECEIVES;
		if ((one == FOUR('D', 'e', 'l', 'e') && next == FOUR('t', 'e', 'M', 'e')) ||
		    (one == FOUR('e', 'l', 'e', 't') && next == FOUR('e', 'M', 'e', 's')) ||
		    (one == FOUR('l', 'e', 't', 'e') && next == FOUR('M', 'e', 's', 's')) ||
		    (one == FOUR('e', 't', 'e', 'M') && next == FOUR('e', 's', 's', 'a')))
			return SENT_DELETES;
	}
	return SENT_ASKS;
}

/* Of HTTP: a request that may have a body, or a body of the form that SQS had first. */
static __always_inline bool may_ask_sqs(const u8 *head, u32 bytes)
{
	return bytes >= 8 && ((head[0] == 'P' && head[1] == 'O' && head[2] == 'S' &&
			       head[3] == 'T' && head[4] == ' ' && head[5] == '/') ||
			      (head[0] == 'A' && head[1] == 'c' && head[2] == 't' &&
			       head[3] == 'i' && head[4] == 'o' && head[5] == 'n' && head[6] == '='));
}

/* Whether what was sent last begins as a frame of HTTP/2 does. */
static __always_inline bool sends_frame(const struct thread *thread, u32 bytes)
{
	struct sent_call call;

	sends(&call, thread);
	return call.data && bytes >= FRAME_HEAD && client_frame(call.data) >= 0;
}

/* How long a broker was asked to wait, in the request that was sent last: in milliseconds. */
static __always_inline u32 asked_to_wait(const struct thread *thread, u32 at, u32 bytes)
{
	struct sent_call call;
	u8 wait[4];

	sends(&call, thread);
	if (!call.data || at + sizeof(wait) > bytes ||
	    bpf_probe_read_user(wait, sizeof(wait), (void *)call.data + at))
		return 0;
	return big_endian(wait);
}

/* What a thread has just sent on a connection that it made. Not static: verified once. */
__noinline u32 what_is_sent(struct socket_state *socket, const struct thread *thread, u32 bytes)
{
	u8 head[SENT_HEAD] __attribute__((aligned(8))) = {};
	struct sent_call call;
	u32 looked_at, at, asks;

	if (!socket || !thread)
		return SENT_ASKS;
	looked_at = sent_head(head, thread, bytes);
	if (waits_at_redis(head, looked_at)) {
		socket->broker = BROKER_IS_ASKED;
		return SENT_FETCHES;
	}
	if (acknowledges_amqp(head, looked_at)) {
		socket->broker = BROKER_SENDS;
		return SENT_ACKNOWLEDGES;
	}
	if (acknowledges_nats(head, looked_at)) {
		socket->broker = BROKER_NAMES;
		return SENT_NAMES;
	}
	at = polls_kafka(head, looked_at, bytes);
	if (at) {
		socket->broker = BROKER_IS_POLLED;
		socket->exchange.asked_ms = asked_to_wait(thread, at, bytes);
		return SENT_POLLS;
	}
	if (may_ask_sqs(head, looked_at)) {
		sends(&call, thread);
		asks = asks_sqs(call.data, bytes);
		if (asks != SENT_ASKS)
			socket->broker = BROKER_IS_TOLD;
		return asks;
	}
	if (looked_at >= PREFACE_BYTES && is_preface_at(head))
		return SENT_PREFACE;
	if (socket->broker < BROKER_NONE)
		socket->broker++;
	if (socket->multiplex > MULTIPLEX_OLD && sends_frame(thread, bytes))
		return SENT_FRAME;
	return SENT_ASKS;
}
