/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * The connections that the target has accepted and on which its threads may sleep, as they are when
 * somebody looks: user space walks over its processes' files. Whose connection a thread slept on
 * before the recording began no event tells.
 */
#pragma once

#include "collectors/connections/records.h"
#include "collectors/sockets/hooks.bpf.h"
#include "core/peer.bpf.h"

/*
 * Whether an epoll instance says when there is something to read: then no thread sleeps on the
 * connection itself. Not while it was delivered to one (EPOLLONESHOT).
 */
static __always_inline bool is_watched(struct file *file)
{
	struct hlist_head *head = BPF_CORE_READ(file, f_ep);
	struct hlist_node *first = head ? BPF_CORE_READ(head, first) : 0;
	struct epitem *item;

	if (!first)
		return false;
	item = (struct epitem *)((u64)first - bpf_core_field_offset(struct epitem, fllink));
	return BPF_CORE_READ(item, event.events) & EPOLLIN;
}

SEC("iter/task_file")
int open_connections(struct bpf_iter__task_file *ctx)
{
	struct connection_record record = { .type = RECORD_CONNECTION };
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct socket *kernel_socket;
	struct socket_state *socket;
	struct sock *sk;

	if (!task || !file)
		return 0;
	kernel_socket = bpf_sock_from_file(file);
	if (!kernel_socket)
		return 0;
	sk = kernel_socket->sk;
	if (!sk || sk->sk_type != SOCK_STREAM || sk->__sk_common.skc_state == TCP_LISTEN)
		return 0;
	socket = socket_of(sk);
	if (!socket || socket->role != SOCKET_SERVER || is_watched(file))
		return 0;
	record.tgid = task->tgid;
	record.socket = socket->id;
	record.fd = ctx->fd;
	record.local_port = socket->local_port;
	record.family = socket->family;
	record.owes = socket->tcp ? tcp_owes_answer(sk) : 2;
	if (is_inet_stream(sk)) {
		record.peer_port = BPF_CORE_READ(sk, __sk_common.skc_dport);
		read_peer(record.peer, sk, socket->family);
	}
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}
