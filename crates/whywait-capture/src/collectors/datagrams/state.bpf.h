/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * What is kept of datagram sockets, of what waits in their queues, and of questions that were read
 * and not answered yet.
 */
#pragma once

#include "collectors/datagrams/records.h"
#include "collectors/exchanges/records.h"
#include "collectors/sockets/state.bpf.h"

/* What a socket is for: its first datagram tells. */
enum datagram_role {
	DATAGRAM_NEW,
	DATAGRAM_ASKED, /* strangers ask, and are answered */
	DATAGRAM_ASKS, /* the target asks, or only sends */
};

/* Who has sent what opens a connection of QUIC: strangers, and the target. */
enum quic { QUIC_HEARD = 1, QUIC_SAID };

struct datagram_socket {
	u64 id; /* 0: just being made */
	u64 cookie;
	u64 sk; /* its kernel address */
	u64 found_ns;
	u32 ring; /* of its arrivals: its number and 1; 0: none */
	u32 arrived; /* so many came, … */
	u32 read; /* … and were read */
	u32 known_from; /* those before were there when it was found */
	u32 reader; /* the thread that read last */
	u32 behind; /* so often in a row less had come than was read */
	u32 drops; /* what the kernel had dropped when it was found */
	u16 port;
	u8 family;
	u32 sent_to; /* while its role is not known: to whom it last sent something */
	u8 role;
	u8 by_id; /* questions of the same peer are told apart by their first two bytes */
	u8 echoes; /* answers that began with the question's first two bytes, others than before */
	u8 other; /* … and answers that did not */
	u8 answered; /* some were; of one that asks, it was */
	u8 quic; /* QUIC_… */
	u8 sent; /* of one that asks: so often since it was answered */
	u16 last_id;
};

/* A datagram has come. */
struct arrival {
	u64 ns;
	u32 number; /* which one it is, and 1 */
	u32 peer; /* who sent it, as a hash; 0: not known */
	u16 id; /* its first two bytes */
	u16 print; /* of its first bytes and its length: the same again is the same question */
	u16 port; /* it was sent from there, in the network's order; 0: not known */
	u8 quic; /* it opens a connection of QUIC */
};

/* As many as a queue of the usual size has room for (net.core.rmem_default), and more. */
#define ARRIVALS 512
/* Sockets of which it is known when what they read came. */
#define ARRIVAL_RINGS 128

struct arrival arrival_rings[ARRIVAL_RINGS][ARRIVALS] SEC(".bss.datagrams");

/* The cookie of its socket; 0: nobody's. And when something came there last. */
struct ring_owner {
	u64 cookie;
	u64 used_ns;
};
struct ring_owner ring_owners[ARRIVAL_RINGS] SEC(".bss.rings");

/*
 * Questions that were read and not answered, by socket and peer, and the target's own. A set has so
 * many ways: where all are taken, the oldest is given up.
 */
#define QUESTIONS 4096
#define QUESTION_WAYS 8

struct question {
	struct socket_state state; /* as of a connection with one request, or one exchange */
	struct peer_key to; /* whom the target asks */
	u32 peer;
	u16 id;
	u16 print;
	u8 answers; /* its socket has answered others */
};

struct question questions[QUESTIONS] SEC(".bss.questions");

/* In the upper half a hash of socket and peer, then the id and a bit; 0: free. */
u64 question_keys[QUESTIONS] SEC(".bss.asked");
