/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* What HTTP/2 has of a stream's fields, of which user space makes names and keeps nothing else. */
#pragma once

#include "core/layout.h"

/* Of a block that has been seen before on a connection there are 20 to 60. */
#define FIELDS_BYTES 96

/* A piece of what a client's HEADERS or CONTINUATION has in it. */
struct fields_record {
	u32 type;
	u32 connection; /* no other one ever has this number */
	u32 piece; /* which one of the connection's: from 1 on, and none is left out */
	u32 stream; /* the stream that begins with them has this place; 0: none begins */
	u64 socket; /* … and this number, as in its row */
	u32 left; /* so many bytes of the frame are there from this piece's first one on */
	u16 length; /* so many of them are here */
	u8 frame; /* the type of the frame, … */
	u8 flags; /* … and its flags */
	u8 begins; /* the frame begins with this piece */
	u8 pad[7];
	u8 bytes[FIELDS_BYTES];
};

/* There is a row of a stream, or will be. */
struct stream_name_record {
	u32 type;
	u32 seq; /* of the request or the call … */
	u64 socket; /* … and its stream */
	u64 at_ns;
	u32 tgid;
	u8 pad[4];
};
