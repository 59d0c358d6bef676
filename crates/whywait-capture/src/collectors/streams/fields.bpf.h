/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * What streams are called, if names are wanted: HTTP/2 has the method and the path among the fields
 * of a stream, compressed by a table to which each block of the connection may add. So all blocks
 * that the client sends go to user space, piece by piece as they lie in memory, and are numbered:
 * it sees where one is missing.
 */
#pragma once

#include "collectors/streams/places.bpf.h"
#include "collectors/streams/records.h"

const volatile bool fields_wanted = false;

/* The next piece of the client's fields is there. It may be more than a record holds. */
static __always_inline u32 piece_of_fields(u32 bytes)
{
	return bytes < FIELDS_BYTES ? bytes : FIELDS_BYTES;
}

/* It is sent, or is missing: what the number of the next one says. */
static __noinline int send_fields(u32 place, u32 bytes)
{
	struct followed *connection = followed_at(place);
	struct framer *framer = &connection->framers[OF_CLIENT];
	u32 piece = ++framer->fields, of = framer->fields_of;
	struct fields_record *record;
	u8 begins = framer->fields_begin;
	u64 length = bytes;

	/* Whether this one is sent or not: what comes next does not begin the frame. */
	framer->fields_begin = 0;
	if (!within_budget(FIELDS, framer->now_ns)) {
		COUNT(fields_budget);
		return 0;
	}
	record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	if (!record) {
		COUNT(lost_ring_full);
		return 0;
	}
	asm volatile("" : "+r"(length));
	if (length > FIELDS_BYTES ||
	    bpf_probe_read_user(record->bytes, length, (void *)framer->left.at)) {
		bpf_ringbuf_discard(record, 0);
		return 0;
	}
	record->type = RECORD_FIELDS;
	record->connection = connection->tag;
	record->piece = piece;
	record->stream = of;
	record->socket = of ? streams[(of - 1) & (STREAMS - 1)].state.id : 0;
	record->left = framer->skip;
	record->length = length;
	record->frame = framer->in_fields;
	record->flags = framer->fields_flags;
	record->begins = begins;
	__builtin_memset(record->pad, 0, sizeof(record->pad));
	submit(record);
	return 0;
}

/* Whether what comes next in this direction is fields, and somebody wants them. */
static __always_inline bool wants_fields(const struct framer *framer)
{
	return fields_wanted && unlikely(framer->in_fields) && framer->skip;
}
