//! `thundering-herd`: one event wakes several threads, and most go back to sleep with nothing.
//!
//! **Invariant.** One event wakes one thread.
//!
//! **Evidence.** Counted in the kernel for each listener: the connections that woke threads out of
//! their polls, how many threads each of them woke, and how many of these went back to sleep in a
//! poll without having read or written a byte.
//!
//! **Cost.** The CPU time from such a wake to the next sleep, of all that found nothing; or of as
//! many of them as were wasted: a thread that accepts and hands over reads and writes nothing
//! either.
//!
//! **Guards.** A wake is wasted only if it was one beyond the first that its connection made, and
//! if the thread went back to sleep with nothing: the smaller of both counts. Less than
//! [`MIN_WASTED`] a second, or less than half a wake for each connection, is not told.

use std::collections::BTreeMap;

use serde_json::{Map, json};
use whywait_model::Model;

use crate::declaration::{Code, Declaration};
use crate::finding::{Confidence, Evidence, Finding, Saving, SavingKind, Severity};
use crate::shared::spinning::rate;
use crate::shared::text::{count, duration};

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "thundering-herd",
    meaning: "one event wakes several threads or processes, and most go back to sleep with nothing",
    severities: &[
        (Severity::Warning, "from 2 % of a CPU on"),
        (Severity::Note, "otherwise"),
    ],
    invariant: "one event wakes one thread",
    explain: include_str!("explain.md"),
    detect,
};

/// Fewer wasted wake-ups say nothing, altogether and a second.
const MIN_WAKES: u64 = 50;
const MIN_WASTED: u64 = 100;
/// From this share of a CPU on, in thousandths, it is a warning.
const WARNING_PERMILLE: u64 = 20;

#[derive(Default)]
struct Herd {
    connections: u64,
    extra_wakes: u64,
    most_woken: u64,
    dry_wakes: u64,
    dry_cpu_ns: u64,
}

fn detect(model: &Model) -> Vec<Finding> {
    let mut herds: BTreeMap<u16, Herd> = BTreeMap::new();
    for (name, value) in &model.counters {
        let Some((port, name)) = name
            .strip_prefix("herd.")
            .and_then(|rest| rest.split_once('.'))
        else {
            continue;
        };
        let Ok(port) = port.parse() else {
            continue;
        };
        let herd = herds.entry(port).or_default();
        match name {
            "connections" => herd.connections = *value,
            "extra-wakes" => herd.extra_wakes = *value,
            "most-woken" => herd.most_woken = *value,
            "dry-wakes" => herd.dry_wakes = *value,
            "dry-cpu-ns" => herd.dry_cpu_ns = *value,
            _ => {}
        }
    }
    herds
        .into_iter()
        .filter_map(|(port, herd)| finding(model, port, &herd))
        .collect()
}

fn finding(model: &Model, port: u16, herd: &Herd) -> Option<Finding> {
    let wasted = herd.extra_wakes.min(herd.dry_wakes);
    let duration_ns = model.target().duration_ns.max(1);
    let per_second = wasted as f64 / (duration_ns as f64 / 1e9);
    if herd.most_woken < 2
        || wasted < MIN_WAKES
        || per_second < MIN_WASTED as f64
        || wasted < herd.connections / 2
    {
        return None;
    }
    let wasted_ns = (u128::from(herd.dry_cpu_ns) * u128::from(wasted)
        / u128::from(herd.dry_wakes.max(1))) as u64;
    let permille =
        (u128::from(wasted_ns) * 1000 / u128::from(duration_ns)).min(u128::from(u64::MAX)) as u64;
    let used = model
        .cpu
        .ports
        .iter()
        .filter(|((_, of), _)| *of == i32::from(port));
    let pids: Vec<u32> = used.clone().map(|((tgid, _), _)| *tgid).collect();
    let requests: u64 = used
        .map(|(_, used)| used.requests)
        .fold(0, u64::saturating_add);
    let mut subject = Map::new();
    subject.insert("port".to_owned(), json!(port));
    subject.insert("pids".to_owned(), json!(pids));
    subject.insert("connections".to_owned(), json!(herd.connections));
    subject.insert("most_woken".to_owned(), json!(herd.most_woken));
    subject.insert("wasted".to_owned(), json!(wasted));
    subject.insert("wasted_per_second".to_owned(), json!(per_second.round()));
    subject.insert("cpu_permille".to_owned(), json!(permille));
    let each = wasted as f64 / herd.connections.max(1) as f64;
    Some(Finding {
        code: Code::of(&DECLARATION),
        severity: if permille >= WARNING_PERMILLE {
            Severity::Warning
        } else {
            Severity::Note
        },
        confidence: Confidence::High,
        title: format!(
            "a connection at port {port} wakes up to {} and all but one find nothing: {} wake-ups a second wasted",
            count(herd.most_woken as usize, "thread", "threads"),
            rate(per_second)
        ),
        subject,
        saving: Saving {
            kind: SavingKind::Cpu,
            at_most_ns: wasted_ns,
            requests,
            each_at_most_ns: Vec::new(),
        },
        evidence: vec![
            Evidence {
                text: format!(
                    "{} woke {} beyond the first ({each:.1} each); at most {} went back to sleep with nothing",
                    count(herd.connections as usize, "connection", "connections"),
                    count(herd.extra_wakes as usize, "thread", "threads"),
                    wasted
                ),
                ns: None,
            },
            Evidence {
                text: format!(
                    "the wasted wake-ups took {} of CPU time",
                    duration(wasted_ns)
                ),
                ns: Some(wasted_ns),
            },
        ],
        cause: None,
        fix: "register the listener with EPOLLEXCLUSIVE in each process (Linux 4.5), or let one thread accept".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use whywait_model::script::Script;

    use super::*;

    fn findings(connections: u64, extra: u64, dry: u64) -> Vec<Finding> {
        let mut script = Script::new();
        for (name, value) in [
            ("connections", connections),
            ("extra-wakes", extra),
            ("most-woken", 8),
            ("dry-wakes", dry),
            ("dry-cpu-ns", dry * 10_000),
        ] {
            script.counter(&format!("herd.80.{name}"), value);
        }
        script.ends(1000);
        detect(&script.model())
    }

    #[test]
    fn a_connection_that_wakes_all_workers_is_a_herd() {
        let found = &findings(800, 5600, 5800)[0];
        assert_eq!(
            found.title,
            "a connection at port 80 wakes up to 8 threads and all but one find nothing: 5,600 wake-ups a second wasted"
        );
        assert_eq!(found.severity, Severity::Warning);
        assert_eq!(found.saving.at_most_ns, 56_000_000);
    }

    #[test]
    fn who_accepts_and_hands_over_is_no_loser() {
        // As many went back to sleep without a byte as were woken at all: the one that accepted
        // reads nothing either.
        let found = &findings(5000, 10_000, 15_000)[0];
        assert_eq!(found.subject["wasted"], json!(10_000));
        assert_eq!(found.saving.at_most_ns, 100_000_000, "of 150 ms in all");
        assert!(
            found.evidence[0].text.contains("at most 10000 went back"),
            "{}",
            found.evidence[0].text
        );
    }

    #[test]
    fn what_led_to_something_or_is_rare_is_none() {
        assert_eq!(findings(800, 0, 800), [], "one is woken each time");
        assert_eq!(findings(800, 5600, 10), [], "they all found something");
        assert_eq!(findings(8, 56, 56), [], "a few a second");
    }
}
