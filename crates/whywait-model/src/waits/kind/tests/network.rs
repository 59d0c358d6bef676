use whywait_events::Part;

use super::{D, NET, S, check};

#[test]
fn sockets() {
    check(&[
        (
            S,
            "wait_woken sk_wait_data tcp_recvmsg_locked tcp_recvmsg sock_recvmsg __sys_recvfrom",
            "network receive (TCP)",
            NET,
        ),
        (
            S,
            "wait_woken sk_stream_wait_memory tcp_sendmsg_locked tcp_sendmsg __sys_sendto",
            "network send (buffer full)",
            NET,
        ),
        (
            S,
            "wait_woken sk_stream_wait_memory tcp_sendmsg_locked tcp_sendmsg sock_sendmsg \
             splice_to_socket direct_splice_actor \
             splice_direct_to_actor do_splice_direct do_sendfile __x64_sys_sendfile64",
            "network send (buffer full)",
            NET,
        ),
        (
            S,
            "wait_woken sk_stream_wait_close __tcp_close tcp_close inet_release sock_close __fput \
             __x64_sys_close",
            "close (unsent data)",
            NET,
        ),
        (
            S,
            "__skb_wait_for_more_packets __skb_recv_udp udp_recvmsg sock_recvmsg __sys_recvfrom",
            "network receive (UDP)",
            NET,
        ),
        (
            S,
            "__skb_wait_for_more_packets __skb_recv_udp udpv6_recvmsg sock_recvmsg __sys_recvfrom",
            "network receive (UDP)",
            NET,
        ),
        (
            S,
            "unix_stream_read_generic unix_stream_recvmsg sock_recvmsg sock_read_iter vfs_read \
             ksys_read",
            "unix receive",
            None,
        ),
        (
            S,
            "__skb_wait_for_more_packets __unix_dgram_recvmsg sock_recvmsg __sys_recvfrom",
            "unix receive",
            None,
        ),
        (
            S,
            "sock_alloc_send_pskb unix_stream_sendmsg __sys_sendto",
            "unix send (buffer full)",
            None,
        ),
        (
            S,
            "unix_wait_for_peer unix_dgram_sendmsg __sys_sendto",
            "unix send (buffer full)",
            None,
        ),
        (
            S,
            "unix_wait_for_peer unix_stream_connect __sys_connect",
            "connect (unix backlog full)",
            None,
        ),
        (
            S,
            "wait_woken __inet_stream_connect inet_stream_connect __sys_connect",
            "connect",
            NET,
        ),
        (
            S,
            "inet_csk_accept inet_accept do_accept __sys_accept4",
            "accept",
            NET,
        ),
        (
            S,
            "__skb_wait_for_more_packets __skb_recv_datagram skb_recv_datagram unix_accept \
             do_accept __sys_accept4",
            "accept",
            NET,
        ),
        (
            S,
            "__skb_wait_for_more_packets __skb_recv_datagram skb_recv_datagram netlink_recvmsg \
             sock_recvmsg __sys_recvfrom",
            "netlink receive",
            None,
        ),
        (
            S,
            "__skb_wait_for_more_packets __skb_recv_datagram skb_recv_datagram packet_recvmsg \
             sock_recvmsg __sys_recvfrom",
            "network receive (raw)",
            NET,
        ),
        (
            D,
            "synchronize_rcu_normal packet_release sock_close __fput __x64_sys_close",
            "RCU grace period",
            Some(Part::Thread),
        ),
    ]);
}
