//! `uring-worker-storm`: the kernel made very many worker threads for a ring's operations.
//!
//! **Invariant.** Few operations block, and few workers do them.
//!
//! **Evidence.** The workers of the process (`iou-wrk-…`), when each was made and when it ended,
//! against the number of CPUs; the operations that were handed to workers, by opcode; the workers'
//! CPU time by samples.
//!
//! **Cost.** The workers' CPU time. What the operations wait for they wait for all the same.
//!
//! **Guards.** For files on disks the kernel has four workers for each CPU at most, or as many as
//! the ring has entries, and for the rest no limit but that of processes. So more than four for
//! each CPU, and 32, at a time are a storm, and fewer are not.

use std::collections::BTreeSet;

use whywait_events::uring::{Sum, opcode_name};
use whywait_model::Model;
use whywait_model::rings::{RingState, Workers};
use whywait_words::{counted, duration};

use crate::declaration::Declaration;
use crate::facts::Facts;
use crate::finding::{Evidence, Finding, Saving, SavingKind, Severity};
use crate::numbers::{SHOWN, STORM, STORM_FOR_EACH_CPU};
use crate::shared::intervals::sum;
use crate::shared::rings;

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "uring-worker-storm",
    meaning: "the kernel made very many worker threads for operations of io_uring rings that block",
    severities: &[(Severity::Warning, "")],
    invariant: "few operations block, and few workers do them",
    explain: include_str!("explain.md"),
    waits: None,
    detect,
};

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    // They are the process's: said of the ring that handed over most.
    let mut states: Vec<&RingState> = model.rings.values().collect();
    states.sort_by_key(|state| std::cmp::Reverse(punted(state)));
    for state in states {
        if seen.insert(state.ring.tgid) {
            found.extend(finding(model, state));
        }
    }
    found
}

/// How many operations were handed to workers.
fn punted(state: &RingState) -> u64 {
    sum(state.sums.iter().map(|sum| sum.punted))
}

fn is_storm(workers: Workers, cpus: u64) -> bool {
    workers.most >= *STORM && workers.most > cpus.saturating_mul(*STORM_FOR_EACH_CPU)
}

fn finding(model: &Model, state: &RingState) -> Option<Finding> {
    let cpus = u64::from(model.meta.host.cpus).max(1);
    let workers = *model.workers.get(&state.ring.tgid)?;
    if !is_storm(workers, cpus) || punted(state) == 0 {
        return None;
    }
    let mut sums: Vec<&Sum> = state.sums.iter().filter(|sum| sum.punted > 0).collect();
    sums.sort_by_key(|sum| std::cmp::Reverse(sum.punted));
    let name = opcode_name(sums.first()?.opcode);
    let title = format!(
        "the kernel had {} io_uring workers at a time on {}, most of them for {name} operations \
         of {}",
        workers.most,
        counted(cpus, "CPU"),
        rings::thread(model, state.thread()),
    );
    let seen = format!("{} workers were seen altogether", workers.seen);
    let handed = sums.iter().take(*SHOWN).map(|sum| {
        let each_ns = sum.punted_ns.checked_div(sum.punted_timed).unwrap_or(0);
        let text = format!(
            "{} of {} {} operations were handed to a worker; each took {} on average",
            sum.punted,
            sum.completed.max(sum.punted),
            opcode_name(sum.opcode),
            duration(each_ns)
        );
        Evidence::of_ns(sum.punted_ns, text)
    });
    let worker_ns = state.worker_samples.saturating_mul(rings::sample_ns(model));
    let saving = Saving::sum(SavingKind::Cpu, worker_ns, punted(state));
    let cpu = (worker_ns > 0).then(|| {
        let text = format!("the workers were on a CPU for {}", duration(worker_ns));
        Evidence::of_ns(worker_ns, text)
    });
    let finding = rings::about(state, Finding::new(&DECLARATION, Severity::Warning, title))
        .about("workers", workers.most)
        .saving(saving)
        .evidence([Evidence::new(seen)])
        .evidence(handed)
        .evidence(cpu)
        .evidence([rings::life(state)])
        .fix(
            "use operations that the kernel can wait for by polling (a read of a pipe, not a \
             splice), without IOSQE_ASYNC: they need no worker; bound the workers with \
             IORING_REGISTER_IOWQ_MAX_WORKERS, or how many operations that block are under way at \
             a time",
        );
    Some(finding)
}

#[cfg(test)]
mod tests;
