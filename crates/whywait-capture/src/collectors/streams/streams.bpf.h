/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Streams of HTTP/2 in clear text, gRPC's among them: each is a request. It begins when the kernel
 * has the client's HEADERS, and ends when the server's END_STREAM or RST_STREAM is written. An
 * answer of which more DATA is written after a pause of the threshold or longer comes in pieces, as
 * a stream of messages does: its request ends with the first DATA, and how long it goes on is no
 * latency.
 *
 * Which streams there are is read from the heads of frames (9 bytes), where the calls that read
 * and write have them. TCP's numbers tell which bytes these are, so that a call of which nothing
 * can be read (sendfile, io_uring) does no harm as long as all of it lies within a frame. Whatever
 * else does not fit ends it: the connection is then one with several requests at once of which
 * nothing more is known.
 */
#pragma once

#include "collectors/sockets/alone.bpf.h"
#include "collectors/sockets/descriptor.bpf.h"
#include "collectors/sockets/multiplexed.bpf.h"
#include "collectors/sockets/requests.bpf.h"
#include "collectors/streams/calls.bpf.h"
#include "collectors/streams/fields.bpf.h"
#include "collectors/streams/memory.bpf.h"
#include "collectors/streams/places.bpf.h"
#include "collectors/streams/room.bpf.h"
#include "collectors/streams/state.bpf.h"
#include "collectors/tls/state.bpf.h"
#include "core/bits.bpf.h"

/* Types of frames and their flags: RFC 9113, 6. */
enum frame {
	FRAME_DATA,
	FRAME_HEADERS,
	FRAME_PRIORITY,
	FRAME_RST_STREAM,
	FRAME_SETTINGS,
	FRAME_PUSH_PROMISE,
	FRAME_PING,
	FRAME_GOAWAY,
	FRAME_WINDOW_UPDATE,
	FRAME_CONTINUATION,
	FRAME_PRIORITY_UPDATE = 16, /* RFC 9218: the last that is known */
};
#define END_STREAM 1
#define PREFACE_LENGTH 24
/* So many of the server's writes may begin within a frame until one does with a frame. */
#define SEEKS 16
/* A call's bytes are gone through in so many steps, of a frame or a piece of memory. */
#define MOST_STEPS 8192
/* As often it is looked which goroutine reads: the first is not always the one that goes on. */
#define READER_NS (50 * 1000000ULL)

/*
 * Whether the head of another frame than DATA and HEADERS may be one. Types that nobody knows are
 * to be passed over (RFC 9113, 5.5), and some clients send such on purpose: 0x0b and each 0x1f
 * more. Not static, so that it is verified once for a program.
 */
__noinline int may_be_other_head(u32 length, u32 type, u32 number)
{
	switch (type) {
	case FRAME_PUSH_PROMISE:
	case FRAME_CONTINUATION:
		return number != 0;
	case FRAME_PRIORITY:
		return number && length == 5;
	case FRAME_RST_STREAM:
		return number && length == 4;
	case FRAME_SETTINGS:
		return !number && length % 6 == 0;
	case FRAME_PING:
		return !number && length == 8;
	case FRAME_GOAWAY:
		return !number && length >= 8;
	case FRAME_WINDOW_UPDATE:
		return length == 4;
	}
	return type <= FRAME_PRIORITY_UPDATE || (type - 0x0bu) % 0x1f == 0;
}

/* Whether a head may be one. */
static __always_inline bool may_be_head(u32 length, u8 type, u32 number)
{
	if (likely(type <= FRAME_HEADERS)) /* or DATA */
		return number != 0;
	return may_be_other_head(length, type, number);
}

/* The same where the bytes may be anything: none that is rare. */
static __always_inline bool must_be_head(u32 length, u8 type, u32 number, u32 last)
{
	return length <= LONGEST_FRAME && type <= FRAME_CONTINUATION && number <= last;
}

/* Whether the socket is still there whose streams these are. */
static __always_inline bool is_there(const struct followed *connection)
{
	u64 sk = connection->sk;

	return KERNEL_READ(struct sock, sk, __sk_common.skc_cookie.counter) == connection->cookie &&
	       KERNEL_READ(struct sock, sk, __sk_common.skc_state) != TCP_CLOSE;
}

struct followed_search {
	u64 cookie;
	u32 found; /* and 1 */
};

/* No tracepoint tells of a unix socket's end. */
static long take_this_followed(u32 i, struct followed_search *search)
{
	u32 place = (low_half(search->cookie) + i) & (FOLLOWED - 1);
	struct followed *connection = &followed[place];
	u64 owner = NOW(connection->cookie);

	if (owner && (connection->family != AF_UNIX || is_there(connection)))
		return 0;
	if (__sync_val_compare_and_swap(&connection->cookie, owner, search->cookie) != owner)
		return 0;
	search->found = place + 1;
	return 1;
}

/* A place for a connection, and 1; 0: there is none. */
__noinline u32 take_followed(u64 cookie, u64 sk)
{
	struct followed_search search = { .cookie = cookie };
	struct followed *connection;

	bpf_loop(FOLLOWED_TRIES, take_this_followed, &search, 0);
	if (!search.found)
		return 0;
	connection = followed_at(search.found - 1);
	connection->sk = sk;
	__builtin_memset(&connection->room, 0, sizeof(connection->room));
	connection->fills = 0;
	connection->tls = 0;
	connection->before_accept = 0;
	connection->writes_to = 0;
	connection->calls = 0;
	connection->from_preface = 0;
	connection->sent_tid = 0;
	connection->reader = 0;
	connection->reader_ns = 0;
	connection->tag = __sync_fetch_and_add(&last_followed, 1) + 1;
	connection->last = 0;
	connection->open = 0;
	__builtin_memset(connection->framers, 0, sizeof(connection->framers));
	return search.found;
}

/*
 * The client begins a stream, with HEADERS of which the head was read just now: its place and 1;
 * 0: it is not followed.
 */
__noinline u32 stream_begins(u32 place, u32 number, u32 length, u32 asked, struct thread *thread)
{
	struct followed *connection = followed_at(place);
	struct framer *framer = &connection->framers[OF_CLIENT];
	u64 now = framer->now_ns, came_ns;
	struct socket_state *state;
	struct stream *stream;
	bool first = !connection->last;
	u32 at;

	connection->last = number;
	if (!thread)
		return 0;
	COUNT(streams_begun);
	at = take_stream(STREAM_KEY(connection, number));
	if (!at) {
		COUNT(lost_streams);
		return 0;
	}
	__sync_fetch_and_add(&connection->open, 1);
	if (unlikely(runtimes_known) && now - connection->reader_ns >= READER_NS) {
		connection->reader = goroutine_of(thread);
		connection->reader_ns = now;
	}
	came_ns = connection->tcp ? noted_packet(place, framer->at - FRAME_HEAD) : 0;
	if (!came_ns)
		came_ns = framer->came_ns;
	if (!came_ns) {
		COUNT(streams_untimed);
		came_ns = now;
	}
	stream = &streams[(at - 1) & (STREAMS - 1)];
	stream->place = place;
	stream->wrote_ns = 0;
	__builtin_memset(&stream->room, 0, sizeof(stream->room));
	stream->client_ns = 0;
	stream->client_first_ns = 0;
	stream->asked = asked;
	stream->goes_on = 0;
	state = &stream->state;
	/* Whose task reads a connection serves none of its streams, as a rule. */
	begins_alone(state, thread, came_ns, now, FRAME_HEAD + length, on_cpu_now(thread, now));
	state->sk = connection->sk;
	state->local_port = connection->port;
	state->family = connection->family;
	state->kind = WORK_HTTP2;
	state->peer = connection->peer;
	state->before_accept = first && connection->before_accept;
	return at;
}

/* It is answered: a row if it was slow or goes on, and else a part of the sums. */
__noinline int stream_counts(struct stream *stream, u64 now)
{
	struct socket_state *state;

	if (!stream)
		return 0;
	state = &stream->state;
	COUNT(streams_answered);
	if (stream->goes_on || state->last_send_ns - state->ready_ns >= threshold_ns)
		state->emitted = send_request(state, now);
	if (!state->emitted)
		count_request(state);
	return 0;
}

/* One that went on after its first message is over, or the recording is. */
static __noinline int stream_went_on(struct stream *stream, u64 now)
{
	struct socket_state *state = &stream->state;

	COUNT_MORE(streams_went_on_ns, now - state->ready_ns);
	state->ended_ns = now;
	if (state->emitted)
		send_request(state, now);
	return 0;
}

/* A stream comes to its end other than by its answer. */
__noinline int stream_is_over(u32 at, u32 how, u64 now)
{
	struct stream *stream = &streams[at & (STREAMS - 1)];
	struct socket_state *state = &stream->state;

	if (state->role == SOCKET_CLIENT)
		return call_stream_is_over(at, how, now);
	if (how == STREAM_STAYS)
		COUNT(streams_open);
	if (stream->goes_on)
		return stream_went_on(stream, now);
	/* Its first DATA was written, and the recording may be too short for more. */
	if (state->last_send_ns) {
		stream->goes_on = how == STREAM_STAYS && now - state->last_send_ns >= threshold_ns;
		stream_counts(stream, now);
		if (!stream->goes_on)
			return 0;
		COUNT(streams_went_on);
		return stream_went_on(stream, now);
	}
	if (how == STREAM_UNFOLLOWED) {
		COUNT(streams_unfollowed);
		return 0;
	}
	if (how == STREAM_RESET) {
		COUNT(streams_reset);
		state->gone = GONE;
	} else if (state->first_send_ns) {
		/* Accepted, with nothing to say so far. */
		state->last_send_ns = state->first_send_ns;
		return stream_counts(stream, now);
	}
	/* While the client still sends nothing is owed to it. */
	if (!state->first_send_ns && (stream->asked || how == STREAM_RESET) &&
	    now - state->ready_ns >= threshold_ns)
		send_request(state, now);
	return 0;
}

/* The server writes a frame of a stream. */
__noinline int stream_answers(u32 place, u32 number, u32 length, u32 what, struct thread *thread)
{
	struct followed *connection = followed_at(place);
	struct framer *framer = &connection->framers[OF_SERVER];
	u64 key = STREAM_KEY(connection, number), now = framer->now_ns;
	bool data = what & ANSWERS_DATA, ends = what & ANSWERS_END;
	struct socket_state *state;
	struct stream *stream;
	u32 at;

	if (!thread)
		return 0;
	at = find_stream(key);
	if (!at)
		return 0;
	at = (at - 1) & (STREAMS - 1);
	stream = &streams[at];
	state = &stream->state;
	if (data && !stream->goes_on && has_paused(stream, connection, state->bytes_out, now)) {
		stream->goes_on = 1;
		COUNT(streams_went_on);
		stream_counts(stream, now);
	}
	state->bytes_out += length;
	if (!state->first_send_ns) {
		state->first_send_ns = now;
		state->send_tid = thread->tid;
	}
	if (!stream->goes_on && ((data && !stream->wrote_ns) || ends)) {
		state->last_send_ns = now;
		state->send_tid = thread->tid;
		account_service(state, thread, now, on_cpu_now(thread, now));
		if (unlikely(now - state->ready_ns >= threshold_ns))
			state->fd = thread->tgid == state->tgid ?
					    writes_to(thread) :
					    0;
	}
	if (data) {
		data_is_written(at, length - FRAME_HEAD, now);
		stream->wrote_ns = now;
	}
	if (!ends || !claims_end(at, key))
		return 0;
	if (stream->goes_on)
		stream_went_on(stream, now);
	else
		stream_counts(stream, now);
	if (unlikely(stream->client_ns >= threshold_ns))
		send_stream_tail(stream, now);
	free_stream(at, connection);
	return 0;
}

/*
 * The client has room for more, of one stream or of all (0). For how much is read where it may have
 * been full.
 */
static __noinline int room_is_made(struct followed *connection, u32 number, u64 now)
{
	struct framer *framer = &connection->framers[OF_CLIENT];
	u32 at;

	if (unlikely(connection->fills && !connection->calls)) {
		framer->makes_room = 1;
		framer->room_of = number;
		return 0;
	}
	if (!number) {
		connection->room.made_ns = now;
		return 0;
	}
	at = find_stream(STREAM_KEY(connection, number));
	if (at)
		streams[(at - 1) & (STREAMS - 1)].room.made_ns = now;
	return 0;
}

/* The client sends a frame of a stream that it has begun. */
__noinline int stream_asks(u32 place, u32 number, u32 length, u32 asked, u32 resets)
{
	struct followed *connection = followed_at(place);
	u64 key = STREAM_KEY(connection, number);
	u32 at = find_stream(key);
	struct stream *stream;

	if (!at)
		return 0;
	at = (at - 1) & (STREAMS - 1);
	stream = &streams[at];
	stream->state.bytes_in += length;
	stream->asked |= asked;
	if (!resets || !claims_end(at, key))
		return 0;
	stream_is_over(at, STREAM_RESET, connection->framers[OF_CLIENT].now_ns);
	free_stream(at, connection);
	return 0;
}

/* A frame of the server's, whichever of both the target is. */
static __always_inline void frame_answers(const struct followed *connection, u32 place, u32 number,
					  u32 length, u32 what, struct thread *thread)
{
	if (unlikely(connection->calls))
		call_stream_answers(place, number, length, what, thread);
	else
		stream_answers(place, number, length, what, thread);
}

/* Whether what is in the frame that has begun is to be looked at. */
static __always_inline bool wants_payload(const struct framer *framer)
{
	return unlikely(framer->makes_room) || wants_fields(framer);
}

/* Whose bytes are gone through. */
struct walk {
	struct thread *thread; /* that is in the call */
	u32 place; /* of the connection */
	u32 of_client; /* they are the client's */
};

/* A frame of the client's begins a stream, whichever of both the target is. */
static __always_inline u32 frame_begins_stream(const struct followed *connection,
					       const struct walk *walk, u32 number, u32 length,
					       bool asked)
{
	if (unlikely(connection->calls))
		return call_stream_begins(walk->place, number, length, asked, walk->thread);
	return stream_begins(walk->place, number, length, asked, walk->thread);
}

/* A frame of the client's is there: whether it has fields, if they are wanted. */
static __always_inline void fields_begin(struct framer *framer, u8 type, u8 flags)
{
	if (!fields_wanted)
		return;
	framer->in_fields = type == FRAME_HEADERS || type == FRAME_CONTINUATION ? type : 0;
	framer->fields_flags = flags;
	framer->fields_begin = 1;
	if (type == FRAME_HEADERS)
		framer->fields_of = 0;
}

/* … or is of one that it has begun. */
static __always_inline void frame_asks(const struct followed *connection, const struct walk *walk,
				       u32 number, u32 length, bool asked, bool resets)
{
	if (unlikely(connection->calls))
		call_stream_asks(walk->place, number, length, asked, resets);
	else
		stream_asks(walk->place, number, length, asked, resets);
}

/* A frame's head is there. */
static __always_inline void frame_begins(const struct walk *walk, struct framer *framer)
{
	u64 head = __builtin_bswap64(*(const u64 *)framer->head);
	u32 length = head >> 40, number = (head & 0x7fffff) << 8 | framer->head[8];
	struct followed *connection = followed_at(walk->place);
	u8 type = head >> 32, flags = head >> 24;
	bool carries = type == FRAME_DATA || type == FRAME_HEADERS;
	bool last = carries && flags & END_STREAM;
	bool ends;

	if (unlikely(!may_be_head(length, type, number) ||
		     (walk->of_client && carries && number % 2 == 0) ||
		     (framer->seeks && !must_be_head(length, type, number, connection->last)))) {
		framer->lost = 1;
		return;
	}
	framer->skip = length;
	if (unlikely(framer->tries)) {
		framer->asks |= type == FRAME_HEADERS;
		framer->lost = type > FRAME_CONTINUATION || length > LONGEST_FRAME;
		return;
	}
	if (walk->of_client) {
		fields_begin(framer, type, flags);
		if (type == FRAME_HEADERS && number > connection->last)
			framer->fields_of = frame_begins_stream(connection, walk, number, length,
								last);
		else if (type == FRAME_WINDOW_UPDATE)
			room_is_made(connection, number, framer->now_ns);
		else if (carries || type == FRAME_RST_STREAM)
			frame_asks(connection, walk, number, FRAME_HEAD + length, last,
				   type == FRAME_RST_STREAM);
		return;
	}
	if (unlikely(!carries && type != FRAME_RST_STREAM))
		return;
	/* It ends with the last byte of the frame. */
	ends = type == FRAME_RST_STREAM || (last && framer->left.bytes >= length);
	framer->ends = last && !ends ? number : 0;
	frame_answers(connection, walk->place, number, FRAME_HEAD + length,
		      (type == FRAME_DATA && length ? ANSWERS_DATA : 0) | (ends ? ANSWERS_END : 0),
		      walk->thread);
}

/* Some bytes are of the frame whose head was there. */
static __always_inline void pass_frame(struct framer *framer, u32 place, u32 bytes,
				       struct thread *thread)
{
	framer->skip -= bytes;
	framer->at += bytes;
	if (unlikely(!framer->skip && framer->ends)) {
		frame_answers(followed_at(place), place, framer->ends, 0, ANSWERS_END, thread);
		framer->ends = 0;
	}
}

/* Passes over what is in this piece of memory of a frame behind its head. */
static __always_inline void pass_over(const struct walk *walk, struct framer *framer)
{
	struct call_bytes *left = &framer->left;
	u32 bytes = framer->skip < left->piece ? framer->skip : left->piece;

	if (wants_fields(framer)) {
		bytes = piece_of_fields(bytes);
		send_fields(walk->place, bytes);
	}
	if (unlikely(framer->makes_room))
		read_room(walk->place, bytes);
	left->at += bytes;
	left->piece -= bytes;
	left->bytes -= bytes;
	pass_frame(framer, walk->place, bytes, walk->thread);
}

/*
 * Goes to the next head and reads it. To read is what costs most: where the rest of the call lies
 * within the frame, nobody needs to know where it is.
 */
static long next_frame(u32 step, struct walk *walk)
{
	struct framer *framer = &followed_at(walk->place)->framers[walk->of_client & 1];
	struct call_bytes *left = &framer->left;
	u64 piece[2] = {};
	u32 bytes;

	if (!left->piece) {
		if (!left->vectors ||
		    bpf_probe_read_user(piece, sizeof(piece), (void *)left->vector)) {
			framer->lost = 1;
			return 1;
		}
		left->vector += sizeof(piece);
		left->vectors--;
		left->at = piece[0];
		left->piece = piece[1] < left->bytes ? piece[1] : left->bytes;
	}
	if (framer->skip)
		pass_over(walk, framer);
	if (unlikely(!left->piece))
		return !left->bytes;
	if (wants_fields(framer))
		return 0;
	bytes = FRAME_HEAD - framer->have;
	if (bytes > left->piece)
		bytes = left->piece;
	if (bpf_probe_read_user(framer->head + (framer->have & 15), bytes & 15, (void *)left->at)) {
		framer->lost = 1;
		return 1;
	}
	framer->have += bytes;
	framer->at += bytes;
	left->at += bytes;
	left->piece -= bytes;
	left->bytes -= bytes;
	if (unlikely(framer->have < FRAME_HEAD))
		return !left->bytes;
	framer->have = 0;
	frame_begins(walk, framer);
	if (unlikely(framer->lost))
		return 1;
	if (framer->skip < left->bytes || (wants_payload(framer) && left->bytes))
		return 0;
	pass_frame(framer, walk->place, left->bytes, walk->thread);
	left->bytes = 0;
	return 1;
}

struct ending {
	u64 now;
	u32 place;
	u32 how;
};

static long end_stream(u32 at, struct ending *ending)
{
	struct followed *connection = followed_at(ending->place);
	u64 key = stream_keys[at & (STREAMS - 1)];

	if (key >> 32 != connection->tag || key & STREAM_ENDS || !claims_end(at, key))
		return 0;
	stream_is_over(at, ending->how, ending->now);
	free_stream(at, connection);
	return 0;
}

/* All streams of a connection that are open come to their end. */
static __always_inline void end_streams(u32 place, u32 how, u64 now)
{
	struct ending ending = { .now = now, .place = place, .how = how };

	if (followed_at(ending.place)->open)
		bpf_loop(STREAMS, end_stream, &ending, 0);
}

/* A connection's streams are followed no more. */
static __always_inline void leave_streams(struct socket_state *socket, u32 how, u64 now)
{
	u32 place = (socket->streams - 1) & (FOLLOWED - 1);

	end_streams(place, how, now);
	socket->streams = 0;
	NOW(followed[place].cookie) = 0;
}

/* The connection is over, or its process is. */
__noinline int streams_end(struct socket_state *socket, u64 now)
{
	if (!socket || !socket->streams)
		return 0;
	leave_streams(socket, socket->gone == GONE_WITH_PROCESS ? STREAM_STAYS : STREAM_RESET, now);
	return 0;
}

/* A connection is followed from now on, at this place. */
static __always_inline struct followed *follow(struct socket_state *socket,
					       struct arrivals *arrivals, u32 place, bool preface)
{
	struct followed *connection = followed_at(place - 1);
	struct notes *notes = &followed_notes[(place - 1) & (FOLLOWED - 1)];

	socket->multiplex = MULTIPLEX_STREAMS;
	socket->streams = place;
	connection->family = socket->family;
	connection->tcp = socket->tcp;
	connection->framers[OF_CLIENT].skip = preface ? PREFACE_LENGTH : 0;
	connection->framers[OF_SERVER].seeks = SEEKS;
	if (!socket->tcp)
		return connection;
	/* What has come until now came at the time that is noted with the socket. */
	notes->ring[0].end = KERNEL_READ(struct tcp_sock, sk_of(socket), rcv_nxt);
	notes->ring[0].ns = 0;
	barrier();
	NOW(notes->count) = 1;
	NOW(arrivals->streams) = place;
	return connection;
}

/*
 * What is read from now on is of HTTP/2, after a preface or not. What seemed to be requests before
 * were exchanges.
 */
__noinline int streams_begin(struct socket_state *socket, struct arrivals *arrivals, u32 preface)
{
	struct followed *connection;
	struct request_totals *sums;
	u32 place;
	u64 sk;

	if (!socket || !arrivals)
		return 0;
	sk = socket->sk;
	place = take_followed(KERNEL_READ(struct sock, sk, __sk_common.skc_cookie.counter), sk);
	if (!place) {
		COUNT(lost_stream_connections);
		return found_multiplexed(socket, MULTIPLEX_HTTP2);
	}
	COUNT(streams_connections);
	sums = totals_of(socket);
	if (sums && socket->seq) {
		sums->http2_connections++;
		sums->multiplexed += socket->seq - !!socket->ready_ns;
	}
	socket->ready_ns = 0;
	socket->last_send_ns = 0;
	connection = follow(socket, arrivals, place, preface);
	connection->port = socket->local_port;
	connection->peer = socket->peer;
	connection->before_accept = preface && arrivals->before_accept;
	return 0;
}

/* The same of a connection that the target made: its streams are calls. */
__noinline int calls_begin(struct socket_state *socket, struct arrivals *arrivals, u32 preface)
{
	struct followed *connection;
	u32 place, exchange_peer;
	u64 sk;

	if (!socket || !arrivals)
		return 0;
	exchange_peer = socket->exchange.peer;
	if (!exchange_peer || exchange_peer == PEER_NONE)
		return 0;
	sk = socket->sk;
	place = take_followed(KERNEL_READ(struct sock, sk, __sk_common.skc_cookie.counter), sk);
	if (!place) {
		COUNT(calls_not_followed);
		return 0;
	}
	connection = follow(socket, arrivals, place, preface);
	connection->calls = 1;
	connection->framers[OF_CLIENT].tries = !preface;
	if (preface) {
		/* All that the peer sends is of it. */
		connection->framers[OF_SERVER].seeks = 0;
		COUNT(calls_connections);
	}
	connection->from_preface = preface;
	connection->exchange_peer = exchange_peer;
	return 0;
}

/* Bytes of which none was looked at: false if they do not lie within a frame. */
static __always_inline bool pass_unseen(struct framer *framer, u32 place, u32 bytes,
					struct thread *thread)
{
	if (framer->have || bytes > framer->skip)
		return false;
	if (wants_fields(framer) && bytes) {
		framer->fields++; /* one is missing */
		framer->fields_begin = 0;
	}
	framer->makes_room = 0;
	pass_frame(framer, place, bytes, thread);
	return true;
}

/*
 * The server's bytes are no frames as far as they go: what was written before whywait came may
 * reach into them.
 */
static __always_inline void seek_further(struct framer *framer)
{
	framer->have = 0;
	framer->skip = 0;
	framer->begun = 0;
	framer->passed_over = 1;
	framer->lost = --framer->seeks == 0;
}

/* What is written to a connection that was there before only begins as HTTP/2 does. */
static __noinline int no_frames(struct socket_state *socket, struct arrivals *arrivals)
{
	NOW(arrivals->streams) = 0;
	leave_streams(socket, STREAM_UNFOLLOWED, 0);
	socket->multiplex = MULTIPLEX_OLD + LOOKS;
	return 0;
}

/* It was to find where a frame begins. */
static __noinline int sought(struct framer *framer, u32 place)
{
	if (framer->lost) {
		seek_further(framer);
		return 0;
	}
	framer->seeks = 0;
	/* What was passed over may have answered any of them. */
	if (framer->passed_over)
		end_streams(place, STREAM_UNFOLLOWED, framer->now_ns);
	return 0;
}

/* The place is lost for good. */
static __noinline int lose_place(struct socket_state *socket, struct arrivals *arrivals, u64 now)
{
	struct request_totals *sums = totals_of(socket);

	NOW(arrivals->streams) = 0;
	leave_streams(socket, STREAM_UNFOLLOWED, now);
	socket->multiplex = MULTIPLEX_HTTP2;
	if (socket->role == SOCKET_CLIENT) {
		COUNT(calls_lost_place);
		return 0;
	}
	COUNT(streams_lost_place);
	if (sums && !socket->seq)
		sums->http2_connections++;
	return 0;
}

/*
 * The end of all has been read, with bytes before it: it has one of TCP's numbers, too
 * (tcp_recvmsg_locked, net/ipv4/tcp.c).
 */
static __always_inline bool end_was_read(struct sock *sk)
{
	return KERNEL_READ(struct sock, sk, sk_shutdown) & RCV_SHUTDOWN && !tcp_unread(sk);
}

/* Goes through the bytes of a call, from one head to the next. */
static __always_inline void go_through(struct walk *walk, struct framer *framer)
{
	struct call_bytes *left = &framer->left;

	left->piece = 0;
	left->vectors = 0;
	if (memory_of_call(left, walk->thread))
		bpf_loop(MOST_STEPS, next_frame, walk, 0);
	framer->lost |= left->bytes != 0;
}

/*
 * It was only looked whether the bytes of a call are frames: if they are, from the first to the
 * last, and ask for something, they are to be gone through once more.
 */
static __noinline bool were_frames(struct framer *framer, s32 moved)
{
	framer->tries = 0;
	if (framer->lost || !framer->asks || framer->skip || framer->have)
		return false;
	COUNT(calls_connections);
	framer->at += moved;
	framer->left.bytes = -moved;
	return true;
}

/* A thread has read bytes of a followed connection, or has written them: `moved` is below 0. */
__noinline int streams_move(struct socket_state *socket, struct arrivals *arrivals,
			    struct thread *thread, s32 moved)
{
	struct walk walk = {};
	struct call_bytes *left;
	struct framer *framer;
	bool reads = moved > 0;

	if (!socket || !arrivals || !thread || !socket->streams)
		return 0;
	walk.thread = thread;
	walk.place = (socket->streams - 1) & (FOLLOWED - 1);
	walk.of_client = reads != (socket->role == SOCKET_CLIENT);
	framer = &followed_at(walk.place)->framers[walk.of_client & 1];
	framer->now_ns = thread->io_ns;
	/* Here, where there is stack for it. */
	if (unlikely(socket->role == SOCKET_CLIENT) && !reads) {
		framer->task = task_of(thread);
		framer->fd = writes_to(thread);
	}
	left = &framer->left;
	left->bytes = moved > 0 ? moved : -moved;
	/* Of what has no note of its own more was read before: it came with that. */
	if (reads)
		framer->came_ns = noted_arrival(socket, arrivals, moved, framer->came_ns);
	if (socket->tcp) {
		struct sock *sk = sk_of(socket);
		u32 first = (reads ? tcp_read_up_to(sk) : tcp_written_up_to(sk)) - left->bytes;

		if (unlikely(!framer->begun)) {
			framer->begun = 1;
			framer->at = first;
		}
		if (unlikely(first != framer->at) && reads)
			first -= end_was_read(sk);
		if (unlikely(first != framer->at))
			framer->lost = !pass_unseen(framer, walk.place, first - framer->at, thread);
	}
	if (!framer->lost &&
	    (wants_payload(framer) || !pass_unseen(framer, walk.place, left->bytes, thread))) {
		for (int pass = 0; pass < 2; pass++) {
			go_through(&walk, framer);
			if (likely(!framer->tries))
				break;
			if (!were_frames(framer, moved))
				return no_frames(socket, arrivals);
		}
	}
	if (unlikely(framer->seeks))
		sought(framer, walk.place);
	return unlikely(framer->lost) ? lose_place(socket, arrivals, framer->now_ns) : 0;
}

/* In the end: what is open. */
static long stream_stays(u32 index, void *ctx)
{
	u32 at = index & (STREAMS - 1);
	u64 key = stream_keys[at];
	struct followed *connection;

	if (!key || key & STREAM_ENDS || !claims_end(at, key))
		return 0;
	connection = followed_at(streams[at].place);
	stream_is_over(at,
		       connection->tag == key >> 32 && is_there(connection) ? STREAM_STAYS :
									      STREAM_UNFOLLOWED,
		       bpf_ktime_get_ns());
	free_stream(at, connection);
	return 0;
}

SEC("syscall")
int count_open_streams(void *ctx)
{
	bpf_loop(STREAMS, stream_stays, 0, 0);
	return 0;
}
