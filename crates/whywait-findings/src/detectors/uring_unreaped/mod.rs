//! `uring-unreaped`: completions lie in the queue while their thread does something else.
//!
//! **Invariant.** A completion is taken within the threshold.
//!
//! **Evidence.** The completion queue's head, which the program moves when it takes a completion,
//! looked at with each batch of operations, each sample and every few milliseconds: how long
//! completions lay there at least and at most. What the thread did instead, by its sleeps and its
//! samples while some lay there.
//!
//! **Cost.** The time that completions lay there at most, summed over them. What the thread has
//! prepared and not submitted waits as long as it does something else: where the library does not
//! show since when, that is for as long as the thread was away, for each entry.
//!
//! **Guards.** Only where that is the longest part of the operations' life for certain, and a
//! threshold long in the mean, by its lower bound, without the share of it in which the thread was
//! in io_uring, submitted or waited for more completions: there it leaves nothing lying, as little
//! as while it waits for a CPU. Or, where operations wait for a peer and most of them are quick, if
//! several completions lay there for 10 ms and the thread is known to have slept elsewhere or
//! computed. With few operations, if what somebody waits for (no write, close or cancellation) lay
//! there for a tenth of a second twice, or for half a second once, while the thread is known to
//! have done something else; or if that was most of the time of a request that the thread served.
//! Nobody waits for the completion of a send, as long as there are slots: sends count only on a
//! ring that is full half of the time, and not where sends that wait for room in their socket's
//! buffer hold more of its slots.

use std::collections::BTreeSet;

use whywait_events::StackId;
use whywait_events::uring::Sum;
use whywait_model::rings::{LagWithWait, RingState, Stage};
use whywait_model::{Label, Model, StackText};
use whywait_words::{duration, duration_range};

use crate::declaration::{Declaration, Has, Waits};
use crate::facts::Facts;
use crate::finding::{Evidence, Finding, Saving, SavingKind, Severity};
use crate::numbers::{
    LAG_ONCE_NS, LAG_TWICE_NS, MIN_LAGS, MIN_SAMPLES, MOST, RING_MIN_OPERATIONS, SENDS_ONLY,
    SLOW_NS, Share,
};
use crate::shared::intervals::{Covered, Interval, in_proportion, merged, sum};
use crate::shared::rings;
use crate::shared::spinning::IO_URING_ENTER;

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "uring-unreaped",
    meaning: "completions lie in an io_uring ring's queue while the thread that should take them \
         does something else",
    severities: &[(Severity::Warning, "")],
    invariant: "a completion is taken within the threshold",
    explain: include_str!("explain.md"),
    waits: Some(Waits {
        who: "completions of io_uring",
        what: "to be taken",
        has: Has::Cause,
    }),
    detect,
};

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
    model
        .rings
        .values()
        .filter(|state| concerns(model, state))
        .map(|state| finding(model, state))
        .collect()
}

/// Whether the finding is made of a ring.
pub(crate) fn concerns(model: &Model, state: &RingState) -> bool {
    let Some((low_ns, _)) = state.unreaped_ns() else {
        return false;
    };
    if (for_very_long(model, state) || kept_requests(model, state)) && !nobody_waits(state) {
        return true;
    }
    let mostly = state.dominant() == Some(Stage::Unreaped) && {
        let (elsewhere, all) = elsewhere(model, state);
        let left_lying_ns = in_proportion(low_ns, elsewhere, all);
        left_lying_ns >= model.threshold_ns().max(state.kernel_ns().unwrap_or(0))
    };
    state.ring.completed >= *RING_MIN_OPERATIONS
        && state.unreaped.count >= *MIN_LAGS
        && (mostly || at_times(model, state))
        && (!nobody_waits(state)
            || (Share::new(state.ring.at_depth_ns, state.ring.observed_ns).exceeds(*MOST)
                && !state.held_by_sockets()))
}

/// How much of the time that completions lay there the thread was elsewhere, a part and the whole
/// of what is known of it (not 0): by its sleeps and samples within the longest lags, if most of
/// those is known, or else by all samples that saw completions lying there. All of it if they are
/// few.
fn elsewhere(model: &Model, state: &RingState) -> (u64, u64) {
    let sum = |of: &dyn Fn(&LagWithWait) -> u64| sum(state.unreaped.longest.iter().map(of));
    let lag_ns = sum(&|longest| longest.lag.low_ns);
    let waited_ns = sum(&|longest| match &longest.wait {
        Some((wait, ns)) if wait.syscall == Some(IO_URING_ENTER) => *ns,
        _ => 0,
    });
    let sampled_ns = |is: Is| sum(&|longest| sampled_ns(model, longest, is));
    let away_ns = sum(&|longest| longest.slept_ns).saturating_add(sampled_ns(is_other_work));
    let known_ns = away_ns
        .saturating_add(waited_ns)
        .saturating_add(sampled_ns(is_held_up));
    if Share::new(known_ns, lag_ns).exceeds(*MOST) {
        return (away_ns, known_ns);
    }
    let (mut other, mut held_up) = (0u64, 0u64);
    for ((_, kernel_stack), standing) in &state.stacks {
        if is_other_work(model, *kernel_stack) {
            other = other.saturating_add(standing.unreaped);
        } else if is_held_up(model, *kernel_stack) {
            held_up = held_up.saturating_add(standing.unreaped);
        }
    }
    match other.saturating_add(held_up) {
        all if all < *MIN_SAMPLES => (1, 1),
        all => (other, all),
    }
}

/// Whether several completions lay there for long while the thread slept elsewhere or computed.
fn at_times(model: &Model, state: &RingState) -> bool {
    let long: Vec<&LagWithWait> = state
        .unreaped
        .longest
        .iter()
        .filter(|longest| longest.lag.low_ns >= *SLOW_NS)
        .collect();
    let sum = |of: &dyn Fn(&LagWithWait) -> u64| sum(long.iter().map(|longest| of(longest)));
    let lag_ns = sum(&|longest| longest.lag.low_ns);
    let slept_ns = sum(&|longest| longest.slept_ns);
    let computed_ns = sum(&|longest| sampled_ns(model, longest, is_other_work));
    long.len() as u64 >= *MIN_LAGS
        && Share::new(slept_ns.saturating_add(computed_ns), lag_ns).is_at_least(*MOST)
}

/// Whether something that somebody waits for lay there for very long while the thread slept
/// elsewhere or computed, however few operations there were.
fn for_very_long(model: &Model, state: &RingState) -> bool {
    let longest = state.unreaped.longest.iter();
    let very_long = longest.filter(|longest| {
        longest.lag.low_ns >= *LAG_TWICE_NS
            && !is_done_with(longest.lag.opcode)
            && is_away(model, longest)
    });
    let lags_ns: Vec<u64> = very_long.map(|longest| longest.lag.low_ns).collect();
    lags_ns.len() > 1 || lags_ns.iter().any(|ns| *ns >= *LAG_ONCE_NS)
}

/// Whether a request that the thread served spent most of its time while something lay there and
/// the thread slept elsewhere or computed, however few operations there were.
fn kept_requests(model: &Model, state: &RingState) -> bool {
    let longest = state.unreaped.longest.iter();
    let mut lags: Vec<(u32, Interval)> = longest
        .filter(|longest| longest.lag.low_ns >= *SLOW_NS && is_away(model, longest))
        .map(|longest| {
            let lag = &longest.lag;
            (
                lag.tid,
                (lag.from_ns, lag.from_ns.saturating_add(lag.low_ns)),
            )
        })
        .collect();
    lags.sort_unstable();
    let tids: BTreeSet<u32> = lags.iter().map(|(tid, _)| *tid).collect();
    tids.into_iter().any(|tid| {
        let of_thread = lags.iter().filter(|(its, _)| *its == tid);
        let lags = Covered::new(merged(of_thread.map(|(_, lag)| *lag).collect()));
        let requests = model
            .requests()
            .filter(|one| one.recv_tid == tid && one.counts());
        requests
            .filter(|request| request.age_ns() >= *SLOW_NS)
            .any(|request| {
                let kept_ns = lags.within((request.ready_ns, request.end_ns()));
                Share::new(kept_ns, request.age_ns()).is_at_least(*MOST)
            })
    })
}

/// Whether the thread slept elsewhere or computed for most of a lag.
fn is_away(model: &Model, longest: &LagWithWait) -> bool {
    let away_ns = sampled_ns(model, longest, is_other_work).saturating_add(longest.slept_ns);
    Share::new(away_ns, longest.lag.low_ns).is_at_least(*MOST)
}

/// Whether a program may be done with an operation as soon as it is submitted: WRITEV, FSYNC,
/// WRITE_FIXED, POLL_REMOVE, SYNC_FILE_RANGE, SENDMSG, timers, ASYNC_CANCEL, FALLOCATE, CLOSE,
/// FILES_UPDATE, WRITE, advice, SEND, EPOLL_CTL, buffers, SHUTDOWN, UNLINKAT, MSG_RING and so on.
fn is_done_with(opcode: u32) -> bool {
    matches!(
        opcode,
        0 | 2 | 3 | 5 | 7 | 8 | 9 | 11 | 12 | 14 | 15 | 17 | 19 | 20 | 23
            ..=26 | 29 | 31 | 32 | 34 | 36 | 40 | 47 | 48 | 52 | 61
    )
}

/// What a sample's kernel stack shows.
type Is = fn(&Model, StackId) -> bool;

/// For how long of a lag samples show the thread at that. One that was kept from its CPU for that
/// long has no samples, but where the host took the CPU in pieces, it has as many as ever, each for
/// less of its own time.
fn sampled_ns(model: &Model, longest: &LagWithWait, is: Is) -> u64 {
    let lag = &longest.lag;
    let end_ns = lag.from_ns.saturating_add(lag.low_ns);
    let thread = model.threads.get(&lag.tid);
    let kept_ns = thread.map_or(0, |thread| thread.preempted_ns(lag.from_ns, end_ns));
    let samples = longest
        .samples
        .iter()
        .filter(|(kernel_stack, _)| is(model, **kernel_stack));
    let sampled_ns =
        sum(samples.map(|(_, samples)| *samples)).saturating_mul(rings::sample_ns(model));
    sampled_ns.min(lag.low_ns.saturating_sub(kept_ns))
}

/// Whether a sample with such a kernel stack, 0: in user mode, shows the thread at something else
/// than io_uring. (Of a stack without names nothing is known.)
fn is_other_work(model: &Model, kernel_stack: StackId) -> bool {
    let named = |stack: &StackText| stack.labels.iter().any(|label| label.named);
    kernel_stack == 0
        || (model.stacks.get(kernel_stack).is_some_and(named) && !is_held_up(model, kernel_stack))
}

/// … or held up while it submits or looks for completions (by the kernel's workers, for long if the
/// host took a CPU of theirs away; by a device whose requests take the kernel as long to start as
/// to do), or by an interrupt.
fn is_held_up(model: &Model, kernel_stack: StackId) -> bool {
    let in_ring = |stack: &StackText| {
        let enters = |label: &Label| label.name.ends_with("_sys_io_uring_enter");
        stack.labels.iter().any(enters)
    };
    model.stacks.get(kernel_stack).is_some_and(in_ring) || model.in_interrupt(kernel_stack)
}

/// Whether nearly all operations are such as nobody waits for.
fn nobody_waits(state: &RingState) -> bool {
    let completed = |of: &dyn Fn(&Sum) -> bool| {
        let sums = state.sums.iter().filter(|sum| of(sum));
        sum(sums.map(|sum| sum.completed))
    };
    let sends = completed(&|sum| matches!(sum.opcode, 9 | 19 | 26 | 34 | 47 | 48));
    Share::new(sends, completed(&|_| true)).is_at_least(*SENDS_ONLY)
}

fn finding(model: &Model, state: &RingState) -> Finding {
    let ring = &state.ring;
    let instead = rings::instead(model, state, &state.unreaped, |standing| standing.unreaped);
    let held_back_ns = state.held_back_ns();
    let held_back = (held_back_ns > 0).then(|| {
        let text = format!(
            "entries that were prepared before or while it did that, and submitted after, may \
             have lain there too, {} at most altogether: a library that publishes an entry only \
             as it submits it does not show since when. It is part of the bound, which may be far \
             too large for that",
            duration(held_back_ns)
        );
        Evidence::of_ns(held_back_ns, text)
    });
    let at_once = format!(
        "up to {} completions lay there at once, in a queue of {}",
        ring.max_unreaped, ring.cq_entries
    );
    let saved_ns = ring.unreaped_high_ns.saturating_add(held_back_ns);
    let finding = Finding::new(&DECLARATION, Severity::Warning, title(model, state));
    rings::about(state, finding)
        .confidence(instead.confidence())
        .saving(Saving::sum(SavingKind::Latency, saved_ns, ring.completed))
        .evidence([rings::life(state)])
        .evidence(instead.evidence)
        .evidence(rings::sockets(state))
        .evidence(held_back)
        .evidence([Evidence::new(at_once)])
        .cause(instead.cause)
        .fix(
            "take completions between pieces of the other work, or give that work to another \
             thread; a thread that must sleep elsewhere can be woken by an eventfd registered with \
             the ring",
        )
}

fn title(model: &Model, state: &RingState) -> String {
    let thread = rings::thread(model, state.thread());
    let (low_ns, high_ns) = state.unreaped_ns().unwrap_or_default();
    if low_ns >= model.threshold_ns() {
        let took = state.kernel_ns().map_or_else(String::new, |ns| {
            format!(", when the operations took {}", duration(ns))
        });
        return format!(
            "{thread} leaves io_uring's completions lying for {} on average{took}",
            duration_range(low_ns, high_ns),
        );
    }
    let longest = state.unreaped.longest.first();
    let longest = longest.map_or_else(String::new, |longest| {
        duration_range(longest.lag.low_ns, longest.lag.high_ns)
    });
    format!(
        "{thread} left io_uring's completions lying {} times, for {longest} at the longest",
        state.unreaped.count,
    )
}

#[cfg(test)]
mod tests;
