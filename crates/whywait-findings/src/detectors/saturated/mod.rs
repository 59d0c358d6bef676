//! `saturated`: an event loop, or workers, have honest work all the time, and requests queue for
//! their turn.
//!
//! **Invariant.** Who serves requests has time left: a request does not wait for most of its time
//! behind the turns of others.
//!
//! **Evidence.** One thread alone polls an epoll instance, or alone reads what is registered there.
//! For nearly all ([`NEARLY_ALL`]) of the time in which requests were under way there it was on a
//! CPU, or could have run. Answers follow each other: what passes between two is the turn of the
//! later one, and what a request took besides its own turn is what it waited behind those of
//! others. The functions are those of the thread's samples.
//!
//! Or workers, which each serve one request at a time ([`crew`]), are awake for most of the time in
//! which requests lie unread. Or there are more workers than CPUs, and who has a request has no CPU
//! for the others' work ([`cpus`]). Or goroutines are ready to run, and no thread takes them
//! ([`of_tasks`]). Or threads that compute all the time have several requests in hand, and these
//! seem to be on a CPU for longer than the threads were ([`of_process`]).
//!
//! **Cost.** The loop is replayed without the time that its samples were in the function; without a
//! function, without all of it. What then follows is earlier, until the loop has nothing to do.
//!
//! **Guards.** Most of its time must be in turns that are too short to keep anybody waiting by
//! themselves ([`SLOW_NS`]): longer ones are a `blocked-loop`, and which of the two it is follows
//! from where the time is. A loop that goes round in its poll is a `futile-wakeups`. Requests that
//! are slow for this, for most of their own time, must have most of the time of all requests of the
//! loop or the workers: a queue now and then is none. What queues in bursts, with less than half
//! of the time in between, is a note: they have time left.

pub(crate) mod cpus;
mod crew;
mod of_process;
mod of_tasks;

use std::iter::once;

use whywait_events::Ns;
use whywait_model::{EpollPool, Model, RequestRef, Thread};
use whywait_words::{counted, duration, percent};

use crate::declaration::{Declaration, Has, Waits};
use crate::facts::Facts;
use crate::finding::{Evidence, Finding, Saving, Severity};
use crate::numbers::{MOST, NEARLY_ALL, SLOW_NS, Share};
use crate::ranking::Explained;
use crate::shared::functions::SampledFunctions;
use crate::shared::intervals::{Interval, in_proportion, merged, most_at_a_time, sum};
use crate::shared::pollers;
use crate::shared::replay::{Piece, Served, Turns};
use crate::shared::slow_paths::{self, Shares, dominates};
use crate::shared::threads::named;

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "saturated",
    meaning: "an event loop (in short turns) or workers compute all the time, and requests queue \
        for their turn",
    severities: &[
        (Severity::Warning, "from 30 ms of the median request on"),
        (Severity::Note, "otherwise"),
    ],
    invariant: "who serves requests has time left: no slow request waits for most of its time \
        behind the turns of others",
    explain: include_str!("explain.md"),
    waits: Some(Waits {
        who: "requests",
        what: "for a turn",
        has: Has::Cause,
    }),
    detect,
};

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let pools = facts.model.pools.iter();
    let loops = pools.filter_map(|pool| of_pool(facts, pool));
    let mut found: Vec<Finding> = loops
        .chain(crew::findings(facts))
        .chain(cpus::finding(facts))
        .chain(of_tasks::findings(facts))
        .collect();
    if found.is_empty() {
        found.extend(of_process::findings(facts));
    }
    found
}

/// A loop, and the requests that it serves in the order of their answers.
struct BusyLoop<'a> {
    thread: &'a Thread,
    requests: Vec<RequestRef<'a>>,
    /// When requests were under way, in order and apart.
    spans: Vec<Interval>,
    under_way_ns: u64,
    on_cpu_ns: u64,
}

fn of_pool(facts: &Facts<'_>, pool: &EpollPool) -> Option<Finding> {
    let busy = BusyLoop::of(facts, pool)?;
    let waited = busy.waited();
    let slow = waited
        .iter()
        .filter(|(ns, latency_ns)| dominates(*ns, *latency_ns));
    let queued = Shares::new(slow.copied());
    let all_ns = sum(waited.iter().map(|(_, latency_ns)| *latency_ns));
    if Share::new(queued.latency_ns, all_ns).is_below(*MOST) {
        return None;
    }
    let (lasting_ns, asked_ns) = lasts(&busy.spans, &busy.requests);
    let mut severity = queued.severity(facts.slow().total_ns)?;
    let mut of_it = String::new();
    // After a burst it has time left.
    if Share::new(lasting_ns, asked_ns).is_below(*MOST) {
        severity = Severity::Note;
        let share = percent(lasting_ns, asked_ns);
        of_it = format!(" in which requests are under way ({share} of it all)");
    }
    let functions = SampledFunctions::of(facts, once(busy.thread));
    let model = facts.model;
    let without_cpu_ns = busy.under_way_ns - busy.on_cpu_ns;
    let lacks_cpu = Share::new(busy.on_cpu_ns, busy.under_way_ns).is_below(*NEARLY_ALL);
    let lacks = match lacks_cpu {
        true => format!(
            " and without a CPU {}",
            percent(without_cpu_ns, busy.under_way_ns)
        ),
        false => String::new(),
    };
    let busy_share = percent(busy.on_cpu_ns, busy.under_way_ns);
    let requests = busy.requests.iter();
    let most = most_at_a_time(requests.map(|one| (one.ready_ns, one.waited_until_ns())));
    let first = functions.first();
    let does = functions.title("its work");
    let title = format!(
        "thread {} is busy {busy_share} of the time{of_it}{lacks}{does}; up to {} wait for their \
         turn behind another",
        named(model, busy.thread.tid),
        counted(most.saturating_sub(1), "request"),
    );
    let without = busy.without(model, pool, &functions, 1);
    let half = busy.without(model, pool, &functions, 2);
    let waiting = format!(
        "waiting for the turns of others: {}",
        queued.spread(facts.slow().total_ns)
    );
    let what = first.map_or("its work", |(function, _)| function);
    let halved = format!(
        "with {what} at half of that, p99 is {} at best, not {}",
        duration(p99(&half.latencies)),
        duration(p99(&busy.latencies())),
    );
    let does_what = functions
        .shown()
        .map(|each| Evidence::new(format!("what it does, by samples: {each}")));
    let finding = Finding::new(&DECLARATION, severity, title)
        .about_known("epoll", (pool.epoll != 0).then_some(pool.epoll))
        .about("threads", vec![busy.thread.tid])
        .about_known("function", first.map(|(function, _)| function.to_owned()))
        .saving(Saving::latency(without.saved))
        .explains(Explained::LocksOfTasks)
        .evidence([Evidence::of_ns(queued.ns, waiting)])
        .evidence(does_what)
        .evidence([Evidence::of_ns(p99(&half.latencies), halved).of_fix()])
        .cause(functions.cause(model))
        .fix(
            "make that work cheaper or rarer (a cache, an index, sessions that are resumed), or \
             spread the requests over more loops: one for each CPU, as more processes or threads",
        );
    let tid = busy.thread.tid;
    Some(slow_paths::about_processes(model, finding, tid, [tid]))
}

impl<'a> BusyLoop<'a> {
    fn of(facts: &Facts<'a>, pool: &EpollPool) -> Option<Self> {
        let model = facts.model;
        let (thread, mut requests) = pollers::of_loop(model, pool)?;
        let tid = thread.tid;
        requests.retain(|request| request.latency_ns().is_some());
        requests.sort_by_key(|request| (request.waited_until_ns(), request.socket, request.seq));
        let spans = requests
            .iter()
            .map(|one| (one.ready_ns, one.waited_until_ns()));
        let spans = merged(spans.collect());
        let under_way_ns = sum(spans.iter().map(|(from, to)| to.saturating_sub(*from)));
        let used = model.cpu.threads.get(&(thread.tgid, tid))?;
        let goes_round = model
            .bursts
            .threads()
            .iter()
            .any(|one| one.tid == tid && one.goes_round());
        let long = thread
            .busy
            .iter()
            .map(|row| row.end_ns.saturating_sub(row.start_ns));
        let long_ns = sum(long.filter(|ns| *ns >= *SLOW_NS));
        let busy_ns = used.on_cpu_ns.saturating_add(used.runnable_ns);
        let honest = Share::new(busy_ns, under_way_ns).is_at_least(*NEARLY_ALL)
            && Share::new(used.on_cpu_ns, busy_ns).is_at_least(*MOST)
            && Share::new(long_ns, under_way_ns).is_below(*MOST)
            && !goes_round;
        (under_way_ns > 0 && honest).then_some(Self {
            thread,
            requests,
            spans,
            under_way_ns,
            on_cpu_ns: used.on_cpu_ns.min(under_way_ns),
        })
    }

    fn latencies(&self) -> Vec<u64> {
        let latency = |one: &RequestRef<'_>| one.latency_ns().unwrap_or(0);
        self.requests.iter().map(latency).collect()
    }

    /// What each request waited behind the turns of others, and what it took.
    fn waited(&self) -> Vec<(u64, u64)> {
        let mut last_ns: Ns = 0;
        let each = self.requests.iter().map(|request| {
            let until_ns = request.waited_until_ns();
            let turn_ns = until_ns.saturating_sub(last_ns.max(request.ready_ns));
            let waited_ns = until_ns.saturating_sub(request.ready_ns) - turn_ns;
            last_ns = until_ns;
            (waited_ns, request.latency_ns().unwrap_or(0))
        });
        each.collect()
    }

    /// Replays the loop without one in `of` of the time of its first function, or of all of its
    /// time.
    fn without(
        &self,
        model: &Model,
        pool: &EpollPool,
        functions: &SampledFunctions,
        of: u64,
    ) -> Without {
        let (periods, all) = match functions.first() {
            Some((_, periods)) => (periods, functions.periods),
            None => (1, 1),
        };
        let piece = |(from_ns, to_ns): &Interval| Piece {
            from_ns: *from_ns,
            to_ns: *to_ns,
            ns: in_proportion(to_ns.saturating_sub(*from_ns), periods, all) / of,
        };
        let pieces: Vec<Piece> = self.spans.iter().map(piece).collect();
        let served: Vec<Served> = self.requests.iter().map(|one| Served::of(*one)).collect();
        let turns = Turns::of(model, self.thread, &self.requests, |wait| pool.polls(wait));
        let saved = turns.savings(&pieces, &served);
        let latencies = self.latencies().into_iter().zip(&saved);
        Without {
            latencies: latencies
                .map(|(ns, saved)| ns.saturating_sub(*saved))
                .collect(),
            saved: saved.into_iter().filter(|ns| *ns > 0).collect(),
        }
    }
}

/// What a replay says.
struct Without {
    saved: Vec<u64>,
    latencies: Vec<u64>,
}

/// How long these intervals are, which are in order and apart, and how long the time is from the
/// first request to the last answer.
fn lasts(intervals: &[Interval], requests: &[RequestRef<'_>]) -> (u64, u64) {
    let first_ns = requests.iter().map(|one| one.ready_ns).min().unwrap_or(0);
    let last_ns = requests.iter().map(|one| one.end_ns()).max().unwrap_or(0);
    let ns = sum(intervals.iter().map(|(from, to)| to.saturating_sub(*from)));
    (ns, last_ns.saturating_sub(first_ns))
}

/// The longest of a hundred, nanoseconds.
fn p99(latencies: &[u64]) -> u64 {
    let mut sorted = latencies.to_vec();
    sorted.sort_unstable();
    let at = (sorted.len() * 99).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests;
