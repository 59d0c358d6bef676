/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* What is kept of connections in TLS, where their clear text is looked at. */
#pragma once

#include "collectors/streams/state.bpf.h"

/* Whether a process's TLS library has probes: PROBES_…; absent: it is still looked for. */
enum probes { PROBES_NONE, PROBES_SET };

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, u32);
	__type(value, u8);
} tls_processes SEC(".maps");

/* What is known of a connection in TLS that has a place among the followed ones. */
enum tls {
	TLS_NOT, /* it is in clear text */
	TLS_UNKNOWN, /* no clear text of it was seen yet */
	TLS_SOUGHT, /* it was there before: whether that is HTTP/2 its frames are to show */
	TLS_HTTP2,
	TLS_OTHER, /* … and that is no HTTP/2 */
};

/* What a call of a TLS library does, as the cookie of a probe has it. */
#define TLS_WRITES 1
#define TLS_COUNTS 2 /* it leaves how much it has moved where its fourth argument says */
#define TLS_GO 4
#define TLS_RETURNS 8 /* the probe is at one of its ends */

/* A call of a TLS library that a thread or a goroutine is in. */
struct tls_caller {
	u64 who;
	u32 tgid;
	u32 writes;
};

struct tls_call {
	u64 session; /* the library's object for the connection */
	u64 at; /* the clear text */
	u64 count_at;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct tls_caller);
	__type(value, struct tls_call);
} tls_calls SEC(".maps");

struct tls_session {
	u64 session;
	u32 tgid;
	u32 unused;
};

/* A place among the followed connections, for as long as that has this tag. */
struct tls_place {
	u32 place;
	u32 tag;
};

/* Whose clear text a library's object has. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct tls_session);
	__type(value, struct tls_place);
} tls_sessions SEC(".maps");
