//! `uring-overflow`: the completion queue had no room.
//!
//! **Invariant.** The completion queue has room for what is under way.
//!
//! **Evidence.** The kernel's own account of each completion that found none, against the queue's
//! size and the most operations under way.
//!
//! **Cost.** Not known as a time: each such completion costs the kernel an allocation, and the
//! program another call to get it. Saving 0.
//!
//! **Guards.** None is needed: a healthy program has none. Fewer than one in a thousand is a note.

use whywait_model::Model;
use whywait_model::rings::RingState;
use whywait_words::counted;

use crate::declaration::Declaration;
use crate::facts::Facts;
use crate::finding::{Evidence, Finding, Saving, SavingKind, Severity};
use crate::numbers::{OVERFLOWED, Share};
use crate::shared::rings;

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "uring-overflow",
    meaning: "completions found no room in an io_uring ring's completion queue",
    severities: &[
        (Severity::Warning, "from one in 1000 operations on"),
        (Severity::Note, "otherwise"),
    ],
    invariant: "the completion queue has room for what is under way",
    explain: include_str!("explain.md"),
    waits: None,
    detect,
};

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
    model
        .rings
        .values()
        .filter(|state| state.ring.overflows > 0)
        .map(|state| finding(model, state))
        .collect()
}

fn finding(model: &Model, state: &RingState) -> Finding {
    let ring = &state.ring;
    let often = Share::new(ring.overflows, ring.submitted).is_at_least(*OVERFLOWED);
    let severity = if often {
        Severity::Warning
    } else {
        Severity::Note
    };
    let title = format!(
        "{} of io_uring found no room in a completion queue of {}",
        counted(ring.overflows, "completion"),
        ring.cq_entries
    );
    let room = format!(
        "{} has up to {} operations under way or not taken, in a ring of {} entries and {} \
         completions",
        rings::thread(model, state.thread()),
        ring.max_slots,
        ring.sq_entries,
        ring.cq_entries
    );
    rings::about(state, Finding::new(&DECLARATION, severity, title))
        .saving(Saving::sum(SavingKind::Latency, 0, ring.overflows))
        .evidence([Evidence::new(room), rings::life(state)])
        .fix(
            "make the completion queue as large as the most operations under way \
             (IORING_SETUP_CQSIZE), or take completions before submitting more",
        )
}

#[cfg(test)]
mod tests;
