//! `uring-idle-sqpoll`: the kernel's poller of a submission queue burns a core for little, or
//! sleeps when it is needed.
//!
//! **Invariant.** A poller is worth its core, and what is published is submitted while it runs;
//! when it has gone to sleep (it sets a flag), the program wakes it.
//!
//! **Evidence.** Samples of the poller's thread, against the operations that it submitted. And the
//! time in which entries were published while the flag was set.
//!
//! **Cost.** The poller's CPU time (burning); the time that entries lay there at most (asleep).
//!
//! **Guards.** Burning: a fifth of a core or more, and more than 20 us of it for each operation,
//! which is what calls to submit them would cost many times over. Asleep: for a threshold or
//! longer, several times; or for a tenth of a second altogether, and a hundredth of the time.

use whywait_events::uring::SETUP_SQPOLL;
use whywait_model::Model;
use whywait_model::rings::RingState;
use whywait_words::{counted, duration, duration_range, percent};

use crate::declaration::Declaration;
use crate::facts::Facts;
use crate::finding::{Cause, Evidence, Finding, Saving, SavingKind, Severity};
use crate::numbers::{
    MIN_LAGS, MOST, POLLER_ASLEEP, POLLER_BURNT, POLLER_EXPENSIVE_NS, POLLER_LONG_NS,
    POLLER_MIN_SAMPLES, Share,
};
use crate::shared::rings;

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "uring-idle-sqpoll",
    meaning: "the kernel's poller of a submission queue (IORING_SETUP_SQPOLL) burns a core for \
         little, or sleeps when it is needed",
    severities: &[(Severity::Warning, "")],
    invariant: "the poller is worth its core, and what is published is submitted while it sleeps \
         too",
    explain: include_str!("explain.md"),
    waits: None,
    detect,
};

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
    model
        .rings
        .values()
        .filter(|state| state.ring.flags & SETUP_SQPOLL != 0)
        .filter_map(|state| asleep(model, state).or_else(|| burning(model, state)))
        .collect()
}

fn burning(model: &Model, state: &RingState) -> Option<Finding> {
    let ring = &state.ring;
    let burnt_ns = state.poller_samples.saturating_mul(rings::sample_ns(model));
    let burnt = Share::new(burnt_ns, ring.observed_ns);
    let each_ns = burnt_ns / ring.submitted.max(1);
    if state.poller_samples < *POLLER_MIN_SAMPLES
        || burnt.is_below(*POLLER_BURNT)
        || each_ns < *POLLER_EXPENSIVE_NS
    {
        return None;
    }
    let title = format!(
        "io_uring's poller burns {} of a core to submit {}, {} of CPU for each",
        percent(burnt_ns, ring.observed_ns),
        counted(ring.submitted, "operation"),
        duration(each_ns)
    );
    let seen = format!(
        "{} was seen on a CPU {}",
        rings::thread(model, ring.sqpoll_tid),
        counted(state.poller_samples, "time")
    );
    let doing = "polling in the kernel".to_owned();
    let finding = rings::about(state, Finding::new(&DECLARATION, Severity::Warning, title))
        .saving(Saving::sum(SavingKind::Cpu, burnt_ns, ring.submitted))
        .evidence([Evidence::of_ns(burnt_ns, seen), rings::life(state)])
        .cause(Cause::new(model, ring.sqpoll_tid, doing, 0))
        .fix(
            "make the ring without IORING_SETUP_SQPOLL, or with a short sq_thread_idle, after \
             which the poller sleeps",
        );
    Some(finding)
}

/// Whether entries lay there again and again while the poller slept.
fn sleeps_often(model: &Model, state: &RingState) -> bool {
    let (ring, lags) = (&state.ring, &state.unsubmitted);
    lags.count >= *MIN_LAGS
        && ring.asleep_ns >= lags.count.saturating_mul(model.threshold_ns())
        && Share::new(ring.asleep_ns, lags.low_ns).is_at_least(*MOST)
}

/// Whether they lay there for long, were it only once, and for good.
fn sleeps_long(state: &RingState) -> bool {
    let ring = &state.ring;
    ring.asleep_ns >= *POLLER_LONG_NS
        && Share::new(ring.asleep_ns, ring.observed_ns).is_at_least(*POLLER_ASLEEP)
}

fn asleep(model: &Model, state: &RingState) -> Option<Finding> {
    let ring = &state.ring;
    if !sleeps_often(model, state) && !sleeps_long(state) {
        return None;
    }
    let instead = rings::instead(model, state, &state.unsubmitted, |standing| {
        standing.pending
    });
    let (title, lay) = match state.queued_ns() {
        Some((low_ns, high_ns)) if state.unsubmitted.count > 0 => (
            format!(
                "io_uring's poller sleeps while entries lie published for {} on average",
                duration_range(low_ns, high_ns)
            ),
            format!(
                "entries were published {} while the poller slept and asked to be woken, {} \
                 altogether",
                counted(state.unsubmitted.count, "time"),
                duration(ring.asleep_ns)
            ),
        ),
        _ => (
            format!(
                "io_uring's poller sleeps, and nobody wakes it for the entries that lay published \
                 for {}",
                duration(ring.asleep_ns)
            ),
            format!(
                "the poller slept and asked to be woken; {} had been submitted",
                counted(ring.submitted, "operation")
            ),
        ),
    };
    let saving = Saving::sum(SavingKind::Latency, ring.queued_high_ns, ring.submitted);
    let finding = rings::about(state, Finding::new(&DECLARATION, Severity::Warning, title))
        .saving(saving)
        .evidence([Evidence::of_ns(ring.asleep_ns, lay)])
        .evidence((ring.submitted > 0).then(|| rings::life(state)))
        .cause(instead.cause)
        .fix(
            "look at IORING_SQ_NEED_WAKEUP after publishing, and enter with \
             IORING_ENTER_SQ_WAKEUP when it is set (liburing's io_uring_submit does), or give the \
             poller a longer sq_thread_idle",
        );
    Some(finding)
}

#[cfg(test)]
mod tests;
