/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Requests that are worked on for clients that have gone. A client that closes its connection while
 * it waits sends a RST, or a FIN. After a FIN it may still read (a half-closed connection): that it
 * does not shows when a RST answers the response, and none of that was acknowledged.
 *
 * A RST may come while the response is being written, and is taken in by the very call that writes:
 * by then the connection is closed, and the hook of the write comes after that of its end. So what
 * it leaves behind is noted when it comes, and counted when the response is written or that fails.
 */
#pragma once

#include "core/peer.bpf.h"
#include "collectors/abandoned/records.h"
#include "collectors/sockets/requests.bpf.h"

__noinline int send_abandoned(const struct socket_state *socket, u64 ready_ns, u64 ended_ns,
			      u64 cpu_ns)
{
	u64 from_ns, after_ns, now;
	struct abandoned_record *record;
	struct request_totals *sums;

	if (!socket)
		return 0;
	now = bpf_ktime_get_ns();
	from_ns = socket->left_ns > socket->recv_ns ? socket->left_ns : socket->recv_ns;
	after_ns = ended_ns > from_ns ? ended_ns - from_ns : 0;
	sums = totals_of(socket);
	if (sums) {
		sums->abandoned++;
		sums->abandoned_ns += after_ns;
		sums->abandoned_cpu_ns += cpu_ns < after_ns ? cpu_ns : after_ns;
	}
	if (after_ns < threshold_ns)
		return 0;
	if (!within_budget(ABANDONED, now)) {
		COUNT(abandoned_budget);
		return 0;
	}
	record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	if (!record) {
		COUNT(lost_ring_full);
		return 0;
	}
	record->type = RECORD_ABANDONED;
	record->seq = socket->seq;
	record->socket = socket->id;
	record->ready_ns = ready_ns;
	record->recv_ns = socket->recv_ns;
	record->gone_ns = socket->left_ns;
	record->ended_ns = ended_ns;
	record->cpu_ns = cpu_ns;
	record->tgid = socket->tgid;
	record->recv_tid = socket->recv_tid;
	record->send_tid = socket->send_tid;
	record->local_port = socket->local_port;
	record->family = socket->family;
	record->fin = socket->left_by_fin;
	record->alone = socket->left_alone;
	__builtin_memset(record->pad, 0, sizeof(record->pad));
	__builtin_memset(record->peer, 0, sizeof(record->peer));
	record->peer_port = BPF_CORE_READ(sk_of(socket), __sk_common.skc_dport);
	read_peer(record->peer, sk_of(socket), socket->family);
	submit(record);
	return 0;
}

/* A thread writes to a client that has reset the connection: `ret` bytes, or it fails with that. */
__noinline int answers_nobody(struct socket_state *socket, const struct thread *thread, u64 now,
			      int ret)
{
	u64 ready_ns, cpu_ns = 0;
	u32 written;

	if (!socket || !thread || ret == -EAGAIN)
		return 0;
	socket->left = LEFT_ANSWERED;
	/* Read before the reset, or after. */
	ready_ns = socket->left_ready_ns ? socket->left_ready_ns : socket->ready_ns;
	written = socket->bytes_out + (ret > 0 ? ret : 0);
	if (!ready_ns || !socket->recv_ns || socket->left_unacknowledged < written)
		return 0;
	if (!socket->first_send_ns) {
		socket->send_tid = thread->tid;
		if (thread->tid == socket->recv_tid) {
			socket->left_alone = thread->cpu_socket == socket->id;
			cpu_ns = on_cpu_now(thread, now) - socket->at_recv[PART_ON_CPU];
		}
		send_abandoned(socket, ready_ns, now, cpu_ns);
	}
	socket->ready_ns = 0;
	return 0;
}

/* The client resets the connection. */
SEC("tp_btf/tcp_receive_reset")
int BPF_PROG(tcp_receive_reset, struct sock *sk)
{
	struct socket_state *socket;
	bool open;
	u32 unacknowledged;

	if (hooks_do_nothing)
		return 0;
	socket = socket_of(sk);
	if (!socket || socket->role != SOCKET_SERVER || socket->left > LEFT_FIN)
		return 0;
	COUNT(events);
	socket->left_by_fin = socket->left == LEFT_FIN;
	if (!socket->left_by_fin)
		socket->left_ns = bpf_ktime_get_ns();
	/* It had begun to answer before the client left. */
	open = socket->ready_ns && socket->recv_ns;
	if (open && socket->first_send_ns && socket->first_send_ns <= socket->left_ns)
		return 0;
	unacknowledged = KERNEL_READ(struct tcp_sock, sk, write_seq) -
			 KERNEL_READ(struct tcp_sock, sk, snd_una);
	if (open && unacknowledged < socket->bytes_out)
		return 0;
	if (open && socket->first_send_ns) {
		socket->left = LEFT_ANSWERED;
		send_abandoned(socket, socket->ready_ns, socket->last_send_ns,
			       socket->send_tid == socket->recv_tid ? socket->service[PART_ON_CPU] :
								      0);
		return 0;
	}
	socket->left = LEFT_RESET;
	socket->left_unacknowledged = unacknowledged;
	socket->left_ready_ns = open ? socket->ready_ns : 0;
	return 0;
}
