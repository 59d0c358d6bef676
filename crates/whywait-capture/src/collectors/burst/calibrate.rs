//! What system calls take: held against the same while a burst lasts, it tells what tracing adds to
//! each call.
//!
//! The calls are those of a loop that goes round, of several kinds and with work of their own. One
//! that does nothing, made again and again, would tell half of it: a CPU that has seen nothing else
//! foresees every branch of the way through the tracing.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Instant;

/// Rounds of a batch, and batches.
const ROUNDS: u32 = 100;
const BATCHES: usize = 31;
/// System calls of a round.
const CALLS: u32 = 5;

/// What there is to poll.
pub(crate) struct Calibration {
    epoll: OwnedFd,
    event: OwnedFd,
}

impl Calibration {
    /// `None` when there are no descriptors left.
    pub(crate) fn new() -> Option<Self> {
        // SAFETY: what they return is a descriptor of ours alone, or negative.
        let (epoll, event) = unsafe {
            (
                libc::epoll_create1(libc::EPOLL_CLOEXEC),
                libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK),
            )
        };
        let own = |fd: i32| {
            // SAFETY: it was made above, and nobody else has it.
            (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
        };
        let (epoll, event) = (own(epoll), own(event));
        let calibration = Self {
            epoll: epoll?,
            event: event?,
        };
        calibration.register(libc::EPOLL_CTL_ADD, libc::EPOLLOUT);
        Some(calibration)
    }

    /// How long one takes, nanoseconds: in the middle batch, for a thread that is watched has good
    /// and bad moments as well.
    pub(crate) fn call_ns(&self) -> u64 {
        let mut batches: Vec<u64> = (0..BATCHES)
            .map(|_| {
                let begun = Instant::now();
                for _ in 0..ROUNDS {
                    self.round();
                }
                begun.elapsed().as_nanos() as u64 / u64::from(ROUNDS * CALLS)
            })
            .collect();
        batches.sort_unstable();
        batches[BATCHES / 2]
    }

    fn round(&self) {
        let mut ready = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: there is room for the one event that is asked for.
        unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), &raw mut ready, 1, 0) };
        self.queued();
        self.register(libc::EPOLL_CTL_MOD, libc::EPOLLIN);
        self.queued();
        self.register(libc::EPOLL_CTL_MOD, libc::EPOLLOUT);
    }

    fn register(&self, op: i32, events: i32) {
        let mut event = libc::epoll_event {
            events: events as u32,
            u64: 0,
        };
        // SAFETY: both descriptors are open, and the event is there while the call lasts.
        unsafe {
            libc::epoll_ctl(
                self.epoll.as_raw_fd(),
                op,
                self.event.as_raw_fd(),
                &raw mut event,
            )
        };
    }

    /// Refused, as an eventfd has no queue; the way there is the same.
    fn queued(&self) {
        let mut bytes: libc::c_int = 0;
        // SAFETY: there is room for the number that it would write.
        unsafe { libc::ioctl(self.event.as_raw_fd(), libc::FIONREAD, &raw mut bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_takes_some_time() {
        let calibration = Calibration::new().expect("there are descriptors left");
        assert!(calibration.call_ns() > 0);
        let mut ready = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: there is room for the one event that is asked for.
        let found =
            unsafe { libc::epoll_wait(calibration.epoll.as_raw_fd(), &raw mut ready, 1, 0) };
        assert_eq!(
            found, 1,
            "the descriptor is writable: the rounds do what they say"
        );
    }
}
