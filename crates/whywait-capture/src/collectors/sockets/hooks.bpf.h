/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Where the kernel reports what happens to sockets; and the sockets that were there before, or are
 * in the end.
 */
#pragma once

#include "collectors/abandoned/abandoned.bpf.h"
#include "collectors/cpu/cpu.bpf.h"
#include "collectors/datagrams/datagrams.bpf.h"
#include "collectors/exchanges/exchanges.bpf.h"
#include "collectors/herd/herd.bpf.h"
#include "collectors/jobs/jobs.bpf.h"
#include "collectors/pushes/pushes.bpf.h"
#include "collectors/sched/sched.bpf.h"
#include "collectors/sockets/closing.bpf.h"
#include "collectors/sockets/later.bpf.h"
#include "collectors/sockets/own.bpf.h"
#include "collectors/sockets/requests.bpf.h"
#include "collectors/streams/streams.bpf.h"
#include "collectors/tls/sockets.bpf.h"
#include "collectors/uring/taken.bpf.h"

/*
 * What reads and writes have in common: the thread that does it, 0: none of the target's. When, and
 * how much CPU time it has used so far, is in its `io_ns` and `io_on_cpu_ns` then.
 */
static __always_inline struct thread *does_io(bool reads, int ret, int flags)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *thread = hooks_do_nothing ? 0 : thread_of(task);
	u64 now, on_cpu_ns;

	if (!thread)
		return 0;
	COUNT(events);
	now = bpf_ktime_get_ns();
	must_run(task, thread, now);
	interval_may_end(task, thread, now);
	if (reads)
		leave_stack_after_read(task, thread, now);
	on_cpu_ns = on_cpu_now(thread, now);
	thread_does_io(thread, now, on_cpu_ns);
	if (likely(ret > 0 && !(flags & MSG_PEEK)))
		cpu_progress(thread, on_cpu_ns);
	return thread;
}

/* The state of a connection or a listener, not in a slot; 0: there is none, as of datagrams. */
static __always_inline struct socket_state *stream_elsewhere(struct sock *sk)
{
	struct socket_state *socket;

	if (sk->sk_type != SOCK_STREAM)
		return 0;
	socket = socket_elsewhere(sk);
	return socket ? socket : socket_discover(sk);
}

/*
 * Nobody will read what has come: that is a request, too, unless it is more of one that was not
 * answered either. Not static: see sk_of.
 */
__noinline int last_request_ends(struct socket_state *socket, const struct arrivals *arrivals,
				 bool closed, u64 now)
{
	u64 arrived_ns;

	if (!socket)
		return 0;
	arrived_ns = unread_since(socket, arrivals);
	settle_closing(socket, closed, now);
	if (arrived_ns && (!socket->ready_ns || socket->last_send_ns)) {
		request_ends(socket, arrivals, now);
		socket->timing = TIMED;
		request_begins(socket, arrivals, arrived_ns);
	}
	request_ends(socket, arrivals, now);
	return 0;
}

/* A connection is over, or the recording is. */
static __always_inline void connection_ends(struct socket_state *socket, struct sock *sk,
					    bool closed, u64 now)
{
	if (unlikely(socket->multiplex == MULTIPLEX_TLS && socket->streams))
		tls_leaves(socket);
	if (unlikely(socket->streams && closed))
		streams_end(socket, now);
	else
		last_request_ends(socket, arrivals_of(socket, sk), closed, now);
}

/*
 * The answer to what was read has been written, though the hook of that has not run yet: what is
 * read now is of the next request. So it is where one thread writes while another one waits for the
 * client to go, as Go's net/http does: it reads a byte, and the client may have been quick.
 */
static __always_inline bool answer_is_out(const struct socket_state *socket)
{
	return socket->tcp && tcp_written_up_to(sk_of(socket)) != socket->written_to;
}

/*
 * … or it was written before writes were seen: hooks are attached one after the other, that of
 * reads first. Then what was read before is of a request whose end is not known, and no request.
 */
static __always_inline bool answer_was_not_seen(struct socket_state *socket)
{
	if (likely(socket->recv_ns > sockets_followed_ns - 1) || !answer_is_out(socket))
		return false;
	socket->ready_ns = 0;
	return true;
}

/*
 * What is left to be done for a stream that was read or written: nothing, its socket is to be
 * forgotten, or its own streams are to be followed. The last is no part of what comes before, since
 * all functions that call each other may have 512 bytes of stack.
 */
enum left_to_do { DONE, LEAVES, STREAMS_MOVE };

/* A thread has read from the socket. */
static __always_inline enum left_to_do reads_request(struct socket_state *socket,
						     struct arrivals *arrivals,
						     struct thread *thread, int ret, int flags)
{
	u64 now = thread->io_ns, read_before_ns = socket->read_ns;
	int http2;

	if (unlikely(!socket->peer))
		find_peer(socket, thread->tgid);
	if (unlikely(may_have_streams(socket))) {
		bool nothing = tls_wanted && tls_is_moved(socket, arrivals, thread, ret);

		if (nothing || socket->multiplex == MULTIPLEX_STREAMS) {
			was_read(socket, now);
			return nothing ? DONE : STREAMS_MOVE;
		}
	}
	if (unlikely(socket->pushes == PUSHES || !socket->pushes) && is_pong(thread, ret)) {
		was_read(socket, now);
		return DONE;
	}
	/* What is read after a response is the next request. */
	if (likely(!socket->ready_ns || socket->last_send_ns) || answer_was_not_seen(socket)) {
		if (unlikely(socket->closing))
			settle_closing(socket, peer_leaves(socket, ret), now);
		http2 = look_for_others(socket, thread, ret);
		if (unlikely(http2 == HTTP2_LATER)) {
			was_read(socket, now);
			return DONE;
		}
		if (unlikely(http2))
			streams_begin(socket, arrivals, http2 == HTTP2_PREFACE);
		request_ends(socket, arrivals, now);
		was_read(socket, now);
		if (unlikely(socket->multiplex == MULTIPLEX_STREAMS)) {
			socket->tgid = thread->tgid;
			return STREAMS_MOVE;
		}
		request_begins(socket, arrivals,
			       arrival_of(socket, arrivals, ret + socket->next_in, read_before_ns,
					  now));
	} else if (unlikely(answer_is_out(socket))) {
		was_read(socket, now);
		socket->next_in += ret;
		if (names_wanted && !thread->uring)
			keep_first_bytes(socket->id, socket->seq + 1, thread->tgid, ret, now);
		return DONE;
	} else {
		look_for_rest(socket);
		must_be_timed(socket, arrivals);
		was_read(socket, now);
		if (unlikely(now - read_before_ns >= threshold_ns))
			may_begin_later(socket, arrivals, thread, ret, read_before_ns);
	}
	socket->bytes_in += ret;
	if (names_wanted && !thread->uring)
		keep_first_bytes(socket->id, socket->seq, thread->tgid, ret, now);
	if (socket->recv_ns)
		return DONE;
	thread->open.requests++;
	socket->recv_ns = now;
	socket->recv_tid = thread->tid;
	socket->tgid = thread->tgid;
	if (thread->back_ns > socket->ready_ns)
		socket->unserved_wakeup_ns = on_the_way_ns(thread, socket->ready_ns);
	__builtin_memcpy(socket->at_recv, thread->parts, sizeof(socket->at_recv));
	socket->at_recv[PART_ON_CPU] = thread->io_on_cpu_ns;
	if (unlikely(runtimes_known))
		socket->recv_task = goroutine_of(thread);
	if (unlikely(thread->uring))
		uring_reads(socket, thread, flags);
	return DONE;
}

/* A thread has written to the socket, of which a request was read. */
static __always_inline void writes_response(struct socket_state *socket, struct arrivals *arrivals,
					    const struct thread *thread, int ret)
{
	u64 now = thread->io_ns;
	bool closing = false;

	if (likely(!socket->first_send_ns)) {
		if (unlikely(!socket->pushes))
			look_at_head(socket, thread, ret);
		if (is_push(socket, thread, ret, now - socket->recv_ns, false)) {
			/* What was read wanted no answer: an acknowledgement, say. */
			socket->ready_ns = 0;
			push_is_written(socket, thread);
			return;
		}
		if (unlikely(socket->later.ready_ns))
			begin_later(socket, thread, now);
		socket->first_send_ns = now;
		if (unlikely(runtimes_known))
			socket->send_task = now - socket->recv_ns >= threshold_ns ?
						    task_of(thread) :
						    0;
		look_for_overlap(socket);
		if (unlikely(socket->uring))
			socket->taken_ns = uring_taken(socket);
		if (unlikely(ret >= LARGE_RESPONSE))
			look_for_tail(socket, arrivals);
	} else if (unlikely(socket->pushes == PUSHES) ||
		   is_push(socket, thread, ret, now - socket->last_send_ns, true)) {
		push_is_written(socket, thread);
		return;
	} else {
		closing = may_be_closing(socket, ret, now);
		if (!closing)
			socket->closing = 0;
		look_for_tail(socket, arrivals);
	}
	/* Until now it cannot have lasted for the threshold, whenever it came. */
	if (unlikely(socket->timing != TIMED && now - socket->after_ns >= threshold_ns))
		must_be_timed(socket, arrivals);
	socket->last_send_ns = now;
	socket->send_tid = thread->tid;
	socket->bytes_out += ret;
	account_service(socket, thread, now, thread->io_on_cpu_ns);
	if (unlikely(!socket->emitted && now - socket->ready_ns >= threshold_ns)) {
		/*
		 * Record the descriptor only if the writer belongs to the process that read the
		 * request.
		 */
		socket->fd = thread->tgid == socket->tgid ? writes_to(thread) : 0;
		/* Whether it was slow shows at its end. */
		socket->emitted = !closing && send_request(socket, now);
	}
	if (unlikely(!socket->cookie) && socket->family == AF_UNIX && !socket->emitted && !closing)
		count_at_once(socket);
}

/* There is something to be read from a socket, or to be accepted. */
static __always_inline int socket_is_ready(struct sock *sk)
{
	struct arrivals *arrivals;

	if (hooks_do_nothing)
		return 0;
	arrivals = arrivals_in_slot(cookie_of(sk));
	if (unlikely(!arrivals)) {
		struct socket_state *socket;

		if (!may_be_the_targets(sk))
			return 0;
		if (sk->sk_type == SOCK_DGRAM)
			return datagram_arrives(sk);
		socket = socket_elsewhere(sk);
		if (!socket)
			socket = unix_discover(sk);
		if (socket)
			arrivals = arrivals_of(socket, sk);
	}
	if (!arrivals)
		return 0;
	if (unlikely(arrivals->role == SOCKET_LISTENER))
		herd_begins(arrivals->local_port, bpf_ktime_get_ns());
	if (unlikely(arrivals->role != SOCKET_SERVER)) {
		if (unlikely(arrivals->streams))
			note_packet(sk, arrivals->streams);
		return arrivals->role == SOCKET_CLIENT ? reply_arrives(arrivals, sk) : 0;
	}
	COUNT(events);
	herd_ends();
	/*
	 * A unix socket's reader does not wait for the writer to say so: what it announces
	 * may be read, and answered, by now.
	 */
	if (arrivals->family == AF_UNIX && !unix_packets(sk))
		return 0;
	if (only_fin(sk))
		return 0;
	note_arrival(arrivals, sk);
	if (unlikely(arrivals->streams))
		note_packet(sk, arrivals->streams);
	return 0;
}

SEC("tp_btf/sk_data_ready")
int BPF_PROG(sk_data_ready, struct sock *sk)
{
	return socket_is_ready(sk);
}

/* A thread has read from a stream, or has learned that it ended. */
static __always_inline enum left_to_do stream_is_read(struct socket_state *socket,
						      struct arrivals *arrivals,
						      struct thread *thread, int ret, int flags)
{
	if (unlikely(ret == 0) && !socket->ended) {
		/* To learn of the end is progress, once. */
		socket->ended = 1;
		cpu_progress(thread, thread->io_on_cpu_ns);
	}
	if (unlikely(socket->role != SOCKET_SERVER)) {
		if (socket->role != SOCKET_CLIENT)
			return DONE;
		if (unlikely(may_have_streams(socket))) {
			bool nothing = tls_wanted && ret > 0 &&
				       tls_is_moved(socket, arrivals, thread, ret);

			if (ret == 0) {
				streams_end(socket, thread->io_ns);
				return DONE;
			}
			if (nothing || socket->multiplex == MULTIPLEX_STREAMS) {
				was_read(socket, thread->io_ns);
				return nothing ? DONE : STREAMS_MOVE;
			}
		}
		if (ret > 0)
			client_reads(socket, arrivals, thread, ret);
		return DONE;
	}
	if (unlikely(ret == 0)) {
		/* No tracepoint tells of a unix socket's end. */
		if (socket->family != AF_UNIX)
			return DONE;
		settle_closing(socket, true, thread->io_ns);
		if (socket->last_send_ns)
			request_ends(socket, arrivals, thread->io_ns);
		streams_end(socket, thread->io_ns);
		socket_ends(socket, sk_of(socket), thread->io_ns);
		return LEAVES;
	}
	cpu_serves(thread, socket->local_port, socket->id, ret, thread->io_on_cpu_ns);
	return reads_request(socket, arrivals, thread, ret, flags);
}

/*
 * The same of one whose state is not in a slot. Not static, so that it is verified once, whatever
 * way the state was found.
 */
__noinline int stream_is_read_elsewhere(struct socket_state *socket, struct arrivals *arrivals,
					struct thread *thread, int ret, int flags)
{
	if (!socket || !arrivals || !thread)
		return DONE;
	return stream_is_read(socket, arrivals, thread, ret, flags);
}

/* Of a connection whose streams are followed: where it is in TLS, its clear text shows them. */
static __always_inline void several_move(struct socket_state *socket, struct arrivals *arrivals,
					 struct thread *thread, s32 moved)
{
	if (tls_wanted && followed_at(socket->streams - 1)->tls)
		tls_was_moved(socket, arrivals, thread, moved);
	else
		streams_move(socket, arrivals, thread, moved);
}

/* A thread has tried to read from a socket. */
static __always_inline int socket_was_read(struct sock *sk, int ret, int flags)
{
	struct thread *thread = does_io(true, ret, flags);
	u64 cookie = cookie_of(sk);
	struct socket_state *socket;
	struct arrivals *arrivals;
	int left;

	if (!thread)
		return 0;
	socket = socket_in_slot(cookie);
	if (likely(socket)) {
		if (unlikely(ret < 0 || flags & MSG_PEEK))
			return 0;
		arrivals = arrivals_slot_of(cookie);
		left = stream_is_read(socket, arrivals, thread, ret, flags);
	} else {
		socket = stream_elsewhere(sk);
		if (flags & MSG_PEEK)
			return 0;
		if (!socket)
			return datagram_is_read(sk, thread, ret, flags);
		if (ret < 0)
			return 0;
		arrivals = arrivals_of(socket, sk);
		left = stream_is_read_elsewhere(socket, arrivals, thread, ret, flags);
	}
	if (unlikely(left == LEAVES))
		socket_leaves(sk);
	if (unlikely(left == STREAMS_MOVE))
		several_move(socket, arrivals, thread, ret);
	return 0;
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(sock_recv_length, struct sock *sk, int ret, int flags)
{
	return socket_was_read(sk, ret, flags);
}

/* A thread has written to a connection that it made, and what it was is looked at. */
__noinline int client_is_looked_at(struct socket_state *socket, struct arrivals *arrivals,
				   struct thread *thread, u32 bytes)
{
	enum sent sent;

	if (!socket || !arrivals || !thread)
		return DONE;
	sent = client_writes(socket, thread, bytes);
	if (sent < SENT_PREFACE)
		return DONE;
	calls_begin(socket, arrivals, sent == SENT_PREFACE);
	return STREAMS_MOVE;
}

/* A thread has written to a connection that it made. */
static __always_inline enum left_to_do client_is_written(struct socket_state *socket,
							 struct arrivals *arrivals,
							 struct thread *thread, u32 bytes)
{
	if (unlikely(may_have_streams(socket))) {
		if (tls_wanted && tls_is_moved(socket, arrivals, thread, -(s32)bytes))
			return DONE;
		if (socket->multiplex == MULTIPLEX_STREAMS)
			return STREAMS_MOVE;
	}
	if (unlikely(socket->broker != BROKER_NONE))
		return client_is_looked_at(socket, arrivals, thread, bytes);
	exchange_writes(socket, thread, thread->io_ns, bytes, false);
	return DONE;
}

/* A thread has tried to write to a stream. */
static __always_inline enum left_to_do stream_is_written(struct socket_state *socket,
							 struct arrivals *arrivals,
							 struct thread *thread, int ret)
{
	if (unlikely(socket->left == LEFT_RESET))
		answers_nobody(socket, thread, thread->io_ns, ret);
	if (unlikely(ret <= 0))
		return DONE;
	if (unlikely(socket->role != SOCKET_SERVER)) {
		if (socket->role != SOCKET_CLIENT)
			return DONE;
		return client_is_written(socket, arrivals, thread, ret);
	}
	thread->open.bytes_out += ret;
	cpu_answers(thread, socket->id, thread->io_on_cpu_ns);
	if (unlikely(may_be_in_tls(socket)) && tls_wanted &&
	    tls_is_moved(socket, arrivals, thread, -ret))
		return DONE;
	if (likely(socket->ready_ns && socket->recv_ns)) {
		writes_response(socket, arrivals, thread, ret);
		return DONE;
	}
	socket->send_tid = thread->tid; /* see responses.bpf.h */
	if (socket->multiplex == MULTIPLEX_STREAMS)
		return STREAMS_MOVE;
	/* Of a connection that was there before whywait. */
	if (socket->pushes < PUSHES_NOT)
		is_push(socket, thread, ret, threshold_ns, true);
	push_is_written(socket, thread);
	return DONE;
}

/* The same of one whose state is not in a slot. Not static, as above. */
__noinline int stream_is_written_elsewhere(struct socket_state *socket, struct arrivals *arrivals,
					   struct thread *thread, int ret)
{
	if (!socket || !arrivals || !thread)
		return DONE;
	return stream_is_written(socket, arrivals, thread, ret);
}

/* A thread has tried to write to a socket. */
static __always_inline int socket_was_written(struct sock *sk, int ret)
{
	struct thread *thread = does_io(false, ret, 0);
	u64 cookie = cookie_of(sk);
	struct socket_state *socket;
	struct arrivals *arrivals;
	int left;

	if (!thread)
		return 0;
	socket = socket_in_slot(cookie);
	if (likely(socket)) {
		arrivals = arrivals_slot_of(cookie);
		left = stream_is_written(socket, arrivals, thread, ret);
	} else {
		socket = stream_elsewhere(sk);
		if (!socket)
			return ret >= 0 ? datagram_is_sent(sk, thread, ret) : 0;
		arrivals = arrivals_of(socket, sk);
		left = stream_is_written_elsewhere(socket, arrivals, thread, ret);
	}
	if (unlikely(left == STREAMS_MOVE))
		several_move(socket, arrivals, thread, -ret);
	return 0;
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(sock_send_length, struct sock *sk, int ret, int flags)
{
	return socket_was_written(sk, ret);
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
		thread = thread_of(bpf_get_current_task_btf());
		if (!thread)
			return 0;
		u8 role = new_state == TCP_LISTEN ? SOCKET_LISTENER : SOCKET_CLIENT;

		socket = socket_of(sk);
		arrivals = socket ? arrivals_of(socket, sk) : 0;
		if (arrivals)
			socket_begin(socket, arrivals, sk, role);
		else
			socket = socket_create(sk, role);
		if (!socket)
			return 0;
		socket->tgid = thread->tgid;
		COUNT(events);
		if (role == SOCKET_CLIENT) {
			socket->exchange.send_tid = thread->tid;
			socket->exchange.fd = writes_to(thread);
			exchange_changes(socket, old_state, new_state);
		}
	} else if (old_state == TCP_SYN_SENT && new_state == TCP_ESTABLISHED) {
		socket = socket_of(sk);
		if (!socket || socket->role != SOCKET_CLIENT)
			return 0;
		own_begins(socket, socket->tgid);
		exchange_changes(socket, old_state, new_state);
	} else if (old_state == TCP_ESTABLISHED || old_state == TCP_CLOSE_WAIT ||
		   new_state == TCP_CLOSE) {
		socket = socket_of(sk);
		if (!socket)
			return 0;
		if (socket->role == SOCKET_CLIENT) {
			exchange_changes(socket, old_state, new_state);
			if (unlikely(socket->streams) && new_state == TCP_CLOSE)
				streams_end(socket, bpf_ktime_get_ns());
		}
		if (socket->role != SOCKET_SERVER)
			goto out;
		now = bpf_ktime_get_ns();
		if (new_state == TCP_CLOSE_WAIT) {
			socket->left = LEFT_FIN;
			socket->left_ns = now;
		}
		/*
		 * Closed by the one that works for it, as a rule: what it has used since it wrote
		 * is still to be charged.
		 */
		thread = thread_of(bpf_get_current_task_btf());
		if (thread && thread->serves && thread->cpu_socket == socket->id)
			cpu_charge(thread, on_cpu_now(thread, now));
		/*
		 * Where the process ends, nobody has given up. It is the one that begins to close;
		 * the last step is often the peer's, in whoever's context.
		 */
		if (new_state == TCP_FIN_WAIT1 || new_state == TCP_LAST_ACK)
			tail_before_fin(socket, arrivals_of(socket, sk), now);
		if (new_state == TCP_FIN_WAIT1 || new_state == TCP_LAST_ACK ||
		    new_state == TCP_CLOSE) {
			if (bpf_get_current_task_btf()->flags & PF_EXITING)
				socket->gone = GONE_WITH_PROCESS;
			else if (!socket->gone && new_state == TCP_CLOSE)
				socket->gone = GONE;
		}
		if (new_state != TCP_CLOSE)
			return 0;
		/* The socket itself does not know yet. */
		connection_ends(socket, sk, true, now);
		socket_ends(socket, sk, now);
out:
		if (new_state == TCP_CLOSE) {
			if (socket->role == SOCKET_CLIENT)
				own_ends_at(socket);
			socket_leaves(sk);
		}
	}
	return 0;
}

/* Whether TCP's last data was the peer's. */
static __noinline bool tcp_owes_answer(struct sock *sk)
{
	u32 came = KERNEL_READ(struct inet_connection_sock, sk, icsk_ack.lrcvtime);

	if (!KERNEL_READ(struct tcp_sock, sk, bytes_sent))
		return KERNEL_READ(struct tcp_sock, sk, bytes_received) > 0;
	return (s32)(came - KERNEL_READ(struct tcp_sock, sk, lsndtime)) > 0;
}

/*
 * A connection that was there before whywait may have a request already. What was not read yet is
 * noted as if it had come now, at the time of the connection's last packet: it came then at the
 * latest. Of what was read and not answered the reader is not known.
 */
static __noinline int may_have_request(struct socket_state *socket, struct sock *sk, u32 tgid)
{
	struct arrivals *arrivals = arrivals_of(socket, sk);
	u64 came_ns = socket->tcp ? KERNEL_READ(struct tcp_sock, sk, tcp_mstamp) * 1000 : 0;
	u32 unread = socket->tcp ? tcp_unread(sk) : unix_packets(sk);

	if (!arrivals || socket->role != SOCKET_SERVER || only_fin(sk))
		return 0;
	if (!came_ns || came_ns > bpf_ktime_get_ns())
		came_ns = began_ns - 1;
	if (unread) {
		arrivals->at = read_up_to(socket);
		arrivals->ns = came_ns;
		return 0;
	}
	if (!socket->tcp || !tcp_owes_answer(sk))
		return 0;
	request_begins(socket, arrivals, came_ns);
	socket->timing = TIMED;
	socket->recv_ns = came_ns;
	socket->read_ns = came_ns;
	socket->tgid = tgid;
	socket->bytes_in = 1; /* one at least */
	return 0;
}

/*
 * What the target has open already. First pass: the ports on which it listens. Second pass: its
 * connections.
 */
SEC("iter/task_file")
int open_sockets(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct socket_state *socket;
	struct socket *kernel_socket;
	struct sock *sk;
	u8 kind;
	u16 port;

	if (!began_jiffies)
		began_jiffies = bpf_jiffies64();
	if (!task || !file || !thread_of(task))
		return 0;
	kernel_socket = bpf_sock_from_file(file);
	if (!kernel_socket)
		return 0;
	sk = kernel_socket->sk;
	if (!sk)
		return 0;
	if (file_pass == 0) {
		datagram_socket_was_there(sk);
		if (sk->__sk_common.skc_state != TCP_LISTEN)
			return 0;
		if (is_unix_stream(sk))
			listens_at(sk);
		else if (!is_inet_stream(sk))
			return 0;
		port = sk->__sk_common.skc_num;
		kind = sk->sk_protocol == IPPROTO_MPTCP ? LISTENS_ABOVE : LISTENS;
		bpf_map_update_elem(&listen_ports, &port, &kind, BPF_ANY);
	}
	if (sk->sk_type == SOCK_DGRAM || bpf_sk_storage_get(&sockets, sk, 0, 0))
		return 0;
	socket = socket_discover(sk);
	if (!socket)
		return 0;
	if (socket->multiplex != MULTIPLEX_TLS)
		socket->multiplex = MULTIPLEX_OLD + LOOKS;
	socket->limits_unknown = 1;
	if (socket->role == SOCKET_CLIENT && is_inet_stream(sk))
		own_begins(socket, task->tgid);
	may_have_request(socket, sk, task->tgid);
	return 0;
}

/*
 * Connections that nobody has accepted are in no table of files: they are looked for among all of
 * TCP's in whywait's network namespace, after the listeners. There, too, are the listeners below
 * those of Multipath TCP (Go's, by default), from which connections inherit.
 */
SEC("iter/tcp")
int queued_sockets(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;
	struct socket_state *socket;
	struct arrivals *arrivals;
	struct sock *sk;
	bool listens;
	u8 *kind;
	u16 port;

	if (!common)
		return 0;
	listens = common->skc_state == TCP_LISTEN;
	if (!listens && common->skc_state != TCP_ESTABLISHED &&
	    common->skc_state != TCP_CLOSE_WAIT)
		return 0;
	sk = (struct sock *)bpf_skc_to_tcp_sock(common);
	if (!sk)
		return 0;
	port = sk->__sk_common.skc_num;
	kind = bpf_map_lookup_elem(&listen_ports, &port);
	if (!kind || *kind == LISTENS_ELSEWHERE || bpf_sk_storage_get(&sockets, sk, 0, 0))
		return 0;
	if (listens ? *kind != LISTENS_ABOVE : sk->sk_socket != 0)
		return 0;
	socket = socket_discover(sk);
	if (listens)
		return 0;
	arrivals = socket ? arrivals_of(socket, sk) : 0;
	if (!arrivals)
		return 0;
	arrivals->before_accept = 1;
	may_have_request(socket, sk, 0);
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

	sockets_are_closed = true;
	if (!home || !sk || home->cookie != cookie_of(sk))
		return 0;
	socket = home->away ? socket_in_slot(home->cookie) : &home->state;
	if (!socket)
		return 0;
	now = bpf_ktime_get_ns();
	if (socket->role == SOCKET_CLIENT)
		exchange_ends(socket, false, now);
	if (socket->role != SOCKET_SERVER)
		return 0;
	connection_ends(socket, sk,
			sk->sk_shutdown || sk->__sk_common.skc_state != TCP_ESTABLISHED, now);
	cpu = socket_cpu_of(socket->id);
	if (!cpu || cpu->cpu_ns < OPEN_SOCKET_RECORDED_NS)
		return 0;
	fill_socket(&record, socket, sk, cpu, now);
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}

static long count_ended_unix_socket(u32 index, void *ctx)
{
	struct socket_state *socket = &socket_slots[index & (SOCKET_STATES - 1)].state;

	if (socket->cookie && socket->family == AF_UNIX)
		unix_socket_ended(socket);
	return 0;
}

/*
 * In the end, after all sockets that are there: what unix sockets had answered last that were
 * closed without being read to their end, of which no tracepoint tells.
 */
SEC("syscall")
int count_ended_unix_sockets(void *ctx)
{
	bpf_loop(SOCKET_STATES, count_ended_unix_socket, 0, 0);
	return 0;
}
