/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * CPU time by connection. What cpu.bpf.h charges to a listener goes to the connection of that
 * listener that the thread read or wrote last, in a slot found by the lowest bits of the
 * connection's number: a program that leaves a connection for another one has no hand on the first
 * any more, but its number. Recorded when a connection that was expensive ends, and in the end.
 *
 * What a thread does after its answer, until it reads on or sleeps in a poll, may be for something
 * else: an event loop has other tasks. So what it used before, from a read on, is kept apart.
 */
#pragma once

#include "core/peer.bpf.h"
#include "core/state.bpf.h"
#include "collectors/sockets/state.bpf.h"

#define SOCKET_SLOTS 16384
/*
 * A connection that used less is not recorded when it ends; one that used more keeps its slot until
 * then.
 */
#define SOCKET_RECORDED_NS 10000000
/* … and one that is open when the recording ends. */
#define OPEN_SOCKET_RECORDED_NS 1000000

struct socket_cpu {
	u64 id; /* 0: free */
	u64 cpu_ns;
	u64 answering_ns; /* of that: between its reads and its answers */
	u64 futile_ns;
	u32 user_samples;
	u32 system_samples;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SOCKET_SLOTS);
	__type(key, u32);
	__type(value, struct socket_cpu);
} socket_cpus SEC(".maps");

static __always_inline struct socket_cpu *cpu_slot(u64 id)
{
	u32 slot = id & (SOCKET_SLOTS - 1);

	return bpf_map_lookup_elem(&socket_cpus, &slot);
}

/*
 * What is known of a connection's CPU time, 0 if nothing. Two threads that serve the same one at
 * once may lose a charge.
 */
static __always_inline struct socket_cpu *socket_cpu_of(u64 id)
{
	struct socket_cpu *cpu = cpu_slot(id);

	return id && cpu && cpu->id == id ? cpu : 0;
}

/* The thread used this much since it was charged last, and of that so much for its answer. */
static __always_inline void socket_charge(const struct thread *thread, u64 ns, u64 answering_ns)
{
	struct socket_cpu *cpu = socket_cpu_of(thread->cpu_socket);

	if (!cpu)
		return;
	cpu->cpu_ns += ns;
	cpu->answering_ns += answering_ns;
}

static __always_inline void socket_charge_futile(const struct thread *thread, u64 ns)
{
	struct socket_cpu *cpu = socket_cpu_of(thread->cpu_socket);

	if (cpu)
		cpu->futile_ns += ns;
}

static __always_inline void socket_sampled(const struct thread *thread, bool in_kernel, u32 periods)
{
	struct socket_cpu *cpu = socket_cpu_of(thread->cpu_socket);

	if (!cpu)
		return;
	if (in_kernel)
		cpu->system_samples += periods;
	else
		cpu->user_samples += periods;
}

/*
 * From now on it works for this connection. One that was cheap so far gives up its slot to one that
 * comes later: with fewer connections than slots that is one that has ended.
 */
static __always_inline void socket_serves(struct thread *thread, u64 id)
{
	struct socket_cpu *cpu;

	if (thread->cpu_socket == id)
		return;
	thread->cpu_socket = id;
	cpu = cpu_slot(id);
	if (likely(!cpu || cpu->id == id))
		return;
	if (cpu->id && cpu->cpu_ns >= SOCKET_RECORDED_NS) {
		COUNT(lost_socket_cpu);
		return;
	}
	cpu->id = 0;
	cpu->cpu_ns = 0;
	cpu->answering_ns = 0;
	cpu->futile_ns = 0;
	cpu->user_samples = 0;
	cpu->system_samples = 0;
	cpu->id = id;
}

static __always_inline void fill_socket(struct socket_record *record,
					const struct socket_state *socket, struct sock *sk,
					const struct socket_cpu *cpu, u64 now)
{
	record->type = RECORD_SOCKET;
	record->tgid = socket->tgid;
	record->socket = socket->id;
	record->at_ns = now;
	record->cpu_ns = cpu->cpu_ns;
	record->answering_ns = cpu->answering_ns;
	record->futile_ns = cpu->futile_ns;
	record->user_samples = cpu->user_samples;
	record->system_samples = cpu->system_samples;
	record->requests = socket->seq;
	record->bytes_in = socket->before_in + socket->bytes_in;
	record->bytes_out = socket->before_out + socket->bytes_out;
	record->local_port = socket->local_port;
	record->family = socket->family;
	record->peer_port = 0;
	__builtin_memset(record->pad, 0, sizeof(record->pad));
	__builtin_memset(record->peer, 0, sizeof(record->peer));
	if (socket->family != AF_INET && socket->family != AF_INET6)
		return;
	record->peer_port = BPF_CORE_READ(sk, __sk_common.skc_dport);
	read_peer(record->peer, sk, socket->family);
}

/* A connection ends: recorded if it was expensive. Its slot is free then. */
static __always_inline void socket_ends(struct socket_state *socket, struct sock *sk, u64 now)
{
	struct socket_cpu *cpu = socket_cpu_of(socket->id);
	struct socket_record *record;

	if (!cpu)
		return;
	if (cpu->cpu_ns >= SOCKET_RECORDED_NS) {
		record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
		if (record) {
			fill_socket(record, socket, sk, cpu, now);
			submit(record);
		} else {
			COUNT(lost_ring_full);
		}
	}
	cpu->id = 0;
}
