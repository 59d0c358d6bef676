//! `uring-unsubmitted`: entries are published in the queue, and nobody submits them.
//!
//! **Invariant.** What is published in a submission queue is submitted within the threshold.
//!
//! **Evidence.** The submission queue's tail, which the program moves when it publishes an entry,
//! against what the kernel has taken, looked at as for `uring-unreaped`; what the thread that
//! submits did instead. Entries that a library publishes only in its call that submits (liburing's
//! do without more) are never seen here: then nothing is said.
//!
//! **Cost.** The time that entries lay there at most, summed over them.
//!
//! **Guards.** A threshold long in the mean by its lower bound; with few operations, a tenth of a
//! second twice or half a second once. Rings with a poller of the kernel's
//! are `uring-idle-sqpoll`'s.

use whywait_events::uring::SETUP_SQPOLL;
use whywait_model::Model;
use whywait_model::rings::RingState;
use whywait_words::duration_range;

use crate::declaration::{Declaration, Has, Waits};
use crate::facts::Facts;
use crate::finding::{Evidence, Finding, Saving, SavingKind, Severity};
use crate::numbers::{LAG_ONCE_NS, LAG_TWICE_NS, MIN_LAGS, RING_MIN_OPERATIONS};
use crate::shared::rings;

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "uring-unsubmitted",
    meaning: "entries are published in an io_uring ring's submission queue, and nobody submits \
         them",
    severities: &[(Severity::Warning, "")],
    invariant: "what is published is submitted within the threshold",
    explain: include_str!("explain.md"),
    waits: Some(Waits {
        who: "entries of io_uring",
        what: "to be submitted",
        has: Has::Cause,
    }),
    detect,
};

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
    model
        .rings
        .values()
        .filter_map(|state| finding(model, state))
        .collect()
}

/// Whether entries lay there for very long, however few there were.
fn for_very_long(state: &RingState) -> bool {
    let lags = state.unsubmitted.longest.iter();
    let lags_ns: Vec<u64> = lags
        .map(|longest| longest.lag.low_ns)
        .filter(|ns| *ns >= *LAG_TWICE_NS)
        .collect();
    lags_ns.len() > 1 || lags_ns.iter().any(|ns| *ns >= *LAG_ONCE_NS)
}

fn finding(model: &Model, state: &RingState) -> Option<Finding> {
    let ring = &state.ring;
    let (low_ns, high_ns) = state.queued_ns()?;
    let many = ring.submitted >= *RING_MIN_OPERATIONS && state.unsubmitted.count >= *MIN_LAGS;
    if ring.flags & SETUP_SQPOLL != 0
        || !(many || for_very_long(state))
        || low_ns < model.threshold_ns()
    {
        return None;
    }
    let instead = rings::instead(model, state, &state.unsubmitted, |standing| {
        standing.pending
    });
    let title = format!(
        "io_uring's entries lie published for {} on average until {} submits them",
        duration_range(low_ns, high_ns),
        rings::thread(model, state.thread()),
    );
    let lay = state.unsubmitted.longest.first().map(|longest| {
        let text = format!(
            "{} times entries lay there for a threshold or longer, {} at the longest",
            state.unsubmitted.count,
            duration_range(longest.lag.low_ns, longest.lag.high_ns)
        );
        Evidence::of_ns(longest.lag.low_ns, text)
    });
    let saving = Saving::sum(SavingKind::Latency, ring.queued_high_ns, ring.submitted);
    let finding = rings::about(state, Finding::new(&DECLARATION, Severity::Warning, title))
        .confidence(instead.confidence())
        .saving(saving)
        .evidence([rings::life(state)])
        .evidence(instead.evidence)
        .evidence(lay)
        .cause(instead.cause)
        .fix(
            "submit where the entries are made, or wake the thread that submits (an eventfd that \
             it polls) with each batch",
        );
    Some(finding)
}

#[cfg(test)]
mod tests;
