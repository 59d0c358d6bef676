//! What the finding says, in words.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use whywait_events::{Part, StackId, Wait};
use whywait_model::{
    Model, PathStep, Peer, RequestRef, SystemCall, broad_kind, descriptor, system_call,
};
use whywait_words::{counted, duration, list, percent, shares};

use super::bound::{self, besides_ns};
use super::tries::Tries;
use super::{DECLARATION, Dominated, OnPath, StepKey, WaitTarget, by_ns, fix};
use crate::detectors::{lock_contention, slow_upstream};
use crate::facts::Facts;
use crate::finding::{Cause, Confidence, Evidence, Finding, Severity};
use crate::numbers::{IN_TITLE, KEPT, LOOKED_AT, MOST, MUCH, NEARLY_ALL, NOTABLE, SHOWN, Share};
use crate::shared::crowding;
use crate::shared::intervals::{Interval, merged, sum};
use crate::shared::replay::Bound;
use crate::shared::slow_paths::{self, Shares, SlowRequest};
use crate::shared::threads::named;

/// What is to be said of a wait that dominates these requests.
pub(super) fn finding(
    facts: &Facts<'_>,
    key: &StepKey,
    group: &Dominated<'_>,
    bound: Bound,
    slow_ns: u64,
) -> Option<Finding> {
    let model = facts.model;
    let shares = Shares::new(
        group
            .iter()
            .map(|(request, on_path)| (on_path.ns, request.latency_ns)),
    );
    let severity = match key.target {
        WaitTarget::Client | WaitTarget::Anything => Severity::Note,
        _ => Severity::Warning,
    }
    .min(shares.severity(slow_ns)?);
    let steps = || group.iter().flat_map(|(_, on_path)| &on_path.steps);
    // What a loop waited for may be anybody's.
    let on_this_machine = match key.target {
        WaitTarget::Anything => true,
        WaitTarget::Peer => steps().all(|step| {
            let peer = model.slept_for(step.step);
            peer.and_then(Peer::tgid).is_some()
        }),
        _ => false,
    };
    if on_this_machine && crowding::explains(model, &shares.each_ns) {
        return None;
    }
    let whats = by_ns(steps().map(|step| (step.is.what.as_str(), step.step.ns())));
    let what = whats.first()?.0;
    let functions = by_ns(steps().map(|step| (step.is.function.as_deref(), step.step.ns())));
    // What is not known may be in the same.
    let known = functions.iter().find(|(function, _)| function.is_some());
    let (function, function_ns) = known.or(functions.first())?;
    let tids = by_ns(steps().map(|step| (step.step.tid, step.step.ns())));
    let tid = tids.first()?.0;
    let stacks = by_ns(
        steps()
            .filter(|step| step.step.tid == tid)
            .filter(|step| function.is_none() || step.is.function.as_deref() == *function)
            .map(|step| ((step.step.stack, step.step.kernel_stack), step.step.ns())),
    );
    let (user_stack, kernel_stack) = stacks.first().map_or((0, 0), |(stacks, _)| *stacks);
    let kernel = kernel_functions(model, kernel_stack);
    let (requests, share) = (shares.requests(), shares.percent());
    let their = if group.len() == 1 { "its" } else { "their" };
    let peer = peer_of(model, key.target, group, shares.ns);
    let named = title_of(key.target, &whats, peer, shares.ns);
    // Where it is not known in which function most of it was, that says nothing against the others.
    let known_ns = sum(functions
        .iter()
        .filter(|(function, _)| function.is_some())
        .map(|(_, ns)| *ns));
    let known_ns = if Share::new(known_ns, shares.ns).is_at_least(*MUCH) {
        known_ns
    } else {
        shares.ns
    };
    let place = slow_paths::place(*function, *function_ns, known_ns);
    let role = slow_paths::who(model, &tids.iter().map(|(tid, _)| *tid).collect());
    let in_others = match key.target {
        WaitTarget::Timer | WaitTarget::Peer => InOthers::of(facts, group),
        _ => None,
    };
    // A sleep that the program asked for is called one.
    let tries = match key.target {
        WaitTarget::Timer if in_others.is_none() => Tries::of(facts, group),
        _ => None,
    };
    let for_one = polls_for_one(group, shares.ns);
    let may_connect = key.target == WaitTarget::Anything && for_one;
    let lock = tries.as_ref().and_then(|tries| tries.lock.as_ref());
    let (worst, on_worst) = group.iter().max_by_key(|(slow, on_path)| {
        let waits = in_others.is_some() && in_others_ns(facts, slow, on_path) > 0;
        (waits, slow.latency_ns, on_path.ns)
    })?;
    let title = if let Some(tries) = tries.as_ref().filter(|_| lock.is_some()) {
        format!(
            "{requests} slept {share} of {their} time{place}{}{}",
            tries.title(),
            tries.holder_in_title()
        )
    } else if in_others.is_some() && key.target == WaitTarget::Peer {
        format!(
            "{requests} waited {share} of {their} time for other requests, which waited for \
             {named}{place} ({role})"
        )
    } else if in_others.is_some() {
        format!(
            "{requests} waited {share} of {their} time for other requests, which slept{place} \
             ({named}, {role})"
        )
    } else if tries.is_some() || steps().all(|step| system_call(step.wait) == SystemCall::Sleep) {
        let again = tries.as_ref().map(Tries::title).unwrap_or_default();
        let holder = tries.as_ref().map(Tries::holder_in_title);
        let holder = holder.unwrap_or_default();
        format!("{requests} slept {share} of {their} time{place}{again} ({named}, {role}){holder}")
    } else {
        format!("{requests} waited {share} of {their} time for {named}{place} ({role})")
    };
    let on_disk = (key.target == WaitTarget::Disk)
        .then(|| others_on_disk(facts, key, group))
        .flatten();
    let ports = slow_paths::ports(group.iter().map(|(request, _)| *request));
    let doing = format!("asleep in {}", broad_kind(what));
    // One cause has one code, whoever waits for it: a thread, a loop or a task. What requests that
    // were served meanwhile asked of a peer is not what these waited for there.
    let finding = match peer.filter(|_| in_others.is_none()) {
        Some(peer) if slow_upstream::by_design(model, peer) => {
            Finding::new(&slow_upstream::DECLARATION, Severity::Note, title).about_peer(peer)
        }
        Some(peer) => Finding::new(&slow_upstream::DECLARATION, severity, title).about_peer(peer),
        None if lock.is_some() => Finding::new(&lock_contention::DECLARATION, severity, title),
        None => Finding::new(&DECLARATION, severity, title),
    };
    // A device is shared: what else it does, and how much is asked of it, could be otherwise.
    let device = matches!(key.target, WaitTarget::Disk | WaitTarget::Memory);
    // A full pipe is a reader that is slower than who writes, and a full queue one that is slower
    // than who connects: it could be quicker.
    let backed_up = fix::is_full_pipe(&whats) || fix::is_full_backlog(&whats);
    // A timeout takes as long each time, whatever did not come.
    let timed_out = key.target == WaitTarget::Timer && for_one;
    // Who has what these try for could have it for less.
    let awaits = tries.as_ref().is_some_and(Tries::await_something);
    let finding = finding
        .takes_as_long(
            shares
                .as_ever(&bound.saving)
                .filter(|_| !device && !backed_up && !timed_out && !awaits && in_others.is_none()),
        )
        .confidence(confidence(key.target, function.is_some()))
        .about("tid", tid)
        .about("thread", model.thread_name(tid))
        .about("kind", what)
        .about_known("function", *function)
        .about_known("port", slow_paths::only_port(&ports))
        .about_known("fd", same_descriptor(steps().map(|step| step.wait)))
        .about("kernel", kernel.into_iter().take(*KEPT).collect::<Vec<_>>())
        .evidence([chain(model, worst, on_worst)])
        .evidence([Evidence::of_ns(shares.ns, shares.spread(slow_ns))])
        .evidence(of_which(&whats, &functions, shares.ns))
        .evidence(tries.iter().flat_map(Tries::evidence))
        .evidence(in_others.as_ref().map(|others| others.evidence(shares.ns)))
        .evidence(besides(facts, key, group, shares.ns))
        .evidence(peer.and_then(|_| behind_others(group, shares.ns)))
        .evidence(
            may_connect
                .then(|| failed_connects(model).map(Evidence::new))
                .flatten(),
        )
        .bounded(bound)
        .evidence(on_disk)
        .evidence(remark(key.target, peer.is_some()))
        .cause(lock.and_then(|lock| lock.cause(facts)).unwrap_or_else(|| {
            let own = steps().filter(|one| {
                let same = one.is.what == what && one.is.function.as_deref() == *function;
                one.step.tid == tid && same
            });
            // Others wait for the same sleep, and it is on their paths, too.
            let mut each: BTreeMap<u64, u64> = BTreeMap::new();
            for one in own {
                let ns = each.entry(one.wait.out_ns).or_default();
                *ns = one.step.ns().max(*ns);
            }
            Cause::new(model, tid, doing, user_stack).each(each.into_values())
        }))
        .fix(match (&tries, &in_others) {
            (Some(tries), _) => tries.fix().to_owned(),
            (None, Some(_)) => fix::IN_OTHERS.to_owned(),
            (None, None) if timed_out => {
                let failed =
                    failed_connects(model).map_or_else(String::new, |it| format!("; {it}"));
                format!("{}{failed}", fix::TIMED_OUT)
            }
            (None, None) => {
                let kernel = steps().map(|step| step.step.kernel_stack);
                fix::of(model, key.target, &whats, kernel)
            }
        });
    let finding = finding.of_requests(group.iter().map(|(request, _)| request.request));
    let caller = group.first().map_or(0, |(slow, _)| slow.request.tgid);
    let finding = match peer {
        Some(peer) => slow_upstream::if_watched(model, peer, caller, finding),
        None => finding,
    };
    let all = tids.iter().map(|(tid, _)| *tid);
    Some(slow_paths::about_processes(model, finding, tid, all))
}

/// Whether most of it are polls for one descriptor: of something that is to come.
fn polls_for_one(group: &Dominated<'_>, ns: u64) -> bool {
    let steps = group.iter().flat_map(|(_, on_path)| &on_path.steps);
    let polls = steps.filter(|step| {
        system_call(step.wait) == SystemCall::Poll && descriptor(step.wait).is_some()
    });
    Share::new(sum(polls.map(|step| step.step.ns())), ns).is_at_least(*MOST)
}

/// Connections that were not made meanwhile: who polls for one may have waited for that. (With a
/// row of such a connection it is known: see `connect-retried`.)
fn failed_connects(model: &Model) -> Option<String> {
    let mut rows = model.calls();
    rows.retain(|row| row.failed > 0);
    rows.sort_by_key(|row| Reverse(row.failed));
    let peers = rows.iter().take(*SHOWN).map(|row| {
        let failed = counted(row.failed, "connection");
        format!("{failed} to {}", row.name())
    });
    let peers: Vec<String> = peers.collect();
    (!peers.is_empty()).then(|| format!("not made meanwhile: {}", list(&peers)))
}

/// Of a sleep on requests' paths, what threads slept while they served another request, which
/// these therefore waited for.
struct InOthers {
    ns: u64,
    /// How many requests waited so for most of what they waited.
    requests: usize,
}

impl InOthers {
    /// `None`: most of it is the requests' own.
    fn of(facts: &Facts<'_>, group: &Dominated<'_>) -> Option<Self> {
        let mut all = Self { ns: 0, requests: 0 };
        for (slow, on_path) in group {
            let ns = in_others_ns(facts, slow, on_path);
            all.ns = all.ns.saturating_add(ns);
            all.requests += usize::from(Share::new(ns, on_path.ns).is_at_least(*MOST));
        }
        let ns = sum(group.iter().map(|(_, on_path)| on_path.ns));
        Share::new(all.ns, ns).is_at_least(*MOST).then_some(all)
    }

    fn evidence(&self, all_ns: u64) -> Evidence {
        let text = format!(
            "{} of it, of {}, is the sleep of a thread that served another request meanwhile: it \
             has something that these wait for",
            percent(self.ns, all_ns),
            counted(self.requests, "request"),
        );
        Evidence::of_ns(self.ns, text)
    }
}

/// For how long of a sleep on a request's path the thread served another one.
fn in_others_ns(facts: &Facts<'_>, slow: &SlowRequest<'_>, on_path: &OnPath<'_>) -> u64 {
    let steps = on_path.steps.iter().map(|step| step.step);
    let of_others = steps.filter(|step| serves_another(facts, slow.request, step));
    sum(of_others.map(PathStep::ns))
}

/// Whether the thread of a step had one request in hand then, and it was another one.
fn serves_another(facts: &Facts<'_>, request: RequestRef<'_>, step: &PathStep) -> bool {
    if [request.recv_tid, request.send_tid].contains(&step.tid) {
        return false;
    }
    let in_hand = facts.read_by(step.tid).iter().filter(|other| {
        other.recv_ns.is_some_and(|ns| ns <= step.from_ns)
            && other.answered_ns().is_none_or(|ns| ns >= step.to_ns)
    });
    in_hand.take(2).count() == 1
}

fn confidence(target: WaitTarget, function_known: bool) -> Confidence {
    match target {
        WaitTarget::Anything => Confidence::Low,
        WaitTarget::Peer | WaitTarget::Client => Confidence::Medium,
        _ if function_known => Confidence::High,
        _ => Confidence::Medium,
    }
}

/// What it consists of, where that is several things: kinds of waits, and functions.
fn of_which(
    whats: &[(&str, u64)],
    functions: &[(Option<&str>, u64)],
    ns: u64,
) -> impl Iterator<Item = Evidence> {
    let whats = whats.iter().map(|(what, ns)| (*what, *ns));
    let functions = functions
        .iter()
        .map(|(name, ns)| (name.unwrap_or("an unknown function"), *ns));
    let whats = (whats.len() > 1).then(|| format!("of which {}", split(whats, ns)));
    let functions = (functions.len() > 1).then(|| format!("in {}", split(functions, ns)));
    whats.into_iter().chain(functions).map(Evidence::new)
}

/// Of the time for which requests waited for a peer, what is beyond what threads slept for it:
/// there several requests waited for the same sleep, which was for one of them at most.
fn behind_others(group: &Dominated<'_>, ns: u64) -> Option<Evidence> {
    let mut slept: BTreeMap<u32, Vec<Interval>> = BTreeMap::new();
    for step in group.iter().flat_map(|(_, on_path)| &on_path.steps) {
        let of_thread = slept.entry(step.step.tid).or_default();
        of_thread.push((step.step.from_ns, step.step.to_ns));
    }
    let slept_ns = sum(slept.into_values().map(|spans| {
        let merged = merged(spans).into_iter();
        sum(merged.map(|(from_ns, to_ns)| to_ns.saturating_sub(from_ns)))
    }));
    let behind_ns = ns.saturating_sub(slept_ns);
    (behind_ns > 0).then(|| {
        let text = format!(
            "{} of it is the wait behind calls of other requests that the same threads made: they \
             slept {} for the peer",
            duration(behind_ns),
            duration(slept_ns)
        );
        Evidence::of_ns(behind_ns, text)
    })
}

/// The peer for whose replies threads slept, where that is certain of nearly all of it.
fn peer_of<'m>(
    model: &'m Model,
    target: WaitTarget,
    group: &Dominated<'_>,
    ns: u64,
) -> Option<Peer<'m>> {
    if target != WaitTarget::Peer {
        return None;
    }
    let steps = group.iter().flat_map(|(_, on_path)| &on_path.steps);
    let peers = by_ns(steps.map(|step| {
        let peer = model.awaited_peer(step.wait);
        (peer.map(Peer::number), step.step.ns())
    }));
    let (peer, peer_ns) = peers.into_iter().next()?;
    model
        .peer(peer?)
        .filter(|_| Share::new(peer_ns, ns).is_at_least(*NEARLY_ALL))
}

/// What was waited for, for the title.
fn title_of(target: WaitTarget, whats: &[(&str, u64)], peer: Option<Peer<'_>>, ns: u64) -> String {
    let heads = by_ns(
        whats
            .iter()
            .map(|(what, ns)| (broad_kind(what).to_owned(), *ns)),
    );
    let (first, first_ns) = heads
        .first()
        .map_or(("?", 0), |(head, ns)| (head.as_str(), *ns));
    let noun = match target {
        WaitTarget::Disk => "the disk",
        _ => "memory",
    };
    match target {
        WaitTarget::Disk | WaitTarget::Memory
            if Share::new(first_ns, ns).is_at_least(*NEARLY_ALL) =>
        {
            first.to_owned()
        }
        WaitTarget::Disk | WaitTarget::Memory => {
            let shown: Vec<String> = heads
                .iter()
                .take(*IN_TITLE)
                .map(|(head, head_ns)| format!("{head} {}", percent(*head_ns, ns)))
                .collect();
            format!("{noun} ({})", shown.join(", "))
        }
        WaitTarget::Timer if first.ends_with("sleep") => first.to_owned(),
        WaitTarget::Timer => format!("a timeout ({first})"),
        WaitTarget::Peer if fix::is_full_pipe(whats) => format!("room in a pipe ({first})"),
        WaitTarget::Peer if fix::is_full_backlog(whats) => {
            format!("a place in the accept queue of a unix socket ({first})")
        }
        WaitTarget::Peer => {
            peer.map_or_else(|| format!("a peer ({first})"), |peer| peer.to_string())
        }
        WaitTarget::Client => format!("the client that asked ({first})"),
        WaitTarget::Anything => format!("a peer or a timer ({first})"),
    }
}

/// `fsync 60 %; writeback throttling 35 % and 2 more`.
fn split<'a>(items: impl ExactSizeIterator<Item = (&'a str, u64)>, of_ns: u64) -> String {
    let more = items.len().saturating_sub(*SHOWN);
    let shown = shares(items.take(*SHOWN), of_ns);
    match more {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// What the bound has besides the wait itself, where that is worth a word.
fn besides(facts: &Facts<'_>, key: &StepKey, group: &Dominated<'_>, ns: u64) -> Option<Evidence> {
    let members = group.iter();
    let besides_ns =
        sum(members.map(|(request, on_path)| besides_ns(facts, key, request, on_path)));
    let why = match key.target {
        WaitTarget::Disk => {
            "for a CPU, which the kernel's writers may have had, and in sleeps for the disk that \
             were short"
        }
        _ if group
            .iter()
            .any(|(_, on_path)| bound::is_full_backlog(on_path)) =>
        {
            "for answers, which come sooner from who accepts sooner, and for a CPU"
        }
        _ => "for a CPU, which a thread that does not sleep keeps",
    };
    let text = format!(
        "besides, another {} {why}; the bound has them, too",
        duration(besides_ns)
    );
    Share::new(besides_ns, ns)
        .is_at_least(*NOTABLE)
        .then(|| Evidence::of_ns(besides_ns, text))
}

/// The slowest request's chain of waits, in order.
fn chain(model: &Model, slow: &SlowRequest<'_>, on_path: &OnPath<'_>) -> Evidence {
    let longest = on_path.steps.iter().max_by_key(|step| step.step.ns());
    let tid = longest.map_or(0, |step| step.step.tid);
    let name = longest.map_or("", |step| &step.is.what);
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
        let shown = kernel.iter().take(*SHOWN);
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
fn others_on_disk(facts: &Facts<'_>, key: &StepKey, group: &Dominated<'_>) -> Option<Evidence> {
    let model = facts.model;
    let mut others: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    let steps = group.iter().flat_map(|(_, on_path)| &on_path.steps);
    for step in steps.take(*LOOKED_AT) {
        for thread in model.threads.values() {
            if facts.role(thread.tid) == key.role {
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
        n => format!(" and {}", counted(n, "other thread")),
    };
    Some(Evidence::new(format!(
        "at the same time {}{more} waited for the disk too, {}",
        named(model, *tid),
        counted(waits, "time")
    )))
}

fn at_disk(model: &Model, wait: &Wait) -> bool {
    match model.kind_of(wait).and_then(|kind| kind.part) {
        Some(part) => part == Part::Disk,
        None => system_call(wait) == SystemCall::File || wait.io_wait,
    }
}

/// What the recording cannot tell.
fn remark(target: WaitTarget, peer_known: bool) -> Option<Evidence> {
    let text = match target {
        WaitTarget::Anything => {
            "the loop waits for all its requests, peers and timers at once: which of them this was \
             does not show, and a request that is meant to wait (a long poll) looks the same"
        }
        WaitTarget::Peer if peer_known => {
            "these calls are in `whywait report --calls`; if the peer was meant to take its time \
             (a long poll, say), nothing is wrong"
        }
        WaitTarget::Peer => {
            "the peer is outside of what was recorded; if it was meant to take its time (a long \
             poll, say), nothing is wrong"
        }
        WaitTarget::Client => {
            "it is the connection that the request came on: its client sends or takes data slowly"
        }
        _ => return None,
    };
    Some(Evidence::new(text))
}
