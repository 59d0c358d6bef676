/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * What requests and calls are called, if names are wanted: their first bytes are copied where the
 * program has just read them or sends them. With a request or a call that has a row they go to user
 * space. Statements that are prepared go there at once, as later ones only name them.
 */
#pragma once

#include "collectors/dns/dns.bpf.h"
#include "collectors/names/records.h"
#include "collectors/sockets/state.bpf.h"
#include "core/state.bpf.h"

/* So many connections have theirs: by the lowest bits of their number. */
#define NAMED_SOCKETS 4096
/* So many buffers of one call are looked at. */
#define NAMED_BUFFERS 4

const volatile bool names_wanted = false;

struct first_bytes {
	u64 socket; /* whose they are */
	u32 seq;
	u32 tgid;
	u32 total; /* so many bytes were transferred */
	u16 length; /* so many of these are here */
	u16 question;
	u8 sent; /* to user space, ahead of time */
	u8 bytes[3 * NAME_BYTES]; /* what is over is not used: see append_bytes */
};

/* Of one place, unless names are wanted. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NAMED_SOCKETS);
	__type(key, u32);
	__type(value, struct first_bytes);
} names SEC(".maps");

static __always_inline struct first_bytes *first_bytes_of(u64 socket, u32 seq)
{
	u32 place = socket & (NAMED_SOCKETS - 1);
	struct first_bytes *first = bpf_map_lookup_elem(&names, &place);

	return first && first->socket == socket && first->seq == seq ? first : 0;
}

static __always_inline struct first_bytes *first_bytes_begin(u64 socket, u32 seq, u32 tgid)
{
	u32 place = socket & (NAMED_SOCKETS - 1);
	struct first_bytes *first = bpf_map_lookup_elem(&names, &place);

	if (!first)
		return 0;
	first->socket = socket;
	first->seq = seq;
	first->tgid = tgid;
	first->total = 0;
	first->length = 0;
	first->question = 0;
	first->sent = 0;
	return first;
}

/* A buffer of a program, as in `struct iovec`. */
struct user_buffer {
	u64 base;
	u64 bytes;
};

/* How many buffers the call has that a thread is in, and where their list is, or the only one. */
static __always_inline u64 buffers_of(struct task_struct *task, struct user_buffer *only, u64 *list)
{
	struct pt_regs *regs = user_registers(task);
	u64 given = PT_REGS_PARM2_SYSCALL(regs), head[4] = {};

	*list = 0;
	switch (call_number(regs)) {
	case 0: /* read */
	case 1: /* write */
	case 44: /* sendto */
	case 45: /* recvfrom */
		only->base = given;
		only->bytes = PT_REGS_PARM3_SYSCALL(regs);
		return 1;
	case 19: /* readv */
	case 20: /* writev */
		*list = given;
		return PT_REGS_PARM3_SYSCALL(regs);
	case 46: /* sendmsg: msg_iov, msg_iovlen */
	case 47: /* recvmsg */
	case 307: /* sendmmsg: the first one's */
		if (bpf_probe_read_user(head, sizeof(head), (void *)given))
			return 0;
		*list = head[2];
		return head[3];
	}
	return 0;
}

static __always_inline void append_bytes(struct first_bytes *first, u64 from, u64 bytes)
{
	u64 at = NOW(first->length), more = bytes < NAME_BYTES ? bytes : NAME_BYTES;

	if (at >= NAME_BYTES || !more)
		return;
	/* The compiler knows that they are small, and the verifier is to see it. */
	asm volatile("" : "+r"(at), "+r"(more));
	at &= NAME_BYTES - 1;
	more &= 2 * NAME_BYTES - 1;
	if (bpf_probe_read_user(&first->bytes[at], more, (void *)from))
		return;
	at += more;
	NOW(first->length) = at < NAME_BYTES ? at : NAME_BYTES;
}

/* In line, as those who send a row are called from far down: the verifier allows eight calls. */
static __always_inline int put_first_bytes(u64 socket, u32 seq, u32 prepared, bool has_row, u64 now)
{
	struct first_bytes *first = first_bytes_of(socket, seq);
	struct name_record *record;

	if (!first || (!first->length && !first->question))
		return 0;
	record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	if (!record) {
		COUNT(lost_ring_full);
		return 0;
	}
	record->type = RECORD_NAME;
	record->seq = seq;
	record->socket = socket;
	record->at_ns = now;
	record->tgid = first->tgid;
	record->total = first->total;
	record->length = first->length;
	record->prepared = prepared;
	record->question = first->question;
	record->has_row = has_row;
	__builtin_memset(record->pad, 0, sizeof(record->pad));
	__builtin_memcpy(record->bytes, first->bytes, sizeof(record->bytes));
	submit(record);
	return 0;
}

/* A stream's name is known to user space: see streams/fields.bpf.h. */
static __always_inline int put_stream_name(u64 socket, u32 seq, u32 tgid, u64 now)
{
	struct stream_name_record *record;

	record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	if (!record) {
		COUNT(lost_ring_full);
		return 0;
	}
	record->type = RECORD_STREAM_NAME;
	record->seq = seq;
	record->socket = socket;
	record->at_ns = now;
	record->tgid = tgid;
	__builtin_memset(record->pad, 0, sizeof(record->pad));
	submit(record);
	return 0;
}

/* There is a row of a request or a call, or will be. */
static __always_inline int put_name(const struct socket_state *socket, u32 seq, u32 tgid, u64 now)
{
	if (socket->kind == WORK_HTTP2)
		return put_stream_name(socket->id, seq, tgid, now);
	return put_first_bytes(socket->id, seq, 0, true, now);
}

/* Ahead of time, of what prepares something. Not static, so that it is verified once. */
__noinline int send_first_bytes(u64 socket, u32 seq, u32 prepared, u64 now)
{
	return put_first_bytes(socket, seq, prepared, false, now);
}

/* Of PostgreSQL's messages the one that prepares a statement: `P`, and its length. */
static __always_inline bool prepares_by_name(const struct first_bytes *first)
{
	return first->length > 6 && first->bytes[0] == 'P' && !first->bytes[1] && !first->bytes[2];
}

/* MySQL's: a packet's length, its number, COM_STMT_PREPARE. */
static __always_inline bool prepares_by_number(const struct first_bytes *first)
{
	u32 length = first->bytes[0] | first->bytes[1] << 8 | first->bytes[2] << 16;

	return first->length > 5 && first->bytes[4] == 0x16 && !first->bytes[3] &&
	       length + 4 == first->total;
}

/* A thread has read or sent `bytes` of a request or a call that has no answer yet. */
__noinline int keep_first_bytes(u64 socket, u32 seq, u32 tgid, u32 bytes, u64 now)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct first_bytes *first = first_bytes_of(socket, seq);
	struct user_buffer buffer = {};
	u64 list, buffers, left = bytes;

	if (!first)
		first = first_bytes_begin(socket, seq, tgid);
	if (!first)
		return 0;
	first->total += bytes;
	if (first->length >= NAME_BYTES || task->flags & (PF_IO_WORKER | PF_USER_WORKER))
		return 0;
	buffers = buffers_of(task, &buffer, &list);
	for (u32 i = 0; i < NAMED_BUFFERS && i < buffers && left; i++) {
		u64 more;

		if (list && bpf_probe_read_user(&buffer, sizeof(buffer),
						(void *)(list + i * sizeof(buffer))))
			break;
		more = buffer.bytes < left ? buffer.bytes : left;
		append_bytes(first, buffer.base, more);
		left -= more;
	}
	if (prepares_by_name(first) && !first->sent && within_budget(NAMES, now)) {
		first->sent = 1;
		send_first_bytes(socket, seq, 0, now);
	}
	return 0;
}

/* A reply of so many bytes was read: it may say under which number something was prepared. */
__noinline int name_is_replied_to(u64 socket, u32 seq, u32 bytes, u64 now)
{
	struct first_bytes *first = first_bytes_of(socket, seq);
	u8 reply[9] = {};
	u32 number;
	u64 at;

	if (!first || bytes < sizeof(reply) || !prepares_by_number(first))
		return 0;
	at = read_into(bpf_get_current_task_btf());
	if (!at || bpf_probe_read_user(reply, sizeof(reply), (void *)at))
		return 0;
	/* The packet after the question's, and OK. */
	if (reply[3] != 1 || reply[4] || !within_budget(NAMES, now))
		return 0;
	number = reply[5] | reply[6] << 8 | reply[7] << 16 | (u32)reply[8] << 24;
	send_first_bytes(socket, seq, number, now);
	return 0;
}

/* Whether the message there asks one thing and has no answers: RFC 1035, 4.1.1. */
static __always_inline bool only_asks(u64 at)
{
	u8 head[12] = {};

	return at && !bpf_probe_read_user(head, sizeof(head), (void *)at) && !(head[2] & 0xf8) &&
	       !head[6] && !head[7] && !head[8] && !head[9];
}

/* A question was read or is sent in a datagram that the program has there. */
__noinline int keep_dns_question(u64 socket, u32 seq, u32 tgid, u64 at)
{
	struct first_bytes *first;

	if (!only_asks(at))
		return 0;
	first = first_bytes_begin(socket, seq, tgid);
	if (first)
		first->question = dns_question(at);
	return 0;
}
