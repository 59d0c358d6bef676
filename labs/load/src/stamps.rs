//! When the kernel sent a request and when it had the response: a client's clock that does not
//! depend on when the client gets a CPU.
#![allow(unsafe_code)]

use std::io::{Error, Read, Result, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::ptr;
use std::time::{Duration, SystemTime};

/// Of include/uapi/linux/net_tstamp.h, which libc has only in part: by software, on sending and on
/// receiving, and without the packet's data.
const SEND: libc::c_uint = 1 << 1;
const RECEIVE: libc::c_uint = 1 << 3;
const BY_SOFTWARE: libc::c_uint = 1 << 4;
const ONLY_STAMPS: libc::c_uint = 1 << 11;
/// Room for what comes with a packet: three times, and of what is reported as an error its origin.
const CONTROL: usize = 256;

/// A stream that knows when the kernel sent and received last. The times are those of the wall
/// clock.
pub(crate) struct Stamped {
    stream: TcpStream,
    stamps: bool,
    received: Option<Duration>,
}

impl Stamped {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            stamps: false,
            received: None,
        }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// From now on the kernel stamps what is sent and received.
    pub(crate) fn stamp(&mut self) -> Result<()> {
        let flags = SEND | RECEIVE | BY_SOFTWARE | ONLY_STAMPS;
        // SAFETY: the option's value is an int, which lives until the call has returned.
        let set = unsafe {
            libc::setsockopt(
                self.stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_TIMESTAMPING,
                (&raw const flags).cast(),
                size_of_val(&flags) as libc::socklen_t,
            )
        };
        if set != 0 {
            return Err(Error::last_os_error());
        }
        self.stamps = true;
        Ok(())
    }

    /// When the kernel had what was read last.
    pub(crate) fn received(&self) -> Option<Duration> {
        self.received
    }

    /// When the kernel sent what was written since this was asked last: the first packet of it.
    pub(crate) fn sent(&mut self) -> Option<Duration> {
        let mut first = None;
        while let Ok((_, Some(at))) =
            self.receive(&mut [0; 1], libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT)
        {
            first = first.or(Some(at));
        }
        first
    }

    /// What `recvmsg` returned, and the time that came with it.
    fn receive(&self, buffer: &mut [u8], flags: libc::c_int) -> Result<(usize, Option<Duration>)> {
        let mut part = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        };
        // Aligned as its heads must be.
        let mut control = [0_u64; CONTROL / 8];
        // SAFETY: a message of nothing is valid.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = CONTROL as _;
        // SAFETY: the message, and the buffers that it names, live until the call has returned.
        let read = unsafe { libc::recvmsg(self.stream.as_raw_fd(), &raw mut message, flags) };
        let Ok(read) = usize::try_from(read) else {
            return Err(Error::last_os_error());
        };
        Ok((read, stamp_in(&message)))
    }
}

/// The time that came with a message that the kernel filled.
fn stamp_in(message: &libc::msghdr) -> Option<Duration> {
    // SAFETY: the kernel has written whole heads, each with its data, into the message's buffer.
    unsafe {
        let mut head = libc::CMSG_FIRSTHDR(message);
        while !head.is_null() {
            if (*head).cmsg_level == libc::SOL_SOCKET && (*head).cmsg_type == libc::SCM_TIMESTAMPING
            {
                let time: libc::timespec = ptr::read_unaligned(libc::CMSG_DATA(head).cast());
                let seconds = u64::try_from(time.tv_sec).ok()?;
                let at = Duration::new(seconds, u32::try_from(time.tv_nsec).ok()?);
                return (!at.is_zero()).then_some(at);
            }
            head = libc::CMSG_NXTHDR(message, head);
        }
    }
    None
}

impl Read for Stamped {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        if !self.stamps {
            return self.stream.read(buffer);
        }
        let (read, at) = self.receive(buffer, 0)?;
        // What arrived before the kernel had begun to stamp comes without: it was there by now.
        self.received = at.or_else(|| SystemTime::UNIX_EPOCH.elapsed().ok());
        Ok(read)
    }
}

impl Write for Stamped {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_kernel_says_when_it_sent_and_received() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let mut client = Stamped::new(stream);
        client.stamp().unwrap();
        let now = || SystemTime::UNIX_EPOCH.elapsed().unwrap();
        for _ in 0..2 {
            let before = now();
            client.write_all(b"?").unwrap();
            server.read_exact(&mut [0]).unwrap();
            server.write_all(b"!").unwrap();
            client.read_exact(&mut [0]).unwrap();
            let (sent, received) = (client.sent().unwrap(), client.received().unwrap());
            assert!(before <= sent && sent <= received && received <= now());
        }
        assert_eq!(client.sent(), None);
    }
}
