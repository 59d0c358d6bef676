/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* What is kept of connections whose streams of HTTP/2 are followed, and of the streams. */
#pragma once

#include "collectors/sockets/state.bpf.h"

/* Connections whose streams can be followed at the same time. */
#define FOLLOWED 1024
/* So many places are tried for one. */
#define FOLLOWED_TRIES 32

#define FRAME_HEAD 9
/* Of a head that is being put together: more than there is, for the verifier's sake. */
#define FRAME_ROOM 32

enum direction { OF_SERVER, OF_CLIENT };

/*
 * What is left of a call's bytes. Kept with the connection, and not on the stack: there the
 * verifier would know something of each number, and would follow every step through them.
 */
struct call_bytes {
	u64 at; /* the next byte */
	u64 vector; /* where the next piece of memory is described (struct iovec) */
	u32 piece; /* bytes of this piece */
	u32 vectors; /* pieces behind it */
	u32 bytes; /* in all pieces */
};

/* How far one direction of a connection was gone through. */
struct framer {
	struct call_bytes left; /* of the call whose bytes are just being gone through */
	u64 now_ns; /* of the call whose bytes are just being gone through */
	u64 came_ns; /* what it has read came then, or before; 0: not known */
	u64 task; /* of one with calls: for which it writes, … */
	u32 fd; /* … and to which descriptor, and 1; 0: not known */
	u32 at; /* the number of the next byte: TCP's, or how many there were */
	u32 skip; /* so much of a frame is still to come */
	u32 ends; /* that stream ends with the frame; 0: none does */
	u32 fields; /* so many pieces of blocks of fields there were: see fields.bpf.h */
	u32 fields_of; /* the stream that a block begins: its place, and 1; 0: none does */
	u8 have; /* so much of the next head was seen */
	u8 seeks; /* it has to find where a frame begins, and may try that often */
	u8 passed_over; /* … and has tried before */
	u8 begun; /* `at` is known */
	u8 lost; /* what is there is no frame, or cannot be read */
	u8 tries; /* it is only looked whether the call's bytes are frames, and ask for something */
	u8 asks; /* … which they do */
	u8 in_fields; /* the frame has fields, and its type is this; 0: it has none */
	u8 fields_flags; /* … and these are its flags */
	u8 fields_begin; /* … and none of it was passed yet */
	u8 makes_room; /* the frame says for how much more the client has room */
	u32 room_of; /* … of this stream; 0: of all */
	u8 head[FRAME_ROOM] __attribute__((aligned(8)));
};

/*
 * How much DATA a client has room for, of a stream or of all of a connection. How much at first is
 * not known where whywait came later, and is not needed: see room.bpf.h.
 */
struct room {
	u64 made_ns; /* the client made some last; 0: never */
	u64 wrote_ns; /* something was written last */
	u64 first_ns; /* the client made the first room after something was written, … */
	u64 from_ns; /* … and that was written then */
	u32 used; /* so many bytes were written, less those that it made room for since */
	u32 level; /* what that was at `first_ns` */
	u8 full; /* … which is what it had come to the time before */
};

struct followed {
	u64 cookie; /* of the socket whose streams these are; 0: free */
	u64 sk; /* its kernel address */
	struct room room; /* of its client for all streams (WINDOW_UPDATE) */
	u64 reader; /* the goroutine that has read the head of a stream, of late; 0: not known */
	u64 reader_ns; /* … and when */
	u32 tag; /* no other connection ever has it */
	u32 last; /* the last stream that the client began */
	u32 open;
	u16 port;
	u8 family;
	u8 tcp;
	u8 peer; /* PEER_… */
	u8 before_accept; /* its first bytes came before the connection was accepted */
	u8 calls; /* the target is the client, and the streams are what it asks its peer */
	u8 from_preface; /* it was followed from its first stream on */
	u8 tls; /* TLS_… */
	u8 tls_looks; /* so many pieces of clear text may still be no frames */
	u32 writes_to; /* of one in TLS: the descriptor that was written to last, and 1 */
	u8 fills; /* there was an answer that may fill a client's room */
	u32 exchange_peer; /* … of these, as in an exchange */
	u32 sent_tid; /* the thread that began the last of these */
	struct framer framers[2];
};

struct followed followed[FOLLOWED] SEC(".bss.followed");
u32 last_followed = 0;

/* Something has come: of TCP's numbers the next one then, and when. */
struct note {
	u64 ns; /* 0: it had come before */
	u32 end;
};

/* As many as are remembered of a connection. */
#define NOTES 128

/*
 * When data came, of followed connections: there several requests may lie unread, each of which
 * came at a time of its own. Apart from what those write to who read.
 */
struct notes {
	u32 count;
	struct note ring[NOTES];
};

struct notes followed_notes[FOLLOWED] SEC(".bss.notes");

/*
 * Streams that are open, by connection and number. Where all places that one may have are taken, it
 * is not followed.
 */
#define STREAMS 4096
#define STREAM_WAYS 16
/* Of a set those that one connection tries first. */
#define STREAM_OWN_WAYS 4

struct stream {
	struct socket_state state; /* as of a connection with one request */
	u64 wrote_ns; /* the server wrote DATA last, or a client has read it; 0: never */
	struct room room; /* of its client for this one */
	u64 client_ns; /* the answer waited for that, in all, … */
	u64 client_first_ns; /* … and before it was known to be full for the first time */
	u32 place; /* of its connection */
	u8 asked; /* the client has sent all of what it asks */
	u8 goes_on; /* its answer comes in pieces, and is counted: how long it lasts is no latency */
};

struct stream streams[STREAMS] SEC(".bss.streams");

/* The connection's tag, then the stream's number; 0: free. */
u64 stream_keys[STREAMS] SEC(".bss.open");
/* Whoever sets this in a key ends the stream. No number of a stream has it. */
#define STREAM_ENDS (1ULL << 31)

/* How a stream comes to its end other than by its answer. */
enum stream_end {
	STREAM_RESET, /* the client wants it no more, or has gone */
	STREAM_STAYS, /* the recording or the process ends */
	STREAM_UNFOLLOWED, /* nobody knows: its connection is followed no more */
	STREAM_ANSWERED, /* … or by its answer: a call */
};
