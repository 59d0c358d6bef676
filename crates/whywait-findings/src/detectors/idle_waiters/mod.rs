//! `idle-waiters`: large waits that cost nothing: the threads wait for work, or for a result that
//! is being made.
//!
//! **Invariant.** None broke: it says which large waits are harmless, and why. A table of wait sums
//! cannot tell them from contention, and the largest sums are as a rule the most harmless.
//!
//! **Evidence.** Sleeps on futexes that are not classed as waits for a lock or for a time, and that
//! cover at least half of the time in which slow requests were under way. What such a thread would
//! do if it did not wait is nothing: it has no work, or the work that it needs is being done
//! elsewhere, and that is what the critical path shows. "Not for a lock" is said only if that is
//! known of all: by the class (idle, result), or because nobody ever waits for a lock there (a
//! join, a channel). A thread at a condition variable or a park of which nothing else is known may
//! wait for a lock that is built of it: what it waits for does not show.
//!
//! **Cost.** None: saving 0.
//!
//! **Guards.** Only where there are slow requests to explain ([`SLOW_NS`]): idle threads are no
//! news.

use std::collections::BTreeSet;

use whywait_events::{Wait, WakeContext};
use whywait_model::waits::Primitive;
use whywait_model::{Model, SystemCall, Thread, WaitClass, system_call};
use whywait_words::{counted, counted_as, duration, list};

use crate::declaration::Declaration;
use crate::facts::Facts;
use crate::finding::{Confidence, Evidence, Finding, Severity};
use crate::numbers::{IDLE_NAMED, MOST, SLOW_NS, Share};
use crate::shared::intervals::{Interval, merged, overlap_ns, sum};
use crate::shared::threads::named;

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "idle-waiters",
    meaning: "large waits cost nothing: the threads wait for work, or for a result that is being \
         made",
    severities: &[(Severity::Note, "")],
    invariant: "none broke: the finding says which large waits are harmless, and why",
    explain: include_str!("explain.md"),
    waits: None,
    detect,
};

const LEAVE: &str = "leave them as they are; what they wait for is on the critical path of the \
                     slow requests (whywait report --request ID)";
const LOOK: &str = "leave those as they are of which it is known; see where the others sleep, and \
                    who wakes them (whywait report --waits), and what slow requests waited for \
                    (whywait report --request ID)";

/// A thread that waited for most of the time.
struct Waiter<'a> {
    tid: u32,
    waited_ns: u64,
    class: WaitClass,
    /// Its longest wait.
    wait: &'a Wait,
    /// What ended that is on the critical path of a slow request.
    by_the_path: bool,
    /// Nobody waits for a lock where it did.
    at_no_lock: bool,
}

impl Waiter<'_> {
    /// Whether it is known to have waited for no lock.
    const fn is_known(&self) -> bool {
        matches!(self.class, WaitClass::Idle | WaitClass::Result) || self.at_no_lock
    }
}

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
    let windows = windows(model);
    let window_ns = sum(windows.iter().map(|(from, to)| to.saturating_sub(*from)));
    if window_ns == 0 {
        return Vec::new();
    }
    let on_paths = on_paths(model);
    let threads = model.threads.values();
    let mut waiters: Vec<Waiter<'_>> = threads
        .filter_map(|thread| waiter(model, thread, &windows, window_ns, &on_paths))
        .collect();
    if waiters.is_empty() {
        return Vec::new();
    }
    waiters.sort_by_key(|waiter| {
        (
            rank(waiter),
            std::cmp::Reverse(waiter.waited_ns),
            waiter.tid,
        )
    });
    vec![finding(model, &waiters, window_ns)]
}

/// A thread that waited harmlessly for half of the time in the windows, or more.
fn waiter<'a>(
    model: &Model,
    thread: &'a Thread,
    windows: &[Interval],
    window_ns: u64,
    on_paths: &BTreeSet<u32>,
) -> Option<Waiter<'a>> {
    let mut waited_ns = 0u64;
    let mut longest: Option<(u64, &Wait)> = None;
    for window in windows {
        for wait in thread.timeline.overlapping(window.0, window.1) {
            if !is_harmless(model, wait) {
                continue;
            }
            let until = wait.over_ns().unwrap_or(window.1);
            let ns = overlap_ns((wait.out_ns, until), *window);
            waited_ns = waited_ns.saturating_add(ns);
            if longest.is_none_or(|(most, _)| ns > most) {
                longest = Some((ns, wait));
            }
        }
    }
    let (_, wait) = longest?;
    Share::new(waited_ns, window_ns)
        .is_at_least(*MOST)
        .then(|| Waiter {
            by_the_path: wait.waker_tid != 0 && on_paths.contains(&wait.waker_tid),
            tid: thread.tid,
            waited_ns,
            class: model.class_of(wait).unwrap_or(WaitClass::Unknown),
            at_no_lock: model
                .primitive_of(wait)
                .is_some_and(Primitive::is_never_lock),
            wait,
        })
}

/// What waits for an answer is asked about first.
fn rank(waiter: &Waiter<'_>) -> u32 {
    match waiter.class {
        WaitClass::Result => 0,
        _ if !waiter.is_known() => 1,
        WaitClass::Unknown => 2,
        _ => 3,
    }
}

/// The threads on the critical paths of slow requests.
fn on_paths(model: &Model) -> BTreeSet<u32> {
    let slow = model
        .requests()
        .filter(|request| request.latency_ns().is_some_and(|ns| ns >= *SLOW_NS));
    slow.flat_map(|request| request.path().steps)
        .map(|step| step.tid)
        .collect()
}

fn is_harmless(model: &Model, wait: &Wait) -> bool {
    system_call(wait) == SystemCall::Futex
        && wait.wake_context != WakeContext::Exit
        && match model.class_of(wait) {
            Some(WaitClass::Idle | WaitClass::Result) => true,
            // What it waits at is no lock itself, whatever else it is.
            Some(WaitClass::Unknown) => model
                .primitive_of(wait)
                .is_some_and(|primitive| !primitive.is_lock()),
            _ => false,
        }
}

/// When slow requests were under way.
fn windows(model: &Model) -> Vec<Interval> {
    let under_way = model
        .requests()
        .filter_map(|request| Some((request.ready_ns, request.answered_ns()?)))
        .filter(|(from, to)| to.saturating_sub(*from) >= *SLOW_NS);
    merged(under_way.collect())
}

fn finding(model: &Model, waiters: &[Waiter<'_>], window_ns: u64) -> Finding {
    let total_ns = sum(waiters.iter().map(|waiter| waiter.waited_ns));
    let tids: Vec<u32> = waiters.iter().map(|waiter| waiter.tid).collect();
    let shown = waiters.iter().take(*IDLE_NAMED);
    let all_known = waiters.iter().all(Waiter::is_known);
    let alone = if all_known {
        ", and no slow request would have been answered earlier had they not"
    } else {
        ""
    };
    let under_way = format!(
        "slow requests were under way for {}; these threads waited for {} of that together{alone}",
        duration(window_ns),
        duration(total_ns)
    );
    let each = shown.map(|waiter| {
        let text = format!("{}: {}", named(model, waiter.tid), why(model, waiter));
        Evidence::of_ns(waiter.waited_ns, text)
    });
    let more = waiters.len().saturating_sub(*IDLE_NAMED);
    let more = (more > 0).then(|| Evidence::new(format!("and {}", counted(more, "more thread"))));
    let confidence = if all_known {
        Confidence::High
    } else {
        Confidence::Medium
    };
    Finding::new(
        &DECLARATION,
        Severity::Note,
        title(model, waiters, total_ns),
    )
    .confidence(confidence)
    .about("threads", tids)
    .about("waited_ns", total_ns)
    .evidence([Evidence::of_ns(total_ns, under_way)])
    .evidence(each)
    .evidence(more)
    .fix(if all_known { LEAVE } else { LOOK })
}

/// Of those of which it is not known what they wait for it is not said that they wait for no lock.
fn title(model: &Model, waiters: &[Waiter<'_>], total_ns: u64) -> String {
    let shown = &waiters[..waiters.len().min(*IDLE_NAMED)];
    let names = |known: bool| -> Vec<String> {
        let some = shown.iter().filter(|waiter| waiter.is_known() == known);
        some.map(|waiter| named(model, waiter.tid)).collect()
    };
    let wait = |n: usize| if n == 1 { "waits" } else { "wait" };
    let (known, unknown) = (names(true), names(false));
    let total = duration(total_ns);
    let known_ones = || {
        let what_for = what_for(shown);
        format!("{} {} for {what_for}", list(&known), wait(known.len()))
    };
    let (large, are) = match waiters.len() {
        1 => ("a large wait", "a large wait is"),
        _ => ("large waits", "large waits are"),
    };
    if waiters.iter().all(Waiter::is_known) {
        return format!(
            "{are} harmless, {total} in all: {}, not for a lock",
            known_ones()
        );
    }
    let does_not_show = match unknown.len() {
        // They are among those that are not named.
        0 => {
            let more = waiters.iter().filter(|waiter| !waiter.is_known()).count();
            let more_wait = counted_as(more, "more thread waits", "more threads wait");
            format!("what {more_wait} for does not show")
        }
        n => format!("what {} {} for does not show", list(&unknown), wait(n)),
    };
    match known.len() {
        0 => format!("{large}, {total} in all: {does_not_show}"),
        _ => format!("{large}, {total} in all: {}; {does_not_show}", known_ones()),
    }
}

/// What those of whom it is known wait for, in a word or two.
fn what_for(waiters: &[Waiter<'_>]) -> &'static str {
    let known = || waiters.iter().filter(|waiter| waiter.is_known());
    let some = |class| known().any(|waiter| waiter.class == class);
    let all = |class| known().all(|waiter| waiter.class == class);
    if all(WaitClass::Result) {
        "the result"
    } else if all(WaitClass::Idle) {
        "work"
    } else if some(WaitClass::Result) && some(WaitClass::Idle) {
        "the result or for work"
    } else if some(WaitClass::Result) {
        "the result or a sign to go on"
    } else {
        "work or a sign to go on"
    }
}

fn why(model: &Model, waiter: &Waiter<'_>) -> String {
    let wait = waiter.wait;
    let place = model
        .stacks
        .telling(wait.user_stack)
        .map_or_else(String::new, |function| format!(" in {function}"));
    let by =
        if wait.wake_context == WakeContext::Task && model.threads.contains_key(&wait.waker_tid) {
            format!(", until {} woke it", named(model, wait.waker_tid))
        } else {
            String::new()
        };
    let at = model
        .primitive_of(wait)
        .map_or("a futex", |primitive| primitive.name());
    let what = match waiter.class {
        WaitClass::Result => {
            "waits for the result: it has a request open that another thread works on".to_owned()
        }
        WaitClass::Idle => "waits for work: nothing was kept waiting by it".to_owned(),
        _ if waiter.by_the_path => {
            format!("waits at a {at} for a thread on the slow requests' critical paths to wake it")
        }
        _ if waiter.at_no_lock => format!("waits at a {at}, which is no lock"),
        _ => format!("waits at a {at}; what for does not show"),
    };
    format!("{what}{place}{by}; {}", duration(waiter.waited_ns))
}

#[cfg(test)]
mod tests;
