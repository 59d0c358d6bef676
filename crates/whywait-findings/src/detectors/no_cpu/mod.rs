//! `no-cpu`: requests waited for a CPU that others had.
//!
//! **Invariant.** No slow request waits for a CPU for most of its time.
//!
//! **Evidence.** On the critical paths of slow requests, the time in which a thread could have run
//! and had no CPU, the wake-up before a request was read included; and who left the CPU that it
//! then got, with how long that one had had it.
//!
//! **Cost.** For each request that such time dominates (half of its time, and
//! [`SLOW_NS`](crate::numbers::SLOW_NS)), all of its time but for what its path was on a CPU and
//! waited for devices, peers and timers, as in `cpu-limit`.
//!
//! **Guards.** Of most of that time it must be recorded who had the CPU. Where the cgroup's limit
//! took more than any of them it is a `cpu-limit`. Where the CPU was idle nobody had it. A few
//! requests of many ([`CROWDED_RARE`](crate::numbers::CROWDED_RARE)) are what a scheduler does now
//! and then: a note at most.

use whywait_model::cpu::CpuHolder;
use whywait_words::{counted, percent};

use crate::declaration::{Declaration, Has, Waits};
use crate::detectors::saturated::cpus;
use crate::facts::Facts;
use crate::finding::{Evidence, Finding, Severity};
use crate::numbers::{CROWDED_RARE, MOST, Share};
use crate::shared::functions::SampledFunctions;
use crate::shared::intervals::sum;
use crate::shared::without_cpu::Deprived;

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "no-cpu",
    meaning: "requests waited for a CPU that other processes, the virtual machine's host or the \
        program's own threads had",
    severities: &[
        (
            Severity::Warning,
            "from 30 ms of the median request on, if they are not few",
        ),
        (Severity::Note, "otherwise"),
    ],
    invariant: "no slow request waits for a CPU for most of its time",
    explain: include_str!("explain.md"),
    waits: Some(Waits {
        who: "requests",
        what: "for a CPU",
        has: Has::Said("{holder}"),
    }),
    detect,
};

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    finding(facts, &Deprived::of(facts)).into_iter().collect()
}

fn finding(facts: &Facts<'_>, deprived: &Deprived<'_>) -> Option<Finding> {
    let (model, shares) = (facts.model, &deprived.shares);
    let slow_ns = facts.slow().total_ns;
    let severity = shares.severity(slow_ns)?;
    let few = Share::new(shares.each_ns.len() as u64, model.requests_count());
    let severity = if few.exceeds(*CROWDED_RARE) {
        severity
    } else {
        Severity::Note
    };
    let holders = deprived.holders()?;
    let (first, _) = holders.first()?;
    if matches!(first, CpuHolder::Quota | CpuHolder::Idle) {
        return None;
    }
    // Too much work of requests is no lack of CPUs.
    if cpus::serving(facts, deprived).is_some() {
        return None;
    }
    let all_ns = sum(holders.iter().map(|(_, ns)| *ns));
    let named = |(holder, ns): &(&CpuHolder, u64)| {
        format!("{} {}", name(deprived, holder), percent(*ns, all_ns))
    };
    let tids = deprived.own_threads();
    let threads = tids.iter().filter_map(|tid| model.threads.get(tid));
    let own = SampledFunctions::of(facts, threads);
    let own_did = own.shown().map(|each| {
        let threads = counted(tids.len(), "thread");
        Evidence::new(format!("{threads} of the program's own had CPUs: {each}"))
    });
    let title = format!(
        "{} waited {} of {} time for a CPU; {}{} had it for {} of that",
        shares.requests(),
        shares.percent(),
        if shares.each_ns.len() == 1 {
            "its"
        } else {
            "their"
        },
        name(deprived, first),
        match (first, mostly_in(&own)) {
            (CpuHolder::Own, Some(function)) => format!(", mostly in {function},"),
            _ => String::new(),
        },
        percent(holders[0].1, all_ns)
    );
    let without = format!(
        "threads could have run and had no CPU for {}",
        shares.spread(slow_ns)
    );
    let had = holders.iter().filter(|(_, ns)| *ns > 0).map(named);
    let had: Vec<String> = had.collect();
    let who = format!("who had the CPUs meanwhile: {}", had.join("; "));
    let finding = Finding::new(&DECLARATION, severity, title)
        .about_known("pid", model.meta.pid)
        .about("holder", kind(first))
        .about("holder_pids", deprived.pids(first))
        .saving(deprived.saving())
        .concerns(deprived.saved.iter().copied())
        .evidence([
            Evidence::of_ns(shares.ns, without),
            Evidence::of_ns(all_ns, who),
        ])
        .evidence(own_did)
        .evidence((model.meta.host.cpus > 0).then(|| {
            Evidence::new(format!(
                "the machine has {}",
                counted(model.meta.host.cpus as usize, "CPU")
            ))
        }));
    let finding = match first {
        CpuHolder::Own => finding.cause(own.cause(model)),
        _ => finding,
    };
    Some(finding.fix(fix(first, &own)))
}

/// What the target's own threads that had the CPUs are mostly in.
fn mostly_in(own: &SampledFunctions) -> Option<&str> {
    let (function, periods) = own.first()?;
    let most = Share::new(periods, own.periods).is_at_least(*MOST);
    most.then_some(function)
}

fn kind(holder: &CpuHolder) -> &'static str {
    match holder {
        CpuHolder::Own => "own-threads",
        CpuHolder::Others(..) => "processes",
        CpuHolder::Kernel => "kernel-threads",
        CpuHolder::Quota => "quota",
        CpuHolder::Host => "host",
        CpuHolder::Idle => "idle",
    }
}

/// `stress (pid 4242)`, as titles name it.
fn name(deprived: &Deprived<'_>, holder: &CpuHolder) -> String {
    match holder {
        CpuHolder::Own => "threads of its own".to_owned(),
        CpuHolder::Others(name, cgroup) => match (&deprived.pids(holder)[..], cgroup.as_str()) {
            ([pid], "") => format!("{name} (pid {pid})"),
            ([pid], cgroup) => format!("{name} (pid {pid}, cgroup {cgroup})"),
            (pids, "") => format!("{} processes {name}", pids.len()),
            (pids, cgroup) => format!("{} processes {name} (cgroup {cgroup})", pids.len()),
        },
        CpuHolder::Kernel => "threads of the kernel".to_owned(),
        CpuHolder::Quota => "the cgroup's limit".to_owned(),
        CpuHolder::Host => "the virtual machine's host".to_owned(),
        CpuHolder::Idle => "nobody".to_owned(),
    }
}

fn fix(holder: &CpuHolder, own: &SampledFunctions) -> String {
    match holder {
        CpuHolder::Own => {
            let place = mostly_in(own).map_or_else(String::new, |name| format!(" in {name}"));
            format!(
                "the program has more threads that compute{place} than the machine has CPUs: run \
                 no more of them at a time than there are CPUs, give those that serve requests a \
                 higher weight (nice), or do that work elsewhere"
            )
        }
        CpuHolder::Others(name, _) => format!(
            "give {name} a lower weight (nice, cpu.weight, CPUWeight of systemd), CPUs of its own \
             (cpuset), or another machine"
        ),
        CpuHolder::Host => {
            "the host runs more virtual CPUs than it has CPUs: ask for CPUs that are not shared, \
             or another host"
                .to_owned()
        }
        CpuHolder::Kernel | CpuHolder::Quota | CpuHolder::Idle => {
            "see which of the kernel's threads are busy (top -H): interrupts, encryption or \
             compression of disks and networks"
                .to_owned()
        }
    }
}

#[cfg(test)]
mod tests;
