//! Requests that pass one at a time through something inside the program.

use whywait_words::{counted, duration, percent};

use super::DECLARATION;
use crate::facts::Facts;
use crate::finding::{Cause, Confidence, Evidence, Finding, Saving, Severity};
use crate::numbers::{ERROR_NS, MOST, Share};
use crate::shared::functions::{InCommon, SampledFunctions};
use crate::shared::lanes::{InOrder, InStep, Lane, LaneShape};
use crate::shared::runtime::{self, Runtime};
use crate::shared::slow_paths::{self, Shares};

pub(super) fn finding(facts: &Facts<'_>, lane: &Lane<'_>, slow_ns: u64) -> Option<Finding> {
    let model = facts.model;
    let victims = lane.victims();
    let shares = Shares::new(victims.map(|one| (one.waited_ns, one.request.age_ns())));
    let severity = match shares.severity(slow_ns)? {
        Severity::Warning if shares.median_ns() >= *ERROR_NS => Severity::Error,
        severity => severity,
    };
    let common = match &lane.shape {
        // A few stacks that reach further than the others say nothing of those.
        LaneShape::Computing(one) => InCommon::of(model, one.samples.iter().copied())
            .filter(|common| Share::new(common.known, common.all).is_at_least(*MOST)),
        LaneShape::InStep(_) | LaneShape::InOrder(_) => None,
    };
    let waited = lane.requests.iter().filter(|one| one.request.counts());
    let waited = waited.map(|one| one.waited_ns).filter(|ns| *ns > 0);
    let within = common
        .as_ref()
        .map(|common| format!(" in {}", common.function));
    let title = format!(
        "{} waited {} of their time inside for others, which {}{}",
        shares.requests(),
        shares.percent(),
        match lane.shape {
            LaneShape::Computing(_) => "compute one at a time",
            LaneShape::InStep(_) | LaneShape::InOrder(_) => "pass one at a time",
        },
        within.unwrap_or_default(),
    );
    let ports = lane
        .requests
        .iter()
        .map(|one| one.request.place().1)
        .collect();
    let finding = Finding::new(&DECLARATION, severity, title)
        .confidence(match lane.shape {
            LaneShape::Computing(_) => Confidence::High,
            LaneShape::InStep(_) | LaneShape::InOrder(_) => Confidence::Medium,
        })
        .about("pid", lane.tgid)
        .about_known("port", slow_paths::only_port(&ports))
        .about_known(
            "function",
            common.as_ref().map(|common| common.function.to_owned()),
        )
        .saving(Saving::latency(waited.collect()))
        .concerns(lane.victims().map(|one| (one.request, one.waited_ns)))
        .evidence([
            Evidence::of_ns(shares.ns, shares.spread(slow_ns)),
            seen(facts, &lane.shape),
        ])
        .evidence(common.as_ref().map(in_common))
        .evidence(computed(facts, &lane.shape))
        .cause(
            common.map(|common| Cause::new(model, common.tid, "on CPU".to_owned(), common.stack)),
        )
        .fix(fix(runtime::of_process(model, lane.tgid), &lane.shape));
    Some(finding)
}

/// How it shows.
fn seen(facts: &Facts<'_>, shape: &LaneShape<'_>) -> Evidence {
    match shape {
        LaneShape::Computing(one) => Evidence::of_ns(
            one.free_ns,
            format!(
                "for {} two requests or more were read and not answered, and no thread lacked a \
                 CPU, of which there are {}: in {} of {} pieces of that time {} computed for as \
                 long as one does that never stops",
                duration(one.free_ns),
                facts.model.meta.host.cpus,
                one.windows.0,
                one.windows.1,
                counted(one.threads.len(), "thread"),
            ),
        ),
        LaneShape::InStep(InStep { step_ns, few, many }) => Evidence::of_ns(
            *step_ns,
            format!(
                "answers follow each other after {}, and requests take as many such steps as there \
                 are requests before them: {}{} with {} inside (median); what they wait for is \
                 neither a CPU nor a disk, a lock of threads or a call",
                duration(*step_ns),
                few.map_or_else(String::new, |(inside, ns)| {
                    format!("{} with {inside} inside, ", duration(ns))
                }),
                duration(many.1),
                many.0,
            ),
        ),
        LaneShape::InOrder(InOrder {
            step_ns,
            took_ns,
            overtook,
            expected,
        }) => Evidence::of_ns(
            *step_ns,
            format!(
                "requests take {} to {} and are answered in the order in which they came, {} apart \
                 (median): {overtook} of them overtook another one, and if each took a time of its \
                 own some {expected} would have; what they wait for is a timer, and neither a CPU \
                 nor a disk, a lock of threads or a call",
                duration(took_ns.0),
                duration(took_ns.1),
                duration(*step_ns),
            ),
        ),
    }
}

fn computed(facts: &Facts<'_>, shape: &LaneShape<'_>) -> Option<Evidence> {
    let LaneShape::Computing(one) = shape else {
        return None;
    };
    let functions = SampledFunctions::of_samples(facts, one.samples.iter().copied());
    let shown = functions.shown()?;
    Some(Evidence::new(format!(
        "meanwhile they compute, by samples: {shown}"
    )))
}

fn in_common(common: &InCommon<'_>) -> Evidence {
    Evidence::new(format!(
        "{} has nearly all of it in it: it, or what calls it, is what passes one at a time (of the \
         samples {} reach a function of the program's own)",
        common.function,
        percent(common.known, common.all),
    ))
}

fn fix(runtime: Runtime, shape: &LaneShape<'_>) -> String {
    let what = match runtime {
        Runtime::Go => "a sync.Mutex, a channel with one reader, a GOMAXPROCS of 1",
        Runtime::Python => {
            "an asyncio.Lock, a queue with one task behind it, the interpreter's lock"
        }
        Runtime::Node => "a chain of promises, a queue with one consumer",
        Runtime::Tokio => "a tokio::sync::Mutex, a channel with one task behind it",
        Runtime::Java => "a lock, an executor with one thread",
        _ => "a lock that is no lock of threads, a queue with one consumer, a turn that spins",
    };
    match shape {
        LaneShape::Computing(_) => format!(
            "compute without what lets one through at a time ({what}): guard the data, not the \
             work, or split it (by key, by client); making the work cheaper helps as well"
        ),
        LaneShape::InStep(_) | LaneShape::InOrder(_) => format!(
            "look for what lets one through at a time ({what}), and do not wait with it in hand: \
             more at a time, or one for each key or client; if it is a limit on purpose, requests \
             queue for it"
        ),
    }
}

#[cfg(test)]
mod tests;
