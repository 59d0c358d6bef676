//! `uring-slots-exhausted`: all slots of a ring are taken, and its thread comes back with nothing that it can submit.
//!
//! **Invariant.** A program that has something to submit has a slot for it.
//!
//! **Evidence.** How many slots were taken over time, against the entries of the submission queue; waits for completions
//! that the thread left and came back to with all slots taken, with nothing submitted and nothing completed in between: it
//! had been woken for something else. The parts of the operations' life say what holds the slots.
//!
//! **Cost.** Slots and life bound the rate. With as many slots as it takes, the rate rises at most as the part of the time
//! in which the ring was full allows.
//!
//! **Guards.** A program that keeps so many operations under way and no more, such as a benchmark or a scan, has all slots
//! taken all of the time, and nothing else to do: it does not come back before something has completed. One operation at
//! a time is how a synchronous program works. Where the kernel's or the device's part is not the longest, it is another finding's.

use whywait_model::Model;
use whywait_model::rings::{RingState, Stage};

use crate::finding::{Code, Confidence, Evidence, Finding, Saving, SavingKind, Severity};
use crate::rings::{self, MIN_OPERATIONS};
use crate::slow_paths::percent;
use crate::text::duration;

/// What `whywait explain uring-slots-exhausted` says.
pub(crate) const EXPLAIN: &str = include_str!("explain/uring-slots-exhausted.md");

/// Of waits: so many percent must have been come back to in vain.
const MIN_STALLED: u64 = 25;

pub(crate) fn detect(model: &Model) -> Vec<Finding> {
    model
        .rings
        .values()
        .filter_map(|state| finding(model, state))
        .collect()
}

fn finding(model: &Model, state: &RingState) -> Option<Finding> {
    let ring = &state.ring;
    let full = percent(ring.at_depth_ns, ring.observed_ns);
    let stalled = percent(ring.stalled_waits, ring.waits);
    if ring.sq_entries < 2
        || ring.submitted < MIN_OPERATIONS
        || full < 50
        || stalled < MIN_STALLED
        || ring.stalled_waits < MIN_OPERATIONS
        || state.dominant() != Some(Stage::Kernel)
    {
        return None;
    }
    let kernel_ns = state.kernel_ns()?;
    let allowed = u64::from(ring.sq_entries).saturating_mul(1_000_000_000) / kernel_ns.max(1);
    Some(Finding {
        code: Code::UringSlotsExhausted,
        severity: Severity::Warning,
        confidence: Confidence::Medium,
        title: format!(
            "the {} slots of a ring are all taken for {full} % of the time: at {} an operation they allow {allowed} a second",
            ring.sq_entries,
            duration(kernel_ns),
        ),
        subject: rings::subject(state),
        saving: Saving {
            kind: SavingKind::Throughput,
            at_most_ns: ring.at_depth_ns,
            requests: ring.submitted,
            each_at_most_ns: Vec::new(),
        },
        evidence: vec![
            rings::life(state),
            Evidence {
                text: format!(
                    "{} came back {} times ({stalled} % of its waits) with all slots taken and nothing completed since: \
                     what it had been woken for could not be submitted",
                    rings::thread(model, state.thread()),
                    ring.stalled_waits,
                ),
                ns: None,
            },
            Evidence {
                text: format!(
                    "the slots are held by the kernel or the device for {} % of their time, not by completions that nobody takes",
                    percent(ring.flight_ns, ring.slot_ns)
                ),
                ns: Some(ring.flight_ns),
            },
        ],
        cause: None,
        fix: "make the ring deeper, as long as the device takes more at a time without slowing down; beyond that only a \
              faster device helps"
            .to_owned(),
    })
}
