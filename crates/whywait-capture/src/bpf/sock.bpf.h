/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Sockets: when the kernel had a request's first byte, when the target read it and when it wrote
 * the response. All requests go into sums; only slow ones become records.
 */

#define MSG_PEEK 2
#define EPOLLIN 1
/* include/net/tcp_states.h */
#define TCP_ESTABLISHED 1
#define TCP_SYN_SENT 2
#define TCP_CLOSE 7
#define TCP_CLOSE_WAIT 8
#define RCV_SHUTDOWN 1 /* include/net/sock.h */

static void uring_reads(struct socket_state *socket, struct thread *thread, int flags);
static u64 uring_taken(struct socket_state *socket);

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

/* A socket that a thread of the target uses and that was not seen before: which side of the connection is it? */
static __always_inline struct socket_state *socket_discover(struct sock *sk)
{
	u8 role = SOCKET_UNKNOWN;

	if (is_inet_stream(sk)) {
		u16 port = sk->__sk_common.skc_num;

		if (sk->__sk_common.skc_state == TCP_LISTEN)
			role = SOCKET_LISTENER;
		else
			role = bpf_map_lookup_elem(&listen_ports, &port) ? SOCKET_SERVER : SOCKET_CLIENT;
	} else if (is_unix_stream(sk)) {
		/* The accepted end has its listener's address; the connecting end, as a rule, has none. */
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
		/* Who listens is noted as the peer's credentials, for those who connect (net/unix/af_unix.c). */
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

/* The first epoll registration of the socket's file; where there is none, `fd` is its descriptor, -1: not known. */
static __always_inline void fill_registration(struct request_record *record, struct sock *sk, s32 fd)
{
	struct hlist_head *head = BPF_CORE_READ(sk, sk_socket, file, f_ep);
	struct hlist_node *first = 0;
	struct epitem *item;

	record->epoll = 0;
	record->fd = fd;
	record->read_armed = 2;
	if (!head)
		return;
	first = BPF_CORE_READ(head, first);
	if (!first)
		return;
	item = (struct epitem *)((u64)first - bpf_core_field_offset(struct epitem, fllink));
	record->epoll = (u64)BPF_CORE_READ(item, ep);
	record->fd = BPF_CORE_READ(item, ffd.fd);
	record->read_armed = !!(BPF_CORE_READ(item, event.events) & EPOLLIN);
}

static __always_inline bool send_request(struct socket_state *socket, struct sock *sk, u64 now)
{
	struct request_record *record;

	if (!within_budget(BUDGET_REQUESTS, requests_per_second, now)) {
		COUNT(lost_request_budget);
		return false;
	}
	record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	if (!record) {
		COUNT(lost_ring_full);
		return false;
	}
	record->type = RECORD_REQUEST;
	record->seq = socket->seq;
	record->socket = socket->id;
	record->ready_ns = socket->ready_ns;
	record->recv_ns = socket->recv_ns;
	record->first_send_ns = socket->first_send_ns;
	record->last_send_ns = socket->last_send_ns;
	record->bytes_in = socket->bytes_in;
	record->bytes_out = socket->bytes_out;
	record->unserved_wakeup_ns = socket->unserved_wakeup_ns;
	record->tgid = socket->tgid;
	record->recv_tid = socket->recv_tid;
	record->send_tid = socket->send_tid;
	record->local_port = socket->local_port;
	record->before_accept = socket->before_accept;
	record->pad = 0;
	__builtin_memcpy(record->service, socket->service, sizeof(record->service));
	record->taken_ns = socket->taken_ns;
	was_slow(socket->recv_ns, socket->last_send_ns,
		 socket->last_send_ns - socket->recv_ns - socket->service[PART_RUNNABLE]);
	fill_registration(record, sk, (s32)(socket->fd - 1));
	submit(record);
	return true;
}

/* The position of the highest bit in a byte. */
static const u8 log2_u8[256] = {
	[2 ... 3] = 1,	 [4 ... 7] = 2,	   [8 ... 15] = 3,    [16 ... 31] = 4,
	[32 ... 63] = 5, [64 ... 127] = 6, [128 ... 255] = 7,
};

/* … in a number. (clang 14 does not get to an end on __builtin_clzll for BPF, and each branch doubles what is verified.) */
static __always_inline u32 log2_u64(u64 value)
{
	u32 log = 0;

	for (u32 step = 32; step >= 8; step >>= 1) {
		if (value >> step) {
			value >>= step;
			log += step;
		}
	}
	return log + log2_u8[value & 255];
}

/* log-linear: 8 buckets to the power of two */
static __always_inline u32 latency_bucket(u64 ns)
{
	u32 exponent;

	if (ns < 8)
		return ns;
	exponent = log2_u64(ns);
	return ((exponent - 2) << 3) + ((ns >> (exponent - 3)) & 7);
}

/* The request is over: into the sums, or, if it was sent as a record, the record once more with its final end. */
static __always_inline void request_ends(struct socket_state *socket, struct sock *sk, u64 now)
{
	struct request_totals *sums;
	u64 latency_ns, many;
	u32 zero = 0;
	u32 bucket;

	if (!socket->ready_ns)
		return;
	if (unlikely(socket->emitted)) {
		/* Sent when the first byte of the response was written: say how it ended if that was not all. */
		if (socket->last_send_ns > socket->first_send_ns)
			send_request(socket, sk, now);
		goto out;
	}
	if (unlikely(!socket->last_send_ns)) {
		must_be_timed(socket, sk);
		/* Never answered. Data that nobody read is told if it waited for long; an end of file is no request. */
		if ((socket->recv_ns ? socket->bytes_in : 1) && now - socket->ready_ns >= threshold_ns)
			send_request(socket, sk, now);
		goto out;
	}
	sums = bpf_map_lookup_elem(&totals, &zero);
	if (!sums)
		goto out;
	sums->count++;
	if (likely(socket->timing == UNTIMED))
		goto out;
	many = socket->timing == TIMED_FOR_MANY ? TIMED_SHARE : 1;
	latency_ns = socket->last_send_ns - socket->ready_ns;
	if (latency_ns >= threshold_ns)
		sums->slow++;
	sums->total_ns += many * latency_ns;
	if (latency_ns > sums->max_ns)
		sums->max_ns = latency_ns;
	sums->unserved_ns += many * (socket->recv_ns - socket->ready_ns);
	sums->unserved_wakeup_ns += many * socket->unserved_wakeup_ns;
	if (socket->only_on_cpu) {
		u64 on_cpu_ns = socket->service[PART_ON_CPU];
		u64 lay_ns = socket->taken_ns > socket->recv_ns ? socket->taken_ns - socket->recv_ns : 0;

		if (lay_ns > on_cpu_ns)
			lay_ns = on_cpu_ns;
		sums->service[PART_URING] += many * lay_ns;
		sums->service[PART_ON_CPU] += many * (on_cpu_ns - lay_ns);
	} else {
		for (int i = 0; i < PART_COUNT; i++)
			sums->service[i] += many * socket->service[i];
	}
	bucket = latency_bucket(latency_ns);
	if (bucket < LATENCY_BUCKETS)
		sums->latency[bucket] += many;
out:
	socket->ready_ns = 0;
	socket->last_send_ns = 0;
}

static __always_inline void request_begins(struct socket_state *socket, struct sock *sk, u64 ready_ns)
{
	socket->before_accept = !socket->seq && came_before_accept(socket, sk);
	socket->seq++;
	socket->before_in += socket->bytes_in;
	socket->before_out += socket->bytes_out;
	socket->recent_out = socket->recent_out / 2 + socket->bytes_out;
	socket->ready_ns = ready_ns;
	socket->recv_ns = 0;
	socket->first_send_ns = 0;
	socket->last_send_ns = 0;
	socket->bytes_in = 0;
	socket->bytes_out = 0;
	socket->unserved_wakeup_ns = 0;
	socket->recv_tid = 0;
	socket->send_tid = 0;
	socket->emitted = 0;
	socket->farewell = 0;
	socket->later.ready_ns = 0;
	socket->fd = 0;
	socket->uring = 0;
	socket->taken_ns = 0;
	if (unlikely(!socket->only_on_cpu))
		__builtin_memset(socket->service, 0, sizeof(socket->service));
	socket->only_on_cpu = 1;
	socket->service[PART_ON_CPU] = 0;
}

/* How many bytes have come and were not read; the end of all takes one of TCP's numbers, too (as for SIOCINQ, net/ipv4/tcp.c). */
static __always_inline u32 tcp_unread(struct sock *sk)
{
	return KERNEL_READ(struct tcp_sock, sk, rcv_nxt) - tcp_read_up_to(sk);
}

/* The peer has said goodbye, and that is all there is to read. */
static __always_inline bool only_goodbye(struct sock *sk)
{
	return unlikely(sk->sk_shutdown & RCV_SHUTDOWN) && is_tcp(sk) && tcp_unread(sk) <= 1;
}

SEC("tp_btf/sk_data_ready")
int BPF_PROG(sk_data_ready, struct sock *sk)
{
	struct arrivals *arrivals;

	if (hooks_do_nothing)
		return 0;
	arrivals = arrivals_in_slot(cookie_of(sk));
	if (unlikely(!arrivals)) {
		struct socket_state *socket = socket_elsewhere(sk);

		if (!socket)
			socket = unix_discover(sk);
		if (socket)
			arrivals = arrivals_of(socket, sk);
	}
	if (!arrivals)
		return 0;
	if (unlikely(arrivals->role == SOCKET_LISTENER))
		herd_begins(arrivals->local_port, bpf_ktime_get_ns());
	if (arrivals->role != SOCKET_SERVER)
		return 0;
	COUNT(events);
	herd_ends();
	/* A unix socket's reader does not wait for the writer to say so: what it was to be told of may be read, and answered, by now. */
	if (arrivals->family == AF_UNIX && !unix_packets(sk))
		return 0;
	if (only_goodbye(sk))
		return 0;
	note_arrival(arrivals, sk);
	return 0;
}

#define FAREWELL_NS 1000000000

/*
 * Whether somebody who writes so many bytes may say goodbye: the records of TLS that have an alert
 * of 2 bytes (close_notify), or a GOAWAY of HTTP/2, 17 bytes, with what the cipher adds to that.
 * (RFC 8446, 5.2: 22 bytes; RFC 5288: 29; RFC 7905: 21; CBC: its blocks.)
 */
static __always_inline bool is_farewell_size(int bytes)
{
	switch (bytes) {
	case 17: /* without TLS */
	case 24:
	case 39: /* TLS 1.3 */
	case 31:
	case 46: /* 1.2 with AES-GCM */
	case 23:
	case 38: /* … with ChaCha20-Poly1305 */
	case 53:
	case 69:
	case 85: /* … with AES-CBC */
		return true;
	}
	return false;
}

/*
 * What was just read, `bytes` and what lies there behind them, is the peer's own farewell, or its
 * end has come behind it. (A library may read the head of a record before the rest.)
 */
static __noinline bool peer_leaves(struct sock *sk, int bytes)
{
	if (sk->sk_shutdown & RCV_SHUTDOWN)
		return true;
	return is_farewell_size(is_tcp(sk) ? bytes + tcp_unread(sk) : bytes);
}

/* What was written last was a farewell if `ends`: the response ended before. If not it was an answer, and as slow as that. */
static __noinline void settle_farewell(struct socket_state *socket, struct sock *sk, bool ends, u64 now)
{
	if (!socket->farewell)
		return;
	socket->farewell = 0;
	if (!ends) {
		if (!socket->emitted)
			socket->emitted = send_request(socket, sk, now);
		return;
	}
	COUNT(farewells);
	socket->last_send_ns = socket->answered.last_send_ns;
	socket->send_tid = socket->answered.send_tid;
	__builtin_memcpy(socket->service, socket->answered.service, sizeof(socket->service));
}

/* Nobody will read what has come: that is a request, too, unless it is more of one that was not answered either. */
static __always_inline void last_request_ends(struct socket_state *socket, struct sock *sk, bool closed, u64 now)
{
	u64 arrived_ns = unread_since(socket, sk);

	settle_farewell(socket, sk, closed, now);
	if (arrived_ns && (!socket->ready_ns || socket->last_send_ns)) {
		request_ends(socket, sk, now);
		socket->timing = TIMED;
		request_begins(socket, sk, arrived_ns);
	}
	request_ends(socket, sk, now);
}

/* How long a thread that now works for what came at `ready_ns` was on its way to it. */
static __always_inline u64 on_the_way_ns(const struct thread *thread, u64 ready_ns)
{
	u64 from = thread->wake_ns > ready_ns ? thread->wake_ns : ready_ns;

	return thread->back_ns > from ? thread->back_ns - from : 0;
}

/*
 * What wants no answer is no longer than this, and a byte more for so many of the answers before:
 * HTTP/2's clients say for each piece of one that they have room for more (Go's, of 200 kB: 1,200
 * bytes). Some of that is read while the answer is written, which then looks like several.
 */
#define UNANSWERED_BYTES 1024
#define ANSWER_FOR_ONE 64

/*
 * More was read of a request that was not answered yet. What had come before may have wanted no
 * answer (HTTP/2's acknowledgements and WINDOW_UPDATE, MySQL's COM_STMT_CLOSE): little, all of it
 * was read, and then nothing came for long. Whether it was so shows the answer; if it was, the
 * request begins here, and what the client did before it asked is none of the server's time.
 */
static __noinline int may_begin_later(struct socket_state *socket, struct sock *sk, struct thread *thread, int ret, u64 read_before_ns)
{
	u64 now = socket->read_ns, came_ns;

	if (socket->bytes_in > UNANSWERED_BYTES + socket->recent_out / ANSWER_FOR_ONE || thread->uring)
		return 0;
	came_ns = noted_arrival(socket, sk, ret, 0);
	if (came_ns < read_before_ns + threshold_ns)
		return 0;
	socket->later.ready_ns = came_ns;
	socket->later.recv_ns = now;
	socket->later.paused_ns = came_ns - read_before_ns;
	socket->later.bytes_in = socket->bytes_in;
	socket->later.recv_tid = thread->tid;
	socket->later.unserved_wakeup_ns = on_the_way_ns(thread, came_ns);
	__builtin_memcpy(socket->later.at_recv, thread->parts, sizeof(socket->later.at_recv));
	socket->later.at_recv[PART_ON_CPU] = on_cpu_now(thread, now);
	return 0;
}

/*
 * It is answered, and it may begin later than it seemed to. It does if the answer comes soon after
 * what came last, measured by the pause before; or if the thread that answers read that, and did
 * not sleep since. (Of requests that overlap on one connection, as HTTP/2's may, one that takes
 * long is answered at any time after the next one came: one in ten within so short a time.)
 */
static __noinline int begin_later(struct socket_state *socket, const struct thread *thread, u64 now)
{
	bool soon = (now - socket->later.ready_ns) * 10 <= socket->later.paused_ns;
	bool at_once = thread->tid == socket->later.recv_tid && thread->back_ns <= socket->later.recv_ns;

	if (soon || at_once) {
		COUNT(began_later);
		socket->ready_ns = socket->later.ready_ns;
		socket->recv_ns = socket->later.recv_ns;
		socket->recv_tid = socket->later.recv_tid;
		socket->before_accept = 0;
		socket->before_in += socket->later.bytes_in;
		socket->bytes_in -= socket->later.bytes_in;
		socket->unserved_wakeup_ns = socket->later.unserved_wakeup_ns;
		__builtin_memcpy(socket->at_recv, socket->later.at_recv, sizeof(socket->at_recv));
	}
	socket->later.ready_ns = 0;
	return 0;
}

/* A thread has read from the socket. */
static __always_inline void reads_request(struct socket_state *socket, struct sock *sk, struct thread *thread, int ret, int flags,
					  u64 now, u64 on_cpu_ns)
{
	u64 read_before_ns = socket->read_ns;

	/* What is read after a response is the next request. */
	if (likely(!socket->ready_ns || socket->last_send_ns)) {
		if (unlikely(socket->farewell))
			settle_farewell(socket, sk, peer_leaves(sk, ret), now);
		request_ends(socket, sk, now);
		was_read(socket, sk, now);
		request_begins(socket, sk, arrival_of(socket, sk, ret, read_before_ns, now));
	} else {
		must_be_timed(socket, sk);
		was_read(socket, sk, now);
		if (unlikely(now - read_before_ns >= threshold_ns))
			may_begin_later(socket, sk, thread, ret, read_before_ns);
	}
	socket->bytes_in += ret;
	if (socket->recv_ns)
		return;
	thread->open.requests++;
	socket->recv_ns = now;
	socket->recv_tid = thread->tid;
	socket->tgid = thread->tgid;
	if (thread->back_ns > socket->ready_ns)
		socket->unserved_wakeup_ns = on_the_way_ns(thread, socket->ready_ns);
	__builtin_memcpy(socket->at_recv, thread->parts, sizeof(socket->at_recv));
	socket->at_recv[PART_ON_CPU] = on_cpu_ns;
	if (unlikely(thread->uring))
		uring_reads(socket, thread, flags);
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(sock_recv_length, struct sock *sk, int ret, int flags)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *thread = hooks_do_nothing ? 0 : thread_of(task);
	struct socket_state *socket;
	u64 now, on_cpu_ns;

	if (!thread)
		return 0;
	COUNT(events);
	now = bpf_ktime_get_ns();
	must_run(task, thread, now);
	stretch_may_end(task, thread, now);
	leave_stack_after_read(task, thread, now);
	on_cpu_ns = on_cpu_now(thread, now);
	thread_does_io(thread, now, on_cpu_ns);
	if (likely(ret > 0 && !(flags & MSG_PEEK)))
		cpu_progress(thread, on_cpu_ns);
	if (unlikely(sk->sk_type != SOCK_STREAM))
		return 0; /* datagrams are no requests */
	socket = socket_of(sk);
	if (unlikely(!socket))
		socket = socket_discover(sk);
	if (unlikely(!socket || (flags & MSG_PEEK)))
		return 0;
	if (unlikely(ret < 0))
		return 0;
	if (unlikely(ret == 0) && !socket->ended) {
		/* To learn of the end is progress, once. */
		socket->ended = 1;
		cpu_progress(thread, on_cpu_ns);
	}
	if (socket->role != SOCKET_SERVER)
		return 0;
	if (unlikely(ret == 0)) {
		/* No tracepoint tells of a unix socket's end. */
		if (socket->family == AF_UNIX) {
			settle_farewell(socket, sk, true, now);
			if (socket->last_send_ns)
				request_ends(socket, sk, now);
			socket_ends(socket, sk, now);
			socket_leaves(sk);
		}
		return 0;
	}
	cpu_serves(thread, socket->local_port, socket->id, ret, on_cpu_ns);
	reads_request(socket, sk, thread, ret, flags, now, on_cpu_ns);
	return 0;
}

/* How the time from the read to this write was spent. */
static __always_inline void account_service(struct socket_state *socket, const struct thread *thread, u64 now,
					    u64 on_cpu_ns)
{
	if (likely(thread->tid == socket->recv_tid)) {
		/* Most answers are written before the thread was switched even once. */
		if (likely(socket->only_on_cpu && thread->in_ns && thread->in_ns <= socket->recv_ns)) {
			socket->service[PART_ON_CPU] = now - socket->recv_ns;
			return;
		}
		socket->only_on_cpu = 0;
		for (int i = 0; i < PART_COUNT; i++)
			socket->service[i] = thread->parts[i] - socket->at_recv[i];
		socket->service[PART_ON_CPU] = on_cpu_ns - socket->at_recv[PART_ON_CPU];
		return;
	}
	socket->only_on_cpu = 0;
	/* Another thread answers: until it was woken (or came to it) the request waited for threads. */
	__builtin_memset(socket->service, 0, sizeof(socket->service));
	if (thread->back_ns > socket->recv_ns) {
		u64 woken = thread->wake_ns > socket->recv_ns && thread->wake_ns < thread->back_ns ? thread->wake_ns :
												      thread->back_ns;

		socket->service[PART_THREAD] = woken - socket->recv_ns;
		socket->service[PART_RUNNABLE] = thread->back_ns - woken;
		socket->service[PART_ON_CPU] = now - thread->back_ns;
	} else {
		socket->service[PART_ON_CPU] = now - socket->recv_ns;
	}
}

/*
 * Whether these bytes may be no part of the response: a goodbye, long after it. A server says so
 * when a connection is idle. It was one if the connection then ends, or the peer says the same; if
 * not, an answer (of a request beside others on the same connection, say). That a thread asked for
 * the next request meanwhile tells nothing: some loops wait in a poll and read only what is there,
 * others read before they answer until there is nothing left.
 */
static __always_inline bool may_be_farewell(struct socket_state *socket, int ret, u64 now)
{
	if (!is_farewell_size(ret))
		return false;
	if (!socket->farewell) {
		if (now - socket->last_send_ns < FAREWELL_NS)
			return false;
		socket->farewell = 1;
		socket->answered.last_send_ns = socket->last_send_ns;
		socket->answered.send_tid = socket->send_tid;
		__builtin_memcpy(socket->answered.service, socket->service, sizeof(socket->service));
	}
	return true;
}

/* The descriptor that a thread is just writing to, and 1; 0: not known. What a ring of io_uring writes, it writes whatever the call is. */
static __always_inline u32 writes_to(struct task_struct *task, const struct thread *thread)
{
	struct pt_regs *regs = user_registers(task);

	if (thread->uring || task->flags & (PF_IO_WORKER | PF_USER_WORKER))
		return 0;
	switch ((s32)regs->orig_ax) {
	case 1: /* write */
	case 20: /* writev */
	case 40: /* sendfile */
	case 44: /* sendto */
	case 46: /* sendmsg */
	case 307: /* sendmmsg */
		return (u32)regs->di + 1;
	}
	return 0;
}

/* A thread has written to the socket, of which a request was read. */
static __always_inline void writes_response(struct socket_state *socket, struct sock *sk, struct task_struct *task,
					    const struct thread *thread, int ret, u64 now, u64 on_cpu_ns)
{
	bool farewell = false;

	if (likely(!socket->first_send_ns)) {
		if (unlikely(socket->later.ready_ns))
			begin_later(socket, thread, now);
		socket->first_send_ns = now;
		if (unlikely(socket->uring))
			socket->taken_ns = uring_taken(socket);
	} else {
		farewell = may_be_farewell(socket, ret, now);
		if (!farewell)
			socket->farewell = 0;
	}
	/* Until now it cannot have lasted for the threshold, whenever it came. */
	if (unlikely(socket->timing != TIMED && now - socket->after_ns >= threshold_ns))
		must_be_timed(socket, sk);
	socket->last_send_ns = now;
	socket->send_tid = thread->tid;
	socket->bytes_out += ret;
	account_service(socket, thread, now, on_cpu_ns);
	if (unlikely(!socket->emitted && now - socket->ready_ns >= threshold_ns)) {
		/* Of the one who reads it is told who reads and waits for it. */
		socket->fd = thread->tgid == socket->tgid ? writes_to(task, thread) : 0;
		/* Whether it was slow shows at its end. */
		socket->emitted = !farewell && send_request(socket, sk, now);
	}
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(sock_send_length, struct sock *sk, int ret, int flags)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *thread = hooks_do_nothing ? 0 : thread_of(task);
	struct socket_state *socket;
	u64 now, on_cpu_ns;

	if (!thread)
		return 0;
	COUNT(events);
	now = bpf_ktime_get_ns();
	must_run(task, thread, now);
	stretch_may_end(task, thread, now);
	on_cpu_ns = on_cpu_now(thread, now);
	thread_does_io(thread, now, on_cpu_ns);
	if (ret > 0)
		cpu_progress(thread, on_cpu_ns);
	if (unlikely(sk->sk_type != SOCK_STREAM))
		return 0;
	socket = socket_of(sk);
	if (unlikely(!socket))
		socket = socket_discover(sk);
	if (socket && socket->role == SOCKET_SERVER && ret > 0) {
		thread->open.bytes_out += ret;
		cpu_answers(thread, socket->id, on_cpu_ns);
	}
	if (!socket || socket->role != SOCKET_SERVER || ret <= 0 || !socket->ready_ns || !socket->recv_ns)
		return 0;
	writes_response(socket, sk, task, thread, ret, now, on_cpu_ns);
	return 0;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(inet_sock_set_state, struct sock *sk, int old_state, int new_state)
{
	struct socket_state *socket;
	struct arrivals *arrivals;
	struct thread *thread;
	u64 now;

	if (new_state == TCP_LISTEN || new_state == TCP_SYN_SENT) {
		/* Made by the thread that calls listen or connect. */
		if (!thread_of(bpf_get_current_task_btf()))
			return 0;
		u8 role = new_state == TCP_LISTEN ? SOCKET_LISTENER : SOCKET_CLIENT;

		socket = socket_of(sk);
		arrivals = socket ? arrivals_of(socket, sk) : 0;
		if (arrivals)
			socket_begin(socket, arrivals, sk, role);
		else if (!socket_create(sk, role))
			return 0;
		COUNT(events);
	} else if (old_state == TCP_ESTABLISHED || old_state == TCP_CLOSE_WAIT || new_state == TCP_CLOSE) {
		socket = socket_of(sk);
		if (!socket)
			return 0;
		if (socket->role != SOCKET_SERVER)
			goto out;
		now = bpf_ktime_get_ns();
		/* Closed by the one that works for it, as a rule: what it has used since it wrote is still to be charged. */
		thread = thread_of(bpf_get_current_task_btf());
		if (thread && thread->serves && thread->cpu_socket == socket->id)
			cpu_charge(thread, on_cpu_now(thread, now));
		if (new_state != TCP_CLOSE)
			return 0;
		/* The socket itself does not know yet. */
		last_request_ends(socket, sk, true, now);
		socket_ends(socket, sk, now);
out:
		if (new_state == TCP_CLOSE)
			socket_leaves(sk);
	}
	return 0;
}

/* What the target has open already. First pass: the ports on which it listens. Second pass: its connections. */
SEC("iter/task_file")
int open_sockets(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct socket *kernel_socket;
	struct sock *sk;
	u8 one = 1;
	u16 port;

	if (!task || !file || !thread_of(task))
		return 0;
	kernel_socket = bpf_sock_from_file(file);
	if (!kernel_socket)
		return 0;
	sk = kernel_socket->sk;
	if (!sk)
		return 0;
	if (file_pass == 0) {
		if (sk->__sk_common.skc_state != TCP_LISTEN)
			return 0;
		if (is_unix_stream(sk))
			listens_at(sk);
		else if (!is_inet_stream(sk))
			return 0;
		port = sk->__sk_common.skc_num;
		bpf_map_update_elem(&listen_ports, &port, &one, BPF_ANY);
	}
	if (!bpf_sk_storage_get(&sockets, sk, 0, 0))
		socket_discover(sk);
	return 0;
}

/* At the end: close the books on every socket. */
SEC("iter/bpf_sk_storage_map")
int flush_sockets(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct socket_home *home = ctx->value;
	struct socket_record record = {};
	struct sock *sk = ctx->sk;
	struct socket_state *socket;
	struct socket_cpu *cpu;
	u64 now;

	if (!home || !sk || home->cookie != cookie_of(sk))
		return 0;
	socket = home->away ? socket_in_slot(home->cookie) : &home->state;
	if (!socket || socket->role != SOCKET_SERVER)
		return 0;
	now = bpf_ktime_get_ns();
	last_request_ends(socket, sk, sk->sk_shutdown || sk->__sk_common.skc_state != TCP_ESTABLISHED, now);
	cpu = socket_cpu_of(socket->id);
	if (!cpu || cpu->cpu_ns < OPEN_SOCKET_TOLD_NS)
		return 0;
	fill_socket(&record, socket, sk, cpu, now);
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}
