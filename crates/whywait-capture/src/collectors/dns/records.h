/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* DNS queries over UDP that were not answered in time. */
#pragma once

#include "core/layout.h"

struct dns_record {
	u32 type;
	u32 tgid;
	u32 tid; /* who asked */
	u32 asked; /* how many queries were on their way */
	u64 sent_ns; /* when the last was sent */
	u64 again_ns; /* when it was asked again; 0: it was not */
	u64 answered_ns; /* when an answer was read; 0: none was */
	u16 family;
	u16 port; /* the server's, in the network's order */
	u16 name_length; /* of the name that was asked for, as text; 0: not known */
	u16 question; /* which kind of record: 1 is A, 28 AAAA; 0: not known */
	u8 server[16];
};

/* What was asked through a socket and not answered yet. */
struct dns_query {
	u64 sent_ns;
	u32 tgid;
	u32 tid;
	u32 asked;
	u16 family;
	u16 port;
	u16 local_port; /* the socket's own, in the machine's order */
	u16 unused[3];
	u8 server[16];
};
IN_BTF(struct dns_query, dns_query);
