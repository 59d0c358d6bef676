//! Requests: latency, throughput, and each part of their time.
//!
//! A request at or over the recording's threshold has a row, so its parts are known one by one; the
//! others are sums. A percentile of a part is therefore exact where it is among the rows, and
//! otherwise a bound: no part of a request that has no row is longer than the request, which was
//! shorter than the threshold.
//!
//! A request that is late when the recording ends counts with its age in all of these: it takes as
//! long at least. It counts for no rate.
//!
//! Where requests cannot be told apart, only whether some are late is known of them.

use whywait_model::Model;
use whywait_model::requests::{Requests, Time};

use super::{Better, Group, Measure, MeasureSource, Run, Subject, Unit};

/// The percentiles of latencies and parts that are measured, by name.
pub(super) const PERCENTILES: [(&str, f64); 3] = [("p50", 0.50), ("p90", 0.90), ("p99", 0.99)];

/// The parts of a request's time, as budgets and views name them.
pub(super) const PARTS: [&str; 13] = [
    "ready-unserved.stranded",
    "ready-unserved.pool-busy",
    "ready-unserved.wakeup",
    "on-cpu",
    "runnable",
    "lock",
    "thread",
    "disk",
    "network",
    "timer",
    "uring",
    "page-fault",
    "unknown",
];

fn values(time: &Time) -> [Option<u64>; PARTS.len()] {
    [
        time.ready_unserved.stranded,
        time.ready_unserved.pool_busy,
        time.ready_unserved.wakeup,
        time.on_cpu,
        time.runnable,
        time.lock,
        time.thread,
        time.disk,
        time.network,
        time.timer,
        time.uring,
        time.page_fault,
        time.unknown,
    ]
}

pub(super) fn collect(source: &MeasureSource<'_>, run: &mut Run) {
    let model = source.model;
    let counting = model.requests_that_count();
    if counting == 0 {
        return;
    }
    let count = counting as f64;
    let answered = source.requests as f64;
    let summary = model.requests_summary();
    let late = summary.open.as_ref().map_or(0, |open| open.late);
    section(run, "requests.late", Better::Less, late as f64);
    if run.untold {
        return;
    }
    headline(
        run,
        "latency.mean",
        model.time_of_requests_ns() as f64 / count,
    );
    if let Some(ns) = summary.time.on_cpu {
        // Counted in the kernel, request by request: sharper than samples, but only of the thread
        // that serves.
        headline(run, "cpu.serving", ns as f64 / count);
    }
    for (name, quantile) in PERCENTILES {
        if let Some(ns) = model.latency_quantile_ns(quantile) {
            headline(run, &format!("latency.{name}"), ns);
        }
    }
    if let Some(latency) = summary.latency_ns {
        // The maximum of a run says more of luck than of the server: budgets may name it,
        // comparisons leave it out.
        let max = Measure::new(
            Group::Section,
            Unit::Ns,
            Better::Neither,
            latency.max as f64,
        );
        run.add("latency.max".to_owned(), max);
    }
    if run.about.duration_ns > 0 {
        let rate = answered * 1e9 / run.about.duration_ns as f64;
        let measure = Measure::new(Group::Headline, Unit::PerSecond, Better::More, rate);
        run.add("requests.rate".to_owned(), measure);
    }
    section(run, "requests.count", Better::Neither, answered);
    parts(model, counting, run, &summary);
}

fn headline(run: &mut Run, name: &str, ns: f64) {
    let measure = Measure::new(Group::Headline, Unit::Ns, Better::Less, ns);
    run.add(name.to_owned(), measure);
}

fn section(run: &mut Run, name: &str, better: Better, number: f64) {
    let number = Measure::new(Group::Section, Unit::Count, better, number);
    run.add(name.to_owned(), number);
}

/// Whether a measure is of requests, and not of threads, findings or the machine.
pub(crate) fn is_of_requests(measure: &str) -> bool {
    let of = measure.rsplit_once('.').map_or(measure, |(of, _)| of);
    ["latency", "requests"].contains(&of) || PARTS.contains(&of) || measure == "cpu.serving"
}

fn parts(model: &Model, requests: u64, run: &mut Run, summary: &Requests) {
    let time = &summary.time;
    let one_by_one: Vec<[Option<u64>; PARTS.len()]> = model
        .requests()
        .filter(|request| request.counts())
        .map(|request| values(&request.account().time()))
        .collect();
    // Slow requests that were only summed up, because there were too many.
    let unknown = summary.slow.saturating_sub(one_by_one.len() as u64);
    let longest = summary
        .latency_ns
        .map_or(f64::MAX, |latency| latency.max as f64);
    let total: u64 = values(time)
        .iter()
        .flatten()
        .fold(0, |sum, ns| sum.saturating_add(*ns));
    for (at, part) in PARTS.iter().enumerate() {
        let Some(sum) = values(time)[at] else {
            continue;
        };
        let subject = Subject {
            part: (*part).to_owned(),
            ..Subject::default()
        };
        let mut add = |stat: &str, group, unit, value, at_most| {
            let better = if group == Group::Part {
                Better::Less
            } else {
                Better::Neither
            };
            let measure = Measure::new(group, unit, better, value).about(subject.clone());
            run.add(format!("{part}.{stat}"), Measure { at_most, ..measure });
        };
        add(
            "mean",
            Group::Part,
            Unit::Ns,
            sum as f64 / requests as f64,
            None,
        );
        if total > 0 {
            add(
                "share",
                Group::Section,
                Unit::Share,
                sum as f64 / total as f64,
                None,
            );
        }
        let mut known: Vec<u64> = one_by_one
            .iter()
            .map(|parts| parts[at].unwrap_or(0))
            .collect();
        known.sort_unstable_by(|a, b| b.cmp(a));
        for (name, quantile) in PERCENTILES.iter().copied().chain([("max", 1.0)]) {
            let threshold = model.threshold_ns() as f64;
            let (low, high) = bounds(&known, requests, unknown, quantile, threshold, longest);
            add(
                name,
                Group::Section,
                Unit::Ns,
                low,
                (high > low).then_some(high),
            );
        }
    }
}

/// Between what a percentile of a part lies. `known`: the part in the requests that have rows,
/// largest first; `requests`: how many there are; `unknown`: how many slow ones have no row;
/// `longest`: the longest latency.
fn bounds(
    known: &[u64],
    requests: u64,
    unknown: u64,
    quantile: f64,
    threshold: f64,
    longest: f64,
) -> (f64, f64) {
    let rank = (requests as f64 * quantile).ceil().max(1.0) as u64;
    let from_the_top = requests.saturating_sub(rank);
    let at = |index: Option<u64>| {
        index
            .and_then(|index| usize::try_from(index).ok())
            .and_then(|index| known.get(index))
            .map(|ns| *ns as f64)
    };
    let low = at(Some(from_the_top)).unwrap_or(0.0);
    let below_threshold = (threshold - 1.0).max(0.0);
    let others_slow = from_the_top < unknown;
    // As if all slow requests without a row were above the known ones, and all others just below
    // the threshold.
    let high = if others_slow {
        longest
    } else {
        match at(from_the_top.checked_sub(unknown)) {
            Some(ns) => ns.max(below_threshold),
            None => below_threshold,
        }
    };
    let exact = unknown == 0 && (low >= threshold || known.len() as u64 >= requests);
    (
        low,
        if exact {
            low
        } else {
            high.min(longest).max(low)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: f64 = 1e6;

    #[test]
    fn a_percentile_among_the_rows_is_exact() {
        let known: Vec<u64> = (1..=20).rev().map(|ms| ms * 1_000_000).collect();
        // Of 1,000 requests the 99th percentile is the 11th from the top.
        assert_eq!(
            bounds(&known, 1000, 0, 0.99, MS, 20.0 * MS),
            (10.0 * MS, 10.0 * MS)
        );
    }

    #[test]
    fn one_below_the_threshold_is_a_bound() {
        assert_eq!(
            bounds(&[5_000_000], 1000, 0, 0.99, MS, 9.0 * MS),
            (0.0, MS - 1.0)
        );
        assert_eq!(
            bounds(&[5_000_000, 0], 2, 0, 0.5, MS, 9.0 * MS),
            (0.0, 0.0),
            "all are known"
        );
        assert_eq!(
            bounds(&[], 10, 0, 0.99, MS, 0.4 * MS),
            (0.0, 0.4 * MS),
            "no longer than the request"
        );
    }

    #[test]
    fn slow_requests_without_rows_may_be_worse() {
        let known = vec![8_000_000; 20];
        assert_eq!(
            bounds(&known, 1000, 5, 0.99, MS, 90.0 * MS),
            (8.0 * MS, 8.0 * MS)
        );
        assert_eq!(
            bounds(&known, 1000, 50, 0.99, MS, 90.0 * MS),
            (8.0 * MS, 90.0 * MS)
        );
    }
}
