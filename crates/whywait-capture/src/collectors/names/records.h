/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* The first bytes of requests and calls, of which user space makes names and keeps nothing else. */
#pragma once

#include "core/layout.h"

#define NAME_BYTES 256

struct name_record {
	u32 type;
	u32 seq; /* of the request or the call … */
	u64 socket; /* … and its connection */
	u64 at_ns;
	u32 tgid;
	u32 total; /* so many bytes were transferred */
	u32 length; /* so many of them are here */
	u32 prepared; /* the number under which MySQL has prepared it; 0: not known */
	u16 question; /* the kind of record that DNS is asked for; 0: it is no question of DNS */
	u8 has_row; /* there is a row of it, or will be; or else it prepares something for later */
	u8 pad[5];
	u8 bytes[NAME_BYTES];
};
