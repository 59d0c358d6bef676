//! `paused`: a runtime stopped all threads of the process, and requests waited for the end of that.
//!
//! **Invariant.** No slow request spends most of its time while all threads of its process are
//! stopped.
//!
//! **Evidence.** See [`pauses`](crate::shared::pauses): threads that sleep in the function in which
//! their runtime stops them, and threads that do what needs all others stopped. Who was on a CPU
//! meanwhile says why it took so long. Code of the program's own that was: the stop had to wait for
//! that. Else the runtime's own threads, or the one that asked for the stop, worked.
//!
//! **Cost.** For each request what it lay unread, and what its path waited, in pauses. By replay,
//! what others then wait for less behind these.
//!
//! **Guards.** A pause counts only where the request waited: not what its thread worked, or waited
//! for a peer or a disk, meanwhile. Pauses must have most of a slow request's time. A pause in
//! which threads of the process mostly lacked a CPU is a matter of `no-cpu`.

use std::collections::{BTreeMap, BTreeSet};

use whywait_events::{ModuleKind, Ns, Sample, StackId};
use whywait_model::{FrameOrigin, Label, Model, Thread, app_frame, origin};
use whywait_words::{counted, duration, percent};

use crate::declaration::{Declaration, Has, Waits};
use crate::facts::Facts;
use crate::finding::{Cause, Evidence, Finding, Severity};
use crate::numbers::{ERROR_NS, MOST, MUCH, Share};
use crate::shared::functions::SampledFunctions;
use crate::shared::intervals::{Interval, merged, sum};
use crate::shared::pauses::Pause;
use crate::shared::replay::{Gone, Spared};
use crate::shared::runtime::{self, Runtime};
use crate::shared::slow_paths::{self, Shares};
use crate::shared::threads::named;

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "paused",
    meaning: "a runtime stopped all threads of the process (for a collection, or to look at them), \
        and requests waited for the end of that",
    severities: &[
        (
            Severity::Error,
            "when a request typically waited 100 ms or longer",
        ),
        (Severity::Warning, "from 30 ms on"),
        (Severity::Note, "otherwise"),
    ],
    invariant: "no slow request spends most of its time while all threads of its process are \
        stopped",
    explain: include_str!("explain.md"),
    waits: Some(Waits {
        who: "requests",
        what: "for a pause of all threads to end",
        has: Has::Cause,
    }),
    detect,
};

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let by_process = facts.pauses().by_process();
    by_process
        .filter_map(|(tgid, pauses)| finding(facts, tgid, pauses))
        .collect()
}

fn finding(facts: &Facts<'_>, tgid: u32, pauses: &[Pause]) -> Option<Finding> {
    let model = facts.model;
    let all = facts.pauses();
    let requests = model.requests().filter(|request| request.counts());
    let requests = requests.filter(|request| request.tgid == tgid);
    let (mut shares, mut spared, mut ports) = (Vec::new(), Vec::new(), BTreeSet::new());
    for request in requests {
        let times: Vec<Interval> = all.of_request(request).map(|(_, time)| time).collect();
        let ns = sum(times.iter().map(|(from_ns, to_ns)| to_ns - from_ns));
        if all.made_slow(request) {
            shares.push((ns, request.age_ns()));
            ports.insert(request.place().1);
        }
        let gone = times.iter().map(|(from_ns, to_ns)| Gone {
            tid: request.recv_tid,
            from_ns: *from_ns,
            to_ns: *to_ns,
            ns: to_ns - from_ns,
        });
        spared.extend((ns > 0).then(|| Spared {
            request,
            ns,
            gone: gone.collect(),
        }));
    }
    let shares = Shares::new(shares);
    let slow_ns = facts.slow().total_ns;
    let severity = match shares.severity(slow_ns)? {
        Severity::Warning if shares.median_ns() >= *ERROR_NS => Severity::Error,
        severity => severity,
    };
    let work = Meanwhile::of(facts, tgid, pauses);
    let bound = facts.behind().bound(&spared, None);
    let longest_ns = pauses.iter().map(Pause::ns).max().unwrap_or(0);
    let times = match pauses.len() {
        1 => format!("for {}", duration(longest_ns)),
        n => format!("{n} times, for up to {}", duration(longest_ns)),
    };
    let title = format!(
        "{} waited {} of their time while all threads of the process were stopped, {times}; {}",
        shares.requests(),
        shares.percent(),
        work.title(model),
    );
    let finding = Finding::new(&DECLARATION, severity, title)
        .about("pauses", pauses.len())
        .about("longest_ns", longest_ns)
        .about_known("port", slow_paths::only_port(&ports))
        .about_known("function", work.function.clone())
        .evidence([Evidence::of_ns(shares.ns, shares.spread(slow_ns))])
        .evidence([stops(pauses)])
        .evidence(asked(facts, pauses))
        .evidence(work.evidence(model))
        .bounded(bound)
        .cause(work.cause(model))
        .fix(work.fix(model, tgid));
    let tids = work.tid.into_iter();
    Some(slow_paths::about_processes(model, finding, tgid, tids))
}

/// How often, and for how long.
fn stops(pauses: &[Pause]) -> Evidence {
    let ns = sum(pauses.iter().map(Pause::ns));
    let most = pauses.iter().map(|pause| pause.stopped).max().unwrap_or(0);
    let stopped = match most {
        0 => String::new(),
        most => format!(
            "; up to {} slept until they might go on",
            counted(most, "thread")
        ),
    };
    let text = format!(
        "{} of {} altogether, each at least as long as its threads show{stopped}",
        counted(pauses.len(), "pause"),
        duration(ns)
    );
    Evidence::of_ns(ns, text)
}

/// The thread that asked for most of them, and where it did.
fn asked(facts: &Facts<'_>, pauses: &[Pause]) -> Option<Evidence> {
    let mut by: BTreeMap<u32, (usize, StackId)> = BTreeMap::new();
    for (tid, stack) in pauses.iter().filter_map(|pause| pause.asked) {
        by.entry(tid).or_insert((0, stack)).0 += 1;
    }
    let (tid, (times, stack)) = by.into_iter().max_by_key(|(_, (times, _))| *times)?;
    let app = facts.model.stacks.app_frame(stack);
    let place = app.map_or_else(String::new, |label| format!(", in {}", label.name));
    Some(Evidence::new(format!(
        "thread {} asked for {times} of them{place}",
        named(facts.model, tid)
    )))
}

/// What was on a CPU in pauses.
struct Meanwhile {
    /// The program's code was, which had to come to its end, or to a place where it can be stopped.
    waited_for: bool,
    /// The thread, and where it was.
    tid: Option<u32>,
    stack: StackId,
    /// The function, where it is one of the program's.
    function: Option<String>,
    /// Its samples, of those of all.
    periods: u64,
    all: u64,
    /// What all did.
    did: Option<String>,
    /// What the runtime did for most of the time, where that shows.
    runtime_did: Option<&'static str>,
}

impl Meanwhile {
    fn of(facts: &Facts<'_>, tgid: u32, pauses: &[Pause]) -> Self {
        let model = facts.model;
        let times = merged(pauses.iter().map(Pause::interval).collect());
        let within = |thread: &'_ Thread| {
            let times = times.iter();
            let samples =
                times.flat_map(|(from_ns, to_ns)| thread.samples_within(*from_ns, *to_ns));
            samples.cloned().collect::<Vec<Sample>>()
        };
        let samples: Vec<Sample> = model.threads_of(tgid).flat_map(within).collect();
        let all = sum(samples.iter().map(Sample::weight));
        let own: Vec<&Sample> = samples
            .iter()
            .filter(|sample| runs_on(model, pauses, sample))
            .collect();
        let own_periods = sum(own.iter().map(|sample| sample.weight()));
        let waited_for = own_periods > 0 && Share::new(own_periods, all).is_at_least(*MUCH);
        let told: Vec<&Sample> = if waited_for {
            own
        } else {
            samples.iter().collect()
        };
        let mut places: BTreeMap<(u32, StackId), u64> = BTreeMap::new();
        let mut by_thread: BTreeMap<u32, u64> = BTreeMap::new();
        for sample in &told {
            *places.entry((sample.tid, sample.user_stack)).or_default() += sample.weight();
            *by_thread.entry(sample.tid).or_default() += sample.weight();
        }
        let most = by_thread.into_iter().max_by_key(|(_, periods)| *periods);
        let place = most.and_then(|(tid, _)| {
            let of_thread = places.into_iter().filter(|((of, _), _)| *of == tid);
            of_thread.max_by_key(|(_, periods)| *periods)
        });
        let stack = place.map_or(0, |((_, stack), _)| stack);
        let is_own = model
            .stacks
            .get(stack)
            .is_some_and(|stack| app_frame(stack).is_some());
        let function = facts.function(stack).filter(|_| is_own || waited_for);
        Self {
            waited_for,
            tid: most.map(|(tid, _)| tid),
            stack,
            function: function.map(|name| name.to_string()),
            periods: most.map_or(0, |(_, periods)| periods),
            all,
            did: SampledFunctions::of_samples(facts, samples.iter()).shown(),
            runtime_did: runtime_did(pauses),
        }
    }

    fn title(&self, model: &Model) -> String {
        let Some(tid) = self.tid else {
            return "none of them was seen on a CPU meanwhile".to_owned();
        };
        let (who, share) = (named(model, tid), percent(self.periods, self.all));
        if let Some(did) = self.runtime_did.filter(|_| !self.waited_for) {
            return format!("the runtime {did}");
        }
        match (&self.function, self.waited_for) {
            (Some(function), true) => format!("the others waited for {function} in thread {who}"),
            (None, true) => {
                format!("the others waited for thread {who}, which could not be stopped")
            }
            (Some(function), false) => {
                format!("thread {who} worked meanwhile ({share} of the work), in {function}")
            }
            (None, false) => format!("thread {who} worked meanwhile ({share} of the work)"),
        }
    }

    fn evidence(&self, model: &Model) -> impl Iterator<Item = Evidence> {
        let waited = (self.tid.filter(|_| self.waited_for)).map(|tid| {
            format!(
                "thread {} ran on in the program's own code, with {} of the samples in these \
                 pauses: a stop waits for the end of that, or for a place where it can be stopped",
                named(model, tid),
                percent(self.periods, self.all)
            )
        });
        let did = self.did.as_ref();
        let did = did.map(|did| format!("on a CPU meanwhile, by samples: {did}"));
        waited.into_iter().chain(did).map(Evidence::new)
    }

    fn cause(&self, model: &Model) -> Option<Cause> {
        let doing = "on CPU, with all others stopped".to_owned();
        self.tid
            .map(|tid| Cause::new(model, tid, doing, self.stack))
    }

    fn fix(&self, model: &Model, tgid: u32) -> &'static str {
        match (self.waited_for, runtime::of_process(model, tgid)) {
            (true, Runtime::Java) => {
                "have the compiler give counted loops safepoints (-XX:+UseCountedLoopSafepoints), \
                 or do that work in pieces, each a call that is not inlined; \
                 -Xlog:safepoint says how long a stop waited for its threads"
            }
            (true, _) => {
                "do that work in pieces, between which the thread can be stopped, or in another \
                 process"
            }
            (false, Runtime::Java) => runtime::fix_of_own_account(runtime::PAUSE).unwrap_or(""),
            (false, _) => {
                "do less with all threads stopped, or more rarely: look at a part, take what needs \
                 no stop (a profile that is sampled or counted), or have another process do it"
            }
        }
    }
}

/// What the runtime did for most of the time of these pauses.
fn runtime_did(pauses: &[Pause]) -> Option<&'static str> {
    let mut times: BTreeMap<&'static str, u64> = BTreeMap::new();
    for pause in pauses {
        if let Some(did) = pause.did {
            *times.entry(did).or_default() += pause.ns();
        }
    }
    let all_ns = sum(pauses.iter().map(Pause::ns));
    let (did, ns) = times.into_iter().max_by_key(|(_, ns)| *ns)?;
    Share::new(ns, all_ns).is_at_least(*MOST).then_some(did)
}

/// Whether a thread was in the program's own code, long after the stop had begun: neither the
/// runtime's nor a library that runs on without touching what the runtime guards.
fn runs_on(model: &Model, pauses: &[Pause], sample: &Sample) -> bool {
    let at: Ns = sample.at_ns;
    let by = pauses
        .iter()
        .find(|pause| pause.from_ns <= at && at < pause.to_ns)
        .map_or(0, |pause| pause.by);
    let innermost = model
        .stacks
        .get(sample.user_stack)
        .and_then(|stack| stack.labels.first());
    let is_own = |label: &Label| label.kind == ModuleKind::Jit || origin(label) == FrameOrigin::App;
    sample.tid != by && innermost.is_some_and(is_own)
}

#[cfg(test)]
mod tests;
