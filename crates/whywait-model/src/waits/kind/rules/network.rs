//! Waits for sockets.

use whywait_events::Part;

use crate::waits::kind::{Rule, TCP_RECEIVE, event, on};

/// Sockets.
pub(super) const NETWORK: &[Rule] = &[
    on(
        &[
            "inet_csk_accept",
            "inet_csk_wait_for_connect",
            "unix_accept",
            "vsock_accept",
            "mptcp_stream_accept",
            "sctp_accept",
        ],
        "accept",
        Part::Network,
    ),
    event(&["unix_stream_connect"], "connect (unix backlog full)"),
    on(
        &[
            "inet_wait_for_connect",
            "__inet_stream_connect",
            "inet_stream_connect",
            "sctp_wait_for_connect",
            "vsock_connect",
        ],
        "connect",
        Part::Network,
    ),
    // TCP, TLS.
    on(
        &[
            "sk_stream_wait_memory",
            "sk_stream_wait_connect",
            "tls_sw_sendmsg",
            "mptcp_sendmsg",
            "sctp_wait_for_sndbuf",
            "vsock_connectible_sendmsg",
        ],
        "network send (buffer full)",
        Part::Network,
    ),
    event(
        &[
            "unix_wait_for_peer",
            "unix_stream_sendmsg",
            "unix_dgram_sendmsg",
        ],
        "unix send (buffer full)",
    ),
    on(
        &["sock_alloc_send_pskb", "sock_wait_for_wmem"],
        "network send (buffer full)",
        Part::Network,
    ),
    on(
        &["sk_stream_wait_close", "inet_csk_listen_stop"],
        "close (unsent data)",
        Part::Network,
    ),
    on(
        &["udp_recvmsg", "udpv6_recvmsg", "__skb_recv_udp"],
        "network receive (UDP)",
        Part::Network,
    ),
    event(
        &[
            "unix_stream_read_generic",
            "unix_stream_data_wait",
            "unix_stream_recvmsg",
            "unix_dgram_recvmsg",
            "__unix_dgram_recvmsg",
            "unix_seqpacket_recvmsg",
        ],
        "unix receive",
    ),
    event(&["netlink_recvmsg"], "netlink receive"),
    on(
        &["tls_sw_recvmsg", "tls_rx_rec_wait", "tls_sw_splice_read"],
        "network receive (TLS)",
        Part::Network,
    ),
    on(
        &[
            "tcp_recvmsg",
            "tcp_recvmsg_locked",
            "tcp_splice_read",
            "mptcp_recvmsg",
        ],
        TCP_RECEIVE,
        Part::Network,
    ),
    on(
        &[
            "vsock_connectible_recvmsg",
            "vsock_connectible_wait_data",
            "vsock_dgram_recvmsg",
        ],
        "network receive (vsock)",
        Part::Network,
    ),
    on(
        &["packet_recvmsg", "raw_recvmsg", "rawv6_recvmsg"],
        "network receive (raw)",
        Part::Network,
    ),
    on(
        &[
            "sk_wait_data",
            "__skb_wait_for_more_packets",
            "sock_recvmsg",
            "__sys_recvfrom",
            "___sys_recvmsg",
        ],
        "network receive",
        Part::Network,
    ),
];
