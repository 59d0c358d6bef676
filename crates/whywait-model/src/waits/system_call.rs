//! System calls in which threads sleep (x86-64 numbers), and what each does.

use std::borrow::Cow;

use whywait_events::{Part, Wait, WakeContext};

/// The system call that a thread sleeps in, by what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SystemCall {
    /// None: a page fault, or stopped.
    None,
    /// A futex wait.
    Futex,
    /// epoll, poll or select.
    Poll,
    /// A call that only sockets have.
    Socket,
    /// read, write and their like, on whatever the descriptor is.
    Stream,
    /// A call that only files have.
    File,
    /// nanosleep and its like.
    Sleep,
    /// `io_uring_enter`.
    Uring,
    /// Waiting for a child process.
    Child,
    /// Any other.
    Other,
}

/// The name of each system call in which long waits are common, and what it does, as
/// in `calls.bpf.h`, which sums up the short waits.
const CALLS: &[(u32, &str, SystemCall)] = &[
    (0, "read", SystemCall::Stream),
    (1, "write", SystemCall::Stream),
    (7, "poll", SystemCall::Poll),
    (16, "ioctl", SystemCall::Other),
    (17, "pread64", SystemCall::File),
    (18, "pwrite64", SystemCall::File),
    (19, "readv", SystemCall::Stream),
    (20, "writev", SystemCall::Stream),
    (23, "select", SystemCall::Poll),
    (26, "msync", SystemCall::File),
    (34, "pause", SystemCall::Other),
    (35, "nanosleep", SystemCall::Sleep),
    (40, "sendfile", SystemCall::Stream),
    (42, "connect", SystemCall::Socket),
    (43, "accept", SystemCall::Socket),
    (44, "sendto", SystemCall::Socket),
    (45, "recvfrom", SystemCall::Socket),
    (46, "sendmsg", SystemCall::Socket),
    (47, "recvmsg", SystemCall::Socket),
    (61, "wait4", SystemCall::Child),
    (72, "fcntl", SystemCall::Other),
    (73, "flock", SystemCall::Other),
    (74, "fsync", SystemCall::File),
    (75, "fdatasync", SystemCall::File),
    (128, "rt_sigtimedwait", SystemCall::Other),
    (130, "rt_sigsuspend", SystemCall::Other),
    (162, "sync", SystemCall::File),
    (202, "futex", SystemCall::Futex),
    (219, "restart_syscall", SystemCall::Other),
    (230, "clock_nanosleep", SystemCall::Sleep),
    (232, "epoll_wait", SystemCall::Poll),
    (247, "waitid", SystemCall::Child),
    (257, "openat", SystemCall::Other),
    (270, "pselect6", SystemCall::Poll),
    (271, "ppoll", SystemCall::Poll),
    (275, "splice", SystemCall::Stream),
    (277, "sync_file_range", SystemCall::File),
    (281, "epoll_pwait", SystemCall::Poll),
    (285, "fallocate", SystemCall::File),
    (288, "accept4", SystemCall::Socket),
    (295, "preadv", SystemCall::File),
    (296, "pwritev", SystemCall::File),
    (299, "recvmmsg", SystemCall::Socket),
    (306, "syncfs", SystemCall::File),
    (307, "sendmmsg", SystemCall::Socket),
    (426, "io_uring_enter", SystemCall::Uring),
    (441, "epoll_pwait2", SystemCall::Poll),
    (449, "futex_waitv", SystemCall::Futex),
    (455, "futex_wait", SystemCall::Futex),
];

const FCNTL: u32 = 72;
const FLOCK: u32 = 73;
/// F_SETLKW, F_OFD_SETLKW (include/uapi/asm-generic/fcntl.h).
const SETLKW: [u64; 2] = [7, 38];

/// What the system call does that a thread slept in.
pub fn system_call(wait: &Wait) -> SystemCall {
    match wait.syscall {
        None => SystemCall::None,
        Some(number) => entry(number).map_or(SystemCall::Other, |(_, _, call)| *call),
    }
}

/// The name of the system call that a thread slept in, for reports.
pub fn system_call_name(wait: &Wait) -> String {
    call_name(wait).into_owned()
}

/// The same, without an allocation for those that are known.
pub(crate) fn call_name(wait: &Wait) -> Cow<'static, str> {
    match wait.syscall {
        None if wait.uninterruptible || wait.io_wait => "a page fault".into(),
        None => "no system call".into(),
        Some(number) => name_of(number),
    }
}

/// Whether a thread slept for a lock on a file that its program asked for: `flock`, or `fcntl` with
/// a command that waits. Neither sleeps for anything else.
pub(crate) fn locks_file(wait: &Wait) -> bool {
    match wait.syscall {
        Some(FLOCK) => true,
        Some(FCNTL) => SETLKW.contains(&wait.args[1]),
        _ => false,
    }
}

/// The descriptor that a sleep was for, where it was for one. Of a poll or a select, it stands in
/// place of an address, which is larger ("waits" in docs/recording.md). A poll for a socket and for
/// what the program's own threads wake it by is one for the socket.
pub fn descriptor(wait: &Wait) -> Option<i32> {
    let polls_one = matches!(wait.syscall, Some(7 | 271)) && matches!(wait.args[1], 1 | 2);
    // The first argument is the highest descriptor and one.
    let selects_one =
        matches!(wait.syscall, Some(23 | 270)) && wait.args[2] == 0 && wait.args[1] < wait.args[0];
    match system_call(wait) {
        SystemCall::Socket | SystemCall::Stream | SystemCall::File => {
            i32::try_from(wait.args[0] as u32).ok()
        }
        SystemCall::Poll if polls_one => u16::try_from(wait.args[0]).ok().map(i32::from),
        SystemCall::Poll if selects_one => u16::try_from(wait.args[1]).ok().map(i32::from),
        _ => None,
    }
}

/// Whether it is a poll of one descriptor, and which one was not read: it may be a client's, a
/// peer's, or a listener.
pub fn polls_unread(wait: &Wait) -> bool {
    matches!(wait.syscall, Some(7 | 271)) && wait.args[1] == 1 && descriptor(wait).is_none()
}

/// Whether a thread sleeps until something comes of several descriptors: in an epoll instance, or
/// in a poll or a select that names more than a socket and what its own threads wake it by.
pub(crate) fn polls_several(wait: &Wait) -> bool {
    let names_several = || descriptor(wait).is_none() && !polls_unread(wait);
    system_call(wait) == SystemCall::Poll && (wait.epoll != 0 || names_several())
}

/// Whether a thread waits for a connection, in `accept` or `accept4`.
pub fn is_accept(wait: &Wait) -> bool {
    matches!(wait.syscall, Some(43 | 288))
}

/// The name of a system call, for reports.
pub(crate) fn name_of(number: u32) -> Cow<'static, str> {
    entry(number).map_or_else(
        || format!("system call {number}").into(),
        |(_, name, _)| (*name).into(),
    )
}

fn entry(number: u32) -> Option<&'static (u32, &'static str, SystemCall)> {
    let place = *PLACES.get(number as usize)?;
    CALLS.get(usize::from(place))
}

/// By number: its place in the table, or a place beyond it. It is asked for of each sleep, again
/// and again.
const PLACES: [u8; 512] = {
    let mut places = [u8::MAX; 512];
    let mut at = 0;
    while at < CALLS.len() {
        places[CALLS[at].0 as usize] = at as u8;
        at += 1;
    }
    places
};

/// Whether a system call of this name lets a time pass.
pub(crate) fn lets_time_pass(name: &str) -> bool {
    let call = CALLS.iter().find(|(_, of, _)| *of == name);
    call.is_some_and(|(_, _, call)| *call == SystemCall::Sleep)
}

/// Which part of a request's time a sleep is, from the call and from who ended it.
/// `woken_by_target`: the waker is a thread of the target.
pub(crate) fn part(wait: &Wait, woken_by_target: bool) -> Part {
    let by_task = if woken_by_target {
        Part::Thread
    } else {
        Part::Network
    };
    let unfinished = wait.in_ns.is_none() || wait.wake_context == WakeContext::Exit;
    match system_call(wait) {
        SystemCall::None if wait.uninterruptible || wait.io_wait => Part::PageFault,
        SystemCall::None => Part::Unknown,
        // Without a timeout nobody but another thread ends it, and nobody but the other side.
        SystemCall::Futex if unfinished && !wait.timeout => Part::Thread,
        SystemCall::Poll | SystemCall::Stream if unfinished && !wait.io_wait => Part::Network,
        SystemCall::Futex => match wait.wake_context {
            WakeContext::Task => Part::Thread,
            WakeContext::Hardirq => Part::Timer,
            _ => Part::Unknown,
        },
        SystemCall::Poll => match wait.wake_context {
            WakeContext::Task => by_task,
            WakeContext::Softirq => Part::Network,
            WakeContext::Hardirq => Part::Timer,
            WakeContext::Unknown | WakeContext::Exit => Part::Unknown,
        },
        SystemCall::Socket => Part::Network,
        SystemCall::Stream if wait.io_wait || wait.uninterruptible => Part::Disk,
        SystemCall::Stream => match wait.wake_context {
            WakeContext::Task => by_task,
            WakeContext::Softirq => Part::Network,
            WakeContext::Hardirq => Part::Timer,
            WakeContext::Unknown | WakeContext::Exit => Part::Unknown,
        },
        SystemCall::File => Part::Disk,
        SystemCall::Sleep => Part::Timer,
        SystemCall::Uring => Part::Uring,
        SystemCall::Child => Part::Thread,
        SystemCall::Other if wait.io_wait || wait.uninterruptible => match wait.wake_context {
            WakeContext::Task if woken_by_target => Part::Thread,
            _ => Part::Disk,
        },
        SystemCall::Other => Part::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_system_call_is_found_by_its_number() {
        for call in CALLS {
            assert_eq!(entry(call.0), Some(call));
        }
        assert_eq!([2, 511, 512, u32::MAX].map(entry), [None; 4]);
        assert!(CALLS.len() < usize::from(u8::MAX), "a place is a byte");
    }
}
