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
//! [`HERD_WASTED_PER_SECOND`] a second, or less than half a wake for each connection, is not
//! reported.

use std::collections::BTreeMap;

use whywait_model::Model;
use whywait_words::{count, counted, duration, figure, rate};

use crate::declaration::Declaration;
use crate::facts::Facts;
use crate::finding::{Evidence, Finding, Saving, SavingKind, Severity};
use crate::numbers::{HERD_WARNING, HERD_WASTED, HERD_WASTED_PER_SECOND, MOST, Share};
use crate::shared::intervals::{in_proportion, sum};

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
    waits: None,
    detect,
};

#[derive(Default)]
struct Herd {
    connections: u64,
    extra_wakes: u64,
    most_woken: u64,
    dry_wakes: u64,
    dry_cpu_ns: u64,
}

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
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
        || wasted < *HERD_WASTED
        || per_second < *HERD_WASTED_PER_SECOND as f64
        || Share::new(wasted, herd.connections).is_below(*MOST)
    {
        return None;
    }
    let wasted_ns = in_proportion(herd.dry_cpu_ns, wasted, herd.dry_wakes);
    let permille =
        (u128::from(wasted_ns) * 1000 / u128::from(duration_ns)).min(u128::from(u64::MAX)) as u64;
    let used = model
        .cpu
        .ports
        .iter()
        .filter(|((_, of), _)| *of == i32::from(port));
    let pids: Vec<u32> = used.clone().map(|((tgid, _), _)| *tgid).collect();
    let requests = sum(used.map(|(_, used)| used.requests));
    let severity = if Share::new(wasted_ns, duration_ns).is_at_least(*HERD_WARNING) {
        Severity::Warning
    } else {
        Severity::Note
    };
    let title = format!(
        "a connection at port {port} wakes up to {} and all but one find nothing: {} wake-ups a \
         second wasted",
        counted(herd.most_woken, "thread"),
        rate(per_second)
    );
    let each = wasted as f64 / herd.connections.max(1) as f64;
    let woke = format!(
        "{} woke {} beyond the first ({} each); at most {} went back to sleep with \
         nothing",
        counted(herd.connections, "connection"),
        counted(herd.extra_wakes, "thread"),
        figure(each),
        count(wasted),
    );
    let took = format!(
        "the wasted wake-ups took {} of CPU time",
        duration(wasted_ns)
    );
    let finding = Finding::new(&DECLARATION, severity, title)
        .about("port", port)
        .about("pids", pids)
        .about("connections", herd.connections)
        .about("most_woken", herd.most_woken)
        .about("wasted", wasted)
        .about("wasted_per_second", per_second.round())
        .about("cpu_permille", permille)
        .saving(Saving::sum(SavingKind::Cpu, wasted_ns, requests))
        .evidence([Evidence::new(woke), Evidence::of_ns(wasted_ns, took)])
        .fix(
            "register the listener with EPOLLEXCLUSIVE in each process (Linux 4.5), or let one \
             thread accept",
        );
    Some(finding)
}

#[cfg(test)]
mod tests;
