//! When a runtime stopped all threads of a process, to collect its garbage or to look at them.
//!
//! Stopped threads show by the function of their runtime in which they sleep until they may go on.
//! Of a runtime that takes a thread's CPU, and stops nobody who has none, the thread that works
//! meanwhile shows: it was sampled in a function that has all others stopped. Both say for how long
//! at least. Where threads of the process lacked a CPU for most of a pause, it is none.

use std::collections::BTreeMap;

use whywait_events::{Ns, Part, StackId, WakeContext};
use whywait_model::{Model, RequestRef, StackText, Thread};

use crate::numbers::{MOST, SAMPLES_APART, SLOW_NS, Share};
use crate::shared::intervals::{Interval, sum, union_ns};

/// Functions in which a thread sleeps that its runtime stopped: HotSpot (share/runtime/
/// safepoint.hpp, safepointMechanism.hpp), Go (runtime/proc.go).
const STOPPED: [&str; 3] = [
    "SafepointSynchronize::block",
    "SafepointMechanism::process",
    "runtime.gcstopm",
];
/// Functions in which a thread waits for what needs all threads stopped. It may be too early for
/// that, or need none: they say how long a pause was, not that there was one.
const ASKED: [&str; 1] = ["VMThread::execute"];
/// Functions of runtimes that work, or wait for a thread, with all others stopped, and what they
/// do: Go (runtime/mprof.go, heapdump.go, proc.go, mgc.go).
const STOPS: [(&str, &str); 4] = [
    (
        "runtime.tracebackothers",
        "wrote the stacks of all goroutines (runtime.Stack, the profile goroutine?debug=2)",
    ),
    (
        "runtime.writeheapdump_m",
        "wrote the whole heap (debug.WriteHeapDump)",
    ),
    (
        "runtime.stopTheWorldWithSema",
        "waited for goroutines to be stopped",
    ),
    ("runtime.gcMarkTermination", "ended a collection"),
];

/// A time in which the threads of a process were stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pause {
    pub(crate) tgid: u32,
    pub(crate) from_ns: Ns,
    pub(crate) to_ns: Ns,
    /// The thread that had them go on, or that worked meanwhile.
    pub(crate) by: u32,
    /// How many threads are known to have been stopped.
    pub(crate) stopped: usize,
    /// What the runtime did meanwhile, where that shows.
    pub(crate) did: Option<&'static str>,
    /// The thread that asked for it, and where it was, where that shows.
    pub(crate) asked: Option<(u32, StackId)>,
}

impl Pause {
    pub(crate) fn ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }

    pub(crate) fn interval(&self) -> Interval {
        (self.from_ns, self.to_ns)
    }
}

/// Those of a recording, by process, in order and apart.
#[derive(Debug, Default)]
pub(crate) struct Pauses(BTreeMap<u32, Vec<Pause>>);

/// A piece of a pause, as one thread shows it.
struct Shown {
    interval: Interval,
    tid: u32,
    stack: StackId,
    /// The thread that had it go on, or that worked.
    by: u32,
    kind: StopKind,
}

impl Shown {
    /// A thread slept because it was stopped, or worked because others were: there is a pause.
    fn is_certain(&self) -> bool {
        self.kind != StopKind::Asked
    }

    fn begins(&self, tgid: u32) -> Pause {
        let (from_ns, to_ns) = self.interval;
        let mut pause = Pause {
            tgid,
            from_ns,
            to_ns,
            by: 0,
            stopped: 0,
            did: None,
            asked: None,
        };
        self.add_to(&mut pause);
        pause
    }

    fn add_to(&self, pause: &mut Pause) {
        pause.to_ns = pause.to_ns.max(self.interval.1);
        if self.by != 0 && (pause.by == 0 || self.is_certain()) {
            pause.by = self.by;
        }
        match self.kind {
            StopKind::Stopped => pause.stopped += 1,
            StopKind::Asked => pause.asked = pause.asked.or(Some((self.tid, self.stack))),
            StopKind::Stops(did) => pause.did = pause.did.or(Some(did)),
        }
    }
}

impl Pauses {
    pub(crate) fn of(model: &Model) -> Self {
        let mut kinds = StopKinds::new(model);
        let mut shown: BTreeMap<u32, Vec<Shown>> = BTreeMap::new();
        for thread in model.threads.values() {
            let of_process = shown.entry(thread.tgid).or_default();
            asleep(&mut kinds, thread, of_process);
            at_work(model, &mut kinds, thread, of_process);
        }
        let pauses = shown.into_iter().map(|(tgid, shown)| {
            let mut pauses = together(tgid, shown);
            pauses.retain(|pause| !lacks_cpu(model, pause));
            (tgid, pauses)
        });
        Self(pauses.filter(|(_, pauses)| !pauses.is_empty()).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn by_process(&self) -> impl Iterator<Item = (u32, &[Pause])> {
        self.0
            .iter()
            .map(|(tgid, pauses)| (*tgid, pauses.as_slice()))
    }

    fn overlapping(&self, tgid: u32, (from_ns, to_ns): Interval) -> &[Pause] {
        let pauses = self.0.get(&tgid).map_or(&[][..], Vec::as_slice);
        let first = pauses.partition_point(|pause| pause.to_ns <= from_ns);
        let last = pauses.partition_point(|pause| pause.from_ns < to_ns);
        &pauses[first..last.max(first)]
    }

    /// When a request waited in pauses: it lay unread, or its path was not in a wait for something
    /// else, nor at work.
    pub(crate) fn of_request<'a>(
        &'a self,
        request: RequestRef<'_>,
    ) -> impl Iterator<Item = (&'a Pause, Interval)> {
        let tgid = request.tgid;
        let serves = [request.recv_tid, request.send_tid];
        let path = request.path();
        let waits = path.steps.iter().filter(|step| {
            let elsewhere = matches!(
                step.part,
                Some(Part::OnCpu | Part::Disk | Part::Network | Part::Timer | Part::PageFault)
            );
            step.ns() > 0 && !(elsewhere && serves.contains(&step.tid))
        });
        let waits: Vec<Interval> = waits.map(|step| (step.from_ns, step.to_ns)).collect();
        waits.into_iter().flat_map(move |wait| {
            let pauses = self.overlapping(tgid, wait).iter();
            pauses.map(move |pause| {
                let from_ns = wait.0.max(pause.from_ns);
                (pause, (from_ns, wait.1.min(pause.to_ns)))
            })
        })
    }

    /// For how long a request waited in pauses.
    pub(crate) fn ns_of(&self, request: RequestRef<'_>) -> u64 {
        if self.is_empty() {
            return 0;
        }
        sum(self
            .of_request(request)
            .map(|(_, (from_ns, to_ns))| to_ns.saturating_sub(from_ns)))
    }

    /// Whether pauses made a request slow: what else it waited for says little then.
    pub(crate) fn made_slow(&self, request: RequestRef<'_>) -> bool {
        let ns = self.ns_of(request);
        ns >= *SLOW_NS && Share::new(ns, request.age_ns()).is_at_least(*MOST)
    }
}

/// The sleeps of a thread that was stopped, or asked for it.
fn asleep(kinds: &mut StopKinds<'_>, thread: &Thread, shown: &mut Vec<Shown>) {
    for wait in thread.timeline.waits() {
        let kind = kinds.of(wait.user_stack);
        let (Some(kind @ (StopKind::Stopped | StopKind::Asked)), Some(to_ns)) =
            (kind, wait.over_ns())
        else {
            continue;
        };
        shown.push(Shown {
            interval: (wait.out_ns, to_ns),
            tid: thread.tid,
            stack: wait.user_stack,
            by: match wait.wake_context {
                WakeContext::Task => wait.waker_tid,
                _ => 0,
            },
            kind,
        });
    }
}

/// The times in which a thread was sampled in what it does with all others stopped.
fn at_work(model: &Model, kinds: &mut StopKinds<'_>, thread: &Thread, shown: &mut Vec<Shown>) {
    let period_ns = 1_000_000_000 / u64::from(model.meta.options.sample_hz).max(1);
    let first = shown.len();
    let mut goes_on = false;
    for sample in &thread.samples {
        let at_ns = sample.at_ns;
        let kind = kinds.of(sample.user_stack);
        let Some(kind @ StopKind::Stops(_)) = kind else {
            goes_on = false;
            continue;
        };
        let gap_ns = period_ns
            .saturating_mul(sample.weight())
            .saturating_mul(*SAMPLES_APART);
        let last = shown[first..].last_mut().filter(|_| goes_on);
        match last.filter(|last| at_ns.saturating_sub(last.interval.1) <= gap_ns) {
            Some(last) => last.interval.1 = at_ns,
            None => shown.push(Shown {
                interval: (at_ns, at_ns),
                tid: thread.tid,
                stack: sample.user_stack,
                by: thread.tid,
                kind,
            }),
        }
        goes_on = true;
    }
}

/// Whether threads of the process had no CPU for most of a pause: they could neither be stopped nor
/// do what the stop was for, and that is no matter of the runtime.
fn lacks_cpu(model: &Model, pause: &Pause) -> bool {
    let (from_ns, to_ns) = pause.interval();
    let threads = model
        .threads
        .values()
        .filter(|thread| thread.tgid == pause.tgid);
    let waits = threads.flat_map(|thread| thread.cpu_waits(from_ns, to_ns));
    let waits = waits.map(|row| (row.from_ns.max(from_ns), row.in_ns.min(to_ns)));
    let without_ns = union_ns(waits.collect());
    without_ns > 0 && Share::new(without_ns, pause.ns()).is_at_least(*MOST)
}

/// Pauses from what threads show of them.
fn together(tgid: u32, mut shown: Vec<Shown>) -> Vec<Pause> {
    shown.sort_by_key(|one| one.interval);
    let mut groups: Vec<(Pause, bool)> = Vec::new();
    for one in shown {
        match groups.last_mut() {
            Some((pause, certain)) if one.interval.0 < pause.to_ns => {
                one.add_to(pause);
                *certain |= one.is_certain();
            }
            _ => groups.push((one.begins(tgid), one.is_certain())),
        }
    }
    let certain = groups.into_iter().filter(|(_, certain)| *certain);
    certain.map(|(pause, _)| pause).collect()
}

/// What a stack says of a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StopKind {
    Stopped,
    Asked,
    /// And does this meanwhile.
    Stops(&'static str),
}

/// What stacks say of stops, each looked at once.
struct StopKinds<'m> {
    model: &'m Model,
    known: BTreeMap<StackId, Option<StopKind>>,
}

impl<'m> StopKinds<'m> {
    fn new(model: &'m Model) -> Self {
        Self {
            model,
            known: BTreeMap::new(),
        }
    }

    fn of(&mut self, stack: StackId) -> Option<StopKind> {
        let model = self.model;
        let known = self.known.entry(stack);
        *known.or_insert_with(|| model.stacks.get(stack).and_then(kind))
    }
}

fn kind(stack: &StackText) -> Option<StopKind> {
    stack.labels.iter().find_map(|label| {
        let is = |begins: &&str| label.name.starts_with(*begins);
        if STOPPED.iter().any(&is) {
            Some(StopKind::Stopped)
        } else if ASKED.iter().any(&is) {
            Some(StopKind::Asked)
        } else {
            let stops = STOPS.iter().find(|(begins, _)| is(begins));
            stops.map(|(_, did)| StopKind::Stops(did))
        }
    })
}
