/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Connections that the target makes to itself, as a gateway does that calls its own listener. A
 * request on one is a part of what a client's request waits for, and is no client's. The client's
 * end is the process's that reads it, or another one's of the target that serves others, too. (A
 * load that the target starts is a client: it serves nobody.)
 */
#pragma once

#include "collectors/sockets/arrivals.bpf.h"

/* Process that reads requests of others: a value of `processes`. */
#define PROCESS_SERVES 2

/* The client's end of a connection of TCP within this machine. */
struct own_end {
	u32 address; /* the lowest half of IPv6's */
	u16 client_port;
	u16 server_port;
};

/* Those of the target, and the processes that made them. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct own_end);
	__type(value, u32);
} own_ends SEC(".maps");

static __always_inline u32 last_word(const struct in6_addr *address)
{
	u32 word;

	__builtin_memcpy(&word, &address->in6_u.u6_addr8[12], sizeof(word));
	return word;
}

/* Whether the client's end of a connection is one to the same machine; fills in which. */
static __noinline bool client_end(struct sock *sk, u16 port, struct own_end *end)
{
	struct in6_addr from = {}, to = {};
	u32 own, peer;

	if (!end)
		return false;
	if (BPF_CORE_READ(sk, __sk_common.skc_family) == AF_INET) {
		own = BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr);
		peer = BPF_CORE_READ(sk, __sk_common.skc_daddr);
	} else {
		BPF_CORE_READ_INTO(&from, sk, __sk_common.skc_v6_rcv_saddr);
		BPF_CORE_READ_INTO(&to, sk, __sk_common.skc_v6_daddr);
		own = last_word(&from);
		peer = last_word(&to);
	}
	end->address = own;
	end->client_port = port;
	end->server_port = __builtin_bswap16(BPF_CORE_READ(sk, __sk_common.skc_dport));
	/* 127.0.0.0/8 is one's own, whichever of it was called. */
	return own == peer || (own & 0xff) == 127;
}

/* A connection that a process of the target made is established. */
__noinline int own_begins(struct socket_state *socket, u32 tgid)
{
	struct own_end end = {};
	struct sock *sk;

	if (!socket)
		return 0;
	sk = sk_of(socket);
	/* It loses its port before its end is told. */
	socket->local_port = BPF_CORE_READ(sk, __sk_common.skc_num);
	if (client_end(sk, socket->local_port, &end))
		bpf_map_update_elem(&own_ends, &end, &tgid, BPF_ANY);
	return 0;
}

__noinline int own_ends_at(struct socket_state *socket)
{
	struct own_end end = {};

	if (socket && client_end(sk_of(socket), socket->local_port, &end))
		bpf_map_delete_elem(&own_ends, &end);
	return 0;
}

/* The process at the other end of an accepted connection; 0: it is none of the target's. */
static __always_inline u32 client_of(struct socket_state *socket)
{
	struct sock *sk = sk_of(socket);
	struct in6_addr address = {};
	struct own_end end = {};
	u32 *tgid;

	if (socket->family == AF_UNIX)
		return BPF_CORE_READ(sk, sk_peer_pid, numbers[0].nr);
	if (socket->family == AF_INET) {
		end.address = BPF_CORE_READ(sk, __sk_common.skc_daddr);
	} else {
		BPF_CORE_READ_INTO(&address, sk, __sk_common.skc_v6_daddr);
		end.address = last_word(&address);
	}
	end.client_port = __builtin_bswap16(BPF_CORE_READ(sk, __sk_common.skc_dport));
	end.server_port = socket->local_port;
	tgid = bpf_map_lookup_elem(&own_ends, &end);
	return tgid ? *tgid : 0;
}

/* A process reads the first request of a connection: whose is it? */
__noinline int find_peer(struct socket_state *socket, u32 tgid)
{
	u8 serves = PROCESS_SERVES, *process;
	u32 client;

	if (!socket)
		return 0;
	client = client_of(socket);
	process = client ? bpf_map_lookup_elem(&processes, &client) : 0;
	if (client && (client == tgid || (process && *process == PROCESS_SERVES))) {
		socket->peer = PEER_OWN;
		return 0;
	}
	socket->peer = PEER_OTHER;
	bpf_map_update_elem(&processes, &tgid, &serves, BPF_EXIST);
	return 0;
}
