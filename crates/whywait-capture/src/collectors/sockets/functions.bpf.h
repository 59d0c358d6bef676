/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * The same as the hooks report, from functions of the kernel: before Linux 6.3 it has no
 * tracepoints for what is read from sockets and written to them. Each of these is called through a
 * table of operations from other files than its own (net/socket.c), so that no compiler puts it
 * into its callers. They run where those tracepoints are, for sockets of these families.
 *
 * They are attached one after the other, and see only a part until all are.
 */
#pragma once

#include "collectors/sockets/hooks.bpf.h"

struct msghdr;
struct page;

SEC("fentry/sock_def_readable")
int BPF_PROG(sock_def_readable, struct sock *sk)
{
	if (sockets_followed)
		socket_is_ready(sk);
	return 0;
}

#define AT_READS(function)                                                                     \
	SEC("fexit/" #function)                                                                \
	int BPF_PROG(function, struct socket *kernel_socket, struct msghdr *message, u64 size, \
		     int flags, int ret)                                                       \
	{                                                                                      \
		if (sockets_followed)                                                          \
			socket_was_read(kernel_socket->sk, ret, flags);                        \
		return 0;                                                                      \
	}

AT_READS(inet_recvmsg)
AT_READS(inet6_recvmsg)
AT_READS(unix_stream_recvmsg)
AT_READS(unix_dgram_recvmsg)

#define AT_WRITES(function)                                                                    \
	SEC("fexit/" #function)                                                                \
	int BPF_PROG(function, struct socket *kernel_socket, struct msghdr *message, u64 size, \
		     int ret)                                                                  \
	{                                                                                      \
		if (sockets_followed)                                                          \
			socket_was_written(kernel_socket->sk, ret);                            \
		return 0;                                                                      \
	}

AT_WRITES(inet_sendmsg)
AT_WRITES(inet6_sendmsg)
AT_WRITES(unix_stream_sendmsg)
AT_WRITES(unix_dgram_sendmsg)

/*
 * What sendfile and splice write, until Linux 6.5 had them call the same as all others. Multipath
 * TCP's did so before (sock_no_sendpage).
 */
SEC("fexit/sock_sendpage")
int BPF_PROG(sock_sendpage, struct file *file, struct page *page, int offset, u64 size,
	     s64 *position, int more, s64 ret)
{
	struct socket *kernel_socket = sockets_followed ? bpf_sock_from_file(file) : 0;
	struct sock *sk = kernel_socket ? kernel_socket->sk : 0;

	if (sk && sk->sk_protocol != IPPROTO_MPTCP)
		socket_was_written(sk, ret);
	return 0;
}
