/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Answers that wait for their client to have room (RFC 9113, 5.2). A server that has more to say
 * writes until what the client has not made room for is as much as the client allows, and goes on
 * as soon as that makes room. How much a client allows is said once, and whywait may come later.
 * But it is the same each time: where what was written, less what room was made for, has come to
 * the same number twice, and the server goes on at once, it had waited for room. A server that has
 * no more to say comes to any number, and goes on at any time.
 *
 * Only of connections that had an answer of some length: others fill nobody's room.
 */
#pragma once

#include "collectors/streams/places.bpf.h"
#include "collectors/tails/tails.bpf.h"

/* A client allows 65,535 bytes at first. Shorter answers need not be looked at. */
#define MAY_FILL 16384

/* The client has room for so many bytes more. */
static __always_inline void room_grows(struct room *room, u32 bytes, u64 now)
{
	if (room->wrote_ns > room->first_ns) {
		room->full = room->used == room->level;
		room->level = room->used;
		room->from_ns = room->wrote_ns;
		room->first_ns = now;
	}
	room->used -= bytes;
	room->made_ns = now;
}

static __always_inline void room_is_used(struct room *room, u32 bytes, u64 now)
{
	room->used += bytes;
	room->wrote_ns = now;
}

/*
 * For how long a stream that had written something then, and goes on now, may have waited for this
 * room: from when somebody has written to it last until the client made the first room after that.
 * Who goes on later than at once had nothing to say.
 */
static __always_inline u64 may_have_waited(const struct room *room, u64 wrote_ns, u64 now)
{
	if (room->first_ns <= wrote_ns || now - room->first_ns >= threshold_ns)
		return 0;
	return room->first_ns - room->from_ns;
}

/* A piece of WINDOW_UPDATE lies there, which says how much: it has 4 bytes. */
static __noinline int read_room(u32 place, u32 bytes)
{
	struct followed *connection = followed_at(place);
	struct framer *framer = &connection->framers[OF_CLIENT];
	u32 at, more = 0;

	framer->makes_room = 0;
	/* Where it cannot be read, the room will not come to the same level. */
	if (bytes >= sizeof(more))
		bpf_probe_read_user(&more, sizeof(more), (void *)framer->left.at);
	more = __builtin_bswap32(more) & 0x7fffffff;
	if (!framer->room_of) {
		room_grows(&connection->room, more, framer->now_ns);
		return 0;
	}
	at = find_stream(STREAM_KEY(connection, framer->room_of));
	if (at)
		room_grows(&streams[(at - 1) & (STREAMS - 1)].room, more, framer->now_ns);
	return 0;
}

/* More of an answer is written: for how long it had waited for its client until now. */
static __always_inline void room_was_awaited(struct stream *stream, struct followed *connection,
					     u64 now)
{
	struct room *own = &stream->room, *all = &connection->room;
	u64 wrote_ns = stream->wrote_ns;
	u64 for_own = may_have_waited(own, wrote_ns, now);
	u64 for_all = may_have_waited(all, wrote_ns, now);
	u64 full = own->full ? for_own : 0;

	if (all->full && for_all > full)
		full = for_all;
	if (!full) {
		stream->client_first_ns = for_own;
		return;
	}
	stream->client_ns += full + stream->client_first_ns;
	stream->client_first_ns = 0;
}

/* A frame of DATA is written. */
static __noinline int data_is_written(u32 at, u32 bytes, u64 now)
{
	struct stream *stream = &streams[at & (STREAMS - 1)];
	struct followed *connection = followed_at(stream->place);

	if (unlikely(stream->state.bytes_out >= MAY_FILL))
		connection->fills = 1;
	if (likely(!connection->fills))
		return 0;
	if (stream->wrote_ns && !stream->goes_on)
		room_was_awaited(stream, connection, now);
	room_is_used(&stream->room, bytes, now);
	room_is_used(&connection->room, bytes, now);
	return 0;
}

/* An answer has waited for its client, which has it as if the kernel had held it back. */
static __noinline int send_stream_tail(const struct stream *stream, u64 now)
{
	struct tail_record *record = tail_of(&stream->state, now);

	if (!record)
		return 0;
	record->window_ns = stream->client_ns;
	submit(record);
	return 0;
}
