//! Goroutines that could run and have no thread, as those of their process compute all the time.
//!
//! A thread of Go's takes whichever goroutine is next: none has requests of its own, and so there
//! are no workers to look at. Looks at the goroutines of slow requests show those that are ready to
//! run.

use std::collections::BTreeMap;

use whywait_model::requests::TaskWaitKind;
use whywait_model::{Model, RequestRef, Thread};
use whywait_words::{duration, percent};

use super::DECLARATION;
use crate::facts::Facts;
use crate::finding::{Confidence, Evidence, Finding, Saving};
use crate::numbers::{MIN_SAMPLES, MOST, SLOW_NS, Share, WORKERS_ASLEEP};
use crate::shared::functions::SampledFunctions;
use crate::shared::intervals::sum;
use crate::shared::runtime::{self, Runtime};
use crate::shared::slow_paths::Shares;

/// One for each process of Go's whose goroutines wait for a thread.
pub(super) fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
    let mut processes: BTreeMap<u32, Vec<RequestRef<'_>>> = BTreeMap::new();
    for request in model.requests().filter(|request| request.counts()) {
        processes.entry(request.tgid).or_default().push(request);
    }
    let go = processes
        .into_iter()
        .filter(|(tgid, _)| runtime::of_process(model, *tgid) == Runtime::Go);
    go.filter_map(|(tgid, requests)| finding(facts, tgid, &requests))
        .collect()
}

fn finding(facts: &Facts<'_>, tgid: u32, requests: &[RequestRef<'_>]) -> Option<Finding> {
    let model = facts.model;
    let slow_ns = facts.slow().total_ns;
    let (mut ready, mut looks, mut of_looks) = (Vec::new(), 0, 0);
    for request in requests {
        let Some(waits) = request.task_waits() else {
            continue;
        };
        let rows = waits.rows.iter();
        let rows: Vec<_> = rows
            .filter(|row| row.kind == TaskWaitKind::Runnable)
            .collect();
        looks += rows.iter().map(|row| row.looks).sum::<u64>();
        of_looks += waits.looks;
        ready.push((sum(rows.iter().map(|row| row.ns)), request.age_ns()));
    }
    let (busy_ns, all_ns) = on_cpus(model, tgid);
    let is_so = Share::new(looks, of_looks).is_at_least(*MOST)
        && looks >= *MIN_SAMPLES
        && Share::new(busy_ns, all_ns).is_at_least(*WORKERS_ASLEEP);
    if !is_so {
        return None;
    }
    let victims = ready.iter().copied().filter(|(ns, _)| *ns >= *SLOW_NS);
    let shares = Shares::new(victims);
    let severity = shares.severity(slow_ns)?;
    let threads: Vec<&Thread> = model
        .threads
        .values()
        .filter(|one| one.tgid == tgid)
        .collect();
    let functions = SampledFunctions::of(facts, threads.into_iter());
    let first = functions.first();
    let does = functions.title("their work");
    let title = format!(
        "{} were ready to run {} of their time, and no thread took them: all {} CPUs compute for \
         others{does}",
        shares.requests(),
        shares.percent(),
        model.meta.host.cpus,
    );
    let ready = ready.into_iter().map(|(ns, _)| ns).filter(|ns| *ns > 0);
    let finding = Finding::new(&DECLARATION, severity, title)
        .confidence(Confidence::High)
        .about("pid", tgid)
        .about_known("function", first.map(|(function, _)| function.to_owned()))
        .saving(Saving::latency(ready.collect()))
        .evidence([
            Evidence::of_ns(shares.ns, shares.spread(slow_ns)),
            Evidence::new(format!(
                "{} of the looks at their goroutines found one that was ready to run",
                percent(looks, of_looks)
            )),
            Evidence::of_ns(
                busy_ns,
                format!(
                    "the threads of the process were on CPUs for {}, {} of all there is",
                    duration(busy_ns),
                    percent(busy_ns, all_ns)
                ),
            ),
        ])
        .evidence(
            functions
                .shown()
                .map(|each| Evidence::new(format!("what they do, by samples: {each}"))),
        )
        .cause(functions.cause(model))
        .fix(
            "make that work cheaper or rarer (a cache, an index), give it more CPUs, or let fewer \
             goroutines do it at a time, so that short requests are not behind it",
        );
    Some(finding)
}

/// For how long the threads of a process were on CPUs, and how long all CPUs had.
fn on_cpus(model: &Model, tgid: u32) -> (u64, u64) {
    let used = model.cpu.threads.iter();
    let used = used.filter(|((of, _), _)| *of == tgid);
    let busy_ns = sum(used.map(|(_, used)| used.on_cpu_ns));
    let ran_ns = model.end_ns.saturating_sub(model.meta.started_ns);
    (
        busy_ns,
        ran_ns.saturating_mul(u64::from(model.meta.host.cpus)),
    )
}
