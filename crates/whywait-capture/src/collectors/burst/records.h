/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* System calls while a burst lasts, and the files of a process. */
#pragma once

#include "core/layout.h"

#define CALL_BYTES 128

/* A system call, as a burst sees it when it ends. */
struct call_record {
	u32 type;
	s32 nr;
	u32 tid;
	u32 tgid;
	u64 at_ns;
	u64 on_cpu_ns;
	u64 args[4];
	s64 ret;
	u64 value; /* ioctl: what its argument points to */
	s32 fd; /* what the call is about: of epoll_ctl the descriptor, not the instance */
	u32 mode; /* the file's type and mode, 0: none */
	u16 local_port;
	u16 peer_port; /* in network order */
	u16 state;
	u16 bytes_len;
	u32 sleeps; /* counts the thread's sleeps */
	u32 family; /* of a socket */
	/*
	 * polls: what was ready; epoll_ctl: the event; io_uring_enter: head and tail of the
	 * completions
	 */
	u8 bytes[CALL_BYTES];
};

/* A socket of the target, or another file that is registered with epoll. */
struct file_record {
	u32 type;
	s32 fd;
	u64 data;
	u32 events;
	u32 mode;
	u16 local_port;
	u16 peer_port;
	u16 state;
	u8 registered;
	u8 family; /* of a socket */
};
