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

use std::collections::BTreeMap;

use whywait_events::StackId;
use whywait_model::cpu::CpuHolder;
use whywait_words::{counted, percent};

use crate::declaration::Declaration;
use crate::facts::Facts;
use crate::finding::{Cause, Evidence, Finding, Saving, Severity};
use crate::numbers::{CROWDED_RARE, MOST, Share};
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
    detect,
};

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    finding(facts, &Deprived::of(facts)).into_iter().collect()
}

fn finding(facts: &Facts<'_>, deprived: &Deprived) -> Option<Finding> {
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
    let all_ns = sum(holders.iter().map(|(_, ns)| *ns));
    let named = |(holder, ns): &(&CpuHolder, u64)| {
        format!("{} {}", name(deprived, holder), percent(*ns, all_ns))
    };
    let own = OwnThreads::of(facts, deprived);
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
        match (first, &own.function) {
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
        .saving(Saving::latency(deprived.saved.clone()))
        .evidence([
            Evidence::of_ns(shares.ns, without),
            Evidence::of_ns(all_ns, who),
        ])
        .evidence(own.evidence())
        .evidence((model.meta.host.cpus > 0).then(|| {
            Evidence::new(format!(
                "the machine has {}",
                counted(model.meta.host.cpus as usize, "CPU")
            ))
        }));
    let finding = match first {
        CpuHolder::Own => finding.cause(own.cause(facts)),
        _ => finding,
    };
    Some(finding.fix(fix(first, &own)))
}

/// The target's own threads that had the CPUs, and what they did.
struct OwnThreads {
    tids: Vec<u32>,
    /// What most of their samples are in.
    function: Option<String>,
    /// Where the first of them was seen most often there.
    place: Option<(u32, StackId)>,
    shares: Vec<(String, u64)>,
    samples: u64,
}

impl OwnThreads {
    fn of(facts: &Facts<'_>, deprived: &Deprived) -> Self {
        let tids = deprived.own_threads();
        let mut functions: BTreeMap<String, (u64, BTreeMap<(u32, StackId), u64>)> = BTreeMap::new();
        let mut samples = 0_u64;
        let threads = tids.iter().filter_map(|tid| facts.model.threads.get(tid));
        for sample in threads.flat_map(|thread| &thread.samples) {
            let periods = sample.weight();
            samples = samples.saturating_add(periods);
            if let Some(function) = facts.function(sample.user_stack) {
                let (of_function, places) = functions.entry(function.to_string()).or_default();
                *of_function = of_function.saturating_add(periods);
                *places.entry((sample.tid, sample.user_stack)).or_default() += 1;
            }
        }
        let mut by_share: Vec<_> = functions.into_iter().collect();
        by_share.sort_by_key(|(name, (periods, _))| (std::cmp::Reverse(*periods), name.clone()));
        let first = by_share.first();
        let most =
            first.filter(|(_, (periods, _))| Share::new(*periods, samples).is_at_least(*MOST));
        let place = first.and_then(|(_, (_, places))| {
            places
                .iter()
                .max_by_key(|(_, times)| **times)
                .map(|(place, _)| *place)
        });
        Self {
            function: most.map(|(name, _)| name.clone()),
            place,
            shares: by_share
                .iter()
                .map(|(name, (periods, _))| (name.clone(), *periods))
                .collect(),
            samples,
            tids,
        }
    }

    fn evidence(&self) -> Option<Evidence> {
        if self.tids.is_empty() || self.shares.is_empty() {
            return None;
        }
        let functions = self.shares.iter().take(3);
        let functions =
            functions.map(|(name, periods)| format!("{name} {}", percent(*periods, self.samples)));
        let functions: Vec<String> = functions.collect();
        Some(Evidence::new(format!(
            "{} of the program's own had CPUs: {}",
            counted(self.tids.len(), "thread"),
            functions.join("; ")
        )))
    }

    fn cause(&self, facts: &Facts<'_>) -> Option<Cause> {
        let (tid, stack) = self.place?;
        Some(Cause::new(facts.model, tid, "on CPU".to_owned(), stack))
    }
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
fn name(deprived: &Deprived, holder: &CpuHolder) -> String {
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

fn fix(holder: &CpuHolder, own: &OwnThreads) -> String {
    match holder {
        CpuHolder::Own => {
            let where_ = own
                .function
                .as_ref()
                .map_or_else(String::new, |function| format!(" in {function}"));
            format!(
                "the program has more threads that compute{where_} than the machine has CPUs: run \
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
