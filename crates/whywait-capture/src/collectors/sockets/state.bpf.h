/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* What is kept for each socket of the target. */
#pragma once

#include "collectors/exchanges/state.bpf.h"
#include "collectors/pushes/state.bpf.h"
#include "core/state.bpf.h"

enum socket_role { SOCKET_UNKNOWN, SOCKET_LISTENER, SOCKET_SERVER, SOCKET_CLIENT };

/* Who is at the other end of an accepted connection: see own.bpf.h. */
enum socket_peer { PEER_UNKNOWN, PEER_OTHER, PEER_OWN };

/*
 * When data came, and what those need to know who bring it: it is noted on one CPU and read on
 * another, as a rule, and most reads need not look. One line of the cache.
 */
struct arrivals {
	u64 cookie; /* of the socket; 0: nobody's, or not filled yet */
	/* the first of which nothing had been read yet when it came last; 0: none has come */
	u64 ns;
	u64 before_ns; /* the same, of the one before that */
	u32 at; /* how far the socket had been read then: see read_up_to */
	u32 before_at;
	u16 local_port;
	u8 role;
	u8 family;
	u8 before_accept; /* the very first came before the connection was accepted */
	u16 streams; /* as of the state below */
} __attribute__((aligned(64)));

/* Whether it is known when a request came: see arrivals.bpf.h. */
enum timing { TIMED, TIMED_FOR_MANY, UNTIMED };

/* Whether a connection carries several requests at once: see multiplexed.bpf.h. */
enum multiplex {
	MULTIPLEX_NEW, /* nothing was read yet */
	/*
	 * Not known. 2 more for each time that what was answered had come too early, and 1 if what
	 * is to be answered has.
	 */
	MULTIPLEX_NONE = 2,
	MULTIPLEX_OVERLAPS = 16, /* that was so often enough */
	MULTIPLEX_HTTP2,
	MULTIPLEX_STREAMS, /* HTTP/2 of which the streams are followed: see streams.bpf.h */
	/* It may be in TLS, or is, and its clear text has not shown yet what it carries; … */
	MULTIPLEX_TLS,
	MULTIPLEX_TLS_EARLY, /* … nor is it known whether there will be any: see tls/sockets.bpf.h */
	MULTIPLEX_OLD = 32, /* it was there before, and so many reads are still to be looked at */
	MULTIPLEX_HEAD = 64, /* … and one of them was the head of a frame: see are_frames */
};

/* Clear text is looked at, where TLS libraries have it. */
const volatile bool tls_wanted = false;

/* Where a request may begin that seemed to begin before: see may_begin_later. */
struct later {
	u64 ready_ns; /* 0: nowhere */
	u64 recv_ns;
	u64 paused_ns; /* so long nothing came before it */
	u64 bytes_in; /* … and so much had come until then */
	u64 unserved_wakeup_ns;
	u32 recv_tid;
	u64 at_recv[PART_COUNT];
};

/* Whether the client has gone. */
enum left {
	LEFT_NOT,
	LEFT_FIN, /* it sends no more, and may still read */
	LEFT_RESET, /* it has none of the response to the last request, and never will */
	LEFT_ANSWERED, /* … and that was written, or tried */
};

/* What a connection had come to when it was looked at last: see responses.bpf.h. */
struct looked {
	u64 acknowledged; /* bytes */
	u32 window; /* how long it was limited by this, and by the next two, in jiffies */
	u32 buffer;
	u32 network;
};

/* Whether the peer of a connection that the target made hands out jobs: see jobs.bpf.h. */
enum broker {
	/* Less: so many writes were looked at since a reply took long, which do not tell. */
	BROKER_NONE = 16,
	BROKER_IS_ASKED, /* it was asked for messages, and to wait for them */
	BROKER_IS_POLLED, /* … also for the next ones, before these are worked on */
	BROKER_IS_TOLD, /* … and is told which ones are done with, in calls */
	BROKER_SENDS, /* it sends messages unasked, and they are acknowledged */
	BROKER_NAMES, /* … by what each of them says: see named.bpf.h */
};

/* A connection that ended: somebody closed it, or its process ended. */
enum gone { GONE = 1, GONE_WITH_PROCESS };

/*
 * A response as it was before what may be a message that closes the connection: see may_be_closing.
 */
struct answered {
	u64 last_send_ns;
	u32 send_tid;
	u64 service[PART_COUNT];
};

/*
 * What those need to know who read and write. The first two lines of the cache are what most of
 * them look at.
 */
struct socket_state {
	u64 cookie; /* of the socket whose slot this is; 0: it is at home */
	u64 id; /* 0: inherited from the listener and not seen yet */
	u64 sk; /* its kernel address: see sk_of */
	u16 local_port;
	u8 role;
	u8 family;
	u8 ended : 1; /* its end of file was read */
	u8 tcp : 1; /* … or else it is another protocol's: MPTCP's, a unix socket */
	u8 maybe : 1; /* a job of which nothing shows yet that there is one */
	u8 emitted;
	u8 before_accept;
	u8 only_on_cpu; /* of `service` all but that part is 0 */
	u32 tgid;
	u32 recv_tid;
	u32 send_tid;
	u32 seq;
	u64 ready_ns; /* 0: no request is open */
	u64 read_ns; /* it was read last, and … */
	u32 read_to; /* how far that was: see read_up_to */
	u32 read_before; /* … and before */
	/* it was read before the request came: kept of one that was read soon after */
	u64 after_ns;
	u8 timing; /* TIMED… */
	u8 closing; /* what was written last may be none of the response's */
	u8 gone : 4; /* it is closed: GONE… */
	u8 held : 4; /* what holds back the end of the response, TAIL_…: see tails.bpf.h */
	u8 multiplex; /* MULTIPLEX_… */
	u32 fd; /* … and 1, of a request that was slow; 0: not known */
	u64 recv_ns;
	u64 first_send_ns;
	u64 last_send_ns;
	u64 bytes_in;
	u64 bytes_out;
	u64 unserved_wakeup_ns;
	u64 at_recv[PART_COUNT]; /* the reader's totals when it read */
	u64 service[PART_COUNT];
	u64 before_in; /* bytes of earlier requests */
	u64 before_out;
	u64 recent_out; /* … and of the last answers, each one before another counting half */
	/* What was read through an io_uring ring: see taken.bpf.h. */
	u32 uring; /* its index and 1; 0: none */
	u32 uring_id;
	u32 uring_number; /* of the completion, at least */
	u8 peer; /* PEER_…: unknown until its first request is read */
	/* Of the response, see tails.bpf.h: packets that were sent again, and … */
	u8 retransmits;
	u8 timeouts; /* … how many of these because nothing came back for long */
	u8 limits_unknown; /* what the next three were when whywait began is not known */
	u32 held_bytes; /* so much of the response was not sent when it was written */
	u32 written_to; /* how far TCP had been written when the request was read */
	u32 next_in; /* so much of the next request was read already: see answer_is_out */
	u64 taken_ns;
	u64 recv_task; /* as it read, and … */
	u64 send_task; /* … wrote: see task_of; only if `runtimes_known` */
	/* Of the connection, as it was when a response was looked at last: */
	u32 window_limited; /* for so long the peer's window held it back, … */
	u32 buffer_limited; /* … and its send buffer, in jiffies */
	u32 dsacks;
	/* Of a client that has gone: see abandoned.bpf.h. */
	u32 left_unacknowledged;
	u64 left_ns;
	u64 left_ready_ns; /* of the request that it left behind */
	u8 left; /* LEFT_… */
	u8 left_by_fin;
	u8 left_alone; /* the thread that read served no other since */
	u8 kind; /* WORK_… */
	u32 streams; /* where it is followed: its place and 1; 0: it is not */
	u8 broker; /* BROKER_…, of one that the target connected */
	u8 pushes; /* PUSHES_… */
	u32 pushed_by; /* the thread that wrote what nobody asked for, … */
	u32 pushed_round; /* … and in which round */
	struct looked looked;
	union {
		struct later later; /* until it is answered */
		struct answered answered; /* of one with a closing message */
		struct exchange exchange; /* of one that the target connected */
		u64 ended_ns; /* of a stream of HTTP/2 that went on after its first message */
	};
};

/*
 * Whose connections inherit: those of the socket that the target has, of one below it; or none, as
 * a process beside the target listens, which may hand accepted connections to it.
 */
enum listens { LISTENS = 1, LISTENS_ABOVE, LISTENS_ELSEWHERE };
IN_BTF(enum listens, listens);

/*
 * Ports on which somebody listened when the target was attached to, in its network: tells its
 * server sockets from its client sockets. (The kernel gives no client a port that was bound.)
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, u16);
	__type(value, u8);
} listen_ports SEC(".maps");

/*
 * Addresses (struct unix_address) of unix sockets on which the target listens. Accepted connections
 * share their listener's.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, u64);
	__type(value, u8);
} unix_listeners SEC(".maps");

/* The same for each server that is kept apart. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, WHOSE_COUNT);
	__type(key, u32);
	__type(value, struct request_totals);
} totals SEC(".maps");

/*
 * The kernel's socket, to read from by KERNEL_READ and BPF_CORE_READ only: to the verifier it is a
 * number. So it gets into functions that are not static. These are verified once for a program, and
 * not on each way that leads to each of their calls, but take no pointers to the kernel's objects.
 */
static __always_inline struct sock *sk_of(const struct socket_state *socket)
{
	return (struct sock *)socket->sk;
}

static __always_inline struct request_totals *totals_of(const struct socket_state *socket)
{
	u32 whose = socket->kind == WORK_HANDED_JOB ? WHOSE_HANDED_JOBS :
		    socket->kind == WORK_JOB	    ? WHOSE_JOBS :
		    socket->peer == PEER_OWN	    ? WHOSE_OWN :
						      WHOSE_OTHERS;
	u32 place = WHOSE_COUNT * server_of(socket->tgid) + whose;

	return bpf_map_lookup_elem(&totals, &place);
}
