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
//! Where nearly all of such a wait was for one peer, the finding is `slow-upstream`: that is one
//! cause, whether a thread, a loop or a task waits for it.
//!
//! Where one function sleeps again and again within a request, and what requests then do is never
//! done by two at a time, they try for a lock: that is a `lock-contention`.
//!
//! **Cost.** For each request, the quick ones too, the time of the wait on its path, and for as
//! long as the thread then waited for a CPU: one that had not slept would have kept its own.
//! Of a wait for the disk, for as long as the thread waited for a CPU at all (the kernel's writers
//! and the disk's interrupts have it meanwhile), and its sleeps for the disk that were too short to
//! be recorded. Without the wait a part of that would go elsewhere: a bound. By replay, what others
//! then wait for less behind these: for a loop, a worker, a lock.
//!
//! **Guards.** A poll or a futex wait that a timer ended, and after which the request waited for
//! something else, may have been a tick of a loop: what the request waited for does not show. What
//! nobody has read yet is not this finding's. A wait for nothing in particular, as a loop's poll
//! while it serves others too, is a remark of low confidence: what the request waited for does not
//! show. There is none where looks at the request's task show it. A wait for the request's own
//! client is such a remark, too. A few waits for peers on this machine that are no more than what
//! the scheduler does are not reported (`shared::crowding`). What takes less than a tenth of slow
//! requests' time is reported only if it made one of them take 100 ms, and as a remark.

mod bound;
mod case;
mod fix;
mod tries;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use whywait_events::{Part, StackId, Wait, WakeContext};
use whywait_model::{
    FrameOrigin, Label, Model, PathStep, RequestRef, Role, SystemCall, app_frame, descriptor,
    origin, polls_unread, system_call, system_call_name,
};

use crate::declaration::{Declaration, Has, Waits};
use crate::facts::{ByWhom, Facts};
use crate::finding::{Finding, Severity};
use crate::numbers::FINDINGS_OF_A_KIND;
use crate::shared::runtime;
use crate::shared::slow_paths::{self, Shares, SlowRequest, UnderWay, dominates, wait_of};

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "slow-path-wait",
    meaning: "one wait is where slow requests spent most of their time: a disk, memory, a sleep or \
         a peer",
    severities: &[
        (
            Severity::Warning,
            "from 30 ms of the median request on, unless a sleep or a peer takes as long each time",
        ),
        (Severity::Note, "otherwise"),
    ],
    invariant: "no single wait (device, writeback, sleep, peer) dominates the slow requests' \
         critical path",
    explain: include_str!("explain.md"),
    waits: Some(Waits {
        who: "requests",
        what: "for the thread that serves them",
        has: Has::Cause,
    }),
    detect,
};

/// Which wait a step is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct StepKey {
    role: Rc<Role>,
    target: WaitTarget,
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

impl StepKey {
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum WaitTarget {
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
    steps: Vec<WaitStep<'a>>,
}

#[derive(Debug)]
struct WaitStep<'a> {
    step: &'a PathStep,
    wait: &'a Wait,
    is: Rc<SaidWait>,
    /// For how long the thread then waited for a CPU.
    queued_ns: u64,
}

/// The waits on the path of one request.
type OnPaths<'a> = BTreeMap<Rc<StepKey>, OnPath<'a>>;

/// A wait, and the request on whose path it is.
type OfRequest<'a> = (&'a SlowRequest<'a>, OnPath<'a>);

/// Requests with the same wait.
type Dominated<'a> = Vec<OfRequest<'a>>;

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let slow = facts.slow();
    let mut keys = Keys::new(facts);
    let by_themselves: Vec<&SlowRequest<'_>> = facts.slow_by_themselves();
    let requests: Vec<OnPaths<'_>> = by_themselves
        .iter()
        .map(|request| on_paths(facts, &mut keys, request))
        .collect();
    let names = WaitNames::of(&requests);
    let mut waits: BTreeMap<Rc<StepKey>, Dominated<'_>> = BTreeMap::new();
    for (request, of_request) in by_themselves.into_iter().zip(requests) {
        for (key, on_path) in with_ticks(names.given(of_request), request.latency_ns) {
            waits.entry(key).or_default().push((request, on_path));
        }
    }
    let is_dominated = |(request, wait): &OfRequest<'_>| dominates(wait.ns, request.latency_ns);
    // What is not worth a word of those that it dominates needs no bound.
    waits.retain(|_, all| {
        let dominated = all.iter().filter(|one| is_dominated(one));
        let shares = dominated.map(|(request, wait)| (wait.ns, request.latency_ns));
        Shares::new(shares).severity(slow.total_ns).is_some()
    });
    // A fix helps also those that are not slow, and those that queue behind them.
    let quick: Vec<SlowRequest<'_>> = match waits.is_empty() {
        true => Vec::new(),
        false => slow_paths::quicker(facts.model).collect(),
    };
    let mut in_quick: BTreeMap<Rc<StepKey>, Dominated<'_>> = BTreeMap::new();
    for request in &quick {
        let of_request = names.given(on_paths(facts, &mut keys, request));
        for (key, on_path) in with_ticks(of_request, request.latency_ns) {
            // What ended a poll of everything may have been anything.
            if key.target != WaitTarget::Anything && waits.contains_key(&key) {
                in_quick.entry(key).or_default().push((request, on_path));
            }
        }
    }
    let mut findings: Vec<Finding> = waits
        .into_iter()
        .filter_map(|(key, mut group)| {
            // Also those that it does not dominate: a fix helps them too.
            let spared = group.iter().chain(in_quick.get(&key).into_iter().flatten());
            let spared = spared.map(|(request, wait)| bound::spared(facts, &key, request, wait));
            let bound = facts.behind().bound(&spared.collect::<Vec<_>>(), None);
            group.retain(is_dominated);
            case::finding(facts, &key, &group, bound, slow.total_ns)
        })
        .collect();
    findings
        .sort_by_key(|finding| std::cmp::Reverse((finding.severity, finding.saving.at_most_ns)));
    findings.truncate(*FINDINGS_OF_A_KIND);
    findings
}

/// The waits on a request's path.
fn on_paths<'a>(
    facts: &'a Facts<'_>,
    keys: &mut Keys<'_>,
    request: &'a SlowRequest<'a>,
) -> OnPaths<'a> {
    let (model, answers) = (facts.model, facts.answers());
    let mut of_request = OnPaths::new();
    let path = request.request.path();
    let task_known = keys.looked_at.contains(&request.request.tgid);
    for (at, step) in path.steps.iter().enumerate() {
        // What the thread slept in was for others: see slow-upstream.
        if step.by_call {
            continue;
        }
        if facts.is_of_jobs_before(&request.request, (step.from_ns, step.to_ns)) {
            continue;
        }
        // See connect-retried.
        if facts.given_up().slept_for(step).is_some() {
            continue;
        }
        let tick = || may_be_tick(model, &path.steps[at..]);
        let Some((is, wait)) = keys.of(facts, request.request, step, &tick) else {
            continue;
        };
        // Where its task was looked at, that says what it waited for, and a poll for all does not.
        if is.key.target == WaitTarget::Anything && request.request.was_looked_at() {
            continue;
        }
        // What a thread slept in before it answered another was for that one; a poll is for all.
        let polls = is.key.target == WaitTarget::Anything || system_call(wait) == SystemCall::Poll;
        if !polls && answers.own_from(request.request, step) != Some(step.from_ns) {
            continue;
        }
        if is.key.target == WaitTarget::Anything && task_known {
            continue;
        }
        let on_path = of_request.entry(Rc::clone(&is.key)).or_default();
        on_path.ns = on_path.ns.saturating_add(step.ns());
        on_path.steps.push(WaitStep {
            step,
            wait,
            is,
            queued_ns: queued_ns(&path.steps[at..]),
        });
    }
    of_request
}

/// For waits of which only the interpreter is known, those that are otherwise the same and have a
/// function: of all such those that take longest.
struct WaitNames(BTreeMap<Rc<StepKey>, Rc<StepKey>>);

impl WaitNames {
    fn of(requests: &[OnPaths<'_>]) -> Self {
        let waits = requests.iter().flatten();
        let known = by_ns(waits.map(|(key, on_path)| (key, on_path.ns)));
        let is_named = |key: &StepKey| matches!(key.within(), Some(Within::Function(_)));
        let name = |key: &Rc<StepKey>| {
            known
                .iter()
                .map(|(other, _)| *other)
                .find(|other| is_named(other) && other.in_interpreter() == **key)
        };
        let unnamed = known
            .iter()
            .map(|(key, _)| *key)
            .filter(|key| key.within() == Some(&Within::Interpreter));
        Self(
            unnamed
                .filter_map(|key| Some((Rc::clone(key), Rc::clone(name(key)?))))
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
/// in one that woke it. What the program did between the two, and for whom, is not known. A thread
/// that sleeps on a futex for a time, and then for something else in another function, slept.
fn may_be_tick(model: &Model, steps: &[&PathStep]) -> bool {
    let Some((first, later)) = steps.split_first() else {
        return false;
    };
    let on_futex = wait_of(model, first).is_some_and(|wait| system_call(wait) == SystemCall::Futex);
    let slept_in = within(model, first);
    let elsewhere = |step: &PathStep| {
        let functions = [&slept_in, &within(model, step)];
        on_futex
            && step.tid == first.tid
            && functions
                .iter()
                .all(|one| matches!(one, Within::Function(_)))
            && functions[0] != functions[1]
    };
    later.iter().any(|step| {
        !elsewhere(step)
            && matches!(step.part, Some(Part::Network | Part::Thread | Part::Uring))
            && wait_of(model, step).is_some_and(|wait| {
                matches!(system_call(wait), SystemCall::Poll | SystemCall::Futex)
            })
    })
}

/// For how long the thread that slept in the first of these steps waited for a CPU when that was
/// over.
fn queued_ns(steps: &[&PathStep]) -> u64 {
    match steps {
        [slept, then, ..] if then.part == Some(Part::Runnable) && then.tid == slept.tid => {
            then.ns()
        }
        _ => 0,
    }
}

/// A loop waits for a peer in several pieces, because it ticks meanwhile. If the last one, which
/// the peer ended, is less than half of a request, all of them are a wait for one of both.
fn with_ticks(mut of_request: OnPaths<'_>, latency_ns: u64) -> OnPaths<'_> {
    let ticks: Vec<Rc<StepKey>> = of_request
        .keys()
        .filter(|key| key.target == WaitTarget::Anything)
        .cloned()
        .collect();
    for key in ticks {
        let peer = StepKey {
            target: WaitTarget::Peer,
            ..StepKey::clone(&key)
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

/// Whether it is a poll of the loop that a request is registered with.
fn is_of_its_loop(request: RequestRef<'_>, wait: &Wait) -> bool {
    match request.epoll {
        0 => request
            .pool()
            .is_some_and(|pool| pool.epoll == 0 && pool.polls(wait)),
        epoll => wait.epoll == epoll && wait.tgid == request.tgid,
    }
}

/// Who serves how many requests at a time.
struct Loops<'f> {
    under_way: &'f ByWhom,
    /// There are requests that were over too soon to be seen one by one.
    unseen: bool,
}

impl<'f> Loops<'f> {
    fn new(facts: &'f Facts<'_>) -> Self {
        let answered = facts.model.requests().filter(|one| one.is_answered());
        Self {
            under_way: facts.under_way(),
            unseen: facts.model.requests_count() > answered.count() as u64,
        }
    }

    /// Whether what ended a poll may have been for another request.
    fn shared(&self, request: RequestRef<'_>, wait: &Wait, step: &PathStep) -> bool {
        let own_loop = is_of_its_loop(request, wait);
        let packet = wait.wake_context == WakeContext::Softirq;
        // A thread that polls for others, as that of virtual threads does, may have been woken for
        // any request of the process.
        let for_others = step.tid != request.recv_tid && descriptor(wait).is_none();
        let others = |under_way: Option<&UnderWay>| {
            under_way.is_some_and(|under_way| under_way.at(step.to_ns) > 1)
        };
        (own_loop && packet && self.unseen)
            || others(self.under_way.by_epoll.get(&(wait.tgid, wait.epoll)))
            || others(self.under_way.by_reader.get(&step.tid))
            || (for_others && others(self.under_way.by_process.get(&wait.tgid)))
    }
}

/// What is said of steps, which is the same of many.
struct Keys<'f> {
    loops: Loops<'f>,
    /// Processes whose requests' tasks were looked at: for what they wait these looks say, which
    /// are a sample of all, and a poll for everything does not.
    looked_at: BTreeSet<u32>,
    known: HashMap<Like, Rc<SaidWait>>,
}

/// Steps of which the same is said.
#[derive(PartialEq, Eq, Hash)]
struct Like {
    tid: u32,
    target: WaitTarget,
    syscall: Option<u32>,
    page_fault: bool,
    kind: Option<&'static str>,
    stacks: (StackId, StackId),
}

/// What is said of a step.
#[derive(Debug)]
struct SaidWait {
    key: Rc<StepKey>,
    /// What the thread slept in, in a word or two.
    what: String,
    /// The function of the program in which it did. An interpreter's own are none.
    function: Option<String>,
}

impl<'f> Keys<'f> {
    fn new(facts: &'f Facts<'_>) -> Self {
        let slow = facts.slow().requests.iter().map(|slow| slow.request);
        let looked_at = slow.filter(|request| request.task_waits().is_some());
        Self {
            loops: Loops::new(facts),
            looked_at: looked_at.map(|request| request.tgid).collect(),
            known: HashMap::new(),
        }
    }

    /// Which wait a step of a path is; `None` when it is none that this is about.
    fn of<'a>(
        &mut self,
        facts: &'a Facts<'_>,
        request: RequestRef<'_>,
        step: &PathStep,
        tick: &dyn Fn() -> bool,
    ) -> Option<(Rc<SaidWait>, &'a Wait)> {
        let model = facts.model;
        let (target, wait) = target(model, &self.loops, request, step, tick)?;
        let like = Like {
            tid: step.tid,
            target,
            syscall: wait.syscall,
            page_fault: wait.uninterruptible || wait.io_wait,
            kind: step.kind.map(|kind| kind.name),
            stacks: (step.stack, step.kernel_stack),
        };
        let known = self.known.entry(like).or_insert_with(|| {
            let (what, within) = (what(wait, step), within(model, step));
            let function = match &within {
                Within::Function(name) => Some(name.clone()),
                Within::Interpreter | Within::Unknown => None,
            };
            let single = !matches!(target, WaitTarget::Disk | WaitTarget::Memory);
            let key = StepKey {
                role: facts.role(step.tid),
                target,
                single: single.then(|| (what.clone(), within)),
            };
            Rc::new(SaidWait {
                key: Rc::new(key),
                what,
                function,
            })
        });
        Some((Rc::clone(known), wait))
    }
}

/// What a step of a path waits for; `None` when it is none that this is about.
fn target<'a>(
    model: &'a Model,
    loops: &Loops<'_>,
    request: RequestRef<'_>,
    step: &PathStep,
    tick: &dyn Fn() -> bool,
) -> Option<(WaitTarget, &'a Wait)> {
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
    let own_loop = is_of_its_loop(request, wait);
    let polls_for_all = call == SystemCall::Poll && descriptor(wait).is_none();
    let waits_for_requests =
        call != SystemCall::Poll && (model.is_rest(wait) || model.awaits_a_client(wait));
    let target = match part {
        Part::Disk => WaitTarget::Disk,
        Part::PageFault => WaitTarget::Memory,
        // Its completions are of whatever kind, and of any request.
        Part::Uring => WaitTarget::Anything,
        _ if own_socket && call != SystemCall::File => WaitTarget::Client,
        _ if call == SystemCall::Poll && loops.shared(request, wait, step) => WaitTarget::Anything,
        Part::Network if answers && (own_loop || polls_for_all) => WaitTarget::Anything,
        // Another thread's wait for its own next request: it is that request that this one waited
        // for, as one that waits for an event does.
        Part::Network if step.tid != request.recv_tid && waits_for_requests => WaitTarget::Anything,
        Part::Timer if matches!(call, SystemCall::Poll | SystemCall::Futex) && tick() => {
            WaitTarget::Anything
        }
        Part::Timer => WaitTarget::Timer,
        // Its own client's, or a peer's.
        _ if polls_unread(wait) => WaitTarget::Anything,
        _ => WaitTarget::Peer,
    };
    Some((target, wait))
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

#[cfg(test)]
mod tests;
