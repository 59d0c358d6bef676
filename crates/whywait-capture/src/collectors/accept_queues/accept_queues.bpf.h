/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * The accept queues of the target's listeners, as they are when somebody looks: user space walks
 * over its processes' files. No hook is needed, so that it costs nothing in between.
 */
#pragma once

#include "collectors/accept_queues/records.h"
#include "collectors/sockets/sockets.bpf.h"

SEC("iter/task_file")
int accept_queues(struct bpf_iter__task_file *ctx)
{
	struct accept_queue_record record = { .type = RECORD_ACCEPT_QUEUE };
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct socket *kernel_socket;
	struct sock *sk, *below;

	if (!task || !file)
		return 0;
	kernel_socket = bpf_sock_from_file(file);
	if (!kernel_socket)
		return 0;
	sk = kernel_socket->sk;
	if (!sk || sk->__sk_common.skc_state != TCP_LISTEN)
		return 0;
	if (is_inet_stream(sk)) {
		/* Multipath TCP leaves the queue to the socket below. */
		below = sk->sk_protocol == IPPROTO_MPTCP &&
					bpf_core_field_exists(struct mptcp_sock, first) ?
				BPF_CORE_READ((struct mptcp_sock *)sk, first) :
				sk;
		record.local_port = sk->__sk_common.skc_num;
		record.queued = BPF_CORE_READ(below, sk_ack_backlog);
		record.limit = BPF_CORE_READ(below, sk_max_ack_backlog);
		record.dropped = BPF_CORE_READ(below, sk_drops.counter);
		record.defers = BPF_CORE_READ((struct inet_connection_sock *)below,
					      icsk_accept_queue.rskq_defer_accept) != 0;
	} else if (is_unix_stream(sk)) {
		record.queued = sk->sk_receive_queue.qlen;
		record.limit = sk->sk_max_ack_backlog;
	} else {
		return 0;
	}
	record.tgid = task->tgid;
	record.listener = cookie_of(sk);
	record.fd = ctx->fd;
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}
