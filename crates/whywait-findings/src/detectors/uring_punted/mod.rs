//! `uring-punted`: operations that could have been done at once are handed to worker threads.
//!
//! **Invariant.** Reads, writes, sends and receives are done at once or when their file is ready,
//! not by a worker thread of the kernel's that blocks for them.
//!
//! **Evidence.** The kernel's own account of each operation that it handed over, by opcode; the
//! time that those took; the workers' CPU time by samples.
//!
//! **Cost.** The time that the punted operations were with the kernel, and that they lay there
//! completed, as far as it could have been: workers take the CPU from the program that is to take
//! completions. Some of it is the operation itself, hence a bound. It is no more than all the time
//! for which slots of the ring were taken.
//!
//! **Guards.** Operations that always block, such as `fsync`, `openat` or `statx`, are handed over
//! by nature and not counted. Only where it is most of an opcode's operations.

use whywait_events::uring::{Ring, Sum, opcode_name};
use whywait_model::Model;
use whywait_model::rings::RingState;
use whywait_words::{duration, percent};

use crate::declaration::Declaration;
use crate::facts::Facts;
use crate::finding::{Evidence, Finding, Saving, SavingKind, Severity};
use crate::numbers::{MOST, RING_MIN_OPERATIONS, Share};
use crate::shared::rings;

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "uring-punted",
    meaning: "the kernel's worker threads do reads, writes, sends or receives of an io_uring ring \
         that need no worker",
    severities: &[(Severity::Warning, "")],
    invariant: "such operations are done at once, or when their file is ready",
    explain: include_str!("explain.md"),
    waits: None,
    detect,
};

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
    model
        .rings
        .values()
        .filter_map(|state| {
            let sum = state
                .sums
                .iter()
                .filter(|sum| need_no_worker(sum.opcode) && mostly_punted(sum))
                .max_by_key(|sum| sum.punted)?;
            Some(finding(model, state, sum))
        })
        .collect()
}

/// `read`, `write`, `send`, `recv` and their kin.
fn need_no_worker(opcode: u32) -> bool {
    matches!(
        opcode,
        1 | 2 | 4 | 5 | 9 | 10 | 13 | 16 | 22 | 23 | 26 | 27 | 47 | 48 | 60 | 61
    )
}

fn mostly_punted(sum: &Sum) -> bool {
    sum.punted >= *RING_MIN_OPERATIONS && Share::new(sum.punted, sum.completed).exceeds(*MOST)
}

/// For how long the punted operations lay completed at most, by those that were followed.
fn unreaped_ns(sum: &Sum) -> u64 {
    let ns = u128::from(sum.mark_high_ns) * u128::from(sum.punted) / u128::from(sum.marks.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// No more than all that operations of the ring took. The kernel's time of an operation and the
/// bound of how long it lay completed overlap.
fn at_most(ns: u64, ring: &Ring) -> u64 {
    match ring.slot_ns {
        0 => ns,
        all_ns => ns.min(all_ns),
    }
}

fn finding(model: &Model, state: &RingState, sum: &Sum) -> Finding {
    let name = opcode_name(sum.opcode);
    let title = format!(
        "{} of the {name} operations of {} are handed to worker threads",
        percent(sum.punted.min(sum.completed), sum.completed),
        rings::thread(model, state.thread()),
    );
    let handed_over = format!(
        "{} of {} {name} operations were handed to a worker; each took {} on average",
        sum.punted,
        sum.completed,
        duration(sum.punted_ns.checked_div(sum.punted_timed).unwrap_or(0))
    );
    let worker_ns = state.worker_samples.saturating_mul(rings::sample_ns(model));
    let workers = (worker_ns > 0).then(|| {
        let text = format!(
            "the workers of the process were on a CPU for {}, by {} samples",
            duration(worker_ns),
            state.worker_samples
        );
        Evidence::of_ns(worker_ns, text)
    });
    let saved_ns = at_most(sum.punted_ns.saturating_add(unreaped_ns(sum)), &state.ring);
    rings::about(state, Finding::new(&DECLARATION, Severity::Warning, title))
        .saving(Saving::sum(SavingKind::Latency, saved_ns, sum.punted))
        .evidence([Evidence::of_ns(sum.punted_ns, handed_over)])
        .evidence(workers)
        .evidence([rings::life(state)])
        .fix(
            "do not set IOSQE_ASYNC on them; if the kernel punts them by itself, the file does \
             not support reads or writes without blocking (open it with O_DIRECT, or use another \
             filesystem), or the data is not in the page cache",
        )
}

#[cfg(test)]
mod tests;
