//! Requests that pass one at a time through something inside the program.

use std::collections::BTreeMap;

use whywait_events::StackId;
use whywait_model::{Model, app_frames};
use whywait_words::{counted, duration, percent};

use super::DECLARATION;
use crate::facts::Facts;
use crate::finding::{Cause, Confidence, Evidence, Finding, Saving, Severity};
use crate::numbers::{ERROR_NS, Share, WORK_IN_COMMON};
use crate::shared::functions::SampledFunctions;
use crate::shared::lanes::{InStep, Lane, LaneShape, OneComputes};
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
        LaneShape::Computing(one) => Common::of(model, one),
        LaneShape::InStep(_) => None,
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
            LaneShape::InStep(_) => "pass one at a time",
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
            LaneShape::InStep(_) => Confidence::Medium,
        })
        .about("pid", lane.tgid)
        .about_known("port", slow_paths::only_port(&ports))
        .about_known(
            "function",
            common.as_ref().map(|common| common.function.clone()),
        )
        .saving(Saving::latency(waited.collect()))
        .evidence([
            Evidence::of_ns(shares.ns, shares.spread(slow_ns)),
            seen(facts, &lane.shape),
        ])
        .evidence(common.as_ref().map(Common::evidence))
        .evidence(computed(facts, &lane.shape))
        .cause(common.map(|common| common.cause))
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
                 are requests before them: {} with {} inside, {} with {} (medians); what they wait \
                 for is neither a CPU nor a disk, a lock of threads or a call",
                duration(*step_ns),
                duration(few.1),
                few.0,
                duration(many.1),
                many.0,
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

/// The function that has nearly all of the computing in it: what is done one at a time is that, and
/// not what it happens to call.
struct Common {
    function: String,
    /// Samples whose stacks reach a function of the application, of all, by periods.
    known: u64,
    all: u64,
    cause: Cause,
}

impl Common {
    fn of(model: &Model, one: &OneComputes<'_>) -> Option<Self> {
        let mut stacks: BTreeMap<(u32, StackId), u64> = BTreeMap::new();
        for sample in &one.samples {
            let periods = stacks.entry((sample.tid, sample.user_stack)).or_default();
            *periods = periods.saturating_add(sample.weight());
        }
        let all = stacks.values().sum();
        let (mut known, mut functions) = (0, BTreeMap::<&str, u64>::new());
        for ((_, stack), periods) in &stacks {
            let names = names(model, *stack);
            known += if names.is_empty() { 0 } else { *periods };
            for (at, name) in names.iter().enumerate() {
                if !names[..at].contains(name) {
                    *functions.entry(name).or_default() += periods;
                }
            }
        }
        let is_common = |name: &&str| {
            let periods = functions.get(name).copied().unwrap_or(0);
            Share::new(periods, known).is_at_least(*WORK_IN_COMMON)
        };
        // The innermost one, in the stack that was seen most often.
        let seen = stacks.iter().filter_map(|((tid, stack), periods)| {
            let function = names(model, *stack).into_iter().find(is_common)?;
            Some((*periods, *tid, *stack, function))
        });
        let (_, tid, stack, function) = seen.max_by_key(|(periods, ..)| *periods)?;
        Some(Self {
            function: function.to_owned(),
            known,
            all,
            cause: Cause::new(model, tid, "on CPU".to_owned(), stack),
        })
    }

    fn evidence(&self) -> Evidence {
        Evidence::new(format!(
            "{} has nearly all of it in it: it, or what calls it, is what passes one at a time \
             (of the samples {} reach a function of the program's own)",
            self.function,
            percent(self.known, self.all),
        ))
    }
}

/// The functions of the application's own in a stack, the innermost first.
fn names(model: &Model, stack: StackId) -> Vec<&str> {
    let stack = model.stacks.get(stack);
    stack.map_or_else(Vec::new, |stack| {
        app_frames(stack).map(|label| &*label.name).collect()
    })
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
        LaneShape::InStep(_) => format!(
            "look for what lets one through at a time ({what}), and do not wait with it in hand: \
             more at a time, or one for each key or client; if it is a limit on purpose, requests \
             queue for it"
        ),
    }
}

#[cfg(test)]
mod tests;
