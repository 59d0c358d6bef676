//! The array in which BPF keeps the states of the target's threads, read as it is: to look into it
//! takes no call of the kernel's.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd;

use libbpf_rs::MapCore;
use memmap2::{MmapOptions, MmapRaw};

use super::skel::types;

pub(crate) struct ThreadTable {
    slots: MmapRaw,
    count: u32,
    sweep_min_ns: u64,
}

/// What decides whether a sweep would read a thread's stack.
struct LastSleep {
    sleeps: bool,
    out_ns: u64,
    seq: u32,
    stack_seq: u32,
}

impl ThreadTable {
    /// Of the map with the variable `thread_slots`. Sleeps of `sweep_min_ns` are to be read.
    pub(crate) fn new(threads: &impl MapCore, sweep_min_ns: u64) -> io::Result<Self> {
        let size = size_of::<types::thread>();
        let count = threads.value_size() / size as u32;
        if !count.is_power_of_two() || threads.value_size() as usize != size * count as usize {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let slots = MmapOptions::new()
            .len(size * count as usize)
            .map_raw_read_only(threads.as_fd().as_raw_fd())?;
        Ok(Self {
            slots,
            count,
            sweep_min_ns,
        })
    }

    /// Whether this thread may have a stack for a sweep to read. Of one whose state lies elsewhere,
    /// because another thread has its slot, or which has ended, nothing is known: it may.
    pub(crate) fn may_be_unread(&self, tid: u32, now_ns: u64) -> bool {
        let thread = self.slot(tid & (self.count - 1));
        // SAFETY: the mapping has so many states, and lives as long as `self`. BPF writes to them
        // meanwhile: each field is read once, as a volatile whole, and a stale one makes a sweep
        // too many, or one a turn later.
        let (owner, sleep) = unsafe {
            (
                (&raw const (*thread).tid).read_volatile(),
                LastSleep {
                    sleeps: (&raw const (*thread).state).read_volatile()
                        == types::thread_state::THREAD_SLEEPING.0 as u8,
                    out_ns: (&raw const (*thread).out_ns).read_volatile(),
                    seq: (&raw const (*thread).seq).read_volatile(),
                    stack_seq: (&raw const (*thread).stack_seq).read_volatile(),
                },
            )
        };
        owner != tid || sleep.is_unread(now_ns, self.sweep_min_ns)
    }

    /// The states of all threads that are followed there, when no hook writes to them any more.
    pub(crate) fn states(&self) -> impl Iterator<Item = types::thread> {
        // SAFETY: the mapping has so many states, and lives as long as `self`.
        (0..self.count)
            .filter(|slot| unsafe { (&raw const (*self.slot(*slot)).tid).read_volatile() } != 0)
            .map(|slot| unsafe { self.slot(slot).read_volatile() })
    }

    fn slot(&self, number: u32) -> *const types::thread {
        self.slots
            .as_ptr()
            .cast::<types::thread>()
            .wrapping_add(number as usize)
    }
}

impl LastSleep {
    /// As the program `sweep` sees it.
    fn is_unread(&self, now_ns: u64, sweep_min_ns: u64) -> bool {
        self.sleeps
            && self.stack_seq != self.seq.wrapping_add(1)
            && now_ns.saturating_sub(self.out_ns) >= sweep_min_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWEEP_MIN_NS: u64 = 4_000_000;

    fn sleep() -> LastSleep {
        LastSleep {
            sleeps: true,
            out_ns: 1_000_000,
            seq: 7,
            stack_seq: 7, // of the sleep before
        }
    }

    fn is_unread(sleep: &LastSleep, slept_ns: u64) -> bool {
        sleep.is_unread(sleep.out_ns + slept_ns, SWEEP_MIN_NS)
    }

    #[test]
    fn a_long_sleep_is_unread_until_its_own_stack_was_read() {
        assert!(is_unread(&sleep(), SWEEP_MIN_NS));
        let read = LastSleep {
            stack_seq: 8,
            ..sleep()
        };
        assert!(!is_unread(&read, SWEEP_MIN_NS), "its stack was read");
    }

    #[test]
    fn short_sleeps_and_running_threads_are_not_to_be_read() {
        assert!(!is_unread(&sleep(), SWEEP_MIN_NS - 1), "it is short so far");
        let runs = LastSleep {
            sleeps: false,
            ..sleep()
        };
        assert!(!is_unread(&runs, SWEEP_MIN_NS), "it runs");
    }

    #[test]
    fn numbers_of_sleeps_begin_anew_and_clocks_are_read_before_each_other() {
        let last = LastSleep {
            seq: u32::MAX,
            stack_seq: 0,
            ..sleep()
        };
        assert!(
            !is_unread(&last, SWEEP_MIN_NS),
            "0 comes after the last number"
        );
        assert!(
            !sleep().is_unread(0, SWEEP_MIN_NS),
            "it fell asleep after the clock was read"
        );
    }
}
