/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Where the streams of a connection are kept, and when what they consist of came. */
#pragma once

#include "collectors/sockets/arrivals.bpf.h"
#include "collectors/streams/state.bpf.h"

static __always_inline struct followed *followed_at(u32 place)
{
	return &followed[place & (FOLLOWED - 1)];
}

/* A packet has come on a followed connection. */
static __noinline int note_packet(struct sock *sk, u32 followed_as)
{
	struct notes *notes = &followed_notes[(followed_as - 1) & (FOLLOWED - 1)];
	struct note *note = &notes->ring[notes->count & (NOTES - 1)];

	note->end = KERNEL_READ(struct tcp_sock, sk, rcv_nxt);
	note->ns = packet_ns(sk);
	barrier();
	NOW(notes->count) = notes->count + 1;
	return 0;
}

/* When the byte with that number came; 0: not known. */
__noinline u64 noted_packet(u32 place, u32 number)
{
	struct notes *notes = &followed_notes[place & (FOLLOWED - 1)];
	u32 count = NOW(notes->count);
	u64 ns = 0;

	for (u32 i = 1; i < NOTES && i <= count; i++) {
		struct note *note = &notes->ring[(count - i) & (NOTES - 1)];

		if ((s32)(note->end - number) <= 0)
			return ns;
		ns = note->ns;
	}
	/* All that is remembered came with it or after it. */
	if (count >= NOTES)
		COUNT(streams_untimed);
	return 0;
}

#define STREAM_KEY(connection, number) ((u64)(connection)->tag << 32 | (number))

/*
 * The places in which a stream may be, in the order in which they are tried: a few that its
 * connection has, so that one stream after another has the same, which is in the processor's cache,
 * and then a set that depends on its number as well, from the other end.
 */
static __always_inline u32 stream_set(u64 key)
{
	return (hash_of(key) >> 1) * STREAM_WAYS & (STREAMS - 1);
}

static __always_inline u32 own_place(u64 key, u32 way)
{
	return stream_set(key >> 32) + way;
}

static __always_inline u32 other_place(u64 key, u32 way)
{
	return stream_set(key) + STREAM_WAYS - 1 - way;
}

__noinline u32 find_stream_further(u64 key)
{
	for (u32 way = 1; way < STREAM_OWN_WAYS; way++) {
		u32 at = own_place(key, way) & (STREAMS - 1);

		if (NOW(stream_keys[at]) == key)
			return at + 1;
	}
	for (u32 way = 0; way < STREAM_WAYS; way++) {
		u32 at = other_place(key, way) & (STREAMS - 1);

		if (NOW(stream_keys[at]) == key)
			return at + 1;
	}
	return 0;
}

/* The place of an open stream, and 1; 0: it is not followed. */
static __always_inline u32 find_stream(u64 key)
{
	u32 at = own_place(key, 0) & (STREAMS - 1);

	return likely(NOW(stream_keys[at]) == key) ? at + 1 : find_stream_further(key);
}

static __always_inline bool takes_place(u32 at, u64 key)
{
	return !NOW(stream_keys[at]) && !__sync_val_compare_and_swap(&stream_keys[at], 0, key);
}

__noinline u32 take_stream(u64 key)
{
	for (u32 way = 0; way < STREAM_OWN_WAYS; way++) {
		u32 at = own_place(key, way) & (STREAMS - 1);

		if (takes_place(at, key))
			return at + 1;
	}
	for (u32 way = 0; way < STREAM_WAYS; way++) {
		u32 at = other_place(key, way) & (STREAMS - 1);

		if (takes_place(at, key))
			return at + 1;
	}
	return 0;
}

/* Whether it is for the caller to end it, and not for another CPU. */
static __always_inline bool claims_end(u32 at, u64 key)
{
	u64 *place = &stream_keys[at & (STREAMS - 1)];

	return __sync_val_compare_and_swap(place, key, key | STREAM_ENDS) == key;
}

static __always_inline void free_stream(u32 at, struct followed *connection)
{
	NOW(stream_keys[at & (STREAMS - 1)]) = 0;
	__sync_fetch_and_add(&connection->open, -1);
}

/* So much a client has room for at first, unless it says otherwise (RFC 9113, 6.9.2). */
#define INITIAL_WINDOW 65535

/*
 * Whether the server's DATA, of which so many bytes came before, comes after a pause of the server:
 * not if the client may have had no room for it until just now.
 */
static __always_inline bool has_paused(const struct stream *stream,
				       const struct followed *connection, u64 bytes, u64 now)
{
	u64 wrote_ns = stream->wrote_ns;
	bool room = bytes < INITIAL_WINDOW || (stream->room.made_ns <= wrote_ns &&
					       connection->room.made_ns <= wrote_ns);

	return wrote_ns && now - wrote_ns >= threshold_ns && room;
}

/* What a frame of the server's is to its stream. */
#define ANSWERS_DATA 1 /* it has something in it */
#define ANSWERS_END 2 /* the stream ends here */
