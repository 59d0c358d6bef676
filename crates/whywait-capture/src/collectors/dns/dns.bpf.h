/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * DNS over UDP, as a resolver in the program does it: a socket that is connected to port 53 of a
 * server. A query that is lost shows only when it is asked again, after a second or more, or never:
 * on the same socket, or by the same thread on another one. What is answered in time leaves nothing
 * behind. Sockets that are not connected, and whom they ask, are not seen.
 */
#pragma once

#include "core/bits.bpf.h"
#include "core/peer.bpf.h"
#include "core/state.bpf.h"
#include "core/threads.bpf.h"
#include "collectors/dns/records.h"

#define DNS_PORT 53
#define SOCK_DGRAM 2
/*
 * Resolvers ask again after a second at the earliest; a slow server answers sooner. What is sent
 * within that is another question.
 */
#define ASKED_AGAIN_NS 900000000
#define DNS_QUERIES 4096

/* By the socket's cookie. Also what is never answered stays, until others need the room. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, DNS_QUERIES);
	__type(key, u64);
	__type(value, struct dns_query);
} dns_queries SEC(".maps");

/* The socket through which a thread asked last. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, DNS_QUERIES);
	__type(key, u32);
	__type(value, u64);
} dns_threads SEC(".maps");

static __always_inline bool asks_dns(struct sock *sk)
{
	return sk->sk_type == SOCK_DGRAM && sk->__sk_common.skc_dport == __builtin_bswap16(DNS_PORT) &&
	       (sk->__sk_common.skc_family == AF_INET || sk->__sk_common.skc_family == AF_INET6);
}

static __noinline int send_dns(const struct dns_query *query, u64 again_ns, u64 answered_ns,
			       u64 now)
{
	struct dns_record *record;

	if (!query)
		return 0;
	if (!within_budget(BUDGET_DNS, dns_per_second, now)) {
		COUNT(dns_budget);
		return 0;
	}
	record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	if (!record) {
		COUNT(lost_ring_full);
		return 0;
	}
	record->type = RECORD_DNS;
	record->tgid = query->tgid;
	record->tid = query->tid;
	record->asked = query->asked;
	record->sent_ns = query->sent_ns;
	record->again_ns = again_ns;
	record->answered_ns = answered_ns;
	record->family = query->family;
	record->port = query->port;
	__builtin_memset(record->pad, 0, sizeof(record->pad));
	__builtin_memcpy(record->server, query->server, sizeof(record->server));
	submit(record);
	return 0;
}

/* What the thread asked through another socket has had no answer, and now it asks again. */
static __noinline int asked_elsewhere(u32 tid, u64 cookie, u64 now)
{
	u64 *before = bpf_map_lookup_elem(&dns_threads, &tid), other;
	struct dns_query *query;

	if (!before || *before == cookie)
		return 0;
	other = *before;
	query = bpf_map_lookup_elem(&dns_queries, &other);
	if (!query || query->tid != tid)
		return 0;
	if (now - query->sent_ns >= ASKED_AGAIN_NS)
		send_dns(query, now, 0, now);
	bpf_map_delete_elem(&dns_queries, &other);
	return 0;
}

/* A thread has sent something through a socket that is no stream. */
static __noinline int dns_asks(struct sock *sk, const struct thread *thread, u64 now)
{
	struct dns_query asked = {}, *query;
	u64 cookie;
	u32 tid;

	if (!sk || !thread || !asks_dns(sk))
		return 0;
	COUNT(dns_queries);
	tid = thread->tid;
	cookie = bpf_get_socket_cookie(sk);
	query = bpf_map_lookup_elem(&dns_queries, &cookie);
	if (query && now - query->sent_ns < ASKED_AGAIN_NS) {
		query->asked++;
		query->sent_ns = now;
		return 0;
	}
	if (query)
		send_dns(query, now, 0, now);
	else
		asked_elsewhere(tid, cookie, now);
	asked.sent_ns = now;
	asked.tgid = thread->tgid;
	asked.tid = tid;
	asked.asked = 1;
	asked.family = BPF_CORE_READ(sk, __sk_common.skc_family);
	asked.port = BPF_CORE_READ(sk, __sk_common.skc_dport);
	read_peer(asked.server, sk, asked.family);
	bpf_map_update_elem(&dns_queries, &cookie, &asked, BPF_ANY);
	bpf_map_update_elem(&dns_threads, &tid, &cookie, BPF_ANY);
	return 0;
}

/* A thread has read from a socket that is no stream: `ret` bytes, or that error. */
static __noinline int dns_answers(struct sock *sk, u64 now, int ret)
{
	struct dns_query *query;
	u64 cookie;

	if (!sk || !asks_dns(sk) || ret == -EAGAIN)
		return 0;
	cookie = bpf_get_socket_cookie(sk);
	query = bpf_map_lookup_elem(&dns_queries, &cookie);
	if (!query)
		return 0;
	if (now - query->sent_ns >= ASKED_AGAIN_NS)
		send_dns(query, 0, now, now);
	/* Of two questions (A and AAAA) the other one may be lost. A refusal is for all. */
	if (ret > 0 && query->asked > 1)
		query->asked--;
	else
		bpf_map_delete_elem(&dns_queries, &cookie);
	return 0;
}
