//! Segmentation of datagrams by the kernel, which no safe interface has.
#![allow(unsafe_code)]

use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// From now on, what is sent in one call is a train of packets of this size. False: not on this
/// kernel.
pub(crate) fn split(socket: &UdpSocket, size: usize) -> bool {
    let Ok(size) = libc::c_int::try_from(size) else {
        return false;
    };
    // SAFETY: the option's value is an int, which lives until the call has returned.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const size).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    set == 0
}
