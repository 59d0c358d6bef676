/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Accepted connections, as they are when somebody looks. */
#pragma once

#include "core/layout.h"

/* A connection that the target accepted, as one of the processes that have it open does. */
struct connection_record {
	u32 type;
	u32 tgid;
	u64 socket; /* as request_record has it */
	u32 fd;
	u16 local_port;
	u16 family;
	u16 peer_port; /* in the network's order */
	u8 owes; /* the peer's data was last; 2: not known */
	u8 pad[5];
	u8 peer[16];
};
