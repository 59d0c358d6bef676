//! `blocked-loop`: a single-threaded loop was kept from its poll, and requests waited.
//!
//! **Invariant.** A single-threaded loop returns to its poll, or to its sockets, in time.
//!
//! **Evidence.** One thread alone polls an epoll instance, or its connections by poll or select,
//! and alone reads what is registered there. A loop that is blocked all the time never sleeps in
//! its poll: then it is known by reading alone, several requests at once. It was away: it slept in
//! another system call, or ran, without polling, reading or writing. Requests were under way
//! meanwhile. Why it was away is the function of the application that lasted as long: see `causes`.
//!
//! **Cost.** The loop is replayed without the absences of one cause, so that all that follows is
//! earlier, until it has nothing left to do: those that came meanwhile, and those that came while
//! it caught up. A request's own absence is part of the bound, for its work may not be done at all,
//! and is said apart; it makes nobody wait. The owner of an absence is the request that was read
//! before it and answered first after it: that need not be true. Of a request
//! that was read and not answered, what came after it was read does not count: it may be its own.
//! While a call of the request was with its peer the loop kept nothing waiting: calls are paired
//! with requests within which they lie, and that time does not count.
//!
//! **Guards.** The time that the loop waited for a CPU does not count. An absence of less than
//! [`SLOW_NS`] is not reported, unless it is a sleep and the loop sleeps so for most of the time in
//! which requests are under way: a query of 5 ms in each of them keeps the others as long. Nor is
//! one in which nobody waited for [`SLOW_NS`]. Serving request after request is load, not an
//! absence: each read and write ends an interval. An interval
//! in which it hardly ran is no work of the loop, nor is one in which the clock of its CPU stood
//! still as well: there the machine itself was stopped; nor one in which interrupts kept the CPU. A
//! loop that spins polls all the time, though its polls do not sleep. Small absences that cost less
//! than a hundredth of all requests' time are not worth a remark, nor is a single one in code
//! compiled at run time, for every runtime collects garbage, and compiles as it starts, or for a
//! grace period of RCU, for which `accept` waits as the table of descriptors grows. With several
//! threads that poll the instance it is another finding's business.

mod bound;
mod causes;

use std::collections::{BTreeMap, BTreeSet};

use whywait_events::{Busy, Exchange, Ns, Sample, StackId, Wait};
use whywait_model::{
    EpollPool, Membership, Model, RequestRef, Role, Thread, WaitClass, WaitKind, system_call_name,
};
use whywait_words::{counted, duration};

use self::causes::AwayReason;
use crate::declaration::{Declaration, Has, Waits};
use crate::facts::Facts;
use crate::finding::{Cause, Confidence, Evidence, Finding, RequestName, Saving, Severity};
use crate::numbers::{
    AWAY_OF_INTERVAL, AWAY_RAN, AWAY_SLACK_NS, AWAY_WORTH_A_NOTE, CROWDED_RARE, ERROR_NS,
    FINDINGS_OF_A_KIND, MOST, OUTLIER_NS, RARE_OF_SLOW, SLOW_NS, Share, WARNING_NS,
};
use crate::shared::in_kernel::InKernel;
use crate::shared::intervals::{Covered, Interval, in_proportion, merged, overlap_ns, sum};
use crate::shared::pollers;
use crate::shared::replay::{Turns, name};
use crate::shared::runtime::{self, Runtime};
use crate::shared::slow_paths;
use crate::shared::threads::named;
use crate::shared::traffic::{calls_each, length, paired, with_peer};

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "blocked-loop",
    meaning: "a single-threaded event loop (asyncio, node, redis, …) was kept from its poll, \
        and requests waited",
    severities: &[
        (
            Severity::Error,
            "from 100 ms of a request on, unless the requests' calls took longer than that",
        ),
        (
            Severity::Warning,
            "from 30 ms on, unless all of it is less than 1 % of requests' time",
        ),
        (Severity::Note, "otherwise"),
    ],
    invariant: "a single-threaded loop returns to its poll, or at least to reading and writing its \
        sockets, in time",
    explain: include_str!("explain.md"),
    waits: Some(Waits {
        who: "requests",
        what: "for a turn of their event loop",
        has: Has::Cause,
    }),
    detect,
};

/// An interval in which the loop was away.
#[derive(Debug, Clone)]
struct Away {
    from_ns: Ns,
    to_ns: Ns,
    /// Without the time that it waited for a CPU.
    away_ns: u64,
    doing: String,
    stack: StackId,
    /// A sleep of which there is no user stack: not every kernel gives one of each.
    in_kernel_only: bool,
    /// A sleep for the kernel's own sake (RCU).
    grace_period: bool,
    /// The request whose work it was.
    owner: Option<RequestName>,
}

/// What a loop does that is away and does not sleep.
const ON_CPU: &str = "on CPU";

impl Away {
    fn on_cpu(&self) -> bool {
        self.doing == ON_CPU
    }

    /// How much of `[from_ns, to_ns)` the loop was away. What it waited for a CPU is taken off in
    /// proportion.
    fn overlap_ns(&self, from_ns: Ns, to_ns: Ns) -> u64 {
        let overlap_ns = overlap_ns((self.from_ns, self.to_ns), (from_ns, to_ns));
        let whole_ns = self.to_ns.saturating_sub(self.from_ns);
        in_proportion(overlap_ns, self.away_ns, whole_ns)
    }
}

/// A loop that was away for one reason, and who waited meanwhile.
struct Blocked<'a> {
    pool: &'a EpollPool,
    thread: &'a Thread,
    reason: AwayReason,
    /// The longest first.
    victims: Vec<DelayedRequest<'a>>,
    /// What a fix saves at most each request that it saves something.
    saved: Vec<u64>,
    /// How much of that is the work itself.
    own_ns: u64,
}

/// A request that waited while the loop was away with the work of others.
struct DelayedRequest<'a> {
    request: RequestRef<'a>,
    waited_ns: u64,
    /// For so long its calls were with their peers.
    called_ns: u64,
}

/// A request of the loop, and when its calls were with their peers.
struct Asked<'a> {
    request: RequestRef<'a>,
    calls: Vec<Interval>,
}

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
    // What blocks the loops of several workers of a server is one fault.
    let mut roles: BTreeMap<Role, BTreeMap<String, Vec<Blocked<'_>>>> = BTreeMap::new();
    for blocked in model.pools.iter().flat_map(|pool| of_pool(model, pool)) {
        let functions = roles.entry(model.role(blocked.thread.tid)).or_default();
        let function = blocked.reason.function.clone();
        functions.entry(function).or_default().push(blocked);
    }
    roles
        .values()
        .flat_map(|functions| {
            let found = functions
                .iter()
                .filter_map(|(function, loops)| finding(facts, function, loops));
            let mut findings: Vec<Finding> = found.collect();
            findings.sort_by_key(|finding| std::cmp::Reverse(finding.saving.at_most_ns));
            findings.truncate(*FINDINGS_OF_A_KIND);
            findings
        })
        .collect()
}

fn of_pool<'a>(model: &'a Model, pool: &'a EpollPool) -> Vec<Blocked<'a>> {
    let Some((thread, requests)) = pollers::of_loop(model, pool) else {
        return Vec::new();
    };
    if requests.is_empty() {
        return Vec::new();
    }
    let aways = owned(absences(model, pool, thread, &requests), &requests);
    let turns = Turns::of(model, thread, &requests, |wait| pool.polls(wait));
    let requests = with_calls(model, pool, &requests);
    causes::of(model, thread, aways)
        .into_iter()
        .map(|reason| {
            let victims = victims(&reason.aways, &requests);
            Blocked {
                pool,
                thread,
                saved: bound::saved(&turns, &reason.aways, &requests, &victims),
                own_ns: bound::own_ns(&reason.aways, &requests),
                victims,
                reason,
            }
        })
        .filter(|blocked| !blocked.victims.is_empty())
        .collect()
}

/// Whether the loop is known by what it reads, and was never seen to sleep in its poll.
fn reads_alone(pool: &EpollPool) -> bool {
    pool.only_member()
        .is_some_and(|member| member.membership == Membership::ReadsAlone)
}

/// When the loop was away, in order.
fn absences(
    model: &Model,
    pool: &EpollPool,
    thread: &Thread,
    requests: &[RequestRef<'_>],
) -> Vec<Away> {
    // Who hands requests to a thread that never polls is not known.
    let handed = reads_alone(pool);
    let waits_for_work = |wait: &Wait| handed && model.class_of(wait) == Some(WaitClass::Idle);
    let asleep = thread
        .timeline
        .waits()
        .iter()
        .filter(|wait| !pool.polls(wait) && !waits_for_work(wait))
        // Who has the lock for so short a time is the lock's matter.
        .filter(|wait| {
            wait.woken_ns().saturating_sub(wait.out_ns) >= *SLOW_NS || !model.is_lock_wait(wait)
        })
        .map(|wait| {
            let to_ns = wait.in_ns.unwrap_or(model.end_ns).max(wait.out_ns);
            Away {
                from_ns: wait.out_ns,
                to_ns,
                away_ns: wait.wake_ns.unwrap_or(to_ns).saturating_sub(wait.out_ns),
                doing: format!("asleep in {}", system_call_name(wait)),
                stack: if wait.user_stack != 0 {
                    wait.user_stack
                } else {
                    wait.kernel_stack
                },
                in_kernel_only: wait.user_stack == 0,
                grace_period: model.kind_of(wait).is_some_and(WaitKind::is_grace_period),
                owner: None,
            }
        });
    // A loop that goes round in its poll is not away from it: see futile-wakeups.
    let spins = model
        .bursts
        .threads()
        .iter()
        .any(|spinner| spinner.tid == thread.tid && spinner.spins > 0 && spinner.goes_round());
    // Where a record was lost, such an interval may have a sleep in it that is known: that one is
    // an absence of its own, or was in the poll.
    let known_sleep_ns = |busy: &Busy| {
        let within = thread.timeline.overlapping(busy.start_ns, busy.end_ns);
        sum(within.iter().map(|wait| {
            let to_ns = wait.in_ns.unwrap_or(model.end_ns);
            overlap_ns((wait.out_ns, to_ns), (busy.start_ns, busy.end_ns))
        }))
    };
    let worked_ns = |busy: &Busy| {
        let ns = busy.end_ns.saturating_sub(busy.start_ns);
        let besides_ns = busy.runnable_ns.saturating_add(known_sleep_ns(busy));
        ns.saturating_sub(besides_ns)
    };
    let ran = |busy: &&Busy| {
        Share::new(busy.on_cpu_ns, worked_ns(busy)).is_at_least(*AWAY_RAN)
            && model.clock_agrees(thread, busy.start_ns, busy.end_ns, busy.on_cpu_ns)
            && !model.kept_by_interrupts(thread, busy.start_ns, busy.end_ns)
    };
    let busy = thread.busy.iter().filter(|_| !spins).filter(ran);
    let running = busy.map(|busy| Away {
        from_ns: busy.start_ns,
        to_ns: busy.end_ns,
        away_ns: worked_ns(busy),
        doing: ON_CPU.to_owned(),
        // See `causes`.
        stack: 0,
        in_kernel_only: false,
        grace_period: false,
        owner: None,
    });
    // An interval that was spent waiting for a CPU almost throughout is the machine's doing.
    let its_own = |away: &Away| {
        Share::new(away.away_ns, away.to_ns.saturating_sub(away.from_ns))
            .is_at_least(*AWAY_OF_INTERVAL)
    };
    let asleep: Vec<Away> = asleep.filter(its_own).collect();
    let short_count = sleeps_for_most(&asleep, requests);
    let worth_it = |away: &Away| away.away_ns >= *SLOW_NS || (short_count && !away.on_cpu());
    let all = asleep.into_iter().chain(running.filter(its_own));
    let mut aways: Vec<Away> = all.filter(worth_it).collect();
    aways.sort_by_key(|away| away.from_ns);
    aways
}

/// Whether these sleeps, in order, are most of the time in which requests were under way.
fn sleeps_for_most(asleep: &[Away], requests: &[RequestRef<'_>]) -> bool {
    let under_way = requests
        .iter()
        .map(|request| (request.ready_ns, request.waited_until_ns()));
    let under_way = Covered::new(merged(under_way.collect()));
    let asleep = asleep
        .iter()
        .map(|away| under_way.within((away.from_ns, away.to_ns)));
    Share::new(sum(asleep), under_way.within((0, Ns::MAX))).is_at_least(*MOST)
}

/// Finds whose work each absence was.
fn owned(mut aways: Vec<Away>, requests: &[RequestRef<'_>]) -> Vec<Away> {
    let mut answered: Vec<(Ns, RequestRef<'_>)> = requests
        .iter()
        .filter_map(|request| Some((request.first_send_ns?, *request)))
        .collect();
    answered.sort_by_key(|(ns, request)| (*ns, request.socket, request.seq));
    for away in &mut aways {
        let after = answered.partition_point(|(ns, _)| *ns < away.to_ns);
        away.owner = answered[after..]
            .iter()
            // The next answer is the absence's only if the request had been read by then.
            .take(1)
            .find(|(_, request)| {
                request
                    .recv_ns
                    .is_some_and(|recv_ns| recv_ns <= away.from_ns.saturating_add(*AWAY_SLACK_NS))
            })
            .map(|(_, request)| name(*request));
    }
    aways
}

/// The requests with the calls that are taken for theirs: which is whose shows only in part, but
/// each lies within its request, and no request has more than its share.
fn with_calls<'a>(model: &Model, pool: &EpollPool, requests: &[RequestRef<'a>]) -> Vec<Asked<'a>> {
    let own = |call: &&Exchange| call.tgid == pool.tgid && call.last_read_ns.is_some();
    let calls: Vec<&Exchange> = model.exchanges().iter().filter(own).collect();
    let window = |request: &RequestRef<'_>| {
        // Before it is read it has none.
        let read_ns = request.recv_ns.unwrap_or(Ns::MAX);
        (read_ns, request.waited_until_ns().max(read_ns))
    };
    let windows: Vec<Interval> = requests.iter().map(window).collect();
    let each = calls_each(calls.len(), requests.len());
    let pairs = paired(&windows, &calls, each);
    let asked = requests.iter().zip(pairs).map(|(request, own)| Asked {
        request: *request,
        calls: own.into_iter().map(|at| with_peer(calls[at])).collect(),
    });
    asked.collect()
}

/// The requests that waited while the loop was away with the work of others: the longest first.
fn victims<'a>(aways: &[Away], requests: &[Asked<'a>]) -> Vec<DelayedRequest<'a>> {
    let waited = requests.iter().filter_map(|asked| {
        let request = asked.request;
        let (from_ns, to_ns) = (request.ready_ns, request.waited_until_ns());
        // Absences are in order: those that matter are next to each other.
        let first = aways.partition_point(|away| away.to_ns <= from_ns);
        let others = aways[first..]
            .iter()
            .take_while(|away| away.from_ns < to_ns)
            .filter(|away| away.owner != Some(name(request)));
        // What the loop did while a call was with its peer kept this request from nothing.
        let kept_ns = |of: &dyn Fn(&Away, Interval) -> u64| {
            let all_ns = sum(others.clone().map(|away| of(away, (from_ns, to_ns))));
            let in_calls = others
                .clone()
                .flat_map(|away| asked.calls.iter().map(|call| of(away, *call)));
            all_ns.saturating_sub(sum(in_calls))
        };
        let away_ns = kept_ns(&|away, (from_ns, to_ns)| away.overlap_ns(from_ns, to_ns));
        // Work that is not there does not have to wait for a CPU either.
        let whole_ns = kept_ns(&|away, within| overlap_ns((away.from_ns, away.to_ns), within));
        let latency_ns = to_ns.saturating_sub(from_ns);
        (away_ns >= *SLOW_NS).then(|| DelayedRequest {
            request,
            waited_ns: whole_ns.min(latency_ns),
            called_ns: sum(asked.calls.iter().map(|call| length(*call))),
        })
    });
    let mut victims: Vec<DelayedRequest<'_>> = waited.collect();
    victims.sort_by_key(|victim| {
        let request = victim.request;
        (
            std::cmp::Reverse(victim.waited_ns),
            request.socket,
            request.seq,
        )
    });
    victims
}

/// What is to be said of loops that were away for the same reason.
fn finding(facts: &Facts<'_>, function: &str, loops: &[Blocked<'_>]) -> Option<Finding> {
    let (model, slow_ns) = (facts.model, facts.slow().total_ns);
    let longest_of = |one: &Blocked<'_>| one.reason.longest().map_or(0, |away| away.away_ns);
    let Blocked {
        pool,
        thread,
        reason,
        ..
    } = loops.iter().max_by_key(|one| longest_of(one))?;
    let longest = reason.longest()?;
    let telling = reason.telling(model)?;
    let victims = || loops.iter().flat_map(|one| &one.victims);
    let worst = victims().max_by_key(|victim| victim.waited_ns)?;
    let (worst_ns, worst) = (worst.waited_ns, worst.request);
    let saved = loops.iter().flat_map(|one| &one.saved);
    let saving = Saving::latency(saved.copied().collect());
    let own_ns = sum(loops.iter().map(|one| one.own_ns));
    let own = bound::own(own_ns, saving.at_most_ns);
    let of_others_ns = saving.at_most_ns.saturating_sub(own_ns);
    let meanwhile_ns = sum(victims().map(|victim| victim.waited_ns));
    let severity = match Severity::of(worst_ns, *WARNING_NS, *ERROR_NS) {
        Severity::Error if sum(victims().map(|one| one.called_ns)) > meanwhile_ns => {
            Severity::Warning
        }
        severity => severity,
    };
    let times: usize = loops.iter().map(|one| one.reason.aways.len()).sum();
    let worth_ns = AWAY_WORTH_A_NOTE.of(model.time_of_requests_ns());
    // What is rare is worth a word only if it made a request take long.
    let made_one_slow = worst_ns >= *OUTLIER_NS;
    let severity = match severity {
        Severity::Warning if of_others_ns < worth_ns && !made_one_slow => Severity::Note,
        severity => severity,
    };
    // What was so once need not have been the loop's own doing: its machine may have been stopped.
    let late = loops.iter().map(|one| one.saved.len()).sum::<usize>() as u64;
    let accident = Share::new(of_others_ns, slow_ns).is_below(*RARE_OF_SLOW)
        && !Share::new(late, model.requests_count()).exceeds(*CROWDED_RARE);
    if times == 1 && accident && !made_one_slow {
        return None;
    }
    let of_everybody = function == slow_paths::COMPILED || longest.grace_period;
    let once = times == 1 && of_everybody;
    if severity == Severity::Note && (once || of_others_ns < worth_ns) {
        return None;
    }
    let caught_up = bound::caught_up(meanwhile_ns, of_others_ns);
    let known = model.stacks.get(telling.stack).is_some();
    let (confidence, by) = if known {
        (Confidence::High, format!(" by {function}"))
    } else {
        (Confidence::Medium, String::new())
    };
    let in_kernel = InKernel::of(model, loops.iter().flat_map(samples));
    let by = by + &in_kernel.place();
    let waited = counted(victims().count(), "request");
    let tids: BTreeSet<u32> = loops.iter().map(|one| one.thread.tid).collect();
    let who = match tids.len() {
        1 => "the event loop was".to_owned(),
        _ => format!("the event loops of {} were", slow_paths::who(model, &tids)),
    };
    let title = format!(
        "{who} blocked {} for up to {}{by}; {waited} waited",
        counted(times, "time"),
        duration(longest.away_ns),
    );
    let total_ns = sum(loops.iter().map(|one| one.reason.ns()));
    let aways = loops.iter().flat_map(|one| &one.reason.aways);
    let meanwhile = format!(
        "{waited} waited for up to {} while it was away with others' work",
        duration(worst_ns)
    );
    let finding = Finding::new(&DECLARATION, severity, title)
        .confidence(confidence)
        .about_known("epoll", (pool.epoll != 0).then_some(pool.epoll))
        .about_known("port", (worst.local_port != 0).then_some(worst.local_port))
        .about("threads", tids.iter().copied().collect::<Vec<_>>())
        .about("function", function)
        .saving(saving)
        .concerns(victims().map(|victim| (victim.request, victim.waited_ns)))
        .not_by_all_fixes(own_ns)
        .evidence([
            Evidence::of_ns(reason.ns(), away(model, pool, thread, reason)),
            Evidence::of_ns(worst_ns, meanwhile),
        ])
        .evidence((tids.len() > 1).then(|| altogether(loops.len(), total_ns)))
        .evidence(caught_up)
        .evidence(own)
        .evidence(in_kernel.evidence())
        .cause(
            Cause::new(model, thread.tid, telling.doing.clone(), telling.stack)
                .each(aways.map(|away| away.away_ns)),
        )
        .fix(fix(model, pool, function, telling));
    Some(slow_paths::about_processes(
        model, finding, thread.tid, tids,
    ))
}

/// The samples of a loop while it was away on a CPU.
fn samples<'a>(of: &'a Blocked<'_>) -> impl Iterator<Item = &'a Sample> {
    let aways = of.reason.aways.iter().filter(|away| away.on_cpu());
    aways.flat_map(|away| of.thread.samples_within(away.from_ns, away.to_ns))
}

/// Whose loop it is, and how long it was away.
fn away(model: &Model, pool: &EpollPool, thread: &Thread, reason: &AwayReason) -> String {
    let where_it_polls = pollers::polled(pool);
    let alone = match pool.epoll {
        _ if !reads_alone(pool) => format!("alone polls {where_it_polls}"),
        0 => "alone reads several connections, and was never seen to wait for them".to_owned(),
        _ => format!(
            "alone reads what is registered with {where_it_polls}, in which it was never seen to \
             wait"
        ),
    };
    format!(
        "thread {} {alone}; it was away for {} in all, {}",
        named(model, thread.tid),
        duration(reason.ns()),
        reason.longest().map_or("?", |away| &away.doing)
    )
}

fn altogether(loops: usize, ns: u64) -> Evidence {
    Evidence::of_ns(
        ns,
        format!(
            "{loops} loops were away so, for {} altogether",
            duration(ns)
        ),
    )
}

fn fix(model: &Model, pool: &EpollPool, function: &str, longest: &Away) -> &'static str {
    let runtime = runtime::of_process(model, pool.tgid);
    runtime::fix_of_own_account(function).unwrap_or_else(|| fix_of(runtime, longest.on_cpu()))
}

fn fix_of(runtime: Runtime, on_cpu: bool) -> &'static str {
    match (runtime, on_cpu) {
        (Runtime::Python, false) => {
            "have a thread do it (asyncio.to_thread, deferToThread), or use an asynchronous variant"
        }
        (Runtime::Python, true) => {
            "move the computation to another process (threads share the interpreter's lock)"
        }
        (Runtime::Node, false) => {
            "use the asynchronous variant of the call (not …Sync), or a worker thread"
        }
        (Runtime::Node, true) => {
            "move the computation to worker_threads, or split it with setImmediate"
        }
        (Runtime::Tokio, _) => "move the work into tokio::task::spawn_blocking",
        (Runtime::Libuv, _) => "move the work to libuv's pool: uv_queue_work",
        (Runtime::Libevent, _) => {
            "move the work to a thread of its own and come back with event_active"
        }
        _ => "move the work off the loop's thread, or split it so that the loop polls in between",
    }
}

#[cfg(test)]
mod tests;
