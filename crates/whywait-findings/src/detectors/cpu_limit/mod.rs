//! `cpu-limit`: the target's cgroup used up the CPU time that it is allowed, and requests
//! waited until it got more.
//!
//! **Invariant.** No slow request waits for a CPU because a limit says so.
//!
//! **Evidence.** The kernel's count of the cgroup's periods, and of those in which it had
//! used up its time and its threads were stopped (`nr_periods`, `nr_throttled` of cpu.stat); and
//! the time in which threads on slow requests' critical paths could have run and had no CPU, the
//! wake-up before a request was read included.
//!
//! **Cost.** For each request that such time dominates (half of its time, and
//! [`SLOW_NS`](crate::numbers::SLOW_NS)), all of its time but for what its path was on a CPU and
//! waited for devices, peers and timers: threads that are stopped keep others waiting, for their
//! locks, their answers and to be read. With a higher limit a part of that stays: a bound.
//!
//! **Guards.** The limit must have been reached in [`THROTTLED`] periods, and in a
//! [`THROTTLED_PERIODS`]th of all. Other programs that want the CPUs stop nobody by a limit: where
//! the recording says who had the CPUs, and one of them had them for longer than the limit took
//! them, it is a `no-cpu`. The confidence is medium unless the limit was reached in half of the
//! periods.

use whywait_model::cpu::CpuHolder;
use whywait_words::duration;

use crate::declaration::{Declaration, Has, Waits};
use crate::facts::Facts;
use crate::finding::{Confidence, Evidence, Finding, Severity};
use crate::numbers::{MOST, Share, THROTTLED, THROTTLED_PERIODS};
use crate::shared::intervals::sum;
use crate::shared::without_cpu::Deprived;

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "cpu-limit",
    meaning: "the cgroup had used up the CPU time that it is allowed, and requests waited until it \
         got more",
    severities: &[
        (Severity::Warning, "from 30 ms of the median request on"),
        (Severity::Note, "otherwise"),
    ],
    invariant: "no slow request waits for a CPU because a cgroup's limit says so",
    explain: include_str!("explain.md"),
    waits: Some(Waits {
        who: "requests",
        what: "for a CPU",
        has: Has::Said("the limit of {cpus} CPUs of their cgroup"),
    }),
    detect,
};

/// What the kernel counted of the cgroup whose limit was reached most often.
struct ReachedLimit {
    periods: u64,
    throttled: u64,
    throttled_ns: u64,
    millicpus: u64,
}

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
    let counter = |name: &str| {
        let name = format!("cpu-limit.{name}");
        model.counters.get(&name).copied().unwrap_or(0)
    };
    let limit = ReachedLimit {
        periods: counter("periods"),
        throttled: counter("throttled-periods"),
        throttled_ns: counter("throttled-ns"),
        millicpus: counter("millicpus"),
    };
    if limit.throttled < *THROTTLED
        || Share::new(limit.throttled, limit.periods).is_below(*THROTTLED_PERIODS)
    {
        return Vec::new();
    }
    finding(facts, &limit).into_iter().collect()
}

/// Whether it is the limit that requests waited for, and not those who had the CPUs. In recordings
/// that do not say who had them it is the limit. A thread that is woken while its cgroup has no
/// time left waits for an idle CPU (before Linux 6.18).
fn is_of_limit(deprived: &Deprived<'_>) -> bool {
    let Some(holders) = deprived.holders() else {
        return true;
    };
    let stopped = |holder: &CpuHolder| matches!(holder, CpuHolder::Quota | CpuHolder::Idle);
    let limit_ns = sum(holders
        .iter()
        .filter(|(by, _)| stopped(by))
        .map(|(_, ns)| *ns));
    let others = holders
        .iter()
        .filter(|(by, _)| !stopped(by))
        .map(|(_, ns)| *ns);
    limit_ns >= others.max().unwrap_or(0)
}

fn finding(facts: &Facts<'_>, limit: &ReachedLimit) -> Option<Finding> {
    let (model, slow) = (facts.model, facts.slow());
    let deprived = Deprived::of(facts);
    if !is_of_limit(&deprived) {
        return None;
    }
    let shares = &deprived.shares;
    let severity = shares.severity(slow.total_ns)?;
    let confidence = if Share::new(limit.throttled, limit.periods).is_at_least(*MOST) {
        Confidence::High
    } else {
        Confidence::Medium
    };
    let cpus = limit.millicpus as f64 / 1000.0;
    let title = format!(
        "{} waited {} of {} time for a CPU; the cgroup may use {cpus} CPUs, and had used them \
         up in {} of {} periods",
        shares.requests(),
        shares.percent(),
        if shares.each_ns.len() == 1 {
            "its"
        } else {
            "their"
        },
        limit.throttled,
        limit.periods
    );
    let stopped_for = format!(
        "the kernel stopped the group's threads in {} of {} periods until the next one began, for \
         {} in all, summed over CPUs",
        limit.throttled,
        limit.periods,
        duration(limit.throttled_ns)
    );
    let without_cpu = format!(
        "threads could have run and had no CPU for {}",
        shares.spread(slow.total_ns)
    );
    let finding = Finding::new(&DECLARATION, severity, title)
        .confidence(confidence)
        .about("pid", model.meta.pid)
        .about("cpus", cpus)
        .about("periods", limit.periods)
        .about("throttled_periods", limit.throttled)
        .about("throttled_ns", limit.throttled_ns)
        .saving(deprived.saving())
        .concerns(deprived.saved.iter().copied())
        .evidence([
            Evidence::of_ns(limit.throttled_ns, stopped_for),
            Evidence::of_ns(shares.ns, without_cpu),
        ])
        .fix(
            "raise the limit (cpu.max, cpu.cfs_quota_us; in Kubernetes resources.limits.cpu), or \
             run fewer threads at a time: as many as the limit has CPUs use it up at the period's \
             end, twice as many in its first half (GOMAXPROCS, worker threads, the collector's \
             threads)",
        );
    Some(finding)
}

#[cfg(test)]
mod tests;
