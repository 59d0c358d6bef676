//! Workers that each serve one request at a time, more of them than there are CPUs, and all
//! compute: requests have a worker, and that has no CPU, for the others' have them.

use std::collections::BTreeSet;

use whywait_model::cpu::CpuHolder;
use whywait_model::{Model, Thread};
use whywait_words::counted;

use super::DECLARATION;
use crate::facts::Facts;
use crate::finding::{Evidence, Finding};
use crate::numbers::{MOST, Share};
use crate::shared::functions::SampledFunctions;
use crate::shared::intervals::sum;
use crate::shared::slow_paths;
use crate::shared::without_cpu::Deprived;

/// The threads that had the CPUs for which slow requests waited, where that is the work of other
/// requests; `None`: others had them for most of that time, or threads that serve none.
pub(crate) fn serving(facts: &Facts<'_>, deprived: &Deprived<'_>) -> Option<BTreeSet<u32>> {
    let holders = deprived.holders()?;
    let all_ns = sum(holders.iter().map(|(_, ns)| *ns));
    let (first, first_ns) = holders.first()?;
    let own = **first == CpuHolder::Own && Share::new(*first_ns, all_ns).is_at_least(*MOST);
    let had: BTreeSet<u32> = deprived.own_threads().into_iter().filter(|_| own).collect();
    let slow = facts.slow().requests.iter();
    let serve = slow.flat_map(|slow| [slow.request.recv_tid, slow.request.send_tid]);
    let serve: BTreeSet<u32> = serve.filter(|tid| had.contains(tid)).collect();
    let used_ns = |tids: &BTreeSet<u32>| sum(tids.iter().map(|tid| on_cpu_ns(facts.model, *tid)));
    let mostly = Share::new(used_ns(&serve), used_ns(&had)).is_at_least(*MOST);
    (mostly && !serve.is_empty()).then_some(serve)
}

fn on_cpu_ns(model: &Model, tid: u32) -> u64 {
    let thread = model.threads.get(&tid);
    let used = thread.and_then(|thread| model.cpu.threads.get(&(thread.tgid, tid)));
    used.map_or(0, |used| used.on_cpu_ns)
}

pub(super) fn finding(facts: &Facts<'_>) -> Option<Finding> {
    let (model, slow_ns) = (facts.model, facts.slow().total_ns);
    let deprived = Deprived::of(facts);
    let shares = &deprived.shares;
    let severity = shares.severity(slow_ns)?;
    let workers = serving(facts, &deprived)?;
    let threads = workers.iter().filter_map(|tid| model.threads.get(tid));
    let threads: Vec<&Thread> = threads.collect();
    let functions = SampledFunctions::of(facts, threads.into_iter());
    let first = functions.first();
    let does = functions.title("it");
    let title = format!(
        "{} waited {} of their time for a CPU that the work of other requests had{does}",
        shares.requests(),
        shares.percent(),
    );
    let does_what = functions
        .shown()
        .map(|each| Evidence::new(format!("what they do, by samples: {each}")));
    let many = format!(
        "{} compute for requests, and there are {}",
        slow_paths::who(model, &workers),
        counted(model.meta.host.cpus as usize, "CPU"),
    );
    let finding = Finding::new(&DECLARATION, severity, title)
        .about("threads", workers.iter().copied().collect::<Vec<u32>>())
        .about_known("function", first.map(|(function, _)| function.to_owned()))
        .saving(deprived.saving())
        .concerns(deprived.saved.iter().copied())
        .evidence([Evidence::of_ns(
            shares.ns,
            format!("could run and had no CPU: {}", shares.spread(slow_ns)),
        )])
        .evidence(does_what)
        .evidence([Evidence::new(many)])
        .cause(functions.cause(model))
        .fix(
            "make that work cheaper or rarer (a cache, an index), or give it more CPUs; with no \
             more workers than CPUs the first ones to come are answered sooner, and the last ones \
             no later",
        );
    let first = workers.first().copied();
    Some(slow_paths::about_processes(model, finding, first, workers))
}
