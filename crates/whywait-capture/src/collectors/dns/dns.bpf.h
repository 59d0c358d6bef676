/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * DNS over UDP, as a resolver in the program does it: a socket that is connected to port 53 of a
 * server, or one that is not and a call that names it. A query that is lost shows only when it is
 * asked again, after a second or more, or never: on the same socket, or by the same thread on
 * another one. What is answered in time leaves nothing behind. The question is looked at only then,
 * where it is asked again or in the late answer: of the name its length is kept.
 */
#pragma once

#include "core/bits.bpf.h"
#include "core/peer.bpf.h"
#include "core/state.bpf.h"
#include "core/threads.bpf.h"
#include "collectors/dns/records.h"
#include "collectors/sockets/multiplexed.bpf.h"
#include "collectors/sockets/sent.bpf.h"

#define DNS_PORT 53
/*
 * Resolvers ask again after a second at the earliest; a slow server answers sooner. What is sent
 * within that is another question.
 */
#define ASKED_AGAIN_NS 900000000
#define DNS_QUERIES 4096

/*
 * By the socket's cookie. What is never answered stays as long as its socket: user space takes away
 * what was given up before it was late, as by who asks two servers at once.
 */
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

/* Whether any was asked through a socket that is not connected: until then nobody looks there. */
bool dns_unconnected = false;

static __always_inline bool is_inet_datagram(const struct sock *sk)
{
	return sk->sk_type == SOCK_DGRAM &&
	       (sk->__sk_common.skc_family == AF_INET || sk->__sk_common.skc_family == AF_INET6);
}

/* The same of what is read: from whom does not matter if the socket has asked. */
static __always_inline bool may_have_asked(const struct sock *sk)
{
	u16 port = sk->__sk_common.skc_dport;

	return is_inet_datagram(sk) &&
	       (port == __builtin_bswap16(DNS_PORT) || (!port && dns_unconnected));
}

/* An address as a program gives it: `struct sockaddr_in` or `sockaddr_in6`. */
struct dns_address {
	u16 family;
	u16 port;
	u8 rest[24];
};

/* A name has so many labels as a rule, or fewer. */
#define MOST_LABELS 32
#define LONGEST_NAME 254

/*
 * What is asked in the message there (RFC 1035, 4.1): the length of the name as text, and in the
 * lower half the kind of record; 0: not known. Not static, so that it is verified once.
 */
__noinline int dns_question(u64 at)
{
	u8 head[6] = {}, label, kind[2] = {};
	u32 length = 0;

	if (!at || bpf_probe_read_user(head, sizeof(head), (void *)at))
		return 0;
	/* One question. */
	if (head[4] || head[5] != 1)
		return 0;
	for (int n = 0; n < MOST_LABELS; n++) {
		if (bpf_probe_read_user(&label, sizeof(label), (void *)(at + 12 + length)))
			return 0;
		if (!label) {
			if (!length ||
			    bpf_probe_read_user(kind, sizeof(kind), (void *)(at + 13 + length)))
				return 0;
			return (length - 1) << 16 | (u32)kind[0] << 8 | kind[1];
		}
		length += label + 1;
		if (label > 63 || length > LONGEST_NAME)
			return 0;
	}
	return 0;
}

/* `at`: where the message is that asks again, or answers. */
static __noinline int send_dns(const struct dns_query *query, u64 again_ns, u64 answered_ns,
			       u64 now, u64 at)
{
	struct dns_record *record;
	u32 question;

	if (!query)
		return 0;
	if (!within_budget(DNS, now)) {
		COUNT(dns_budget);
		return 0;
	}
	question = dns_question(at);
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
	record->name_length = question >> 16;
	record->question = question;
	__builtin_memcpy(record->server, query->server, sizeof(record->server));
	submit(record);
	return 0;
}

/*
 * What the thread asked through another socket has had no answer, and now it asks again. If that
 * was only just sent, it is another question: a thread of a runtime asks for several tasks at a
 * time.
 */
static __noinline int asked_elsewhere(u32 tid, u64 cookie, u64 now, u64 at)
{
	u64 *before = bpf_map_lookup_elem(&dns_threads, &tid), other;
	struct dns_query *query;

	if (!before || *before == cookie)
		return 0;
	other = *before;
	query = bpf_map_lookup_elem(&dns_queries, &other);
	if (!query || query->tid != tid || now - query->sent_ns < ASKED_AGAIN_NS)
		return 0;
	send_dns(query, now, 0, now, at);
	bpf_map_delete_elem(&dns_queries, &other);
	return 0;
}

/* Whom it asks, by the socket or by the call; false: that is no DNS server. */
static __always_inline bool dns_server(struct dns_query *asked, struct sock *sk, u64 given)
{
	struct dns_address address = {};
	u16 port = sk->__sk_common.skc_dport;

	if (port == __builtin_bswap16(DNS_PORT)) {
		asked->family = sk->__sk_common.skc_family;
		asked->port = port;
		read_peer(asked->server, sk, asked->family);
		return true;
	}
	/* sockaddr_in is the shorter one. */
	if (port || !given || bpf_probe_read_user(&address, 16, (void *)given) ||
	    address.port != __builtin_bswap16(DNS_PORT))
		return false;
	asked->family = address.family;
	asked->port = address.port;
	if (address.family == AF_INET)
		__builtin_memcpy(asked->server, address.rest, 4);
	else if (address.family != AF_INET6 ||
		 bpf_probe_read_user(asked->server, 16, (void *)(given + 8)))
		return false;
	dns_unconnected = true;
	return true;
}

static __always_inline bool same_server(const struct dns_query *one, const struct dns_query *other)
{
	const u64 *a = (const u64 *)one->server, *b = (const u64 *)other->server;

	return a[0] == b[0] && a[1] == b[1];
}

/* A thread has sent something through a socket that is no stream. */
static __noinline int dns_asks(struct sock *sk, const struct thread *thread, u64 now)
{
	struct dns_query asked = {}, *query;
	struct sent_call call;
	u64 cookie;
	u32 tid;

	if (!sk || !thread || !is_inet_datagram(sk))
		return 0;
	if (sk->__sk_common.skc_dport &&
	    sk->__sk_common.skc_dport != __builtin_bswap16(DNS_PORT))
		return 0;
	sends(&call, thread);
	if (!dns_server(&asked, sk, call.address))
		return 0;
	COUNT(dns_queries);
	tid = thread->tid;
	cookie = bpf_get_socket_cookie(sk);
	query = bpf_map_lookup_elem(&dns_queries, &cookie);
	if (query && now - query->sent_ns < ASKED_AGAIN_NS) {
		/* Who asks several servers the same is content with the first answer. */
		if (!same_server(query, &asked))
			return 0;
		query->asked++;
		query->sent_ns = now;
		return 0;
	}
	if (query)
		send_dns(query, now, 0, now, call.data);
	else
		asked_elsewhere(tid, cookie, now, call.data);
	asked.sent_ns = now;
	asked.tgid = thread->tgid;
	asked.tid = tid;
	asked.asked = 1;
	asked.local_port = sk->__sk_common.skc_num;
	bpf_map_update_elem(&dns_queries, &cookie, &asked, BPF_ANY);
	bpf_map_update_elem(&dns_threads, &tid, &cookie, BPF_ANY);
	return 0;
}

/* A thread has read from a socket that is no stream: `ret` bytes, or that error. */
static __noinline int dns_answers(struct sock *sk, u64 now, int ret)
{
	struct dns_query *query;
	u64 cookie;

	if (!sk || !may_have_asked(sk) || ret == -EAGAIN)
		return 0;
	cookie = bpf_get_socket_cookie(sk);
	query = bpf_map_lookup_elem(&dns_queries, &cookie);
	if (!query)
		return 0;
	if (now - query->sent_ns >= ASKED_AGAIN_NS)
		send_dns(query, 0, now, now, ret > 0 ? read_into(bpf_get_current_task_btf()) : 0);
	/* Of two questions (A and AAAA) the other one may be lost. A refusal is for all. */
	if (ret > 0 && query->asked > 1)
		query->asked--;
	else
		bpf_map_delete_elem(&dns_queries, &cookie);
	return 0;
}
