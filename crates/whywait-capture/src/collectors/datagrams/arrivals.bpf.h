/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Datagram sockets, and what lies in their queues. Who asked and when is noted when the datagram is
 * put there: its packet is the queue's last then. A queue is read in the order in which it was
 * filled. So which of the noted datagrams a thread has read follows from how many came, and how
 * many are left.
 */
#pragma once

#include "collectors/datagrams/state.bpf.h"
#include "collectors/dns/dns.bpf.h"
#include "core/bits.bpf.h"

#define ETH_P_IP 0x0800
/* A ring is another socket's after this time without a datagram. */
#define RING_LEFT_NS 10000000000
/* So often in a row less had come than was read: notes are missing. */
#define BEHIND 4
/* So many more came than were read, where several threads read: reads are missing. */
#define AHEAD 64
/* So far back the queue is gone through. */
#define NEWEST 8
/* So many notes are looked at where the one that is expected is another one's. */
#define NEAR 8
#define DNS_MULTICAST_PORT 5353
/* QUIC's versions, in the network's order. */
#define QUIC_1 0x01000000
#define QUIC_2 0xcf43336b
/* Who opens a connection of QUIC sends so many bytes at least: RFC 9000, 14.1. */
#define QUIC_BEGINS 1200

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct datagram_socket);
} datagram_sockets SEC(".maps");

/* Of the kernel's object at that address. To the verifier a difference is no address any more. */
static __always_inline u32 hash_of_object(u64 address)
{
	return hash_of(low_half(address) - low_half(0));
}

static __always_inline bool is_datagram(const struct sock *sk)
{
	u16 family = sk->__sk_common.skc_family;

	return sk->sk_type == SOCK_DGRAM &&
	       (family == AF_UNIX ||
		((family == AF_INET || family == AF_INET6) && sk->sk_protocol == IPPROTO_UDP));
}

/* A connected socket hears nothing of strangers. */
static __always_inline bool is_connected(u64 sk)
{
	if (KERNEL_READ(struct sock, sk, __sk_common.skc_family) == AF_UNIX)
		return KERNEL_READ(struct unix_sock, sk, peer) != 0;
	return KERNEL_READ(struct sock, sk, __sk_common.skc_dport) != 0;
}

/* How many datagrams lie in its queue. UDP has a second one, of those who read. */
static __always_inline u32 datagrams_waiting(u64 sk, u16 family)
{
	u32 waiting = KERNEL_READ(struct sock, sk, sk_receive_queue.qlen);

	if (family != AF_UNIX)
		waiting += KERNEL_READ(struct udp_sock, sk, reader_queue.qlen);
	return waiting;
}

/* What the kernel has dropped, as the queue had no room. */
static __always_inline u32 datagrams_dropped(struct sock *sk)
{
	u32 dropped = KERNEL_READ(struct sock, sk, sk_drops.counter);

	if (sk->__sk_common.skc_family != AF_UNIX &&
	    bpf_core_field_exists(struct udp_sock, drop_counters))
		dropped += KERNEL_READ(struct udp_sock, sk, drop_counters.drops0.counter) +
			   KERNEL_READ(struct udp_sock, sk, drop_counters.drops1.counter);
	return dropped;
}

struct ring_search {
	u64 cookie;
	u64 now;
	u32 found; /* and 1 */
};

static long take_this_ring(u32 i, struct ring_search *search)
{
	struct ring_owner *owner = &ring_owners[i & (ARRIVAL_RINGS - 1)];
	u64 before = owner->cookie;

	if (before && search->now - owner->used_ns < RING_LEFT_NS)
		return 0;
	if (__sync_val_compare_and_swap(&owner->cookie, before, search->cookie) != before)
		return 0;
	owner->used_ns = search->now;
	search->found = i + 1;
	return 1;
}

/* Gives the socket with this cookie a ring; 0: all are taken. */
__noinline u32 take_ring(u64 cookie, u64 now)
{
	struct ring_search search = { .cookie = cookie, .now = now };

	bpf_loop(ARRIVAL_RINGS, take_this_ring, &search, 0);
	return search.found;
}

static __always_inline struct datagram_socket *datagram_socket_of(struct sock *sk)
{
	struct datagram_socket *socket;

	if (!UNTRUSTED(struct sock, sk)->sk_bpf_storage)
		return 0;
	socket = bpf_sk_storage_get(&datagram_sockets, sk, 0, 0);
	return socket && socket->id ? socket : 0;
}

/*
 * A socket that was not seen before. `role`: what it is for, as far as that is known; `read`: how
 * many datagrams were just read from it.
 */
static __noinline struct datagram_socket *datagram_socket_begins(struct sock *sk, u8 role, u32 read)
{
	struct datagram_socket *socket;
	u64 now = bpf_ktime_get_ns();

	socket = bpf_sk_storage_get(&datagram_sockets, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!socket)
		socket = bpf_sk_storage_get(&datagram_sockets, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!socket) {
		if (sk->__sk_common.skc_refcnt.refs.counter)
			COUNT(lost_socket_storage);
		return 0;
	}
	if (socket->id)
		return socket;
	/* With a cookie it may be the target's: see may_be_the_targets. */
	socket->cookie = bpf_get_socket_cookie(sk);
	socket->sk = (u64)sk;
	socket->found_ns = now;
	socket->family = sk->__sk_common.skc_family;
	socket->port = socket->family == AF_UNIX ? 0 : sk->__sk_common.skc_num;
	socket->role = role;
	socket->by_id = socket->port == DNS_PORT || socket->port == DNS_MULTICAST_PORT;
	socket->drops = datagrams_dropped(sk);
	socket->arrived = datagrams_waiting(socket->sk, socket->family) + read;
	socket->known_from = socket->arrived;
	if (role != DATAGRAM_ASKS)
		socket->ring = take_ring(socket->cookie, now);
	barrier();
	*(volatile u64 *)&socket->id = __sync_fetch_and_add(&next_socket_id, 1) + 1;
	return socket;
}

/* One that was there before whywait. */
static __noinline int datagram_socket_was_there(struct sock *sk)
{
	if (!is_datagram(sk) || is_connected((u64)sk) || datagram_socket_of(sk))
		return 0;
	if (sk->__sk_common.skc_family == AF_UNIX ? unix_address(sk) != 0 :
						    sk->__sk_common.skc_num != 0)
		datagram_socket_begins(sk, DATAGRAM_NEW, 0);
	return 0;
}

/* Of IPv6 the addresses of IPv4 are those. */
static __always_inline u32 hash_of_address(u64 high, u64 low, u16 port)
{
	if (!high && (u32)low == 0xffff0000)
		low >>= 32;
	return hash_of((low ^ high * 31) * 65537 + port);
}

/* Who has sent the packet, 0: not known; and from which port. */
static __always_inline u32 sender_of(u64 skb, u16 family, u16 *from)
{
	u64 head, network, transport, address[2] = {};
	u16 port;

	*from = 0;
	if (family == AF_UNIX)
		return hash_of_object((u64)KERNEL_READ(struct sk_buff, skb, sk));
	head = (u64)KERNEL_READ(struct sk_buff, skb, head);
	network = head + KERNEL_READ(struct sk_buff, skb, network_header);
	transport = head + KERNEL_READ(struct sk_buff, skb, transport_header);
	port = KERNEL_READ(struct udphdr, transport, source);
	*from = port;
	if (KERNEL_READ(struct sk_buff, skb, protocol) == __builtin_bswap16(ETH_P_IP))
		return hash_of_address(0, KERNEL_READ(struct iphdr, network, saddr), port);
	if (bpf_probe_read_kernel(address, sizeof(address), (void *)(network + 8)))
		return 0;
	return hash_of_address(address[0], address[1], port);
}

/*
 * Whether a datagram that begins so is one of QUIC's with a long header, as those of a handshake
 * are: RFC 9000, 17.2 and 15, and RFC 9369.
 */
static __always_inline bool is_quic_head(u64 word)
{
	u32 version = word >> 8;

	return (word & 0xc0) == 0xc0 && (version == QUIC_1 || version == QUIC_2);
}

/* The packet that was put into the socket's queues last, but `before` others; 0: none. */
static __always_inline u64 newest_packet(u64 sk, u16 family, u32 before)
{
	u64 skb = 0;

	if (KERNEL_READ(struct sock, sk, sk_receive_queue.qlen))
		skb = (u64)KERNEL_READ(struct sock, sk, sk_receive_queue.prev);
	else if (family != AF_UNIX && KERNEL_READ(struct udp_sock, sk, reader_queue.qlen))
		skb = (u64)KERNEL_READ(struct udp_sock, sk, reader_queue.prev);
	for (u32 i = 0; i < NEWEST && i < before && skb; i++)
		skb = (u64)KERNEL_READ(struct sk_buff, skb, prev);
	return skb;
}

/* The first of what is left to be read; 0: none. */
static __always_inline u64 next_packet(u64 sk, u16 family)
{
	if (family != AF_UNIX && KERNEL_READ(struct udp_sock, sk, reader_queue.qlen))
		return (u64)KERNEL_READ(struct udp_sock, sk, reader_queue.next);
	if (KERNEL_READ(struct sock, sk, sk_receive_queue.qlen))
		return (u64)KERNEL_READ(struct sock, sk, sk_receive_queue.next);
	return 0;
}

/* Notes what is asked in the packet, and by whom. */
static __noinline int describe(struct arrival *arrival, u64 skb, u16 family)
{
	u64 words[2] = {}, data;
	u32 bytes, paged;
	bool full;

	if (!arrival || !skb)
		return 0;
	data = (u64)KERNEL_READ(struct sk_buff, skb, data);
	arrival->peer = sender_of(skb, family, &arrival->port);
	bytes = KERNEL_READ(struct sk_buff, skb, len);
	paged = KERNEL_READ(struct sk_buff, skb, data_len);
	if (bytes < paged + 2)
		return 0;
	full = bytes >= QUIC_BEGINS && family != AF_UNIX;
	bytes -= paged;
	if (bytes >= sizeof(words))
		bpf_probe_read_kernel(words, sizeof(words), (void *)data);
	else
		bpf_probe_read_kernel(words, 2, (void *)data);
	arrival->id = words[0];
	arrival->quic = full && is_quic_head(words[0]);
	arrival->print = hash_of(words[0] + words[1] * 31 + bytes) >> 8;
	return 0;
}

static __always_inline struct arrival *arrival_at(const struct datagram_socket *socket, u32 number)
{
	u32 ring = (socket->ring - 1) & (ARRIVAL_RINGS - 1);

	if (!socket->ring || ring_owners[ring].cookie != socket->cookie)
		return 0;
	return &arrival_rings[ring][number & (ARRIVALS - 1)];
}

/* A datagram was put into a socket's queue. */
static __noinline int datagram_arrives(struct sock *sk)
{
	struct datagram_socket *socket;
	struct arrival *arrival;
	struct thread *sender;
	u32 number, waiting;
	s32 before;

	/* A unix socket gets it from the thread that sends, which is about to tell so. */
	if (sk->__sk_common.skc_family == AF_UNIX) {
		sender = thread_of(bpf_get_current_task_btf());
		if (sender)
			sender->sent_to = hash_of_object((u64)sk);
	}
	socket = datagram_socket_of(sk);
	if (!socket || !socket->ring)
		return 0;
	COUNT(events);
	number = __sync_fetch_and_add(&socket->arrived, 1);
	arrival = arrival_at(socket, number);
	if (!arrival)
		return 0;
	arrival->number = 0;
	arrival->peer = 0;
	arrival->id = 0;
	arrival->print = 0;
	arrival->port = 0;
	arrival->quic = 0;
	arrival->ns = bpf_ktime_get_ns();
	/* Several may have been put there at once, and are told of one by one. */
	waiting = datagrams_waiting(socket->sk, socket->family);
	before = waiting - 1 - (number - NOW(socket->read));
	describe(arrival, newest_packet(socket->sk, socket->family, before > 0 ? before : 0),
		 socket->family);
	barrier();
	NOW(arrival->number) = number + 1;
	return 0;
}

/*
 * Which of the noted datagrams was just read: fills in what is known of it. False: nothing is. Not
 * static, so that it is verified once.
 */
__noinline int which_arrival(struct datagram_socket *socket, u32 tid, struct arrival *found)
{
	u32 number, arrived, waiting;
	struct arrival *arrival;
	s32 ahead;

	if (!socket || !found)
		return false;
	number = __sync_fetch_and_add(&socket->read, 1);
	/* In this order: what comes meanwhile must not look as if it had been read. */
	arrived = NOW(socket->arrived);
	barrier();
	waiting = datagrams_waiting(socket->sk, socket->family);
	ahead = arrived - waiting - 1 - number;
	if (unlikely(ahead > 0 && (socket->reader == tid || ahead > AHEAD))) {
		number += ahead;
		NOW(socket->read) = number + 1;
	} else if (unlikely(ahead < 0)) {
		if (++socket->behind >= BEHIND) {
			socket->behind = 0;
			NOW(socket->arrived) = number + 1 + waiting;
		}
	}
	if (ahead >= 0)
		socket->behind = 0;
	socket->reader = tid;
	arrival = arrival_at(socket, number + 1);
	/* What is read next can be told for certain, unless another thread has just read it. */
	if (arrival && waiting && !ahead && NOW(arrival->number) == number + 2)
		describe(arrival, next_packet(socket->sk, socket->family), socket->family);
	arrival = arrival_at(socket, number);
	found->number = number + 1;
	if (!arrival || (s32)(number - socket->known_from) < 0)
		return false;
	if (NOW(arrival->number) == number + 1) {
		*found = *arrival;
		NOW(arrival->number) = 0;
		return true;
	}
	/* It is just being noted: it has come this moment. */
	return (s32)(arrived - number) <= 0;
}

/*
 * What was read begins with other bytes than the note has: readers and notes on several CPUs have
 * overtaken each other. The note is near, or there is none yet. Not static, as above.
 */
__noinline int look_around(const struct datagram_socket *socket, struct arrival *found, u16 id)
{
	struct arrival *arrival;
	u32 number;

	if (!socket || !found)
		return 0;
	for (u32 i = 0; i < NEAR; i++) {
		number = found->number + NEAR / 2 - i;
		arrival = arrival_at(socket, number - 1);
		if (!arrival || NOW(arrival->number) != number || arrival->id != id)
			continue;
		*found = *arrival;
		NOW(arrival->number) = 0;
		return 0;
	}
	found->peer = 0;
	found->id = id;
	found->print = 0;
	return 0;
}
