/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* What the programs of cpu.bpf.h and burst.bpf.h say to user space. Types 30 to 39 are theirs. */
#ifndef WHYWAIT_BURST_EVENTS_H
#define WHYWAIT_BURST_EVENTS_H

#define RECORD_SUSPECT 30
#define RECORD_CPU 31
#define RECORD_CALL 32
#define RECORD_FILE 33
#define RECORD_SOCKET 34

#define CALL_BYTES 128

enum suspicion { SUSPECT_SPINS = 1, SUSPECT_WOKEN_FOR_NOTHING };

/* A thread that seems to poll without moving anything: to be looked at more closely. */
struct suspect_record {
	u32 type;
	u32 reason;
	u64 at_ns;
	u32 tid;
	u32 tgid;
};

/* What was used for the requests that came in at a port. Totals. */
struct listener_sum {
	u64 cpu_ns;
	u64 futile_ns; /* of that: in stretches of polling in which no byte moved */
	u64 requests;
	u64 bytes_in;
	u64 bytes_out;
	u64 user_samples;
	u64 system_samples;
};

struct listener_key {
	u32 tgid;
	u32 port; /* 0: unix sockets */
};

/* What became of connections at a port. */
struct herd_sum {
	u64 events; /* connections that woke somebody in a poll */
	u64 extra_wakes; /* threads that they woke beyond the first */
	u64 most_woken; /* by one of them */
	u64 dry_wakes; /* woken, and back to sleep without a byte read or written */
	u64 dry_cpu_ns; /* what that took */
	u64 reuseport; /* listening sockets with SO_REUSEPORT that were seen there */
};

/* A thread's totals; `open` is what it has not yet added to the sum of `open_port`. */
struct cpu_record {
	u32 type;
	u32 tid;
	u32 tgid;
	u32 open_port;
	u64 at_ns;
	u64 on_cpu_ns;
	u64 runnable_ns;
	u64 futile_ns;
	u64 user_samples;
	u64 system_samples;
	u64 poll_sleeps;
	u64 dry_sleeps; /* poll sleeps that something ended, and nothing was read or written before the next one */
	u64 calls; /* system calls and, of these, polls, while bursts count them */
	u64 polls;
	struct listener_sum open;
};

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
	u8 bytes[CALL_BYTES]; /* polls: what was ready; epoll_ctl: the event; io_uring_enter: head and tail of the completions */
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

/* What was used for the requests of a connection: totals. */
struct socket_record {
	u32 type;
	u32 tgid; /* that read from it last */
	u64 socket;
	u64 at_ns;
	u64 cpu_ns;
	u64 futile_ns;
	u64 bytes_in;
	u64 bytes_out;
	u32 user_samples;
	u32 system_samples;
	u32 requests;
	u16 local_port;
	u16 peer_port; /* in network order */
	u16 family;
	u16 pad[3];
	u8 peer[16]; /* its address: the first 4 bytes, or all */
};

_Static_assert(sizeof(struct socket_record) == 96, "layout of socket_record");
_Static_assert(sizeof(struct suspect_record) == 24, "layout of suspect_record");
_Static_assert(sizeof(struct listener_sum) == 56, "layout of listener_sum");
_Static_assert(sizeof(struct cpu_record) == 96 + sizeof(struct listener_sum), "layout of cpu_record");
_Static_assert(sizeof(struct call_record) == 104 + CALL_BYTES, "layout of call_record");
_Static_assert(sizeof(struct file_record) == 32, "layout of file_record");

#endif
