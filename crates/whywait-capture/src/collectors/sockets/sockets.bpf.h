/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Which sockets are the target's, and where their state is.
 *
 * A storage of the socket says whether it is one: it goes with the socket, and a connection
 * inherits its listener's (BPF_F_CLONE), so that it is known before it is accepted. But to ask for
 * a storage is a call, some 15 ns for each read, write and packet. So the state lies in an array,
 * in the slot of the lowest bits of the socket's cookie (a number that no other socket ever has),
 * which is found by two loads and a comparison. Sockets whose slot is taken have their state at
 * home, in their storage.
 *
 * A slot is free again when its connection is closed. No tracepoint tells of the end of a unix
 * socket that was not read to its end: its slot stays taken until another socket needs it, or the
 * recording ends, and what it had answered last is counted then.
 */
#pragma once

#include "collectors/herd/herd.bpf.h"
#include "collectors/sockets/state.bpf.h"

#define SOCKET_STATES 8192

u64 next_socket_id = 0;

struct socket_slot {
	struct socket_state state;
	u64 claimed; /* by the socket with this cookie */
} __attribute__((aligned(128)));

/* A variable, as `thread_slots` is. */
struct socket_slot socket_slots[SOCKET_STATES] SEC(".bss.sockets");

/*
 * The arrivals of the state in the slot of the same number: in an array of their own, because a
 * processor that goes through lines fetches those behind them as well, from whoever writes to them.
 */
struct arrivals arrival_slots[SOCKET_STATES] SEC(".bss.arrivals");

struct socket_home {
	/*
	 * of the socket that it was made for; 0: just being made. Another one's: inherited, and not
	 * seen yet
	 */
	u64 cookie;
	u64 away; /* the state is in its slot */
	struct arrivals arrivals;
	struct socket_state state;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct socket_home);
} sockets SEC(".maps");

static __always_inline bool is_inet_stream(struct sock *sk)
{
	return sk->sk_type == SOCK_STREAM &&
	       (sk->__sk_common.skc_family == AF_INET || sk->__sk_common.skc_family == AF_INET6);
}

static __always_inline u64 cookie_of(struct sock *sk)
{
	return sk->__sk_common.skc_cookie.counter;
}

/*
 * The ports on which sockets of the target listen, or did, in any namespace: a bit each. The one of
 * port 0 says that one is not known: who listens without an address gets it later.
 */
u64 ports_listened_at[65536 / 64] SEC(".bss.ports");

static __always_inline void connections_may_come(u16 port)
{
	__sync_fetch_and_or(&ports_listened_at[port / 64], 1ULL << port % 64);
}

/*
 * False of most that is none of the target's. Something comes on those all the time: what the
 * target sends within the machine is brought to its peer's socket on the target's CPU. A connection
 * that inherited its listener's storage and was not seen yet has no cookie, and its listener's port
 * as a rule (a transparent proxy's has not; that shows when it is read). To look for the storage is
 * to wait for a line of the cache that nobody else needs here.
 */
static __always_inline bool may_be_the_targets(struct sock *sk)
{
	u16 family = sk->__sk_common.skc_family, port = sk->__sk_common.skc_num;

	if (cookie_of(sk) || (family != AF_INET && family != AF_INET6))
		return true;
	return ports_listened_at[port / 64] >> port % 64 & 1 || ports_listened_at[0] & 1;
}

static __always_inline struct socket_slot *socket_slot_of(u64 cookie)
{
	return &socket_slots[cookie & (SOCKET_STATES - 1)];
}

static __always_inline struct socket_state *socket_in_slot(u64 cookie)
{
	struct socket_slot *slot = socket_slot_of(cookie);

	return likely(cookie && slot->state.cookie == cookie) ? &slot->state : 0;
}

static __always_inline struct arrivals *arrivals_slot_of(u64 cookie)
{
	return &arrival_slots[cookie & (SOCKET_STATES - 1)];
}

static __always_inline struct arrivals *arrivals_in_slot(u64 cookie)
{
	struct arrivals *arrivals = arrivals_slot_of(cookie);

	return likely(cookie && arrivals->cookie == cookie) ? arrivals : 0;
}

static __noinline struct arrivals *arrivals_at_home(struct sock *sk)
{
	struct socket_home *home = bpf_sk_storage_get(&sockets, sk, 0, 0);

	return home ? &home->arrivals : 0;
}

/* The arrivals of the socket with this state. */
static __always_inline struct arrivals *arrivals_of(const struct socket_state *socket,
						    struct sock *sk)
{
	return likely(socket->cookie) ? arrivals_slot_of(socket->cookie) : arrivals_at_home(sk);
}

/* Not static, so that it is verified once for a program. */
__noinline int clear_socket(struct socket_state *socket)
{
	if (socket)
		__builtin_memset(socket, 0, sizeof(*socket));
	return 0;
}

/* Of one of which the kernel's socket is known. */
__noinline int socket_begins(struct socket_state *socket, struct arrivals *arrivals, u32 role)
{
	struct sock *sk;
	u64 cookie;
	u16 family, port;
	bool inet;

	if (!socket || !arrivals)
		return 0;
	sk = sk_of(socket);
	cookie = socket->cookie; /* it may be in its slot already, and is to be found there */
	family = BPF_CORE_READ(sk, __sk_common.skc_family);
	inet = (family == AF_INET || family == AF_INET6) &&
	       BPF_CORE_READ(sk, sk_type) == SOCK_STREAM;
	port = inet ? BPF_CORE_READ(sk, __sk_common.skc_num) : 0;
	clear_socket(socket);
	socket->cookie = cookie;
	socket->id = __sync_fetch_and_add(&next_socket_id, 1) + 1;
	socket->role = role;
	socket->family = family;
	socket->tcp = inet && BPF_CORE_READ(sk, sk_protocol) == IPPROTO_TCP;
	socket->sk = (u64)sk;
	socket->local_port = port;
	if (tls_wanted && inet)
		socket->multiplex = MULTIPLEX_TLS;
	arrivals->ns = 0;
	arrivals->before_ns = 0;
	arrivals->at = 0;
	arrivals->before_at = 0;
	arrivals->before_accept = 0;
	arrivals->streams = 0;
	arrivals->role = role;
	arrivals->family = family;
	arrivals->local_port = port;
	if (role == SOCKET_LISTENER && inet) {
		herd_listens(sk);
		connections_may_come(port);
	}
	return 0;
}

static __always_inline void socket_begin(struct socket_state *socket, struct arrivals *arrivals,
					 struct sock *sk, u8 role)
{
	socket->sk = (u64)sk;
	socket_begins(socket, arrivals, role);
}

/* In closing.bpf.h: counts what a unix socket that has ended had answered last. */
static __always_inline void unix_socket_ended(struct socket_state *socket);

/*
 * Takes a slot from a unix socket that has ended, which no tracepoint told of: it is closed, or its
 * memory is another's by now. Not static, so that it is verified once for a program.
 */
__noinline int slot_is_left(u32 index, u64 owner, u64 cookie)
{
	struct socket_slot *slot = &socket_slots[index & (SOCKET_STATES - 1)];
	u64 sk = slot->state.sk;

	if (slot->state.family != AF_UNIX || slot->state.cookie != owner || !sk)
		return 0;
	if (KERNEL_READ(struct sock, sk, __sk_common.skc_cookie.counter) == owner &&
	    KERNEL_READ(struct sock, sk, __sk_common.skc_state) != TCP_CLOSE)
		return 0;
	if (__sync_val_compare_and_swap(&slot->claimed, owner, cookie) != owner)
		return 0;
	*(volatile u64 *)&arrival_slots[index & (SOCKET_STATES - 1)].cookie = 0;
	*(volatile u64 *)&slot->state.cookie = 0;
	unix_socket_ended(&slot->state);
	return 1;
}

/* How often a CPU looks whether another one has given a socket its state: some 100 us. */
#define SETTLE_LOOKS 16384

struct settling {
	u64 cookie;
	u32 slot;
	bool settled;
};

static long look_whether_settled(u32 look, void *ctx)
{
	struct settling *settling = ctx;
	struct arrivals *arrivals = &arrival_slots[settling->slot & (SOCKET_STATES - 1)];

	settling->settled = *(volatile u64 *)&arrivals->cookie == settling->cookie;
	return settling->settled;
}

/*
 * Another CPU gives the socket its state just now: its first bytes come while a thread reads them.
 * What is seen here is of that state, too. Not static, so that it is verified once for a program.
 */
__noinline int wait_until_settled(u64 cookie)
{
	struct settling settling = { .cookie = cookie, .slot = low_half(cookie) };

	bpf_loop(SETTLE_LOOKS, look_whether_settled, &settling, 0);
	/* That CPU was interrupted, by this or by something long. */
	if (!settling.settled)
		COUNT(lost_socket_storage);
	return settling.settled;
}

/* Gives the socket a state of its own, in its slot if that is free. 0: another CPU is about to. */
static __noinline struct socket_state *socket_settle(struct sock *sk, struct socket_home *home,
						     u8 role)
{
	u64 cookie = bpf_get_socket_cookie(sk), owner;
	struct socket_slot *slot = socket_slot_of(cookie);
	struct arrivals *arrivals = arrivals_slot_of(cookie);

	owner = __sync_val_compare_and_swap(&slot->claimed, 0, cookie);
	if (unlikely(owner == cookie))
		return wait_until_settled(cookie) ? &slot->state : 0;
	if (owner && !slot_is_left(low_half(cookie) & (SOCKET_STATES - 1), owner, cookie)) {
		socket_begin(&home->state, &home->arrivals, sk, role);
		home->away = 0;
		barrier();
		*(volatile u64 *)&home->cookie = cookie;
		return &home->state;
	}
	home->away = 1;
	barrier();
	*(volatile u64 *)&home->cookie = cookie;
	socket_begin(&slot->state, arrivals, sk, role);
	barrier();
	*(volatile u64 *)&slot->state.cookie = cookie;
	*(volatile u64 *)&arrivals->cookie = cookie;
	return &slot->state;
}

/* As socket_of, of one whose state is not in a slot. */
static __noinline struct socket_state *socket_at_home(struct sock *sk)
{
	struct socket_home *home = bpf_sk_storage_get(&sockets, sk, 0, 0);
	u64 cookie = home ? *(volatile u64 *)&home->cookie : 0;

	if (!cookie)
		return 0;
	if (cookie == cookie_of(sk))
		return home->away ? 0 : &home->state;
	if (sk->__sk_common.skc_state == TCP_LISTEN)
		return 0;
	return socket_settle(sk, home, SOCKET_SERVER);
}

/* The same, of one that may be nobody's. */
static __always_inline struct socket_state *socket_elsewhere(struct sock *sk)
{
	return UNTRUSTED(struct sock, sk)->sk_bpf_storage ? socket_at_home(sk) : 0;
}

/*
 * The state of a socket of the target, 0 for any other. A connection that inherited its listener's
 * gets its own.
 */
static __always_inline struct socket_state *socket_of(struct sock *sk)
{
	struct socket_state *socket = socket_in_slot(cookie_of(sk));

	return likely(socket) ? socket : socket_elsewhere(sk);
}

/*
 * A state for a socket that has none. Null when the socket is going away, of which nothing is lost,
 * and without memory. Two CPUs may come at once, one of which sends while the other receives: the
 * kernel refuses the later one (-EAGAIN of bpf_local_storage_alloc), which then finds the storage
 * that the other made.
 */
static __always_inline struct socket_state *socket_create(struct sock *sk, u8 role)
{
	struct socket_home *home = bpf_sk_storage_get(&sockets, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);

	if (!home)
		home = bpf_sk_storage_get(&sockets, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (home)
		return socket_settle(sk, home, role);
	if (sk->__sk_common.skc_refcnt.refs.counter)
		COUNT(lost_socket_storage);
	return 0;
}

/* The connection is over: whatever is still heard of it concerns the state at home. */
static __noinline int socket_leaves(struct sock *sk)
{
	u64 cookie = cookie_of(sk);
	struct socket_slot *slot = socket_slot_of(cookie);
	struct arrivals *arrivals = arrivals_slot_of(cookie);
	struct socket_home *home;

	if (!cookie || slot->state.cookie != cookie)
		return 0;
	home = bpf_sk_storage_get(&sockets, sk, 0, 0);
	if (home) {
		home->state = slot->state;
		home->state.cookie = 0;
		home->arrivals = *arrivals;
		barrier();
		home->away = 0;
	}
	*(volatile u64 *)&arrivals->cookie = 0;
	*(volatile u64 *)&slot->state.cookie = 0;
	barrier();
	*(volatile u64 *)&slot->claimed = 0;
	return 0;
}

static __always_inline bool is_unix_stream(struct sock *sk)
{
	return sk->__sk_common.skc_family == AF_UNIX && sk->sk_type == SOCK_STREAM;
}

static __always_inline u64 unix_address(struct sock *sk)
{
	return (u64)BPF_CORE_READ((struct unix_sock *)sk, addr);
}

static __always_inline void listens_at(struct sock *sk)
{
	u64 address = unix_address(sk);
	u8 one = 1;

	if (address)
		bpf_map_update_elem(&unix_listeners, &address, &one, BPF_ANY);
}

/*
 * A socket that a thread of the target uses and that was not seen before: which side of the
 * connection is it?
 */
static __always_inline struct socket_state *socket_discover(struct sock *sk)
{
	u8 role = SOCKET_UNKNOWN;

	if (is_inet_stream(sk)) {
		u16 port = sk->__sk_common.skc_num;

		if (sk->__sk_common.skc_state == TCP_LISTEN)
			role = SOCKET_LISTENER;
		else
			role = bpf_map_lookup_elem(&listen_ports, &port) ? SOCKET_SERVER :
									   SOCKET_CLIENT;
	} else if (is_unix_stream(sk)) {
		/*
		 * The accepted end has its listener's address; the connecting end, as a rule, has
		 * none.
		 */
		if (sk->__sk_common.skc_state == TCP_LISTEN)
			role = SOCKET_LISTENER;
		else
			role = unix_address(sk) ? SOCKET_SERVER : SOCKET_CLIENT;
	}
	return socket_create(sk, role);
}

/*
 * A unix socket has something and was not seen before. Unlike TCP's, a connection inherits nothing
 * from its listener, and no tracepoint tells that a process listens: both are found out when a
 * connection comes.
 */
static __always_inline struct socket_state *unix_discover(struct sock *sk)
{
	u64 address;
	u32 tgid;

	if (!is_unix_stream(sk))
		return 0;
	if (sk->__sk_common.skc_state == TCP_LISTEN) {
		/*
		 * Who listens is noted as the peer's credentials, for those who connect
		 * (net/unix/af_unix.c).
		 */
		tgid = BPF_CORE_READ(sk, sk_peer_pid, numbers[0].nr);
		if (bpf_map_lookup_elem(&processes, &tgid)) {
			listens_at(sk);
			return socket_discover(sk);
		}
		return 0;
	}
	address = unix_address(sk);
	if (!address || !bpf_map_lookup_elem(&unix_listeners, &address))
		return 0;
	return socket_discover(sk);
}
