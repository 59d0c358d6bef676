//! What the kernel counts for one socket. All that is unsafe about it is here.
//!
//! `/proc/net/udp` has the number too, but a socket's row may be missing there: the table is read
//! in pieces, and the kernel finds the next piece by counting rows, which other programs add and
//! take away meanwhile.
#![allow(unsafe_code)]

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// `SK_MEMINFO_DROPS` and `SK_MEMINFO_VARS` of linux/sock_diag.h: where the number is, and how many
/// there are.
const DROPS: usize = 8;
const VARS: usize = 9;

/// Packets that the kernel dropped because the socket's receive buffer was full, since it was
/// opened.
pub(crate) fn drops(socket: &UdpSocket) -> io::Result<u32> {
    let mut values = [0_u32; VARS];
    let mut length = size_of_val(&values) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, which is the size of `values`.
    let got = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            values.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if got == 0 {
        Ok(values[DROPS])
    } else {
        Err(io::Error::last_os_error())
    }
}
