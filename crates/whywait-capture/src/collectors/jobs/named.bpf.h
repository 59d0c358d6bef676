/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Jobs whose messages have names (NATS JetStream): each comes with the subject by which it is
 * acknowledged, `$JS.ACK.…`, which no other one has. So it is known which message is done with,
 * whoever works on it: a goroutine, which shows nowhere else, a thread, or a coroutine.
 *
 * Both directions are lines, some of which have a payload behind them whose length they end with:
 *
 *     MSG subject sid [reply] bytes           HMSG … header-bytes bytes
 *     PUB subject [reply] bytes               HPUB … header-bytes bytes
 *
 * They are gone through byte by byte, payloads are passed over. What a call moved need not end
 * where a line does. Where something else is there the place is lost, until a call begins with one
 * of these.
 */
#pragma once

#include "collectors/jobs/polled.bpf.h"
#include "collectors/streams/memory.bpf.h"

/* Connections that are followed. A set has so many ways: the one that is used least is given up. */
#define NAMING 256
#define NAMING_WAYS 8
#define NO_LINES ~0u
/* So much of a line is read at once. */
#define LINE_PIECE 64
/* So many bytes of lines, … */
#define MOST_LINE_BYTES 32768
/* … and so many names of one call are gone through. */
#define MOST_NAMES 512
/* NATS allows 64 MiB. */
#define LONGEST_PAYLOAD (1 << 27)

enum line { LINE_LOST, LINE_VERB, LINE_WORDS, LINE_ANSWER, LINE_BODY };

/* In a body (LINE_BODY): whether the key of a handle was found, and its value begins. */
enum body { BODY_KEYS, BODY_KEY_ENDS, BODY_HANDLE };

/* How far one direction of a connection was gone through. */
struct lines {
	u64 owner; /* the socket's id; 0: nobody's */
	u64 used_ns;
	u64 verb;
	u64 hash; /* of the word that is being read */
	u64 name; /* of the line's message; 0: it has none */
	struct call_bytes left; /* of the call whose bytes are just being gone through */
	u64 vector[2]; /* of these, the piece that is read: not on the stack, which is full */
	u32 skip; /* so much of a payload is still to come */
	u32 number; /* the word that is being read, as one */
	u8 at; /* LINE_… */
	u8 length; /* of that word, as far as it matters */
	u8 is_name; /* so much of it is as the word for acknowledgements begins */
	u8 ready; /* a message has come, or is done with: `name` */
	u8 have; /* bytes of the piece that are still to be gone through */
	u8 from;
	u8 piece[LINE_PIECE];
};

struct lines lines_of[2 * NAMING] SEC(".bss.lines");

/* Messages that came and are not done with. As for jobs: a set gives up its oldest. */
#define NAMED 4096
#define NAMED_WAYS 8

struct named {
	u64 name; /* 0: free */
	u64 came_ns;
	u64 read_ns;
	u32 read_tid;
	u32 peer;
};

struct named named[NAMED] SEC(".bss.named");

/* Where a connection's lines are; `reads`: the broker's. Not static: verified once. */
__noinline u32 lines_at(u64 id, u64 now, bool reads)
{
	u32 set = (id * 0x9e3779b97f4a7c15 >> 32) * NAMING_WAYS & (NAMING - NAMING_WAYS);
	u32 base = reads ? NAMING : 0, oldest = set;
	u64 oldest_ns = ~0ULL;
	struct lines *lines;

	/* Unrolled they would take too much of the stack. */
#pragma clang loop unroll(disable)
	for (u32 way = 0; way < NAMING_WAYS; way++) {
		lines = &lines_of[(base + set + way) & (2 * NAMING - 1)];
		if (lines->owner == id)
			return base + set + way;
		if (lines->used_ns < oldest_ns) {
			oldest_ns = lines->used_ns;
			oldest = set + way;
		}
	}
	lines = &lines_of[(base + oldest) & (2 * NAMING - 1)];
	lines->owner = id;
	lines->used_ns = now;
	lines->skip = 0;
	lines->at = LINE_LOST;
	return base + oldest;
}

static __always_inline u32 named_set(u64 name)
{
	return (name >> 32) * NAMED_WAYS & (NAMED - NAMED_WAYS);
}

/* A message came. Not static: verified once. */
__noinline int message_has_come(u64 name, const struct thread *thread, u64 came_ns, u32 peer)
{
	u32 set = named_set(name), found = set;
	u64 oldest_ns = ~0ULL;
	struct named *message;

	if (!thread)
		return 0;
#pragma clang loop unroll(disable)
	for (u32 way = 0; way < NAMED_WAYS; way++) {
		message = &named[(set + way) & (NAMED - 1)];
		if (!NOW(message->name) || message->name == name) {
			found = set + way;
			oldest_ns = 0;
			break;
		}
		if (message->came_ns < oldest_ns) {
			oldest_ns = message->came_ns;
			found = set + way;
		}
	}
	if (oldest_ns)
		COUNT(jobs_given_up);
	message = &named[found & (NAMED - 1)];
	message->came_ns = came_ns;
	message->read_ns = thread->io_ns;
	message->read_tid = thread->tid;
	message->peer = peer;
	NOW(message->name) = name;
	return 0;
}

/* The message of that name: its place and 1; 0: it is not known. */
__noinline u32 find_named(u64 name)
{
	u32 set = named_set(name);

	for (u32 way = 0; way < NAMED_WAYS; way++) {
		u32 place = (set + way) & (NAMED - 1);

		if (NOW(named[place].name) == name)
			return place + 1;
	}
	return 0;
}

/*
 * Where the time went is known only if the thread that acknowledges has read the message, and no
 * other since. Else the client library hands messages on, and the thread that writes for it is
 * nobody who works on one; or it is a loop, which is at several.
 */
static __always_inline void account_work(struct socket_state *job, const struct named *message,
					 const struct thread *thread)
{
	job->recv_tid = message->read_tid;
	job->recv_ns = message->read_ns;
	job->only_on_cpu = 0;
	if (message->read_tid == thread->tid && thread->done_ns == message->read_ns &&
	    !(unlikely(runtimes_known) && goroutine_of(thread))) {
		__builtin_memcpy(job->at_recv, thread->at_done, sizeof(job->at_recv));
		account_service(job, thread, thread->io_ns, thread->io_on_cpu_ns);
	} else {
		job->service[PART_UNKNOWN] = thread->io_ns - message->read_ns;
	}
}

/* A message is done with: whoever worked on it, the thread writes that. Not static, as above. */
__noinline int named_is_done(u64 name, struct thread *thread)
{
	u64 key = 1ULL << 60 | (name & ((1ULL << 60) - 1));
	struct socket_state *job;
	struct named *message;
	u32 place;

	if (!thread)
		return 0;
	place = find_named(name);
	if (!place)
		return 0;
	message = &named[(place - 1) & (NAMED - 1)];
	place = take_job(key) & (JOBS - 1);
	job = &jobs[place];
	make_job(job, thread, WORK_JOB, message->peer, message->came_ns, thread->io_ns, 0,
		 thread->io_on_cpu_ns);
	job->unserved_wakeup_ns = 0;
	account_work(job, message, thread);
	job->first_send_ns = thread->io_ns;
	job->last_send_ns = thread->io_ns;
	job->send_tid = thread->tid;
	NOW(message->name) = 0;
	job_is_done(place, thread->io_ns);
	return 0;
}

/* It has read messages: what it does from now on may be for them. */
static __always_inline void reads_names(struct thread *thread)
{
	thread->done_ns = thread->io_ns;
	__builtin_memcpy(thread->at_done, thread->parts, sizeof(thread->at_done));
	thread->at_done[PART_ON_CPU] = thread->io_on_cpu_ns;
}

#define FOUR(a, b, c, d) ((u32)(a) | (u32)(b) << 8 | (u32)(c) << 16 | (u32)(d) << 24)
#define VERB(a, b, c, d) ((u64)(a) << 24 | (b) << 16 | (c) << 8 | (d))

static __always_inline bool has_payload(u64 verb)
{
	return verb == VERB(0, 'M', 'S', 'G') || verb == VERB('H', 'M', 'S', 'G') ||
	       verb == VERB(0, 'P', 'U', 'B') || verb == VERB('H', 'P', 'U', 'B');
}

static __always_inline bool is_verb(u64 verb)
{
	return has_payload(verb) || verb == VERB('P', 'I', 'N', 'G') ||
	       verb == VERB('P', 'O', 'N', 'G') || verb == VERB(0, 'S', 'U', 'B') ||
	       verb == (VERB(0, 0, 0, 'U') << 32 | VERB('N', 'S', 'U', 'B')) ||
	       verb == VERB(0, '+', 'O', 'K') || verb == VERB('-', 'E', 'R', 'R') ||
	       verb == VERB('I', 'N', 'F', 'O') ||
	       verb == (VERB(0, 'C', 'O', 'N') << 32 | VERB('N', 'E', 'C', 'T'));
}

/* `$JS.ACK.`: its byte with that number. */
static __always_inline u8 of_name(u32 at)
{
	return (u8)(0x2e4b43412e534a24ULL >> (at & 7) * 8);
}

static __always_inline void word_begins(struct lines *lines)
{
	lines->hash = 0xcbf29ce484222325;
	lines->number = 0;
	lines->length = 0;
	lines->is_name = 0;
}

static __always_inline void line_begins(struct lines *lines)
{
	lines->at = LINE_VERB;
	lines->verb = 0;
	lines->name = 0;
	word_begins(lines);
}

/* A line has ended, or the first bytes of an acknowledgement are known. */
static __always_inline void line_ends(struct lines *lines)
{
	bool has = has_payload(lines->verb), acknowledges = (lines->verb & 0xff) == 'B';

	if (has && lines->number < LONGEST_PAYLOAD)
		lines->skip = lines->number + 2;
	else if (has)
		lines->at = LINE_LOST;
	if (lines->at == LINE_LOST)
		return;
	/* What says that a message is still worked on begins with +W. */
	if (lines->name && acknowledges && lines->verb == VERB(0, 'P', 'U', 'B') &&
	    lines->number >= 2) {
		lines->at = LINE_ANSWER;
		lines->length = 0;
		return;
	}
	lines->ready = lines->name && has;
	if (!lines->ready)
		line_begins(lines);
}

static __always_inline void byte_of_word(struct lines *lines, u8 byte)
{
	u32 length = lines->length;

	if (length < 8 && lines->is_name == length && byte == of_name(length))
		lines->is_name = length + 1;
	if (length < 255)
		lines->length = length + 1;
	lines->hash = (lines->hash ^ byte) * 0x100000001b3;
	lines->number = lines->number * 10 + (byte & 15);
}

/* `ReceiptHandle"`: its byte with that number. */
#define HANDLE_KEY 14

static __always_inline u8 of_handle(u32 at)
{
	u64 word = at < 8 ? 0x4874706965636552ULL : 0x22656c646e61ULL;

	return (u8)(word >> (at & 7) * 8);
}

/* The next byte of a body, in which handles are looked for. */
static __always_inline void byte_of_body(struct lines *lines, u8 byte)
{
	if (lines->verb == BODY_HANDLE) {
		if (byte != '"') {
			byte_of_word(lines, byte);
			return;
		}
		lines->name = lines->hash | 1;
		lines->ready = 1;
		lines->verb = BODY_KEYS;
		lines->is_name = 0;
	} else if (lines->verb == BODY_KEY_ENDS) {
		if (byte == '"') {
			lines->verb = BODY_HANDLE;
			word_begins(lines);
		} else if (byte != ':' && byte != ' ') {
			lines->verb = BODY_KEYS;
			lines->is_name = 0;
		}
	} else if (byte == of_handle(lines->is_name)) {
		lines->is_name++;
		if (lines->is_name == HANDLE_KEY)
			lines->verb = BODY_KEY_ENDS;
	} else {
		lines->is_name = byte == 'R';
	}
}

/* The line's next byte. */
static __always_inline void next_byte(struct lines *lines, u8 byte)
{
	if (lines->at == LINE_BODY) {
		byte_of_body(lines, byte);
		return;
	}
	if (lines->at == LINE_ANSWER) {
		lines->skip--;
		if (lines->length++ == 1) {
			lines->ready = byte != 'W';
			if (!lines->ready)
				line_begins(lines);
		}
		return;
	}
	if (byte == '\n') {
		if (lines->at == LINE_VERB && !is_verb(lines->verb))
			lines->at = LINE_LOST;
		else
			line_ends(lines);
		return;
	}
	if (lines->at == LINE_VERB) {
		if (byte == ' ' || byte == '\t') {
			lines->at = is_verb(lines->verb) ? LINE_WORDS : LINE_LOST;
			word_begins(lines);
		} else if (byte != '\r') {
			lines->verb = lines->verb << 8 | (byte >= 'a' ? byte & 0xdf : byte);
		}
		return;
	}
	if (byte == ' ' || byte == '\t') {
		if (lines->is_name == 8)
			lines->name = lines->hash | 1;
		word_begins(lines);
	} else if (byte != '\r') {
		byte_of_word(lines, byte);
	}
}

static long go_on_with_lines(u32 step, u32 *place)
{
	struct lines *lines = &lines_of[*place & (2 * NAMING - 1)];
	struct call_bytes *left = &lines->left;
	u32 bytes;

	if (!left->bytes)
		return 1;
	if (!left->piece) {
		if (!left->vectors || bpf_probe_read_user(lines->vector, sizeof(lines->vector),
							  (void *)left->vector)) {
			lines->at = LINE_LOST;
			return 1;
		}
		left->vector += sizeof(lines->vector);
		left->vectors--;
		left->at = lines->vector[0];
		left->piece = lines->vector[1] < left->bytes ? lines->vector[1] :
							       left->bytes;
		lines->have = 0;
		return 0;
	}
	if (lines->skip && lines->at != LINE_ANSWER) {
		bytes = lines->skip < left->piece ? lines->skip : left->piece;
		lines->skip -= bytes;
		lines->have = 0;
		left->at += bytes;
		left->piece -= bytes;
		left->bytes -= bytes;
		return 0;
	}
	if (!lines->have) {
		bytes = left->piece < LINE_PIECE ? left->piece : LINE_PIECE;
		barrier_var(bytes);
		if (bytes > LINE_PIECE ||
		    bpf_probe_read_user(lines->piece, bytes, (void *)left->at)) {
			lines->at = LINE_LOST;
			return 1;
		}
		lines->have = bytes;
		lines->from = 0;
	}
	left->at++;
	left->piece--;
	left->bytes--;
	lines->have--;
	next_byte(lines, lines->piece[lines->from++ & (LINE_PIECE - 1)]);
	return lines->ready || lines->at == LINE_LOST;
}

/* Goes to the next message; 0: there is none. Not static: verified once. */
__noinline u64 next_name(u32 place)
{
	struct lines *lines = &lines_of[place & (2 * NAMING - 1)];
	u64 name = 0;

	bpf_loop(MOST_LINE_BYTES, go_on_with_lines, &place, 0);
	if (lines->ready)
		name = lines->name;
	else if (lines->left.bytes)
		lines->at = LINE_LOST;
	lines->ready = 0;
	if (name && lines->at != LINE_BODY)
		line_begins(lines);
	return name;
}

/* Whether the five bytes there begin a line with a message. */
static __always_inline bool begins_message(u64 at, bool reads)
{
	u64 head = 0;

	if (bpf_probe_read_user(&head, 5, (void *)at))
		return false;
	if ((u8)head == 'H')
		head >>= 8;
	return (u32)head == (reads ? FOUR('M', 'S', 'G', ' ') : FOUR('P', 'U', 'B', ' '));
}

/* Whether what a call has moved begins with such a line. */
static __always_inline bool begins_with_line(const struct call_bytes *left, bool reads)
{
	u64 at = left->at;

	if (!left->piece && bpf_probe_read_user(&at, sizeof(at), (void *)left->vector))
		return false;
	return begins_message(at, reads);
}

/* Whether what a thread has just read begins with a message. */
static __always_inline bool reads_message(const struct thread *thread)
{
	u64 at = thread->uring ? 0 : read_into(bpf_get_current_task_btf());

	return at && begins_message(at, true);
}

/* What a call has moved is to be gone through. False: it cannot be. */
static __always_inline bool call_moves(struct lines *lines, const struct thread *thread, u32 bytes)
{
	lines->used_ns = thread->io_ns;
	lines->have = 0;
	lines->ready = 0;
	lines->left.bytes = bytes;
	lines->left.piece = 0;
	lines->left.vectors = 0;
	if (memory_of_call(&lines->left, thread))
		return true;
	lines->at = LINE_LOST;
	return false;
}

/* A call has moved `bytes`: where its lines are; NO_LINES: they are not known. */
static __always_inline u32 lines_move(const struct socket_state *socket,
				      const struct thread *thread, u32 bytes, bool reads)
{
	u32 place = lines_at(socket->id, thread->io_ns, reads) & (2 * NAMING - 1);
	struct lines *lines = &lines_of[place];

	if (!call_moves(lines, thread, bytes))
		return NO_LINES;
	if (lines->at == LINE_LOST) {
		if (!begins_with_line(&lines->left, reads))
			return NO_LINES;
		lines->skip = 0;
		line_begins(lines);
	}
	return place;
}

/*
 * Goes through what a call has moved: how many messages came, if it `reads`, or are done with.
 * There may be more than can be gone through.
 */
static __always_inline u32 names_move(const struct socket_state *socket, struct thread *thread,
				      u32 place, u64 came_ns, bool reads)
{
	struct lines *lines;
	u32 found;
	u64 name;

	for (found = 0; found < MOST_NAMES; found++) {
		name = next_name(place);
		if (!name)
			return found;
		name ^= (u64)thread->tgid << 40;
		if (reads)
			message_has_come(name, thread, came_ns, socket->exchange.peer);
		else
			named_is_done(name, thread);
	}
	lines = &lines_of[place & (2 * NAMING - 1)];
	if (lines->left.bytes)
		lines->at = LINE_LOST;
	return found;
}

/*
 * Goes through what a thread has read from what may be a broker whose messages have names: how many
 * of them came. Not static: verified once.
 */
__noinline u32 names_come(const struct socket_state *socket, struct thread *thread, u64 came_ns,
			  u32 bytes)
{
	u32 place;

	if (!socket || !thread)
		return 0;
	place = lines_move(socket, thread, bytes, true);
	return place == NO_LINES ? 0 : names_move(socket, thread, place, came_ns, true);
}

/* The same of what it has written: how many messages are done with. */
__noinline u32 names_are_done(const struct socket_state *socket, struct thread *thread, u32 bytes)
{
	u32 place;

	if (!socket || !thread)
		return 0;
	place = lines_move(socket, thread, bytes, false);
	return place == NO_LINES ? 0 : names_move(socket, thread, place, 0, false);
}

/* A body begins in which handles are looked for, or another one; `reads`: the broker's. */
static __always_inline void body_begins(const struct socket_state *socket,
					const struct thread *thread, bool reads, bool looked_at)
{
	u32 place = lines_at(socket->id, thread->io_ns, reads) & (2 * NAMING - 1);
	struct lines *lines = &lines_of[place];

	lines->skip = 0;
	lines->verb = BODY_KEYS;
	lines->is_name = 0;
	lines->at = looked_at ? LINE_BODY : LINE_LOST;
}

/*
 * SQS has a handle for each message (`"ReceiptHandle":"…"`), and is told to delete the one with
 * that: as a goroutine reads an answer for another one, which may hand on what is in it, only this
 * shows which message is done with. Not static: verified once.
 */
__noinline int handles_are_read(const struct socket_state *socket,
				const struct arrivals *arrivals, struct thread *thread, u32 bytes)
{
	struct lines *lines;
	u64 came_ns;
	u32 place;

	if (!socket || !arrivals || !thread || !goroutine_of(thread))
		return 0;
	place = lines_at(socket->id, thread->io_ns, true) & (2 * NAMING - 1);
	lines = &lines_of[place];
	if (lines->at != LINE_BODY || !call_moves(lines, thread, bytes))
		return 0;
	came_ns = noted_arrival(socket, arrivals, bytes, thread->io_ns);
	names_move(socket, thread, place, came_ns, true);
	return 0;
}

/* The same of what is written: which messages are deleted. */
__noinline int handles_are_done(const struct socket_state *socket, struct thread *thread, u32 bytes)
{
	struct lines *lines;
	u32 place;

	if (!socket || !thread || !goroutine_of(thread))
		return 0;
	place = lines_at(socket->id, thread->io_ns, false) & (2 * NAMING - 1);
	lines = &lines_of[place];
	if (lines->at == LINE_BODY && call_moves(lines, thread, bytes))
		names_move(socket, thread, place, 0, false);
	return 0;
}

/* Something was sent to SQS: what it asks for says whether handles follow, and whose. */
static __always_inline void asks_with_handles(const struct socket_state *socket,
					      struct thread *thread, u32 bytes, bool receives,
					      bool deletes, bool goes_on)
{
	if (!goes_on) {
		body_begins(socket, thread, true, receives);
		body_begins(socket, thread, false, deletes);
	}
	if (!receives)
		handles_are_done(socket, thread, bytes);
}
