/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Streams of HTTP/2 on connections that the target made: each is an exchange with its peer, with a
 * state of its own, so that several go on at the same time. It begins when the target's HEADERS are
 * written, and is over when the peer's END_STREAM is read, or RST_STREAM of either. A reply of
 * which more DATA is read after a pause of the threshold or longer comes in pieces, as a stream of
 * messages does, and what goes on to be asked once the reply has begun is a conversation: in both
 * the exchange ends with what was read before.
 */
#pragma once

#include "collectors/exchanges/exchanges.bpf.h"
#include "collectors/streams/places.bpf.h"

/* The target's HEADERS were written, or `at` then. */
static __always_inline u32 take_call_stream(u32 place, u32 number, const struct thread *thread,
					    u64 task, u32 fd, u64 at_ns)
{
	struct followed *connection = followed_at(place);
	struct exchange *exchange;
	struct socket_state *state;
	struct stream *stream;
	u32 at;

	connection->last = number;
	COUNT(calls_begun);
	at = take_stream(STREAM_KEY(connection, number));
	if (!at) {
		COUNT(lost_call_streams);
		return 0;
	}
	__sync_fetch_and_add(&connection->open, 1);
	stream = &streams[(at - 1) & (STREAMS - 1)];
	stream->place = place;
	stream->wrote_ns = 0;
	stream->room.made_ns = 0;
	stream->goes_on = 0;
	state = &stream->state;
	state->id = __sync_fetch_and_add(&next_socket_id, 1) + 1;
	state->role = SOCKET_CLIENT;
	state->sk = connection->sk;
	state->tcp = connection->tcp;
	state->family = connection->family;
	state->kind = WORK_HTTP2;
	exchange = &state->exchange;
	__builtin_memset(exchange, 0, sizeof(*exchange));
	exchange->peer = connection->exchange_peer;
	exchange->retransmits = retransmits_of(state);
	exchange_begins(state, thread, task, fd, at_ns, false);
	exchange->last_send_ns = at_ns;
	return at;
}

/*
 * The target begins a stream, with HEADERS of which the head was read just now: its place and 1;
 * 0: it is not followed.
 */
__noinline u32 call_stream_begins(u32 place, u32 number, u32 length, u32 asked,
				  struct thread *thread)
{
	struct followed *connection = followed_at(place);
	struct framer *framer = &connection->framers[OF_CLIENT];
	struct stream *stream;
	u32 at;

	if (!thread)
		return 0;
	at = take_call_stream(place, number, thread, framer->task, framer->fd, framer->now_ns);
	if (!at)
		return 0;
	stream = &streams[(at - 1) & (STREAMS - 1)];
	stream->asked = asked;
	stream->state.exchange.send_tid = thread->tid;
	stream->state.exchange.bytes_out = FRAME_HEAD + length;
	connection->sent_tid = thread->tid;
	return at;
}

/*
 * The reply is read by one thread before the hook of the write has run on another CPU: it is begun
 * with the packet that brought it. 0: it is one from before whywait.
 */
static __always_inline u32 call_stream_unseen(u32 place, u32 number, u32 length,
					      const struct thread *thread, u64 came_ns)
{
	struct followed *connection = followed_at(place);
	u32 last = connection->last, at;
	struct stream *stream;

	if (number <= last || number % 2 == 0 || !length || !(last || connection->from_preface))
		return 0;
	/* Those between went out with it, and none of them will be begun. */
	if (last && number > last + 2)
		COUNT_MORE(calls_unfollowed, (number - last) / 2 - 1);
	at = take_call_stream(place, number, thread, 0, 0, came_ns);
	if (!at)
		return 0;
	stream = &streams[(at - 1) & (STREAMS - 1)];
	stream->asked = 1;
	stream->state.exchange.send_tid = connection->sent_tid ? connection->sent_tid :
								 thread->tid;
	return at;
}

/* A call comes to its end, or is not followed any further. */
__noinline int call_stream_is_over(u32 at, u32 how, u64 now)
{
	struct stream *stream = &streams[at & (STREAMS - 1)];
	struct socket_state *state = &stream->state;
	struct exchange *exchange = &state->exchange;
	struct peer_sums *sums;
	u64 latency_ns;
	bool at_once;

	/* While the target still sends nothing is owed to it. */
	if (!exchange->first_read_ns &&
	    (how == STREAM_UNFOLLOWED || (how == STREAM_STAYS && !stream->asked))) {
		if (how == STREAM_UNFOLLOWED)
			COUNT(calls_unfollowed);
		leaves_flight(exchange);
		goto out;
	}
	exchange_ends(state, how == STREAM_RESET, now);
	if (!exchange->first_read_ns)
		goto out;
	at_once = exchange->last_read_ns == exchange->first_read_ns;
	sums = at_once ? sums_of(exchange) : 0;
	if (sums)
		sums->bytes_in += exchange->bytes_in - exchange->counted_in;
	/* Of a slow one of which more was read there is a row by now. */
	latency_ns = exchange->last_read_ns - exchange->first_send_ns;
	if (latency_ns >= threshold_ns ? at_once : short_has_room(now))
		send_exchange(state, 0, now);
out:
	state->tcp = 0; /* as streams have it that clients begin */
	return 0;
}

/* The peer's frame of a stream is read: its place and 1; 0: it is not followed. */
__noinline u32 call_stream_is_read(u32 place, u32 number, u32 length, u32 what,
				   struct thread *thread)
{
	struct followed *connection = followed_at(place);
	struct framer *framer = &connection->framers[OF_SERVER];
	u64 now = framer->now_ns, came_ns;
	struct exchange *exchange;
	struct stream *stream;
	u32 at;

	if (!thread)
		return 0;
	came_ns = connection->tcp && length ? noted_packet(place, framer->at - FRAME_HEAD) : 0;
	if (!came_ns)
		came_ns = framer->came_ns;
	at = find_stream(STREAM_KEY(connection, number));
	if (unlikely(!at))
		at = call_stream_unseen(place, number, length, thread, came_ns ? came_ns : now);
	if (!at)
		return 0;
	stream = &streams[(at - 1) & (STREAMS - 1)];
	exchange = &stream->state.exchange;
	if (!exchange->first_read_ns) {
		/* Within the machine it may come before the hook of the write runs. */
		exchange->arrived_ns = came_ns && came_ns < exchange->first_send_ns ?
					       exchange->first_send_ns :
					       came_ns;
		exchange->timing = TIMED;
		reply_begins(&stream->state, thread, now, length);
	} else {
		if (what & ANSWERS_DATA && has_paused(stream, connection, exchange->bytes_in, now))
			stream->goes_on = 1;
		if (!stream->goes_on) {
			exchange->last_read_ns = now;
			exchange->bytes_in += length;
		}
	}
	if (what & ANSWERS_DATA)
		stream->wrote_ns = now;
	return at;
}

/* The same, and the stream may end with it. */
__noinline int call_stream_answers(u32 place, u32 number, u32 length, u32 what,
				   struct thread *thread)
{
	struct followed *connection = followed_at(place);
	u32 at = call_stream_is_read(place, number, length, what, thread);

	if (!at || !(what & ANSWERS_END))
		return 0;
	at = (at - 1) & (STREAMS - 1);
	if (!claims_end(at, STREAM_KEY(connection, number)))
		return 0;
	call_stream_is_over(at, STREAM_ANSWERED, connection->framers[OF_SERVER].now_ns);
	free_stream(at, connection);
	return 0;
}

/* The target writes a frame of a stream that it has begun. */
__noinline int call_stream_asks(u32 place, u32 number, u32 length, u32 asked, u32 resets)
{
	struct followed *connection = followed_at(place);
	u64 key = STREAM_KEY(connection, number), now = connection->framers[OF_CLIENT].now_ns;
	u32 at = find_stream(key);
	struct exchange *exchange;
	struct stream *stream;

	if (!at)
		return 0;
	at = (at - 1) & (STREAMS - 1);
	stream = &streams[at];
	exchange = &stream->state.exchange;
	stream->asked |= asked;
	if (!exchange->first_read_ns) {
		exchange->last_send_ns = now;
		exchange->bytes_out += length;
	} else if (length > FRAME_HEAD && !resets) {
		stream->goes_on = 1;
	}
	if (!resets || !claims_end(at, key))
		return 0;
	call_stream_is_over(at, STREAM_RESET, now);
	free_stream(at, connection);
	return 0;
}
