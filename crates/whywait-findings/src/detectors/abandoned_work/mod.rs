//! `abandoned-work`: requests were worked on for clients that had gone.
//!
//! **Invariant.** Nobody works for a client that will not read the response.
//!
//! **Evidence.** Connections that the client reset before anything of the response was written, or
//! closed before and reset when the response came, with none of it acknowledged; and that the
//! target wrote a response, or tried. A client that has closed one direction only and still reads
//! acknowledges what it gets.
//!
//! **Cost.** CPU time from when the client had gone until the response was written, of the thread
//! that read and wrote. What that thread did for others meanwhile is in it. The lower bound has
//! only those of which the thread served no other connection meanwhile, in processes whose requests
//! stay on their threads. What moved between threads counts in the upper bound as one CPU until it
//! ended, and all of it together as no more than the target has used.
//!
//! **Guards.** At least [`MIN_RESPONSES`] on a port, [`ABANDONED_NS`] each as a rule. Where other
//! threads wrote than those that read, nothing shows that they were worked on, and not just kept: a
//! note if it is so of all of them, and less confidence if of some.

use std::collections::BTreeMap;

use whywait_events::Abandoned;
use whywait_model::Model;
use whywait_model::requests::abandoned::{Wasted, after_ns};
use whywait_words::{counted, duration, duration_range, percent};

use crate::declaration::Declaration;
use crate::facts::Facts;
use crate::finding::{Confidence, Evidence, Finding, Saving, SavingKind, Severity};
use crate::numbers::{
    ABANDONED_CPU_ERROR, ABANDONED_CPU_WARNING, ABANDONED_NS, ABANDONED_TOGETHER,
    ABANDONED_TOGETHER_NS, ABANDONED_WARNING, MIN_RESPONSES, Share,
};
use crate::shared::tails::{median, of_all};
use crate::shared::threads::named;

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "abandoned-work",
    meaning: "requests were worked on for clients that had gone",
    severities: &[
        (
            Severity::Error,
            "when that took a fifth of the target's CPU time or more",
        ),
        (
            Severity::Warning,
            "when it took a fiftieth of the target's CPU time or more, or was one request of a \
             hundred or more whose clients did not leave all at once",
        ),
        (Severity::Note, "otherwise"),
    ],
    invariant: "nobody works for a client that will not read the response",
    explain: include_str!("explain.md"),
    waits: None,
    detect,
};

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
    let mut by_port: BTreeMap<u16, Vec<&Abandoned>> = BTreeMap::new();
    for row in model.abandoned.iter() {
        by_port.entry(row.local_port).or_default().push(row);
    }
    by_port
        .into_iter()
        .filter_map(|(port, rows)| finding(model, port, &rows))
        .collect()
}

fn severity(model: &Model, wasted: &Wasted, rows: &[&Abandoned]) -> Severity {
    let requests = rows.len() as u64;
    let all_ns = model.cpu_summary().map_or(0, |cpu| cpu.total_ns);
    if wasted.known == 0 {
        return Severity::Note;
    }
    let wasted = |least: Share| {
        let share = Share::new(wasted.at_least_ns, all_ns);
        all_ns > 0 && wasted.at_least_ns > 0 && share.is_at_least(least)
    };
    let of_all = Share::new(requests, model.requests_count());
    if wasted(*ABANDONED_CPU_ERROR) {
        Severity::Error
    } else if wasted(*ABANDONED_CPU_WARNING)
        || (of_all.is_at_least(*ABANDONED_WARNING)
            && !(left_at_once(rows) && of_all.is_below(*ABANDONED_TOGETHER)))
    {
        Severity::Warning
    } else {
        Severity::Note
    }
}

fn left_at_once(rows: &[&Abandoned]) -> bool {
    let gone = || rows.iter().map(|row| row.gone_ns);
    let (first, last) = (gone().min(), gone().max());
    first
        .zip(last)
        .is_some_and(|(first, last)| last - first < *ABANDONED_TOGETHER_NS)
}

fn finding(model: &Model, port: u16, rows: &[&Abandoned]) -> Option<Finding> {
    let each: Vec<u64> = rows.iter().map(|row| after_ns(row)).collect();
    let median_ns = median(each.clone())?;
    if rows.len() < *MIN_RESPONSES || median_ns < *ABANDONED_NS {
        return None;
    }
    let requests = rows.len() as u64;
    let (wasted, elsewhere) = bounded(model, Wasted::of(rows), requests);
    let all = model.requests_count().saturating_add(requests);
    let who = format!("{}{}", counted(rows.len(), "request"), of_all(all));
    let long = duration(median_ns);
    let title = if wasted.known == 0 {
        format!(
            "{who} were answered {long} (median) after their clients had gone: whether anything \
             worked for them does not show"
        )
    } else {
        format!(
            "{who} were worked on for clients that had gone, for {long} each (median): {}",
            cpu(model, &wasted)
        )
    };
    let unread = rows.iter().filter(|row| row.gone_ns <= row.recv_ns).count();
    let before = (unread > 0).then(|| {
        Evidence::new(format!(
            "of {} the client had gone before the request was even read: it queued for too long",
            counted(unread, "request"),
        ))
    });
    let fins = rows.iter().filter(|row| row.fin).count();
    let how = format!(
        "{} reset their connection while they waited, {} closed it and reset it when the response \
         came",
        rows.len() - fins,
        fins,
    );
    let longest = rows.iter().max_by_key(|row| after_ns(row))?;
    let text = format!(
        "the longest: {} read it {} after it came, the client left after {}, and {} wrote to it {} \
         after that",
        named(model, longest.recv_tid),
        duration(longest.recv_ns.saturating_sub(longest.ready_ns)),
        duration(longest.gone_ns.saturating_sub(longest.ready_ns)),
        named(model, longest.send_tid),
        duration(longest.ended_ns.saturating_sub(longest.gone_ns)),
    );
    let saving = || Saving::sum(SavingKind::Cpu, wasted.at_most_ns, requests);
    let (saving, confidence) = match wasted.known {
        0 => (Saving::none(), Confidence::Low),
        known if known < requests => (saving(), Confidence::Medium),
        _ => (saving(), Confidence::High),
    };
    Some(
        Finding::new(&DECLARATION, severity(model, &wasted, rows), title)
            .about_known("port", (port != 0).then_some(port))
            .about("pid", longest.tgid)
            .about("requests", requests)
            .about("cpu_at_least_ns", wasted.at_least_ns)
            .about("cpu_at_most_ns", wasted.at_most_ns)
            .confidence(confidence)
            .saving(saving)
            .evidence(before)
            .evidence([Evidence::of_ns(after_ns(longest), text), Evidence::new(how)])
            .evidence(elsewhere)
            .fix(
                "give up when the client has gone: look at the connection before work begins and \
                 between its steps (Go: the request's context; node: the 'close' event; Starlette: \
                 is_disconnected; elsewhere poll for POLLRDHUP), and drop what has queued for \
                 longer than clients wait; a client that tries again adds to the same queue",
            ),
    )
}

/// With what may have been worked for requests that moved between threads: each on one CPU at a
/// time until it ended, and all of them no more than the target has used.
fn bounded(model: &Model, wasted: Wasted, requests: u64) -> (Wasted, Option<Evidence>) {
    if wasted.known == 0 || wasted.known == requests {
        return (wasted, None);
    }
    let all_ns = model.cpu_summary().map_or(u64::MAX, |cpu| cpu.total_ns);
    let at_most_ns = wasted.at_most_ns.saturating_add(wasted.elsewhere_ns);
    let text = format!(
        "{} of them moved between threads, and took {} in all: for how long anything worked for \
         them does not show, and the bound has as much of it as the target has used CPU time",
        requests - wasted.known,
        duration(wasted.elsewhere_ns),
    );
    let wasted = Wasted {
        at_most_ns: at_most_ns.min(all_ns.max(wasted.at_most_ns)),
        ..wasted
    };
    (wasted, Some(Evidence::of_ns(wasted.elsewhere_ns, text)))
}

/// `2.10 s of CPU time, 48 % of all`.
fn cpu(model: &Model, wasted: &Wasted) -> String {
    if wasted.at_least_ns == 0 {
        return format!("at most {} of CPU time", duration(wasted.at_most_ns));
    }
    let range = duration_range(wasted.at_least_ns, wasted.at_most_ns);
    let range = format!("{range} of CPU time");
    match model.cpu_summary().map_or(0, |cpu| cpu.total_ns) {
        0 => range,
        all => format!(
            "{range}, {} of the target's at least",
            percent(wasted.at_least_ns, all)
        ),
    }
}

#[cfg(test)]
mod tests;
