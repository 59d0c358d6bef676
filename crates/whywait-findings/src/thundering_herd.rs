//! `thundering-herd`: one event wakes several threads, and most go back to sleep with nothing.
//!
//! **Invariant.** One event wakes one thread.
//!
//! **Evidence.** In bursts of system-call tracing two threads or more were woken for the same listener, and their accept failed
//! with EAGAIN, because another was faster. The sleeps in polls that ended for nothing are counted over the whole recording.
//!
//! **Cost.** Of each thread's sleeps in polls the share that lost the race, times the CPU time of a turn; never more than
//! the thread used.
//!
//! **Guards.** At least [`MIN_TURNS`] lost races at one port by at least two threads, and at least [`MIN_WASTED`] wasted
//! wake-ups a second. That somebody else got the connection is what EAGAIN says.

use std::collections::BTreeMap;

use serde_json::{Map, json};
use whywait_model::Model;
use whywait_model::spin::Spinner;

use crate::finding::{Code, Confidence, Evidence, Finding, Saving, SavingKind, Severity};
use crate::spinning::{self, EAGAIN, is_accept, rate, share};
use crate::text::{count, duration};

/// Fewer lost races say nothing.
const MIN_TURNS: u64 = 20;
/// Fewer wasted wake-ups a second are not worth a word.
const MIN_WASTED: u64 = 100;
/// From this share of a CPU on, in thousandths, it is a warning.
const WARNING_PERMILLE: u64 = 20;

/// What `whywait explain thundering-herd` says.
pub(crate) const EXPLAIN: &str = include_str!("explain/thundering-herd.md");

struct Loser {
    spinner: Spinner,
    /// Wakes for nothing in the whole recording, and what they cost.
    wasted: u64,
    wasted_ns: u64,
}

pub(crate) fn detect(model: &Model) -> Vec<Finding> {
    let mut ports: BTreeMap<u16, Vec<Loser>> = BTreeMap::new();
    for spinner in model.bursts.threads() {
        if spinner.lost_races == 0 || spinner.lost_races < spinner.spins {
            continue;
        }
        let Some(port) = spinner
            .cycle
            .iter()
            .find(|call| is_accept(call) && call.ret == EAGAIN && call.local_port != 0)
            .map(|call| call.local_port)
        else {
            continue;
        };
        let used = spinning::use_of(model, &spinner);
        let wasted = share(used.dry_sleeps, spinner.lost_races, spinner.turns.max(1));
        let turn_ns = spinner.turn_ns().unwrap_or(0);
        let wasted_ns = wasted.saturating_mul(turn_ns).min(used.on_cpu_ns);
        ports.entry(port).or_default().push(Loser {
            spinner,
            wasted,
            wasted_ns,
        });
    }
    ports
        .into_iter()
        .filter_map(|(port, losers)| finding(model, port, &losers))
        .collect()
}

fn finding(model: &Model, port: u16, losers: &[Loser]) -> Option<Finding> {
    let sum = |of: fn(&Loser) -> u64| losers.iter().map(of).fold(0u64, u64::saturating_add);
    let races = sum(|loser| loser.spinner.lost_races);
    if losers.len() < 2 || races < MIN_TURNS {
        return None;
    }
    let duration_ns = model.target().duration_ns.max(1);
    let wasted = sum(|loser| loser.wasted);
    let wasted_ns = sum(|loser| loser.wasted_ns);
    let per_second = wasted as f64 / (duration_ns as f64 / 1e9);
    if per_second < MIN_WASTED as f64 {
        return None;
    }
    let permille =
        (u128::from(wasted_ns) * 1000 / u128::from(duration_ns)).min(u128::from(u64::MAX)) as u64;
    let calls = spinning::cycle(&losers[0].spinner.cycle);
    let requests: u64 = model
        .cpu
        .ports
        .iter()
        .filter(|((_, of), _)| *of == i32::from(port))
        .map(|(_, used)| used.requests)
        .fold(0, u64::saturating_add);
    let mut pids: Vec<u32> = losers.iter().map(|loser| loser.spinner.tgid).collect();
    pids.dedup();
    let tids: Vec<u32> = losers.iter().map(|loser| loser.spinner.tid).collect();
    let mut subject = Map::new();
    subject.insert("pid".to_owned(), json!(pids[0]));
    subject.insert("pids".to_owned(), json!(pids));
    subject.insert("threads".to_owned(), json!(tids));
    subject.insert("port".to_owned(), json!(port));
    subject.insert("cycle".to_owned(), json!(calls));
    subject.insert("wasted_per_second".to_owned(), json!(per_second.round()));
    subject.insert("cpu_permille".to_owned(), json!(permille));
    Some(Finding {
        code: Code::ThunderingHerd,
        severity: if permille >= WARNING_PERMILLE {
            Severity::Warning
        } else {
            Severity::Note
        },
        confidence: Confidence::High,
        title: format!(
            "each connection at port {port} wakes {} and most find nothing: {} wake-ups a second wasted",
            count(losers.len(), "thread", "threads"),
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
                    "{} of {} turns that were traced found that another thread had taken the connection",
                    races,
                    sum(|loser| loser.spinner.turns)
                ),
                ns: None,
            },
            Evidence {
                text: format!("thread {} goes round in: {}", tids[0], calls.join(", ")),
                ns: losers[0].spinner.turn_ns(),
            },
            Evidence {
                text: format!(
                    "the wasted turns took {} of CPU time, without what the switches cost",
                    duration(wasted_ns)
                ),
                ns: Some(wasted_ns),
            },
        ],
        cause: None,
        fix: "register the listener with EPOLLEXCLUSIVE in each process (Linux 4.5), or let one thread accept".to_owned(),
    })
}
