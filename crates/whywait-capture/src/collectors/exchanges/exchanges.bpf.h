/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Exchanges: what the target sends on a connection that it made, and the reply. One begins with
 * what is sent after a reply was read, and ends with what is read last before more is sent. All go
 * into the sums of their peer, when a reply is first read. Slow ones become records, and some of
 * the others.
 */
#pragma once

#include "core/bits.bpf.h"
#include "collectors/exchanges/records.h"
#include "collectors/names/names.bpf.h"
#include "collectors/sockets/closing.bpf.h"
#include "collectors/sockets/descriptor.bpf.h"
#include "collectors/streams/places.bpf.h"
#include "collectors/tasks/tasks.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_PEERS);
	__type(key, struct peer_key);
	__type(value, struct peer);
} peers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_PEERS + 1);
	__type(key, u32);
	__type(value, struct peer_sums);
} peer_sums SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_PEERS + 1);
	__type(key, u32);
	__type(value, struct peer_now);
} peers_now SEC(".maps");

u32 last_peer = 0;

/* So many short exchanges become records in a tenth of a second, … */
#define MAX_SHORT_EXCHANGES 100
/* … which began then, and how many did. */
u64 short_since_ns = 0;
u32 short_exchanges = 0;

/* What wants no answer is no longer than this: MySQL's COM_STMT_CLOSE, a ping. */
#define UNANSWERED_OUT 64
/* What is read so long after the last of a reply is none of it: it was pushed. */
#define PUSHED_NS 1000000000

static __always_inline struct peer_sums *sums_of(const struct exchange *exchange)
{
	u32 number = exchange->peer - 1;

	return bpf_map_lookup_elem(&peer_sums, &number);
}

static __always_inline void one_more(s32 *now, s32 *most)
{
	s32 more = __sync_fetch_and_add(now, 1) + 1;

	if (more > *most)
		*most = more;
}

static __always_inline u32 retransmits_of(const struct socket_state *socket)
{
	return socket->tcp ? KERNEL_READ(struct tcp_sock, sk_of(socket), total_retrans) : 0;
}

static __always_inline u32 srtt_of(const struct socket_state *socket)
{
	return socket->tcp ? KERNEL_READ(struct tcp_sock, sk_of(socket), srtt_us) >> 3 : 0;
}

/*
 * The shortest round trip of the last minutes. The smoothed one has the peer's time in it: an
 * acknowledgement waits for a reply to go with, for 40 ms.
 */
static __always_inline u32 rtt_min_of(const struct socket_state *socket)
{
	return socket->tcp ? KERNEL_READ(struct tcp_sock, sk_of(socket), rtt_min.s[0].v) : 0;
}

/* The listener's address, of which the one that connects has none itself. */
static __always_inline void unix_peer(struct sock *sk, struct peer_key *key, struct peer *peer)
{
	struct sock *other = BPF_CORE_READ((struct unix_sock *)sk, peer);
	struct unix_address *address;
	u32 len;

	if (!other)
		return;
	address = BPF_CORE_READ((struct unix_sock *)other, addr);
	key->unix_address = (u64)address;
	if (!address)
		return;
	len = BPF_CORE_READ(address, len) - sizeof(u16);
	peer->path_len = len < UNIX_PATH ? len : UNIX_PATH;
	bpf_probe_read_kernel(peer->path, UNIX_PATH,
			      (void *)address + bpf_core_field_offset(struct unix_address, name) +
				      sizeof(u16));
	peer->tgid = BPF_CORE_READ(sk, sk_peer_pid, numbers[0].nr);
}

static __always_inline void inet_peer(struct sock *sk, u8 family, struct peer_key *key)
{
	key->port = BPF_CORE_READ(sk, __sk_common.skc_dport);
	if (family == AF_INET6) {
		BPF_CORE_READ_INTO(&key->address, sk, __sk_common.skc_v6_daddr.in6_u.u6_addr8);
		return;
	}
	key->address[10] = 0xff;
	key->address[11] = 0xff;
	*(u32 *)&key->address[12] = BPF_CORE_READ(sk, __sk_common.skc_daddr);
}

/* The number of a peer, and 1; `peer`: what is known of it where it is new. */
static __noinline u32 number_of(const struct peer_key *key, struct peer *peer)
{
	struct peer *known;

	if (!key || !peer)
		return PEER_NONE;
	known = bpf_map_lookup_elem(&peers, key);
	if (known)
		return known->number + 1;
	if (last_peer < MAX_PEERS) {
		peer->number = __sync_fetch_and_add(&last_peer, 1) + 1;
		if (peer->number <= MAX_PEERS &&
		    !bpf_map_update_elem(&peers, key, peer, BPF_NOEXIST))
			return peer->number + 1;
		known = bpf_map_lookup_elem(&peers, key);
		if (known)
			return known->number + 1;
	}
	COUNT(lost_peers);
	return 1;
}

static __noinline u32 peer_of(const struct socket_state *socket)
{
	struct sock *sk = sk_of(socket);
	struct peer_key key = {};
	struct peer peer = {};

	if (socket->family == AF_UNIX) {
		key.family = AF_UNIX;
		unix_peer(sk, &key, &peer);
		if (!key.unix_address)
			return PEER_NONE;
	} else {
		key.family = AF_INET;
		inet_peer(sk, socket->family, &key);
	}
	return number_of(&key, &peer);
}

/* The connection's peer is looked for, once. False: it has none. */
__noinline bool has_peer(struct socket_state *socket)
{
	struct exchange *exchange;
	struct peer_sums *sums;
	struct peer_now *now;
	u32 number;
	u64 made_ns;

	if (!socket)
		return false;
	exchange = &socket->exchange;
	exchange->peer = peer_of(socket);
	if (exchange->peer == PEER_NONE)
		return false;
	number = exchange->peer - 1;
	exchange->retransmits = retransmits_of(socket);
	sums = sums_of(exchange);
	if (sums) {
		sums->connections++;
		/* What was sent again before anything was written: SYNs. */
		if (unlikely(exchange->connect_ns && exchange->retransmits)) {
			made_ns = exchange->connected_ns ? exchange->connected_ns :
							   bpf_ktime_get_ns();
			sums->retried++;
			sums->retried_ns += made_ns - exchange->connect_ns;
		}
		if (exchange->connect_ns && exchange->connected_ns) {
			sums->connects++;
			sums->connect_ns += exchange->connected_ns - exchange->connect_ns;
		}
	}
	/* No tracepoint tells of the end of a unix socket. */
	now = socket->tcp ? bpf_map_lookup_elem(&peers_now, &number) : 0;
	if (now && !exchange->open) {
		one_more(&now->open, &now->most_open);
		exchange->open = 1;
	}
	return true;
}

static __always_inline void leaves_flight(struct exchange *exchange)
{
	u32 number = exchange->peer - 1;
	struct peer_now *now;

	if (!exchange->in_flight)
		return;
	exchange->in_flight = 0;
	now = bpf_map_lookup_elem(&peers_now, &number);
	if (now)
		__sync_fetch_and_add(&now->in_flight, -1);
}

__noinline int send_exchange(struct socket_state *socket, u64 gone_ns, u64 now)
{
	struct exchange_record *record;
	struct exchange *exchange;

	if (!socket)
		return 0;
	exchange = &socket->exchange;
	if (!within_budget(EXCHANGES, now)) {
		COUNT(exchange_budget);
		return 0;
	}
	if (names_wanted)
		put_name(socket, exchange->seq, exchange->tgid, now);
	record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	if (!record) {
		COUNT(lost_ring_full);
		return 0;
	}
	record->type = RECORD_EXCHANGE;
	record->seq = exchange->seq;
	record->socket = socket->id;
	record->connect_ns = exchange->connect_ns;
	record->connected_ns = exchange->connected_ns;
	record->first_send_ns = exchange->first_send_ns;
	record->last_send_ns = exchange->last_send_ns;
	record->arrived_ns = exchange->arrived_ns;
	record->first_read_ns = exchange->first_read_ns;
	record->last_read_ns = exchange->last_read_ns;
	record->gone_ns = gone_ns;
	record->bytes_out = exchange->bytes_out;
	record->bytes_in = exchange->bytes_in;
	record->task = exchange->task;
	record->tgid = exchange->tgid;
	record->send_tid = exchange->send_tid;
	record->read_tid = exchange->read_tid;
	record->fd = (s32)(exchange->fd - 1);
	record->peer = exchange->peer - 1;
	record->srtt_us = srtt_of(socket);
	record->rtt_min_us = rtt_min_of(socket);
	record->retransmits = retransmits_of(socket) - exchange->retransmits;
	record->kind = socket->kind;
	record->unused = 0;
	submit(record);
	return 0;
}

static __always_inline void count_latency(struct peer_sums *sums, u64 ns, u32 more)
{
	u32 bucket = latency_bucket(ns);

	if (bucket >= EXCHANGE_BUCKETS)
		bucket = EXCHANGE_BUCKETS - 1;
	sums->latency[bucket] += more;
}

/* A reply was read: into the sums, with what is known of it so far. */
static __always_inline void count_exchange(struct socket_state *socket, u64 now)
{
	struct exchange *exchange = &socket->exchange;
	u64 latency_ns = now - exchange->first_send_ns;
	struct peer_sums *sums = sums_of(exchange);

	leaves_flight(exchange);
	if (!sums)
		return;
	sums->count++;
	sums->total_ns += latency_ns;
	sums->first_ns += latency_ns;
	sums->sending_ns += exchange->last_send_ns - exchange->first_send_ns;
	if (latency_ns > sums->max_ns)
		sums->max_ns = latency_ns;
	if (exchange->arrived_ns && now > exchange->arrived_ns)
		sums->unread_ns += (exchange->timing == TIMED_FOR_MANY ? TIMED_SHARE : 1) *
				   (now - exchange->arrived_ns);
	sums->bytes_out += exchange->bytes_out;
	sums->bytes_in += exchange->bytes_in;
	exchange->counted_in = exchange->bytes_in;
	sums->rtt_min_us += rtt_min_of(socket);
	sums->retransmits += retransmits_of(socket) - exchange->retransmits;
	count_latency(sums, latency_ns, 1);
	if (latency_ns >= threshold_ns)
		sums->slow++;
}

/* More of the reply was read than when it was counted: it took longer. */
static __always_inline void count_rest(struct socket_state *socket, u64 now)
{
	struct exchange *exchange = &socket->exchange;
	u64 first_ns = exchange->first_read_ns - exchange->first_send_ns;
	u64 latency_ns = exchange->last_read_ns - exchange->first_send_ns;
	struct peer_sums *sums = sums_of(exchange);

	if (!sums)
		return;
	sums->total_ns += latency_ns - first_ns;
	if (latency_ns > sums->max_ns)
		sums->max_ns = latency_ns;
	sums->bytes_in += exchange->bytes_in - exchange->counted_in;
	count_latency(sums, first_ns, -1);
	count_latency(sums, latency_ns, 1);
	if (latency_ns < threshold_ns)
		return;
	if (first_ns < threshold_ns)
		sums->slow++;
	send_exchange(socket, 0, now);
}

/*
 * The last exchange is over: more is sent, or the connection ends. `gone`: the connection has
 * ended, so that there will be no reply; what goes on when the recording ends may have one.
 */
__noinline int exchange_ends(struct socket_state *socket, bool gone, u64 now)
{
	struct exchange *exchange;
	struct peer_sums *sums;

	if (!socket)
		return 0;
	exchange = &socket->exchange;
	if (!exchange->first_send_ns || exchange->over)
		return 0;
	exchange->over = 1;
	if (unlikely(exchange->fetches))
		return 0;
	if (exchange->first_read_ns) {
		if (exchange->last_read_ns > exchange->first_read_ns)
			count_rest(socket, now);
	} else {
		leaves_flight(exchange);
		sums = sums_of(exchange);
		if (sums) {
			sums->unanswered++;
			sums->bytes_out += exchange->bytes_out;
			sums->retransmits += retransmits_of(socket) - exchange->retransmits;
		}
		if (now - exchange->first_send_ns >= threshold_ns)
			send_exchange(socket, gone ? now : 0, now);
	}
	exchange->retransmits = retransmits_of(socket);
	exchange->connect_ns = 0;
	exchange->connected_ns = 0;
	return 0;
}

static __always_inline void exchange_begins(struct socket_state *socket,
					    const struct thread *thread, u64 task, u32 fd, u64 now,
					    bool fetches)
{
	struct exchange *exchange = &socket->exchange;
	u32 number = exchange->peer - 1;
	struct peer_now *peer;

	exchange->first_send_ns = now;
	exchange->arrived_ns = 0;
	exchange->first_read_ns = 0;
	exchange->last_read_ns = 0;
	exchange->bytes_out = 0;
	exchange->bytes_in = 0;
	exchange->counted_in = 0;
	exchange->later_ns = 0;
	exchange->read_tid = 0;
	exchange->task = task;
	exchange->tgid = thread->tgid;
	exchange->fd = fd;
	exchange->seq++;
	exchange->over = 0;
	exchange->fetches = fetches;
	exchange->pushed = 0;
	peer = socket->tcp && !fetches ? bpf_map_lookup_elem(&peers_now, &number) : 0;
	if (peer) {
		one_more(&peer->in_flight, &peer->most_in_flight);
		exchange->in_flight = 1;
	}
}

/* What was sent is no call that is answered. */
static __always_inline void leaves_exchange(struct exchange *exchange)
{
	if (exchange->first_send_ns && !exchange->over) {
		leaves_flight(exchange);
		exchange->over = 1;
	}
}

/* What was written is none, nor the last of one that was: a broker sends unasked, and is told. */
__noinline int exchange_is_none(struct socket_state *socket)
{
	if (!socket)
		return 0;
	if (!socket->exchange.peer)
		has_peer(socket);
	leaves_exchange(&socket->exchange);
	return 0;
}

/*
 * What is open there is a fetch, and a call is sent after it on the same connection. The broker
 * replies to it only after it has answered the fetch, so it begins now, and what is read next is
 * taken as its reply.
 */
static __always_inline bool behind_fetch(const struct exchange *exchange, bool fetches)
{
	if (likely(!exchange->fetches || fetches || exchange->over))
		return false;
	COUNT(jobs_calls_behind);
	return true;
}

/*
 * A thread has written `bytes` to a connection that the target made. `fetches`: they ask a broker
 * for a message, whenever there is one.
 */
__noinline int exchange_writes(struct socket_state *socket, const struct thread *thread, u64 now,
			       u32 bytes, bool fetches)
{
	struct exchange *exchange;

	if (!socket || !thread)
		return 0;
	exchange = &socket->exchange;
	if (exchange->peer == PEER_NONE)
		return 0;
	if (!exchange->peer && !has_peer(socket))
		return 0;
	if (!exchange->first_send_ns || exchange->first_read_ns || exchange->over ||
	    behind_fetch(exchange, fetches)) {
		exchange_ends(socket, false, now);
		exchange_begins(socket, thread, task_of(thread), writes_to(thread), now, fetches);
	} else if (fetches) {
		leaves_flight(exchange);
		exchange->fetches = 1;
	} else if (!exchange->later_ns && exchange->bytes_out <= UNANSWERED_OUT &&
		   now - exchange->last_send_ns >= threshold_ns) {
		/* What was sent before may have wanted no answer: its reply will show. */
		exchange->later_ns = now;
		exchange->later_task = task_of(thread);
		exchange->paused_ns = now - exchange->last_send_ns;
		exchange->later_out = exchange->bytes_out;
	}
	exchange->last_send_ns = now;
	exchange->send_tid = thread->tid;
	exchange->bytes_out += bytes;
	if (names_wanted && !thread->uring)
		keep_first_bytes(socket->id, exchange->seq, thread->tgid, bytes, now);
	return 0;
}

/*
 * A reply has come, and what it replies to may be what was sent last only: it is if it came soon
 * after that, measured by the pause before. As begin_later for requests.
 */
static __always_inline void may_reply_to_later(struct exchange *exchange, u64 came_ns)
{
	u64 after_ns = came_ns > exchange->later_ns ? came_ns - exchange->later_ns : 0;

	if (exchange->later_ns && after_ns * 10 <= exchange->paused_ns) {
		exchange->first_send_ns = exchange->later_ns;
		exchange->task = exchange->later_task;
		exchange->bytes_out -= exchange->later_out;
	}
}

/*
 * When the reply came of which `bytes` were read at first; 0: not known. One within the machine may
 * come before the hook of the write runs. What had come long before is no reply; that extends the
 * exchange when it is read.
 */
static __always_inline u64 reply_came(const struct socket_state *socket,
				      const struct arrivals *arrivals, u32 bytes)
{
	u64 sent_ns = socket->exchange.first_send_ns;
	u64 arrived_ns = noted_arrival(socket, arrivals, bytes, 0);

	if (arrived_ns >= sent_ns)
		return arrived_ns;
	return arrived_ns + threshold_ns < sent_ns ? 0 : sent_ns;
}

/* Whether it has to be known when this reply came, as arrival_of for requests. */
static __always_inline u8 timing_of_reply(const struct socket_state *socket, u64 now)
{
	const struct exchange *exchange = &socket->exchange;
	struct peer_sums *sums;

	if (unlikely(now - exchange->first_send_ns >= threshold_ns || exchange->later_ns ||
		     !socket->tcp))
		return TIMED;
	sums = sums_of(exchange);
	if (unlikely(!sums || sums->count < FEW_REQUESTS))
		return TIMED;
	return likely(now / 16 % TIMED_SHARE) ? UNTIMED : TIMED_FOR_MANY;
}

/*
 * Of short exchanges as many become records as show for how long connections are kept, where few
 * calls are made: a transaction is several short calls with pauses between them. All CPUs share the
 * room, and who finds none only reads.
 */
static __always_inline bool short_has_room(u64 now)
{
	if ((s64)(now - short_since_ns) > 100000000) {
		short_since_ns = now;
		short_exchanges = 0;
	}
	if (likely(short_exchanges >= MAX_SHORT_EXCHANGES))
		return false;
	__sync_fetch_and_add(&short_exchanges, 1);
	return true;
}

/* A reply was first read, of which it is noted when it came. */
static __always_inline void reply_begins(struct socket_state *socket, const struct thread *thread,
					 u64 now, u32 bytes)
{
	struct exchange *exchange = &socket->exchange;

	if (exchange->timing != UNTIMED)
		may_reply_to_later(exchange, exchange->arrived_ns ? exchange->arrived_ns : now);
	exchange->first_read_ns = now;
	exchange->last_read_ns = now;
	exchange->read_tid = thread->tid;
	exchange->bytes_in = bytes;
	count_exchange(socket, now);
}

/* A thread has read `bytes` from a connection that the target made. */
__noinline int exchange_reads(struct socket_state *socket, const struct arrivals *arrivals,
			      const struct thread *thread, u64 now, u32 bytes)
{
	struct exchange *exchange;

	if (!socket || !thread)
		return 0;
	exchange = &socket->exchange;
	if (unlikely(!exchange->first_send_ns || exchange->over)) {
		was_read(socket, now);
		return 0;
	}
	if (exchange->first_read_ns) {
		/* With the rest it may be a slow one. */
		if (unlikely(exchange->timing == UNTIMED))
			exchange->arrived_ns = reply_came(socket, arrivals, exchange->bytes_in);
		exchange->timing = TIMED;
		was_read(socket, now);
		exchange->pushed |= now - exchange->last_read_ns >= PUSHED_NS;
		if (exchange->pushed)
			return 0;
		exchange->last_read_ns = now;
		exchange->bytes_in += bytes;
		return 0;
	}
	was_read(socket, now);
	exchange->timing = timing_of_reply(socket, now);
	exchange->arrived_ns = 0;
	if (unlikely(exchange->timing != UNTIMED))
		exchange->arrived_ns = reply_came(socket, arrivals, bytes);
	if (names_wanted && !thread->uring)
		name_is_replied_to(socket->id, exchange->seq, bytes, now);
	reply_begins(socket, thread, now, bytes);
	if (now - exchange->first_send_ns >= threshold_ns || short_has_room(now))
		send_exchange(socket, 0, now);
	return 0;
}

/* Something has come on a connection that the target made. */
static __noinline int reply_arrives(struct arrivals *arrivals, struct sock *sk)
{
	if (arrivals->family == AF_UNIX && !unix_packets(sk))
		return 0;
	if (!only_fin(sk))
		note_arrival(arrivals, sk);
	return 0;
}

/* Linux's number. */
#define ETIMEDOUT 110

/*
 * A connection that did not come about: the target gave it up, or the kernel did, as nobody
 * answered. The row has no byte written, and begins where the connection did. Not of one that was
 * refused: who is refused need not wait.
 */
static __noinline void connect_given_up(struct socket_state *socket, u64 now)
{
	struct exchange *exchange = &socket->exchange;
	u32 error = KERNEL_READ(struct sock, sk_of(socket), sk_err);

	if ((error && error != ETIMEDOUT) || !exchange->connect_ns ||
	    now - exchange->connect_ns < threshold_ns)
		return;
	exchange->first_send_ns = exchange->connect_ns;
	exchange->last_send_ns = exchange->connect_ns;
	exchange->tgid = socket->tgid;
	exchange->seq++;
	send_exchange(socket, now, now);
	exchange->first_send_ns = 0;
	exchange->last_send_ns = 0;
}

/* A connection that the target makes, or made, is in another state. */
__noinline int exchange_changes(struct socket_state *socket, int old_state, int new_state)
{
	u64 now = bpf_ktime_get_ns();
	struct exchange *exchange;
	struct peer_now *peer;
	u32 number, shutdown;

	if (!socket)
		return 0;
	exchange = &socket->exchange;
	if (new_state == TCP_SYN_SENT) {
		exchange->connect_ns = now;
		return 0;
	}
	if (old_state == TCP_SYN_SENT) {
		if (new_state == TCP_ESTABLISHED) {
			exchange->connected_ns = now;
		} else if (has_peer(socket)) {
			struct peer_sums *sums = sums_of(exchange);

			if (sums) {
				sums->connections--;
				sums->failed++;
			}
			connect_given_up(socket, now);
		}
	}
	if (exchange->open && (new_state == TCP_CLOSE || new_state == TCP_FIN_WAIT1 ||
			       new_state == TCP_LAST_ACK)) {
		number = exchange->peer - 1;
		exchange->open = 0;
		peer = bpf_map_lookup_elem(&peers_now, &number);
		if (peer)
			__sync_fetch_and_add(&peer->open, -1);
	}
	/* Closed by the target, or both ends are. After a shutdown a reply may still be read. */
	shutdown = KERNEL_READ(struct sock, sk_of(socket), sk_shutdown);
	if (new_state != TCP_CLOSE && shutdown != SHUTDOWN_MASK)
		return 0;
	if (exchange->first_read_ns || shutdown == SHUTDOWN_MASK ||
	    tcp_unread(sk_of(socket)) <= 1)
		exchange_ends(socket, true, now);
	else if (exchange->peer && exchange->peer != PEER_NONE)
		leaves_flight(exchange);
	return 0;
}
