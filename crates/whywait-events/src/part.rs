//! The parts that a request's time in service is split into.

use serde::{Deserialize, Serialize};

/// A kind of time, as counted in the kernel for each thread. The order is that of `enum part` in
/// the BPF program's `layout.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Part {
    /// Running.
    OnCpu = 0,
    /// Ready to run, waiting for a CPU.
    Runnable = 1,
    /// Waiting for a lock. To the kernel it is like `Thread`: only analysis fills it in.
    Lock = 2,
    /// Waiting for another thread (futex, eventfd, pipe or child, woken by a task).
    Thread = 3,
    /// Waiting for a block device or filesystem.
    Disk = 4,
    /// Waiting for the network, or for another process over a socket.
    Network = 5,
    /// Waiting for a time to come.
    Timer = 6,
    /// Waiting in `io_uring_enter`.
    Uring = 7,
    /// Waiting for a page.
    PageFault = 8,
    /// None of these.
    Unknown = 9,
}

/// How many parts there are.
pub const PART_COUNT: usize = 10;

impl Part {
    /// All parts, in order.
    pub const ALL: [Part; PART_COUNT] = [
        Part::OnCpu,
        Part::Runnable,
        Part::Lock,
        Part::Thread,
        Part::Disk,
        Part::Network,
        Part::Timer,
        Part::Uring,
        Part::PageFault,
        Part::Unknown,
    ];

    /// The name that reports and the recording use.
    pub const fn name(self) -> &'static str {
        match self {
            Part::OnCpu => "on-cpu",
            Part::Runnable => "runnable",
            Part::Lock => "lock",
            Part::Thread => "thread",
            Part::Disk => "disk",
            Part::Network => "network",
            Part::Timer => "timer",
            Part::Uring => "uring",
            Part::PageFault => "page-fault",
            Part::Unknown => "unknown",
        }
    }
}

/// The columns of a field with the time of each [`Part`].
macro_rules! parts_columns {
    ($prefix:literal) => {
        parts_columns!(
            @named $prefix "_on_cpu_ns" "_runnable_ns" "_lock_ns" "_thread_ns" "_disk_ns"
            "_network_ns" "_timer_ns" "_uring_ns" "_page_fault_ns" "_unknown_ns"
        )
    };
    (@named $prefix:literal $($name:literal)+) => {
        &[$(Column {
            name: concat!($prefix, $name),
            #[cfg(test)]
            about: &[],
        }),+]
    };
}
pub(crate) use parts_columns;

/// Nanoseconds of each [`Part`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Parts(pub [u64; PART_COUNT]);

impl Parts {
    /// The sum of all parts, in nanoseconds.
    pub fn total_ns(&self) -> u64 {
        self.0.iter().fold(0, |sum, ns| sum.saturating_add(*ns))
    }
}

impl std::ops::Index<Part> for Parts {
    type Output = u64;
    fn index(&self, part: Part) -> &u64 {
        &self.0[part as usize]
    }
}

impl std::ops::IndexMut<Part> for Parts {
    fn index_mut(&mut self, part: Part) -> &mut u64 {
        &mut self.0[part as usize]
    }
}

impl std::ops::AddAssign for Parts {
    fn add_assign(&mut self, other: Parts) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine = mine.saturating_add(theirs);
        }
    }
}
