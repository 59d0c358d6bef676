/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
#pragma once

#include "core/compat.bpf.h"

/* The peer's address: four bytes of IPv4, or sixteen of IPv6. */
static __always_inline void read_peer(u8 *address, struct sock *sk, u16 family)
{
	if (family == AF_INET)
		BPF_CORE_READ_INTO((u32 *)address, sk, __sk_common.skc_daddr);
	else
		BPF_CORE_READ_INTO((struct in6_addr *)address, sk, __sk_common.skc_v6_daddr);
}
