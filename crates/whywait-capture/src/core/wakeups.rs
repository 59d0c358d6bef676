//! The sleep between two looks at what has come.
//!
//! The rings are looked at by the clock: a consumer that lets the kernel wake it for each record is
//! woken by its own work on a busy machine. But to wake up costs, too, even if there is nothing to
//! see: a switch on a CPU that a saturated server needs, and in a virtual machine what its host
//! takes for a timer. So where nothing has to be looked at soon the sleep is longer, and BPF ends
//! it for what cannot wait (`wakeup_for` in state.bpf.h).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};

/// Until then each sleep lasts.
pub(crate) const PAUSE: Duration = Duration::from_millis(10);
/// A sleep that nothing ends.
pub(crate) const LONG_PAUSE: Duration = Duration::from_millis(40);

/// What ends a long sleep.
pub(crate) struct Wakeups {
    epoll: OwnedFd,
}

impl Wakeups {
    /// Of these rings.
    pub(crate) fn of(rings: [&dyn AsFd; 2]) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for ring in rings {
            // At the edge: what lies in a ring already is no reason to wake up.
            epoll::add(
                &epoll,
                ring.as_fd(),
                epoll::EventData::new_u64(0),
                epoll::EventFlags::IN | epoll::EventFlags::ET,
            )?;
        }
        Ok(Self { epoll })
    }

    /// Sleeps until BPF ends it, or a signal does, and for `at_most`.
    pub(crate) fn sleep(&self, at_most: Duration) {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; 2];
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: at_most.min(LONG_PAUSE).subsec_nanos().into(),
        };
        // It fails where a signal ends it, and that is as good.
        let _ = epoll::wait(&self.epoll, &mut events, Some(&timeout));
    }
}
