//! `slow-path-wait`: one wait is where slow requests spent most of their time.
//!
//! **Invariant.** No single wait (device, writeback, sleep, peer) dominates the slow requests'
//! critical path.
//!
//! **Evidence.** The steps of slow requests' paths in which a thread slept for a device, for
//! memory, for a time or for a peer; not for a lock or another thread, of which the path goes on
//! elsewhere. Waits of threads with the same role are one when they are for the same: for the disk,
//! whatever the calls; else in the same call and the same function of the application.
//!
//! **Cost.** For each request of which it takes [`MIN_NS`] the time of the wait on its path, and
//! for as long as the thread then waited for a CPU: one that had not slept would have kept its own.
//! Of a wait for the disk, for as long as the thread waited for a CPU at all (the kernel's writers
//! and the disk's interrupts have it meanwhile), and its sleeps for the disk that were too short to
//! be recorded. Without the wait a part of that would go elsewhere: a bound.
//!
//! **Guards.** A poll or a futex wait that a timer ended, and after which the request waited for
//! something else, may have been a tick of a loop: what the request waited for does not show. What
//! nobody has read yet is not this finding's. A wait for nothing in particular, as a loop's poll
//! while it serves others too, is a remark of low confidence: what the request waited for does not
//! show. So is a wait for the request's own client. What takes less than a tenth of slow requests'
//! time is reported only if it made one of them take 100 ms, and as a remark.

mod fix;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use whywait_events::{Part, StackId, Wait, WakeContext};
use whywait_model::{
    FrameOrigin, Label, Model, PathStep, RequestRef, Role, SystemCall, app_frame, broad_kind,
    descriptor, origin, system_call, system_call_name,
};

use crate::declaration::Declaration;
use crate::finding::{Cause, Confidence, Evidence, Finding, Saving, Severity};
use crate::shared::intervals::{in_proportion, sum};
use crate::shared::runtime;
use crate::shared::slow_paths::{
    self, Answers, MAX_FINDINGS, NEARLY_ALL, Shares, SlowRequest, SlowRequests, UnderWay, dominates,
};
use crate::shared::text::{self, count, duration, named, percent};

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "slow-path-wait",
    meaning: "one wait is where slow requests spent most of their time: a disk, memory, a sleep or \
         a peer",
    severities: &[
        (Severity::Warning, "from 30 ms of the median request on"),
        (Severity::Note, "otherwise"),
    ],
    invariant: "no single wait (device, writeback, sleep, peer) dominates the slow requests' \
         critical path",
    explain: include_str!("explain.md"),
    detect,
};

/// Functions of the kernel that are shown, and those that are kept for views that have room.
const KERNEL_SHOWN: usize = 5;
const KERNEL_KEPT: usize = 16;
/// What the bound has besides a wait is named from so many percent of the wait on.
const MIN_BESIDES: u64 = 2;
/// In percent of a wait: so much of it must be in functions that are known, for them to stand for
/// it.
const MIN_KNOWN: u64 = 20;
/// Steps for which it is looked up who else used the disk then.
const MAX_LOOKED_UP: usize = 200;

/// Which wait a step is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    role: Role,
    target: Target,
    /// For waits that are not for the disk or for memory: in what, and in which function. Those two
    /// are one wait whatever the call.
    single: Option<(String, Within)>,
}

/// Where in the program a wait is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Within {
    Function(String),
    /// The stack ends in an interpreter, before the program's functions.
    Interpreter,
    Unknown,
}

impl Key {
    fn within(&self) -> Option<&Within> {
        self.single.as_ref().map(|(_, within)| within)
    }

    /// The same, of which only the interpreter is known.
    fn in_interpreter(&self) -> Self {
        let what = self.single.as_ref().map(|(what, _)| what.clone());
        let single = what.map(|what| (what, Within::Interpreter));
        Self {
            single,
            ..self.clone()
        }
    }
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Disk,
    Memory,
    Timer,
    Peer,
    /// The client that sent the request.
    Client,
    /// Something that a loop waits for together with everything else.
    Anything,
}

/// A wait, on the path of one request.
#[derive(Debug, Default)]
struct OnPath<'a> {
    ns: u64,
    steps: Vec<Step<'a>>,
}

#[derive(Debug)]
struct Step<'a> {
    step: &'a PathStep,
    wait: &'a Wait,
    /// For how long the thread then waited for a CPU.
    queued_ns: u64,
}

/// The waits on the path of one request.
type OnPaths<'a> = BTreeMap<Key, OnPath<'a>>;

/// The requests that a wait dominates.
type Group<'a> = Vec<(&'a SlowRequest<'a>, OnPath<'a>)>;

fn detect(model: &Model) -> Vec<Finding> {
    let slow = SlowRequests::of(model);
    let loops = Loops::new(model);
    let answers = Answers::of(model);
    let requests: Vec<OnPaths<'_>> = slow
        .requests
        .iter()
        .map(|request| on_paths(model, &loops, &answers, request))
        .collect();
    let names = Names::of(&requests);
    let mut groups: BTreeMap<Key, Group<'_>> = BTreeMap::new();
    // What it takes of each request, also of those that it does not dominate: a fix helps them too.
    let mut each: BTreeMap<Key, Vec<u64>> = BTreeMap::new();
    for (request, of_request) in slow.requests.iter().zip(requests) {
        for (key, on_path) in with_ticks(names.given(of_request), request.latency_ns) {
            if on_path.ns >= slow_paths::MIN_NS {
                let ns = on_path
                    .ns
                    .saturating_add(besides_ns(model, &key, request, &on_path));
                each.entry(key.clone()).or_default().push(ns);
            }
            if dominates(on_path.ns, request.latency_ns) {
                groups.entry(key).or_default().push((request, on_path));
            }
        }
    }
    let mut findings: Vec<Finding> = groups
        .iter()
        .filter_map(|(key, group)| finding(model, key, group, each.get(key)?, slow.total_ns))
        .collect();
    findings
        .sort_by_key(|finding| std::cmp::Reverse((finding.severity, finding.saving.at_most_ns)));
    findings.truncate(MAX_FINDINGS);
    findings
}

/// The waits on a request's path.
fn on_paths<'a>(
    model: &'a Model,
    loops: &Loops,
    answers: &Answers<'_>,
    request: &'a SlowRequest<'a>,
) -> OnPaths<'a> {
    let mut of_request = OnPaths::new();
    for (at, step) in request.path.steps.iter().enumerate() {
        let tick = || may_be_tick(model, &request.path.steps[at..]);
        let Some((key, wait)) = key(model, loops, request.request, step, &tick) else {
            continue;
        };
        // What a thread slept in before it answered another was for that one; a poll is for all.
        let polls = key.target == Target::Anything || system_call(wait) == SystemCall::Poll;
        if !polls && answers.own_from(request.request, step) != Some(step.from_ns) {
            continue;
        }
        let on_path = of_request.entry(key).or_default();
        on_path.ns = on_path.ns.saturating_add(step.ns());
        on_path.steps.push(Step {
            step,
            wait,
            queued_ns: queued_ns(&request.path.steps[at..]),
        });
    }
    of_request
}

/// For waits of which only the interpreter is known, those that are otherwise the same and have a
/// function: of all such those that take longest.
struct Names(BTreeMap<Key, Key>);

impl Names {
    fn of(requests: &[OnPaths<'_>]) -> Self {
        let waits = requests.iter().flatten();
        let known = by_ns(waits.map(|(key, on_path)| (key, on_path.ns)));
        let is_named = |key: &Key| matches!(key.within(), Some(Within::Function(_)));
        let name = |key: &Key| {
            known
                .iter()
                .map(|(other, _)| *other)
                .find(|other| is_named(other) && other.in_interpreter() == *key)
        };
        let unnamed = known
            .iter()
            .map(|(key, _)| *key)
            .filter(|key| key.within() == Some(&Within::Interpreter));
        Self(
            unnamed
                .filter_map(|key| Some((key.clone(), name(key)?.clone())))
                .collect(),
        )
    }

    fn given<'a>(&self, of_request: OnPaths<'a>) -> OnPaths<'a> {
        let mut named = OnPaths::new();
        for (key, mut on_path) in of_request {
            let key = self.0.get(&key).cloned().unwrap_or(key);
            let all = named.entry(key).or_default();
            all.ns = all.ns.saturating_add(on_path.ns);
            all.steps.append(&mut on_path.steps);
        }
        named
    }
}

/// Whether the first of these steps, which a timer ended, may have been nothing but a tick of a
/// loop, or of a scheduler: the path goes on with a wait for something else, in the same thread or
/// in one that woke it. What the program did between the two, and for whom, is not known.
fn may_be_tick(model: &Model, steps: &[PathStep]) -> bool {
    steps.iter().skip(1).any(|step| {
        matches!(step.part, Some(Part::Network | Part::Thread | Part::Uring))
            && wait_of(model, step).is_some_and(|wait| {
                matches!(system_call(wait), SystemCall::Poll | SystemCall::Futex)
            })
    })
}

/// For how long the thread that slept in the first of these steps waited for a CPU when that was
/// over.
fn queued_ns(steps: &[PathStep]) -> u64 {
    match steps {
        [slept, then, ..] if then.part == Some(Part::Runnable) && then.tid == slept.tid => {
            then.ns()
        }
        _ => 0,
    }
}

/// What a request may be spared besides the wait itself: the waits for a CPU behind it. Of the disk
/// all waits for a CPU that threads of its role had on the path, and their sleeps for the disk that
/// are too short to be steps: what they did between longer sleeps is one step, of which the kernel
/// counted the parts.
fn besides_ns(model: &Model, key: &Key, request: &SlowRequest<'_>, on_path: &OnPath<'_>) -> u64 {
    if key.target != Target::Disk {
        return sum(on_path.steps.iter().map(|step| step.queued_ns));
    }
    let each = slow_paths::steps(&request.path).filter_map(|(part, step)| {
        let thread = model.threads.get(&step.tid)?;
        if model.role(step.tid) != key.role {
            return None;
        }
        match part {
            Part::Runnable => Some(step.ns()),
            Part::OnCpu => {
                let parts = thread.segment_before(step.to_ns)?;
                let short_ns = parts[Part::Disk].saturating_add(parts[Part::Runnable]);
                Some(in_proportion(step.ns(), short_ns, parts.total_ns()))
            }
            _ => None,
        }
    });
    sum(each)
}

/// A loop waits for a peer in several pieces, because it ticks meanwhile. If the last one, which
/// the peer ended, is less than half of a request, all of them are a wait for one of both.
fn with_ticks(mut of_request: OnPaths<'_>, latency_ns: u64) -> OnPaths<'_> {
    let ticks: Vec<Key> = of_request
        .keys()
        .filter(|key| key.target == Target::Anything)
        .cloned()
        .collect();
    for key in ticks {
        let peer = Key {
            target: Target::Peer,
            ..key.clone()
        };
        if of_request
            .get(&peer)
            .is_some_and(|on_path| !dominates(on_path.ns, latency_ns))
            && let Some(mut pieces) = of_request.remove(&peer)
            && let Some(on_path) = of_request.get_mut(&key)
        {
            on_path.ns = on_path.ns.saturating_add(pieces.ns);
            on_path.steps.append(&mut pieces.steps);
        }
    }
    of_request
}

/// The wait that a step is.
fn wait_of<'a>(model: &'a Model, step: &PathStep) -> Option<&'a Wait> {
    let thread = model.threads.get(&step.tid)?;
    thread
        .timeline
        .overlapping(step.from_ns, step.to_ns)
        .first()
}

/// Who serves how many requests at a time.
struct Loops {
    by_epoll: HashMap<(u32, u32), UnderWay>,
    by_reader: HashMap<u32, UnderWay>,
    /// There are requests that were over too soon to be seen one by one.
    unseen: bool,
}

impl Loops {
    fn new(model: &Model) -> Self {
        let seen = model
            .requests()
            .filter(|request| request.is_answered())
            .count() as u64;
        Self {
            by_epoll: UnderWay::by_epoll(model),
            by_reader: UnderWay::by_reader(model),
            unseen: model.requests_summary().count > seen,
        }
    }

    /// Whether what ended a poll may have been for another request.
    fn shared(&self, request: RequestRef<'_>, wait: &Wait, step: &PathStep) -> bool {
        let own_loop = wait.epoll != 0 && wait.epoll == request.epoll && wait.tgid == request.tgid;
        let packet = wait.wake_context == WakeContext::Softirq;
        let others = |under_way: Option<&UnderWay>| {
            under_way.is_some_and(|under_way| under_way.at(step.to_ns) > 1)
        };
        (own_loop && packet && self.unseen)
            || others(self.by_epoll.get(&(wait.tgid, wait.epoll)))
            || others(self.by_reader.get(&step.tid))
    }
}

/// Which wait a step of a path is; `None` when it is none that this is about.
fn key<'a>(
    model: &'a Model,
    loops: &Loops,
    request: RequestRef<'_>,
    step: &PathStep,
    tick: &dyn Fn() -> bool,
) -> Option<(Key, &'a Wait)> {
    let part = step.part.filter(|_| step.ns() > 0)?;
    if !matches!(
        part,
        Part::Disk | Part::Network | Part::Timer | Part::PageFault | Part::Uring
    ) {
        return None;
    }
    let wait = wait_of(model, step)?;
    let call = system_call(wait);
    let own_socket = wait.tgid == request.tgid && descriptor(wait) == Some(request.fd);
    // Once it answers, whether its own loop waits for the client to take more of that, or for
    // somebody else for the rest of it, does not show.
    let answers = request
        .first_send_ns
        .is_some_and(|first_ns| first_ns <= step.from_ns);
    let own_loop = wait.epoll != 0 && wait.epoll == request.epoll && wait.tgid == request.tgid;
    let polls_for_all = call == SystemCall::Poll && descriptor(wait).is_none();
    let waits_for_requests =
        call != SystemCall::Poll && (model.is_rest(wait) || model.awaits_a_client(wait));
    let target = match part {
        Part::Disk => Target::Disk,
        Part::PageFault => Target::Memory,
        // Its completions are of whatever kind, and of any request.
        Part::Uring => Target::Anything,
        _ if own_socket && call != SystemCall::File => Target::Client,
        _ if call == SystemCall::Poll && loops.shared(request, wait, step) => Target::Anything,
        Part::Network if answers && (own_loop || polls_for_all) => Target::Anything,
        // Another thread's wait for its own next request: it is that request that this one waited
        // for, as one that waits for an event does.
        Part::Network if step.tid != request.recv_tid && waits_for_requests => Target::Anything,
        Part::Timer if matches!(call, SystemCall::Poll | SystemCall::Futex) && tick() => {
            Target::Anything
        }
        Part::Timer => Target::Timer,
        _ => Target::Peer,
    };
    let single = (!matches!(target, Target::Disk | Target::Memory))
        .then(|| (what(wait, step), within(model, step)));
    let key = Key {
        role: model.role(step.tid),
        target,
        single,
    };
    Some((key, wait))
}

/// What a thread slept in, in a word or two.
fn what(wait: &Wait, step: &PathStep) -> String {
    match (step.kind, wait.syscall) {
        // `a page fault`: in a sentence of its own.
        (None, None) => system_call_name(wait).trim_start_matches("a ").to_owned(),
        (Some(kind), _)
            if system_call(wait) != SystemCall::Poll && system_call(wait) != SystemCall::Sleep =>
        {
            kind.name.to_owned()
        }
        _ => system_call_name(wait),
    }
}

/// Where in the program a step slept.
fn within(model: &Model, step: &PathStep) -> Within {
    let user = (step.stack != step.kernel_stack).then_some(step.stack);
    let Some(stack) = user.and_then(|id| model.stacks.get(id)) else {
        return Within::Unknown;
    };
    if runtime::in_python_somewhere(stack) {
        return Within::Interpreter;
    }
    // The C library's names say no more than the call.
    let says = |label: &&Label| label.named && origin(label) != FrameOrigin::System;
    app_frame(stack)
        .or_else(|| stack.labels.iter().find(says))
        .map_or(Within::Unknown, |label| {
            Within::Function(label.name.to_string())
        })
}

/// The function of the program in which a step slept. An interpreter's own are none.
fn in_function(model: &Model, step: &PathStep) -> Option<String> {
    match within(model, step) {
        Within::Function(name) => Some(name),
        Within::Interpreter | Within::Unknown => None,
    }
}

/// Names with how long each was, the longest first.
fn by_ns<K: Ord + Clone>(items: impl IntoIterator<Item = (K, u64)>) -> Vec<(K, u64)> {
    let mut sums: BTreeMap<K, u64> = BTreeMap::new();
    for (key, ns) in items {
        let sum = sums.entry(key).or_default();
        *sum = sum.saturating_add(ns);
    }
    let mut sums: Vec<(K, u64)> = sums.into_iter().collect();
    sums.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
    sums
}

fn finding(
    model: &Model,
    key: &Key,
    group: &Group<'_>,
    each: &[u64],
    slow_ns: u64,
) -> Option<Finding> {
    let shares = Shares::new(
        group
            .iter()
            .map(|(request, on_path)| (on_path.ns, request.latency_ns)),
    );
    let severity = match key.target {
        Target::Client | Target::Anything => Severity::Note,
        _ => Severity::Warning,
    }
    .min(shares.severity(slow_ns)?);
    let steps = || group.iter().flat_map(|(_, on_path)| &on_path.steps);
    let whats = by_ns(steps().map(|step| (what(step.wait, step.step), step.step.ns())));
    let what = &whats.first()?.0;
    let functions = by_ns(steps().map(|step| (in_function(model, step.step), step.step.ns())));
    // What is not known may be in the same.
    let known = functions.iter().find(|(function, _)| function.is_some());
    let (function, function_ns) = known.or(functions.first())?;
    let tids = by_ns(steps().map(|step| (step.step.tid, step.step.ns())));
    let tid = tids.first()?.0;
    let stacks = by_ns(
        steps()
            .filter(|step| step.step.tid == tid)
            .filter(|step| function.is_none() || in_function(model, step.step) == *function)
            .map(|step| ((step.step.stack, step.step.kernel_stack), step.step.ns())),
    );
    let (user_stack, kernel_stack) = stacks.first().map_or((0, 0), |(stacks, _)| *stacks);
    let kernel = kernel_functions(model, kernel_stack);
    let (worst, on_worst) = group
        .iter()
        .max_by_key(|(request, on_path)| (request.latency_ns, on_path.ns))?;

    let (requests, share) = (shares.requests(), shares.percent());
    let their = if group.len() == 1 { "its" } else { "their" };
    let peer = peer_of(model, key.target, group, shares.ns);
    let named = title_of(key.target, &whats, peer.as_deref(), shares.ns);
    // Where it is not known in which function most of it was, that says nothing against the others.
    let known_ns = sum(functions
        .iter()
        .filter(|(function, _)| function.is_some())
        .map(|(_, ns)| *ns));
    let known_ns = if percent(known_ns, shares.ns) >= MIN_KNOWN {
        known_ns
    } else {
        shares.ns
    };
    let place = slow_paths::place(function.as_deref(), *function_ns, known_ns);
    let role = slow_paths::who(model, &tids.iter().map(|(tid, _)| *tid).collect());
    // A sleep that the program asked for is called one.
    let title = if steps().all(|step| system_call(step.wait) == SystemCall::Sleep) {
        format!("{requests} slept {share} % of {their} time{place} ({named}, {role})")
    } else {
        format!("{requests} waited {share} % of {their} time for {named}{place} ({role})")
    };
    let on_disk = (key.target == Target::Disk)
        .then(|| others_on_disk(model, key, group))
        .flatten();
    let ports = slow_paths::ports(group.iter().map(|(request, _)| *request));
    let doing = format!("asleep in {}", broad_kind(what));
    let finding = Finding::new(&DECLARATION, severity, title)
        .confidence(confidence(key.target, function.is_some()))
        .about("tid", tid)
        .about("thread", model.thread_name(tid))
        .about("kind", what.as_str())
        .about_known("function", function.clone())
        .about_known("peer", peer.clone())
        .about_known("port", slow_paths::only_port(&ports))
        .about_known("fd", same_descriptor(steps().map(|step| step.wait)))
        .about(
            "kernel",
            kernel.into_iter().take(KERNEL_KEPT).collect::<Vec<_>>(),
        )
        .saving(Saving::latency(each.to_vec()))
        .evidence([chain(model, worst, on_worst)])
        .evidence([Evidence::of_ns(shares.ns, shares.spread(slow_ns))])
        .evidence(of_which(&whats, &functions, shares.ns))
        .evidence(besides(model, key, group, shares.ns))
        .evidence(on_disk)
        .evidence(remark(key.target, peer.is_some()))
        .cause(Cause::new(model, tid, doing, user_stack))
        .fix(fix::of(
            model,
            key.target,
            &whats,
            steps().map(|step| step.step.kernel_stack),
        ));
    let all = tids.iter().map(|(tid, _)| *tid);
    Some(slow_paths::about_processes(model, finding, tid, all))
}

fn confidence(target: Target, function_known: bool) -> Confidence {
    match target {
        Target::Anything => Confidence::Low,
        Target::Peer | Target::Client => Confidence::Medium,
        _ if function_known => Confidence::High,
        _ => Confidence::Medium,
    }
}

/// What it consists of, where that is several things: kinds of waits, and functions.
fn of_which(
    whats: &[(String, u64)],
    functions: &[(Option<String>, u64)],
    ns: u64,
) -> impl Iterator<Item = Evidence> {
    let whats = whats.iter().map(|(what, ns)| (what.as_str(), *ns));
    let functions = functions
        .iter()
        .map(|(name, ns)| (name.as_deref().unwrap_or("an unknown function"), *ns));
    let whats = (whats.len() > 1).then(|| format!("of which {}", split(whats, ns)));
    let functions = (functions.len() > 1).then(|| format!("in {}", split(functions, ns)));
    whats.into_iter().chain(functions).map(Evidence::new)
}

/// The peer for whose replies threads slept, where that is certain of nearly all of it.
fn peer_of(model: &Model, target: Target, group: &Group<'_>, ns: u64) -> Option<String> {
    if target != Target::Peer {
        return None;
    }
    let steps = group.iter().flat_map(|(_, on_path)| &on_path.steps);
    let peers = by_ns(steps.map(|step| {
        let peer = model.awaited_peer(step.wait);
        (peer.map(|peer| peer.to_string()), step.step.ns())
    }));
    let (peer, peer_ns) = peers.into_iter().next()?;
    peer.filter(|_| percent(peer_ns, ns) >= NEARLY_ALL)
}

/// What was waited for, for the title.
fn title_of(target: Target, whats: &[(String, u64)], peer: Option<&str>, ns: u64) -> String {
    let heads = by_ns(
        whats
            .iter()
            .map(|(what, ns)| (broad_kind(what).to_owned(), *ns)),
    );
    let (first, first_ns) = heads
        .first()
        .map_or(("?", 0), |(head, ns)| (head.as_str(), *ns));
    let noun = match target {
        Target::Disk => "the disk",
        _ => "memory",
    };
    match target {
        Target::Disk | Target::Memory if percent(first_ns, ns) >= NEARLY_ALL => first.to_owned(),
        Target::Disk | Target::Memory => {
            let shown: Vec<String> = heads
                .iter()
                .take(2)
                .map(|(head, head_ns)| format!("{head} {} %", percent(*head_ns, ns)))
                .collect();
            format!("{noun} ({})", shown.join(", "))
        }
        Target::Timer if first.ends_with("sleep") => first.to_owned(),
        Target::Timer => format!("a timeout ({first})"),
        Target::Peer => peer.map_or_else(|| format!("a peer ({first})"), str::to_owned),
        Target::Client => format!("the client that asked ({first})"),
        Target::Anything => format!("a peer or a timer ({first})"),
    }
}

/// `fsync 60 %; writeback throttling 35 % and 2 more`.
fn split<'a>(items: impl ExactSizeIterator<Item = (&'a str, u64)>, of_ns: u64) -> String {
    const SHOWN: usize = 4;
    let more = items.len().saturating_sub(SHOWN);
    let shown = text::shares(items.take(SHOWN), of_ns);
    match more {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// What the bound has besides the wait itself, where that is worth a word.
fn besides(model: &Model, key: &Key, group: &Group<'_>, ns: u64) -> Option<Evidence> {
    let members = group.iter();
    let besides_ns =
        sum(members.map(|(request, on_path)| besides_ns(model, key, request, on_path)));
    let text = format!(
        "besides, another {} {}; the bound has them, too",
        duration(besides_ns),
        if key.target == Target::Disk {
            "for a CPU, which the kernel's writers may have had, and in sleeps for the disk that \
             were short"
        } else {
            "for a CPU, which a thread that does not sleep keeps"
        }
    );
    (percent(besides_ns, ns) >= MIN_BESIDES).then(|| Evidence::of_ns(besides_ns, text))
}

/// The slowest request's chain of waits, in order.
fn chain(model: &Model, slow: &SlowRequest<'_>, on_path: &OnPath<'_>) -> Evidence {
    let longest = on_path.steps.iter().max_by_key(|step| step.step.ns());
    let tid = longest.map_or(0, |step| step.step.tid);
    let name = longest.map_or_else(String::new, |step| what(step.wait, step.step));
    let pieces = match on_path.steps.len() {
        0 | 1 => String::new(),
        n => format!(
            ", {n} times, the longest {}",
            duration(longest.map_or(0, |step| step.step.ns()))
        ),
    };
    let kernel = longest.map_or_else(Vec::new, |step| {
        kernel_functions(model, step.step.kernel_stack)
    });
    let kernel = if kernel.is_empty() {
        String::new()
    } else {
        let shown = kernel.iter().take(KERNEL_SHOWN);
        format!(
            ": {}",
            shown.map(String::as_str).collect::<Vec<_>>().join(" < ")
        )
    };
    let text = format!(
        "{} sleeps {}{pieces} in {name}{kernel}",
        slow_paths::chain(model, slow, tid),
        duration(on_path.ns),
    );
    Evidence::of_ns(on_path.ns, text)
}

/// The kernel's functions that say what a sleep was for: without those of every sleep and every
/// call.
fn kernel_functions(model: &Model, stack: StackId) -> Vec<String> {
    const SAY_NOTHING: &[&str] = &[
        "schedule",
        "__schedule",
        "schedule_timeout",
        "schedule_hrtimeout_range",
        "schedule_hrtimeout_range_clock",
        "io_schedule",
        "io_schedule_timeout",
        "do_syscall_64",
        "x64_sys_call",
        "do_syscall_x64",
        "entry_SYSCALL_64_after_hwframe",
        "entry_SYSCALL_64",
        "ret_from_fork",
        "el0_svc",
        "do_el0_svc",
        "el0_svc_common",
        "invoke_syscall",
        "el0t_64_sync",
        "el0t_64_sync_handler",
    ];
    model
        .stacks
        .names(stack)
        .into_iter()
        .filter(|name| {
            !SAY_NOTHING.contains(&name.as_str())
                && !name.starts_with("__x64_sys_")
                && !name.starts_with("__se_sys_")
                && !name.starts_with("__arm64_sys_")
        })
        .collect()
}

/// The descriptor of all these waits, if they have the same.
fn same_descriptor<'a>(waits: impl Iterator<Item = &'a Wait>) -> Option<i32> {
    let mut found = None;
    for wait in waits {
        let fd = descriptor(wait)?;
        if *found.get_or_insert(fd) != fd {
            return None;
        }
    }
    found
}

/// Who else waited for the disk at the same time.
fn others_on_disk(model: &Model, key: &Key, group: &Group<'_>) -> Option<Evidence> {
    let mut others: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    let steps = group.iter().flat_map(|(_, on_path)| &on_path.steps);
    for step in steps.take(MAX_LOOKED_UP) {
        for thread in model.threads.values() {
            if model.role(thread.tid) == key.role {
                continue;
            }
            let waits = thread
                .timeline
                .overlapping(step.step.from_ns, step.step.to_ns)
                .iter()
                .filter(|wait| at_disk(model, wait));
            for wait in waits {
                others.entry(thread.tid).or_default().insert(wait.seq);
            }
        }
    }
    let waits: usize = others.values().map(BTreeSet::len).sum();
    let mut names: Vec<(usize, u32)> = others
        .iter()
        .map(|(tid, waits)| (waits.len(), *tid))
        .collect();
    names.sort_unstable_by(|a, b| b.cmp(a));
    let (_, tid) = names.first()?;
    let more = match names.len() - 1 {
        0 => String::new(),
        n => format!(" and {}", count(n, "other thread", "other threads")),
    };
    Some(Evidence::new(format!(
        "at the same time {}{more} waited for the disk too, {}",
        named(model, *tid),
        count(waits, "time", "times")
    )))
}

fn at_disk(model: &Model, wait: &Wait) -> bool {
    match model.kind_of(wait).and_then(|kind| kind.part) {
        Some(part) => part == Part::Disk,
        None => system_call(wait) == SystemCall::File || wait.io_wait,
    }
}

/// What the recording cannot tell.
fn remark(target: Target, peer_known: bool) -> Option<Evidence> {
    let text = match target {
        Target::Anything => {
            "the loop waits for all its requests, peers and timers at once: which of them this was \
             does not show, and a request that is meant to wait (a long poll) looks the same"
        }
        Target::Peer if peer_known => {
            "these calls are in `whywait report --calls`; if the peer was meant to take its time \
             (a long poll, say), nothing is wrong"
        }
        Target::Peer => {
            "the peer is outside of what was recorded; if it was meant to take its time (a long \
             poll, say), nothing is wrong"
        }
        Target::Client => {
            "it is the connection that the request came on: its client sends or takes data slowly"
        }
        _ => return None,
    };
    Some(Evidence::new(text))
}

#[cfg(test)]
mod tests;
