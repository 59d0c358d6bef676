//! `cpu-limit`: the target's control group used up the CPU time that it is allowed, and requests
//! waited until it got more.
//!
//! **Invariant.** No slow request waits for a CPU because a limit says so.
//!
//! **Evidence.** The kernel's count of the control group's periods, and of those in which it had
//! used up its time and its threads were stopped (`nr_periods`, `nr_throttled` of cpu.stat); and
//! the time in which threads on slow requests' critical paths could have run and had no CPU, the
//! wake-up before a request was read included.
//!
//! **Cost.** For each request that such time dominates (half of its time, and
//! [`slow_paths::MIN_NS`]), all of its time but for what its path was on a CPU and waited for
//! devices, peers and timers: threads that are stopped keep others waiting, for their locks, their
//! answers and to be read. With a higher limit a part of that stays: a bound.
//!
//! **Guards.** The limit must have been reached in [`MIN_PERIODS`] periods, and in a [`SHARE`]th of
//! all. Other programs that want the CPUs stop nobody by a limit; where both happen, which of the
//! two a request waited for does not show: the confidence is medium unless the limit was reached in
//! half of the periods.

use serde_json::{Map, json};
use whywait_events::Part;
use whywait_model::Model;

use crate::declaration::{Code, Declaration};
use crate::finding::{Confidence, Evidence, Finding, Severity};
use crate::shared::slow_paths::{self, Shares, SlowRequest, SlowRequests, dominates};
use crate::shared::text::duration;

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "cpu-limit",
    meaning: "the cgroup had used up the CPU time that it is allowed, and requests waited until it got \
        more",
    severities: &[
        (Severity::Warning, "from 30 ms of the median request on"),
        (Severity::Note, "otherwise"),
    ],
    invariant: "no slow request waits for a CPU because a cgroup's limit says so",
    explain: include_str!("explain.md"),
    detect,
};

/// A limit that was reached less often is no matter.
const MIN_PERIODS: u64 = 3;
const SHARE: u64 = 20;

/// What the kernel counted of the control group whose limit was reached most often.
struct Limit {
    periods: u64,
    throttled: u64,
    throttled_ns: u64,
    millicpus: u64,
}

fn detect(model: &Model) -> Vec<Finding> {
    let counter = |name: &str| {
        let name = format!("cpu-limit.{name}");
        model.counters.get(&name).copied().unwrap_or(0)
    };
    let limit = Limit {
        periods: counter("periods"),
        throttled: counter("throttled-periods"),
        throttled_ns: counter("throttled-ns"),
        millicpus: counter("millicpus"),
    };
    if limit.throttled < MIN_PERIODS || limit.throttled.saturating_mul(SHARE) < limit.periods {
        return Vec::new();
    }
    finding(model, &limit).into_iter().collect()
}

/// How long a request waited for a CPU, nanoseconds.
fn without_cpu_ns(slow: &SlowRequest<'_>) -> u64 {
    slow_paths::steps(&slow.path)
        .filter(|(part, _)| *part == Part::Runnable)
        .map(|(_, step)| step.ns())
        .fold(slow.request.unserved_wakeup_ns, u64::saturating_add)
        .min(slow.latency_ns)
}

/// What a request waited for that takes as long with more CPU time, and its work, nanoseconds.
fn remains_ns(slow: &SlowRequest<'_>) -> u64 {
    slow_paths::steps(&slow.path)
        .filter(|(part, _)| {
            matches!(
                part,
                Part::OnCpu | Part::Disk | Part::Network | Part::Timer | Part::PageFault
            )
        })
        .map(|(_, step)| step.ns())
        .fold(0, u64::saturating_add)
}

fn finding(model: &Model, limit: &Limit) -> Option<Finding> {
    let slow = SlowRequests::of(model);
    let stopped = || {
        slow.requests
            .iter()
            .filter(|request| dominates(without_cpu_ns(request), request.latency_ns))
    };
    let shares =
        Shares::new(stopped().map(|request| (without_cpu_ns(request), request.latency_ns)));
    let saved: Vec<u64> = stopped()
        .map(|request| request.latency_ns.saturating_sub(remains_ns(request)))
        .collect();
    let severity = shares.severity(slow.total_ns)?;
    let cpus = limit.millicpus as f64 / 1000.0;
    let each = if shares.each_ns.len() == 1 {
        "its"
    } else {
        "their"
    };
    let mut subject = Map::new();
    subject.insert("pid".to_owned(), json!(model.meta.pid));
    subject.insert("cpus".to_owned(), json!(cpus));
    subject.insert("periods".to_owned(), json!(limit.periods));
    subject.insert("throttled_periods".to_owned(), json!(limit.throttled));
    subject.insert("throttled_ns".to_owned(), json!(limit.throttled_ns));
    Some(Finding {
        code: Code::of(&DECLARATION),
        severity,
        confidence: if limit.throttled.saturating_mul(2) >= limit.periods {
            Confidence::High
        } else {
            Confidence::Medium
        },
        title: format!(
            "{} waited {} % of {each} time for a CPU; the control group may use {cpus} CPUs, and had used them up in {} of {} periods",
            shares.requests(),
            shares.percent(),
            limit.throttled,
            limit.periods
        ),
        subject,
        saving: slow_paths::saving(&saved),
        evidence: vec![
            Evidence {
                text: format!(
                    "the kernel stopped the group's threads in {} of {} periods until the next one began, for {} in all, summed over CPUs",
                    limit.throttled,
                    limit.periods,
                    duration(limit.throttled_ns)
                ),
                ns: Some(limit.throttled_ns),
            },
            Evidence {
                text: format!(
                    "threads could have run and had no CPU for {}",
                    shares.told(slow.total_ns)
                ),
                ns: Some(shares.ns),
            },
        ],
        cause: None,
        fix: "raise the limit (cpu.max, cpu.cfs_quota_us; in Kubernetes resources.limits.cpu), or run fewer threads at a time: as many as the \
              limit has CPUs use it up at the period's end, twice as many in its first half (GOMAXPROCS, worker threads, the collector's \
              threads)"
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use whywait_model::script::Script;

    use super::*;
    use crate::finding::Severity;

    /// Ten requests of 90 ms, in each of which the thread is without a CPU for 70 ms.
    fn server(periods: u64, throttled: u64) -> Script {
        let mut script = Script::new();
        script.thread(1, "worker");
        for n in 0..10 {
            let at = 10 + n * 100;
            script.preempted(1, at + 10, at + 80);
            script
                .request(n + 1)
                .ready(at)
                .read(at, 1)
                .answered(at + 90, 1);
        }
        for (name, value) in [
            ("periods", periods),
            ("throttled-periods", throttled),
            ("throttled-ns", throttled * 70_000_000),
            ("millicpus", 300),
        ] {
            script.counter(&format!("cpu-limit.{name}"), value);
        }
        script.ends(1100);
        script
    }

    #[test]
    fn a_server_that_is_stopped_by_its_limit_is_told() {
        let findings = detect(&server(11, 10).model());
        assert_eq!(findings.len(), 1, "{findings:#?}");
        let finding = &findings[0];
        assert_eq!(
            finding.title,
            "10 slow requests waited 78 % of their time for a CPU; the control group may use 0.3 CPUs, and had used them up in 10 of 11 periods"
        );
        assert_eq!(
            (finding.severity, finding.confidence),
            (Severity::Warning, Confidence::High)
        );
        assert_eq!(finding.saving.each_at_most_ns, [70_000_000; 10]);
    }

    #[test]
    fn those_who_wait_for_threads_that_are_stopped_gain_as_well() {
        let mut script = server(11, 10);
        script.thread(2, "other").thread(3, "peer");
        let locking = script.stack(&["main", "app::work", "pthread_mutex_lock", "__lll_lock_wait"]);
        // Not read for 10 ms, then without a CPU for 60, then at a lock for 20, then at a peer for
        // 5.
        script.preempted(2, 20, 80);
        script
            .wait(2, 202, 80, 100)
            .stack(locking)
            .word(0x1000)
            .by(1)
            .done();
        script.wait(2, 45, 100, 105).by_softirq().done();
        script.request(20).ready(10).read(20, 2).answered(107, 2);
        let findings = detect(&script.model());
        assert_eq!(findings.len(), 1, "{findings:#?}");
        assert_eq!(findings[0].saving.each_at_most_ns[0], 90_000_000);
    }

    #[test]
    fn a_limit_that_is_not_reached_stops_nobody() {
        assert_eq!(detect(&server(11, 0).model()), [], "others had the CPUs");
        assert_eq!(detect(&server(1000, 10).model()), [], "once in a hundred");
        assert_eq!(detect(&server(0, 0).model()), [], "there is none");
    }

    #[test]
    fn where_no_request_waits_for_a_cpu_the_limit_does_no_harm() {
        let mut script = Script::new();
        script.thread(1, "worker");
        script.request(1).ready(10).read(10, 1).answered(12, 1);
        script.counter("cpu-limit.periods", 10);
        script.counter("cpu-limit.throttled-periods", 10);
        script.ends(1000);
        assert_eq!(detect(&script.model()), []);
    }
}
