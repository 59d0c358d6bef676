//! `serial-work`: one thread's work on the CPU is where slow requests spent most of their time.
//!
//! **Invariant.** No single thread's CPU time dominates the slow requests' critical path.
//!
//! **Evidence.** The steps of slow requests' paths in which a thread was on a CPU, threads with the
//! same role together; its functions by the samples taken within them. Whether it grows: a line
//! through the CPU time of those requests in order of arrival; and the function whose own line is
//! the steepest.
//!
//! **Cost.** For each slow request the CPU time on its path: work takes some time wherever it is
//! done, so a bound. By replay, what others then wait for less behind these: for a loop, a worker,
//! a lock; and what slow requests waited for a CPU while the work had one. Of work that grows, what
//! is more than the least is said as well.
//!
//! **Guards.** Only time on a CPU counts: what lies between a thread's long sleeps is short sleeps
//! too, so that interval is taken as what the kernel counted of it, and as what was sampled of it
//! when that is far less. A loop that answers others on the way works for this request only since
//! then. What waits to be read is not this finding's, nor is the time in which a thread went round
//! in its poll (futile-wakeups).

mod bound;
mod ring;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use serde_json::{Value, json};
use whywait_events::{Ns, Part, Sample, StackId};
use whywait_model::{Model, PathStep, Role, Thread};
use whywait_words::{duration, figure, shares, whole_percent};

use crate::declaration::{Declaration, Has, Waits};
use crate::facts::Facts;
use crate::finding::{Cause, Confidence, Evidence, Finding, Severity};
use crate::numbers::{
    ALL_OF_IT, FEW_SAMPLES, FINDINGS_OF_A_KIND, GROWTH_R2, MIN_REQUESTS, MIN_SAMPLES, MOST, SHOWN,
    SLOW_NS, Share, WORK_IN_COMMON, WORK_TELLING,
};
use crate::shared::in_kernel::InKernel;
use crate::shared::intervals::{in_proportion, overlap_ns, sum};
use crate::shared::runtime::{self, Runtime};
use crate::shared::slow_paths::{self, COMPILED, Shares, SlowRequest, SlowRequests, dominates};
use crate::shared::spinning::Rounds;

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "serial-work",
    meaning: "one thread's CPU time is where slow requests spent most of their time; in which \
        function, and how fast it grows from request to request",
    severities: &[
        (
            Severity::Warning,
            "from 30 ms of the median request on, unless it takes as long each time, or from 30 % \
             of an io_uring loop's CPU time on",
        ),
        (Severity::Note, "otherwise"),
    ],
    invariant: "no single thread's CPU time dominates the slow requests' critical path",
    explain: include_str!("explain.md"),
    waits: Some(Waits {
        who: "requests",
        what: "for the thread that serves them",
        has: Has::Cause,
    }),
    detect,
};

/// The work of a role's threads on the path of one request.
#[derive(Debug, Default, Clone)]
struct WorkOnPath<'a> {
    ns: u64,
    steps: Vec<(&'a PathStep, u64)>,
    /// Of each step.
    samples: Vec<&'a [Sample]>,
}

impl<'a> WorkOnPath<'a> {
    fn samples(&self) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().copied().flatten()
    }

    /// What a thread did of it.
    fn of_thread(&self, tid: u32) -> Option<u64> {
        let own = self.steps.iter().filter(|(step, _)| step.tid == tid);
        Some(sum(own.map(|(_, ns)| *ns))).filter(|ns| *ns > 0)
    }

    fn sampled(&self) -> usize {
        self.samples.iter().map(|samples| samples.len()).sum()
    }
}

/// A request with its work.
type Episode<'a> = (&'a SlowRequest<'a>, WorkOnPath<'a>);

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
    let slow = facts.slow();
    let rounds = Rounds::of(model);
    let mut roles: BTreeMap<Rc<Role>, Vec<Episode<'_>>> = BTreeMap::new();
    for request in facts.slow_by_themselves() {
        for (role, on_path) in work_of(facts, &rounds, request) {
            roles.entry(role).or_default().push((request, on_path));
        }
    }
    let mut findings: Vec<Finding> = roles
        .values()
        .filter_map(|episodes| finding(facts, episodes, slow))
        .collect();
    findings
        .sort_by_key(|finding| std::cmp::Reverse((finding.severity, finding.saving.at_most_ns)));
    findings.truncate(*FINDINGS_OF_A_KIND);
    findings.extend(ring::detect(model));
    findings
}

/// What each role did on a CPU on a request's path.
fn work_of<'a>(
    facts: &'a Facts<'_>,
    rounds: &Rounds,
    slow: &'a SlowRequest<'a>,
) -> BTreeMap<Rc<Role>, WorkOnPath<'a>> {
    let (model, answers) = (facts.model, facts.answers());
    let mut roles: BTreeMap<Rc<Role>, WorkOnPath<'a>> = BTreeMap::new();
    for (part, step) in slow_paths::steps(slow) {
        let Some(thread) = model.threads.get(&step.tid).filter(|_| part == Part::OnCpu) else {
            continue;
        };
        let Some(from_ns) = answers.own_from(slow.request, step) else {
            continue;
        };
        if facts.is_of_jobs_before(&slow.request, (from_ns, step.to_ns)) {
            continue;
        }
        let samples = thread.samples_within(from_ns, step.to_ns);
        if rounds.goes_round(model, thread, samples) {
            continue;
        }
        let sampled = samples.iter().map(Sample::weight).sum();
        let ns = on_cpu_ns(model, thread, (from_ns, step.to_ns), sampled);
        let on_path = roles.entry(facts.role(step.tid)).or_default();
        on_path.ns = on_path.ns.saturating_add(ns);
        on_path.steps.push((step, ns));
        if !samples.is_empty() {
            on_path.samples.push(samples);
        }
    }
    roles
}

/// How much of an interval between long sleeps a thread was on a CPU, and waited for one in pieces
/// that have no rows of their own, as the kernel counted it.
fn counted_ns(thread: &Thread, (from_ns, to_ns): (Ns, Ns)) -> (u64, u64) {
    let ns = to_ns.saturating_sub(from_ns);
    if ns == 0 {
        return (0, 0);
    }
    // Parts of the time that it was not preempted for long, for which the path has steps of their
    // own.
    let of = |part_ns: u64, whole_ns: u64| in_proportion(ns, part_ns, whole_ns);
    // An interval that the kernel counted and that is as good as this one, or the row of the sleep
    // that ended it.
    let first = thread.busy.partition_point(|busy| busy.end_ns <= from_ns);
    let busy = thread.busy[first..].iter();
    let mut busy = busy.take_while(|busy| busy.start_ns < to_ns);
    let busy = busy.find(|busy| {
        let common_ns = overlap_ns((busy.start_ns, busy.end_ns), (from_ns, to_ns));
        Share::new(common_ns, ns).is_at_least(*WORK_IN_COMMON)
    });
    match (busy, thread.segment_before(to_ns)) {
        (Some(busy), _) => {
            let preempted_ns = thread.preempted_ns(busy.start_ns, busy.end_ns);
            let whole_ns = busy.end_ns.saturating_sub(busy.start_ns);
            let rest_ns = whole_ns.saturating_sub(preempted_ns);
            let runnable_ns = busy.runnable_ns.saturating_sub(preempted_ns);
            (of(busy.on_cpu_ns, rest_ns), of(runnable_ns, rest_ns))
        }
        (None, Some(segment)) => {
            let all_ns = segment.total_ns();
            (
                of(segment[Part::OnCpu], all_ns),
                of(segment[Part::Runnable], all_ns),
            )
        }
        (None, None) => (ns, 0),
    }
}

/// How much of an interval between long sleeps a thread was on a CPU, as far as is known.
fn on_cpu_ns(model: &Model, thread: &Thread, (from_ns, to_ns): (Ns, Ns), sampled: u64) -> u64 {
    let ns = to_ns.saturating_sub(from_ns);
    let (counted_ns, _) = counted_ns(thread, (from_ns, to_ns));
    let hz = u64::from(model.meta.options.sample_hz);
    let expected = (u128::from(ns) * u128::from(hz) / 1_000_000_000) as u64;
    if expected >= *MIN_SAMPLES && Share::new(sampled, expected).is_below(*MOST) {
        return counted_ns.min(sampled.saturating_mul(1_000_000_000 / hz.max(1)));
    }
    counted_ns
}

/// The work of one request by function, in proportion to the samples; `None`: not known in which.
fn by_function(facts: &Facts<'_>, on_path: &WorkOnPath<'_>) -> BTreeMap<Option<String>, u64> {
    if on_path.sampled() < *FEW_SAMPLES {
        return BTreeMap::from([(None, on_path.ns)]);
    }
    let mut stacks: HashMap<StackId, u64> = HashMap::new();
    for sample in on_path.samples() {
        *stacks.entry(sample.user_stack).or_default() += sample.weight();
    }
    let mut weights: BTreeMap<Option<Rc<str>>, u64> = BTreeMap::new();
    for (stack, weight) in stacks {
        *weights.entry(facts.function(stack)).or_default() += weight;
    }
    let all: u64 = weights.values().sum();
    weights
        .into_iter()
        .map(|(name, weight)| {
            let ns = u128::from(on_path.ns) * u128::from(weight) / u128::from(all);
            (name.map(|name| name.to_string()), ns as u64)
        })
        .collect()
}

/// The work of several requests by function. Those with too few samples each are taken together:
/// short requests show only by their number.
fn by_function_of_all(
    facts: &Facts<'_>,
    members: &[&Episode<'_>],
) -> BTreeMap<Option<String>, u64> {
    let mut functions: BTreeMap<Option<String>, u64> = BTreeMap::new();
    let mut add = |on_path: &WorkOnPath<'_>| {
        for (name, ns) in by_function(facts, on_path) {
            let sum = functions.entry(name).or_default();
            *sum = sum.saturating_add(ns);
        }
    };
    let mut few = WorkOnPath::default();
    for (_, on_path) in members {
        if on_path.sampled() >= *FEW_SAMPLES {
            add(on_path);
        } else {
            few.ns = few.ns.saturating_add(on_path.ns);
            few.samples.extend(&on_path.samples);
        }
    }
    if few.ns > 0 {
        add(&few);
    }
    functions
}

/// A line through values one after the other.
#[derive(Debug, Clone, Copy, PartialEq)]
struct FittedLine {
    /// From one to the next.
    slope: f64,
    /// Where it begins.
    first: f64,
    /// How much of the values' variation it explains.
    r2: f64,
}

/// The line of least squares; `None` when there is none, or nothing varies.
fn line(values: &[u64]) -> Option<FittedLine> {
    let n = values.len() as f64;
    let mean_x = (n - 1.0) / 2.0;
    let mean_y = values.iter().map(|y| *y as f64).sum::<f64>() / n;
    let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
    for (x, y) in values.iter().enumerate() {
        let (dx, dy) = (x as f64 - mean_x, *y as f64 - mean_y);
        xx += dx * dx;
        xy += dx * dy;
        yy += dy * dy;
    }
    if xx <= 0.0 || yy <= 0.0 {
        return None;
    }
    let slope = xy / xx;
    Some(FittedLine {
        slope,
        first: mean_y - slope * mean_x,
        r2: xy * xy / (xx * yy),
    })
}

/// Work that takes longer from episode to episode.
#[derive(Debug, Clone, PartialEq)]
struct Growth {
    line: FittedLine,
    episodes: usize,
    first_ns: u64,
    last_ns: u64,
    /// What accounts for it, with its own growth.
    function: Option<(String, f64)>,
}

impl Growth {
    /// As the finding's subject has it.
    fn subject(&self) -> Value {
        json!({
            "per_episode_ns": self.line.slope as u64,
            "r2": (self.line.r2 * 1000.0).round() / 1000.0,
            "episodes": self.episodes,
            "function": self.function.as_ref().map(|(name, _)| name),
        })
    }
}

/// Whether the work grows over these episodes, which are in order.
fn growth(facts: &Facts<'_>, episodes: &[&Episode<'_>]) -> Option<Growth> {
    if episodes.len() < *MIN_REQUESTS {
        return None;
    }
    let values: Vec<u64> = episodes.iter().map(|(_, on_path)| on_path.ns).collect();
    let line = line(&values)?;
    let mean = values.iter().map(|ns| *ns as f64).sum::<f64>() / values.len() as f64;
    let range = line.slope * (values.len() - 1) as f64;
    let grown = Share::new(range as u64, mean as u64);
    if line.slope <= 0.0 || line.r2 < *GROWTH_R2 || grown.is_below(*MOST) {
        return None;
    }
    let mut functions: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (at, (_, on_path)) in episodes.iter().enumerate() {
        for (name, ns) in by_function(facts, on_path) {
            if let Some(name) = name {
                functions
                    .entry(name)
                    .or_insert_with(|| vec![0; values.len()])[at] = ns;
            }
        }
    }
    let function = functions
        .into_iter()
        .filter_map(|(name, values)| Some((name, self::line(&values)?.slope)))
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .filter(|(_, slope)| of_growth(*slope, &line).is_at_least(*MOST));
    Some(Growth {
        line,
        episodes: values.len(),
        first_ns: values.first().copied()?,
        last_ns: values.last().copied()?,
        function,
    })
}

/// How much of the growth has this slope.
fn of_growth(slope: f64, line: &FittedLine) -> Share {
    Share::new(slope as u64, line.slope as u64)
}

/// Whether requests of such work and latency are worth a finding: what it takes of those that it
/// dominates.
fn notable(episodes: &[Episode<'_>], members: &[&Episode<'_>]) -> Option<Shares> {
    let pair = |(request, on_path): &Episode<'_>| (on_path.ns, request.latency_ns);
    let shares = Shares::new(members.iter().map(|episode| pair(episode)));
    let notable: Vec<(u64, u64)> = episodes
        .iter()
        .map(pair)
        .filter(|(ns, _)| *ns >= *SLOW_NS)
        .collect();
    let latencies: Vec<u64> = members.iter().map(|episode| pair(episode).1).collect();
    slow_paths::is_typical(&notable, &latencies).then_some(shares)
}

fn finding<'a>(
    facts: &'a Facts<'_>,
    episodes: &[Episode<'a>],
    slow: &'a SlowRequests<'a>,
) -> Option<Finding> {
    let (model, slow_ns) = (facts.model, slow.total_ns);
    let dominated = episodes
        .iter()
        .filter(|(request, on_path)| dominates(on_path.ns, request.latency_ns));
    let members: Vec<&Episode<'_>> = dominated.collect();
    let shares = notable(episodes, &members)?;
    let severity = shares.severity(slow_ns)?;
    let ports = slow_paths::ports(members.iter().map(|(request, _)| *request));
    // Work that grows begins small: the requests that it does not dominate yet are episodes as
    // well.
    let all: Vec<&Episode<'_>> = episodes
        .iter()
        .filter(|(request, _)| ports.contains(&request.request.local_port))
        .collect();
    let growth = growth(facts, &all).or_else(|| growth(facts, &members));

    let mut functions: Vec<(Option<String>, u64)> =
        by_function_of_all(facts, &members).into_iter().collect();
    functions.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
    let function = dominant(growth.as_ref(), &functions);
    let function_ns = functions
        .iter()
        .find(|(name, _)| *name == function)
        .map_or(0, |(_, ns)| *ns);
    let samples = members.iter().flat_map(|(_, on_path)| on_path.samples());
    let in_kernel = InKernel::of(model, samples);
    let place = slow_paths::place(function.as_deref(), function_ns, shares.ns);
    let place = place + &in_kernel.place();
    let (tid, stack) = most_sampled(facts, &members, function.as_deref())?;
    let (worst, on_worst) = members
        .iter()
        .max_by_key(|(request, on_path)| (request.latency_ns, on_path.ns))?;
    let sampled: usize = members.iter().map(|(_, on_path)| on_path.sampled()).sum();
    let confidence = if sampled >= *FEW_SAMPLES && function.is_some() {
        Confidence::High
    } else {
        Confidence::Medium
    };
    let title = title(model, &members, &shares, &place, growth.as_ref());
    let runtime = runtime::of_process(model, model.threads.get(&tid)?.tgid);
    let spared = bound::spared(model, episodes, slow);
    let bound = facts.behind().bound(&spared.requests, None);
    let finding = Finding::new(&DECLARATION, severity, title)
        .confidence(confidence)
        .about("tid", tid)
        .about("thread", model.thread_name(tid))
        .about_known("function", function.clone())
        .about_known("port", slow_paths::only_port(&ports))
        .about_known("growth", growth.as_ref().map(Growth::subject))
        .takes_as_long(shares.as_ever(&bound.saving).filter(|_| growth.is_none()))
        .evidence(growth.as_ref().map(grows))
        .evidence([chain(facts, worst, on_worst)])
        .evidence([Evidence::of_ns(shares.ns, shares.spread(slow_ns))])
        .evidence(split(&functions, shares.ns))
        .evidence(in_kernel.evidence())
        .evidence(spared.without_cpu(shares.ns))
        .bounded(bound)
        .evidence(growth.as_ref().map(|growth| remains(growth, &shares)))
        .cause(
            Cause::new(model, tid, "on CPU".to_owned(), stack).each(
                members
                    .iter()
                    .filter_map(|(_, on_path)| on_path.of_thread(tid)),
            ),
        )
        .fix(match in_kernel.fix().filter(|_| growth.is_none()) {
            Some(fix) => fix.to_owned(),
            None => fix(runtime, growth.is_some(), function.as_deref()),
        });
    let finding = finding.of_requests(members.iter().map(|(request, _)| request.request));
    let steps = members.iter().flat_map(|(_, on_path)| &on_path.steps);
    let all = steps.map(|(step, _)| step.tid);
    Some(slow_paths::about_processes(model, finding, tid, all))
}

/// The function to talk about: what grows, or else the one that most of it is in. Where it is not
/// known, samples were too few, and say nothing about where most of it was.
fn dominant(growth: Option<&Growth>, functions: &[(Option<String>, u64)]) -> Option<String> {
    let grows_in = growth.and_then(|growth| growth.function.as_ref());
    let all_ns = sum(functions.iter().map(|(_, ns)| *ns));
    let known = || {
        functions
            .iter()
            .filter_map(|(name, ns)| Some((name.as_ref()?, *ns)))
    };
    // What stands for many functions says less than one of them that has a quarter of the time.
    let telling = |(name, ns): &(&String, u64)| {
        *name != COMPILED && Share::new(*ns, all_ns).is_at_least(*WORK_TELLING)
    };
    let largest = || {
        let chosen = known().find(telling).or_else(|| known().next());
        chosen.map(|(name, _)| name.clone())
    };
    grows_in.map(|(name, _)| name.clone()).or_else(largest)
}

fn title(
    model: &Model,
    members: &[&Episode<'_>],
    shares: &Shares,
    place: &str,
    growth: Option<&Growth>,
) -> String {
    let steps = members.iter().flat_map(|(_, on_path)| &on_path.steps);
    let tids: BTreeSet<u32> = steps.map(|(step, _)| step.tid).collect();
    let mut title = format!(
        "{} spent {} of {} time on the CPU{place} ({})",
        shares.requests(),
        shares.percent(),
        if members.len() == 1 { "its" } else { "their" },
        slow_paths::who(model, &tids),
    );
    if let Some(growth) = growth {
        let more = duration(growth.line.slope as u64);
        title.push_str(&format!(", {more} more with each"));
        if let (true, Some((function, _))) = (place.is_empty(), &growth.function) {
            title.push_str(&format!(", in {function}"));
        }
    }
    title
}

/// The thread that did most of it, and the stack in which it was sampled most within the function.
fn most_sampled(
    facts: &Facts<'_>,
    members: &[&Episode<'_>],
    function: Option<&str>,
) -> Option<(u32, StackId)> {
    let mut threads: BTreeMap<u32, u64> = BTreeMap::new();
    let mut stacks: HashMap<(u32, StackId), u64> = HashMap::new();
    for (_, on_path) in members {
        for (step, ns) in &on_path.steps {
            let sum = threads.entry(step.tid).or_default();
            *sum = sum.saturating_add(*ns);
        }
        for sample in on_path.samples() {
            *stacks.entry((sample.tid, sample.user_stack)).or_default() += sample.weight();
        }
    }
    stacks.retain(|(_, stack), _| {
        function.is_some() && facts.function(*stack).as_deref() == function
    });
    let stack = stacks
        .into_iter()
        .max_by_key(|((tid, stack), n)| (*n, std::cmp::Reverse((*tid, *stack))))
        .map(|(of, _)| of);
    stack.or_else(|| {
        let (tid, _) = threads
            .into_iter()
            .max_by_key(|(tid, ns)| (*ns, std::cmp::Reverse(*tid)))?;
        Some((tid, 0))
    })
}

/// The slowest request's chain of waits, in order.
fn chain(facts: &Facts<'_>, slow: &SlowRequest<'_>, on_path: &WorkOnPath<'_>) -> Evidence {
    let tid = on_path
        .steps
        .iter()
        .max_by_key(|(_, ns)| *ns)
        .map_or(0, |(step, _)| step.tid);
    let functions = by_function(facts, on_path);
    let most = functions
        .into_iter()
        .filter_map(|(name, ns)| Some((name?, ns)))
        .max_by_key(|(_, ns)| *ns);
    let most = most.map_or_else(String::new, |(name, ns)| {
        if ns == on_path.ns {
            format!(", in {name}")
        } else {
            format!(", {} of them in {name}", duration(ns))
        }
    });
    let text = format!(
        "{} is on the CPU for {}{most}",
        slow_paths::chain(facts.model, slow, tid),
        duration(on_path.ns),
    );
    Evidence::of_ns(on_path.ns, text)
}

/// In which functions it was.
fn split(functions: &[(Option<String>, u64)], of_ns: u64) -> Option<Evidence> {
    if functions.len() < 2 {
        return None;
    }
    let shown = functions
        .iter()
        .map(|(name, ns)| (name.as_deref().unwrap_or("too few samples to tell"), *ns))
        .filter(|(_, ns)| whole_percent(*ns, of_ns) > 0)
        .take(*SHOWN);
    let text = format!("by samples: {}", shares(shown, of_ns));
    Some(Evidence::new(text))
}

fn grows(growth: &Growth) -> Evidence {
    let function = match &growth.function {
        Some((name, slope)) if of_growth(*slope, &growth.line).is_below(*ALL_OF_IT) => {
            format!("; {name} accounts for {} of it", duration(*slope as u64))
        }
        Some((name, _)) => format!("; {name} accounts for all of it"),
        None => "; no single function accounts for it".to_owned(),
    };
    let text = format!(
        "it grows: from {} to {} over {} requests, {} more with each (R² {}){function}",
        duration(growth.first_ns),
        duration(growth.last_ns),
        growth.episodes,
        duration(growth.line.slope as u64),
        figure(growth.line.r2),
    );
    Evidence::of_ns(growth.line.slope as u64, text)
}

/// What a fix of the growth alone saves.
fn remains(growth: &Growth, shares: &Shares) -> Evidence {
    let first_ns = growth.line.first.max(0.0) as u64;
    let saved_ns = sum(shares.each_ns.iter().map(|ns| ns.saturating_sub(first_ns)));
    let text = format!(
        "had it stayed as in the first, {} of the {} would be gone, and {} remain of each",
        duration(saved_ns),
        duration(shares.ns),
        duration(first_ns),
    );
    Evidence::of_ns(saved_ns, text)
}

fn fix(runtime: Runtime, grows: bool, function: Option<&str>) -> String {
    if let Some(fix) = function.and_then(runtime::fix_of_own_account) {
        return fix.to_owned();
    }
    let function = function.unwrap_or("it");
    if grows {
        return format!(
            "look in {function} for something that is gone through as a whole and grows with every \
             request: a list, log or map that is never cleaned up; index it, bound it, or do the \
             work as it arises. (Unless each request asked for more than the one before: then it \
             is they that grow.)"
        );
    }
    match runtime {
        Runtime::Python => format!(
            "make {function} cheaper, keep its results, or do it in several processes (threads \
             share the interpreter's lock)"
        ),
        Runtime::Node => {
            format!("make {function} cheaper, keep its results, or split it over worker_threads")
        }
        _ => format!(
            "make {function} cheaper, keep its results, split it over several threads, or do it \
             before or after the request"
        ),
    }
}

#[cfg(test)]
mod tests;
