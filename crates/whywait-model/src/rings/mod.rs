//! io_uring: what each ring's operations went through, and what its threads did meanwhile.
//!
//! An operation's life has three parts: queued (the program has published its entry, and it is not
//! submitted), with the kernel (submitted, not completed), and unreaped (completed, and the program
//! has not taken the completion). The second is measured; the others lie between two bounds each,
//! because the program needs no kernel for either. Entries that a library publishes only as it
//! submits them (as liburing does) are never seen queued.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use whywait_events::uring::{Lag, Op, Ring, RingOrigin, RingSample, Sum};
use whywait_events::{Ns, StackId, Wait};

mod failures;
mod input;
mod pending;
mod row;
mod sends;
mod workers;

pub use failures::Failures;
pub use input::RingInput;
pub use pending::{PendingGroup, Pendings};
pub use row::{Bounds, OpcodeRow, PendingRow, RingRow};
pub use sends::BlockedSends;
pub use workers::Workers;
pub(crate) use workers::workers;

/// What a lag was spent with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LagWithWait {
    /// The lag.
    pub lag: Lag,
    /// The sleep of the ring's thread that covers most of it, with how much: nanoseconds.
    pub wait: Option<(Wait, u64)>,
    /// For how long of it the thread slept in other calls than `io_uring_enter`, nanoseconds.
    pub slept_ns: u64,
    /// Samples of the thread on a CPU within it, by kernel stack, each with its weight.
    pub samples: BTreeMap<StackId, u64>,
}

/// The lags of a ring of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lags {
    /// How many.
    pub count: u64,
    /// Their lower bounds, nanoseconds.
    pub low_ns: u64,
    /// Their upper bounds.
    pub high_ns: u64,
    /// Completions or entries that waited when they ended.
    pub waiting: u64,
    /// The longest, by their lower bound.
    pub longest: Vec<LagWithWait>,
}

/// Samples of a thread in a stack, and how it stood with its ring then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing {
    /// How many, each with its weight (as in all that follows).
    pub samples: u64,
    /// While completions waited to be taken.
    pub unreaped: u64,
    /// While entries waited to be submitted.
    pub pending: u64,
    /// While operations were with the kernel, and nothing waited for the program.
    pub with_kernel: u64,
    /// The completions that waited, added up.
    pub unreaped_sum: u64,
    /// The entries that waited, added up.
    pub pending_sum: u64,
}

impl Standing {
    fn add(&mut self, other: &Standing) {
        self.samples = self.samples.saturating_add(other.samples);
        self.unreaped = self.unreaped.saturating_add(other.unreaped);
        self.pending = self.pending.saturating_add(other.pending);
        self.with_kernel = self.with_kernel.saturating_add(other.with_kernel);
        self.unreaped_sum = self.unreaped_sum.saturating_add(other.unreaped_sum);
        self.pending_sum = self.pending_sum.saturating_add(other.pending_sum);
    }
}

/// A ring and all that is known of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RingState {
    /// The ring as it was in the end.
    pub ring: Ring,
    /// By opcode.
    pub sums: Vec<Sum>,
    /// Completions that waited to be taken for at least the threshold.
    pub unreaped: Lags,
    /// Entries that waited to be submitted for at least the threshold.
    pub unsubmitted: Lags,
    /// The thread that uses it on a CPU, by user stack and kernel stack.
    pub stacks: BTreeMap<(StackId, StackId), Standing>,
    /// Of each thread that was sampled: the first and the last sample.
    pub seen: BTreeMap<u32, (RingSample, RingSample)>,
    /// Samples of the kernel's poller, each with its weight.
    pub poller_samples: u64,
    /// Samples of the process's io_uring workers, each with its weight.
    pub worker_samples: u64,
    /// Operations with rows of their own, the slowest first.
    pub ops: Vec<Op>,
    /// Of all operations with rows: those that failed, by opcode and error number.
    pub failures: BTreeMap<(u32, i32), Failures>,
    /// Of all operations with rows: how many of an opcode succeeded on a descriptor.
    pub succeeded: BTreeMap<(u32, i32), u64>,
    /// Operations that the kernel still had in the end.
    pub pending: Pendings,
}

impl RingState {
    /// Between the first and the last sample of a thread: how long it was on a CPU, how long it
    /// waited for one, and how much time passed, nanoseconds.
    pub fn cpu_of(&self, tid: u32) -> Option<(u64, u64, u64)> {
        let (first, last) = self.seen.get(&tid)?;
        Some((
            last.on_cpu_ns.saturating_sub(first.on_cpu_ns),
            last.runnable_ns.saturating_sub(first.runnable_ns),
            last.at_ns.saturating_sub(first.at_ns),
        ))
    }

    /// Samples of the thread that uses it.
    pub fn standing(&self) -> Standing {
        let mut all = Standing::default();
        for standing in self.stacks.values() {
            all.add(standing);
        }
        all
    }

    /// Mean time that the kernel took for an operation, nanoseconds; `None` without any. A server's
    /// standing order for its next connection, say, takes as long as nobody comes: such are left
    /// out.
    pub fn kernel_ns(&self) -> Option<u64> {
        let asked_for = self.sums.iter().filter(|sum| !is_standing_order(sum));
        let (ns, count) = asked_for.fold((0u64, 0u64), |(ns, count), sum| {
            (
                ns.saturating_add(sum.kernel_ns),
                count.saturating_add(sum.timed),
            )
        });
        ns.checked_div(count)
    }

    /// Mean time that a completion waited to be taken: at least, at most.
    pub fn unreaped_ns(&self) -> Option<(u64, u64)> {
        let ring = &self.ring;
        Some((
            ring.unreaped_low_ns.checked_div(ring.completed)?,
            ring.unreaped_high_ns.checked_div(ring.completed)?,
        ))
    }

    /// Mean time that an entry waited to be submitted: at least, at most; `None` when none was ever
    /// seen waiting.
    pub fn queued_ns(&self) -> Option<(u64, u64)> {
        let ring = &self.ring;
        if ring.queued_low_ns == 0 && self.standing().pending == 0 {
            return None;
        }
        Some((
            ring.queued_low_ns.checked_div(ring.submitted)?,
            ring.queued_high_ns.checked_div(ring.submitted)?,
        ))
    }

    /// The part of the operations' life that is longest for certain.
    pub fn dominant(&self) -> Option<Stage> {
        let kernel = self.kernel_ns()?;
        let mut bounds = vec![(Stage::Kernel, kernel, kernel)];
        if let Some((low, high)) = self.unreaped_ns() {
            bounds.push((Stage::Unreaped, low, high));
        }
        if let Some((low, high)) = self.queued_ns() {
            bounds.push((Stage::Queued, low, high));
        }
        bounds
            .iter()
            .find(|(stage, low, _)| {
                *low > 0
                    && bounds
                        .iter()
                        .all(|(other, _, high)| other == stage || low >= high)
            })
            .map(|(stage, ..)| match stage {
                Stage::Kernel if self.held_by_sockets() => Stage::Socket,
                stage => *stage,
            })
    }

    /// The thread to which the ring belongs: the one that uses it, or else made it.
    pub fn thread(&self) -> u32 {
        if self.ring.user_tid != 0 {
            self.ring.user_tid
        } else {
            self.ring.creator_tid
        }
    }

    /// Whether it was there before the recording.
    pub fn since_before(&self) -> bool {
        self.ring.origin != RingOrigin::Created
    }
}

/// When a completion that the thread was given at `at` was taken from its ring at the earliest, if
/// that took long: what it brought waited until then, whoever else was served meanwhile.
pub(crate) fn reaped_ns(rings: &BTreeMap<u32, RingState>, tid: u32, at: Ns) -> Option<Ns> {
    rings
        .values()
        .flat_map(|state| &state.unreaped.longest)
        .filter(|longest| longest.lag.tid == tid)
        .map(|longest| {
            let from_ns = longest.lag.from_ns;
            (from_ns, from_ns.saturating_add(longest.lag.low_ns))
        })
        .filter(|(from_ns, to_ns)| (*from_ns..*to_ns).contains(&at))
        .map(|(_, to_ns)| to_ns)
        .max()
}

/// Whether operations wait for an event by nature, for however long it does not come: accepting,
/// polling, timers, and reading from nothing but eventfds and their kin.
pub(crate) fn is_standing_order(sum: &Sum) -> bool {
    const READ: u32 = 22;
    const ANONYMOUS: u32 = 1;
    // POLL_ADD, TIMEOUT, ACCEPT, LINK_TIMEOUT.
    matches!(sum.opcode, 6 | 11 | 13 | 15) || (sum.opcode == READ && sum.kinds == ANONYMOUS)
}

/// A part of an operation's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Prepared, not submitted.
    Queued,
    /// Submitted, not completed.
    Kernel,
    /// The same, and most of it sends that waited for room in their socket's buffer.
    Socket,
    /// Completed, not taken.
    Unreaped,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_dominates_only_when_that_is_certain() {
        let mut state = RingState {
            ring: Ring {
                completed: 10,
                submitted: 10,
                unreaped_low_ns: 100,
                unreaped_high_ns: 5000,
                ..Ring::default()
            },
            sums: vec![Sum {
                timed: 10,
                kernel_ns: 1000,
                ..Sum::default()
            }],
            ..RingState::default()
        };
        assert_eq!(state.dominant(), None);
        state.ring.unreaped_high_ns = 900;
        assert_eq!(state.dominant(), Some(Stage::Kernel));
        state.ring.unreaped_low_ns = 2000;
        state.ring.unreaped_high_ns = 5000;
        assert_eq!(state.dominant(), Some(Stage::Unreaped));
        // That nobody connects for long is not the kernel's part of anything.
        state.sums.push(Sum {
            opcode: 13,
            timed: 10,
            kernel_ns: 1_000_000,
            ..Sum::default()
        });
        assert_eq!(state.dominant(), Some(Stage::Unreaped));
    }
}
