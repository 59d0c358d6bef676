//! The critical path of a run: of a program that serves nobody (a build, a test, a batch), from its
//! start to its end, across its threads and children.
//!
//! The first process is followed back from its end. Where a thread slept and another one of the run
//! ended that (a child by its end, a writer to a pipe, who let go of a lock), the path is that
//! one's before. Where a thread was made, it is its maker's before. Nothing on the path can take
//! less time without the run ending earlier, or another path taking over: what a fix of one thing
//! saves is at most what it has on the path.
//!
//! Sleeps that were too short to be recorded are a part of the time on the CPU here; what the
//! kernel accounts as that tells how much of it they may be.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;
use whywait_events::{Ns, Part, Parts};

use super::PathStep;
use super::sleeps::{Sleep, Sleeps};
use super::steps::{active, sleep as slept, step};
use crate::calls::linked::Linked;
use crate::model::Model;
use crate::requests::account::spread;
use crate::timeline::{Activity, Thread};

/// A path of more steps is cut off: its beginning is one `unknown` step.
const MAX_STEPS: usize = 100_000;
/// Threads that end each other's sleep at one moment are followed so often: only a forged recording
/// has more.
const MAX_AT_ONCE: usize = 64;
/// So many stages are kept in a report, the longest ones.
const MAX_STAGES: usize = 40;

/// What a program that served nobody spent its time on.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct ProgramRun {
    /// From when it became the command, or whywait looked at it, to its end, nanoseconds.
    pub ns: u64,
    /// It ended while it was watched.
    pub ended: bool,
    /// Its exit status, where whywait started it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
    /// How many processes it had.
    pub processes: u64,
    /// For how long they were on CPUs, all together; absent: not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_cpu_ns: Option<u64>,
    /// How many CPUs the machine has.
    pub cpus: u32,
    /// What is on its critical path, by program and what that did; the longest first. They sum to
    /// the run's time.
    pub parts: Vec<RunPart>,
    /// The path in order, as far as a stage matters: what one process did without another one in
    /// between.
    pub stages: Vec<RunStage>,
    /// It was too long to be followed to its beginning.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// What one program did on the critical path of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct RunPart {
    /// The program's name, hostile.
    pub program: String,
    /// The name of the part: `on-cpu`, `disk`, …
    pub part: &'static str,
    /// Nanoseconds of the path.
    pub ns: u64,
    /// In how many processes.
    pub processes: u64,
    /// Of that, nothing else of the run wanted a CPU.
    pub alone_ns: u64,
    /// Of the time on the CPU, that in which the threads may have slept for moments too short to be
    /// recorded.
    #[serde(skip_serializing_if = "is_zero")]
    pub short_sleeps_ns: u64,
    /// Where most of it was spent: the innermost function of the program's own. Hostile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// What the sleeps were for, by the kernel's stack, where that is the same for most of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

/// What one process did on the critical path, until it was another one's.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct RunStage {
    /// The program's name, hostile.
    pub program: String,
    /// The process.
    pub pid: u32,
    /// Its command line, as far as it was read; what looks like a secret is masked. Hostile.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub command: String,
    /// When it began, from the beginning of the run.
    pub at_ns: u64,
    /// How long it took.
    pub ns: u64,
    /// Of that, nothing else of the run wanted a CPU.
    pub alone_ns: u64,
    /// What had most of it: the name of the part.
    pub mostly: &'static str,
}

fn is_zero(ns: &u64) -> bool {
    *ns == 0
}

impl Model {
    /// The run that was watched; `None`: the target serves requests, or listens for some, or has no
    /// process that is known from the beginning to the end. Of one that goes on nothing is said
    /// that mostly waits for what comes from outside: it may serve in a way that is not seen.
    pub fn run(&self) -> Option<ProgramRun> {
        let listens = self.accept_queues.all().next().is_some();
        if listens || self.lives().next().is_some() || self.requests_that_count() > 0 {
            return None;
        }
        let root = self.threads.get(&self.meta.pid?)?;
        // What whywait starts waits for it before it becomes the command.
        let begun_ns = match self.meta.command.is_empty() {
            true => None,
            false => root.became_ns,
        };
        let begun_ns = begun_ns.or(root.started.map(|(at_ns, _)| at_ns));
        let from_ns = begun_ns.unwrap_or(0).max(self.meta.started_ns);
        let end_ns = root.ended_ns.unwrap_or(self.end_ns);
        if end_ns <= from_ns {
            return None;
        }
        let (mut steps, truncated) = back(self, root, from_ns, end_ns);
        steps.reverse();
        let few = Few::of(self, from_ns, end_ns);
        let mut run = ProgramRun {
            ns: end_ns - from_ns,
            ended: root.ended_ns.is_some(),
            exit_status: self.meta.exit_status,
            cpus: self.meta.host.cpus,
            truncated,
            ..ProgramRun::default()
        };
        run.parts = self.parts_of(&steps, &few);
        let outside = [Part::Network.name(), Part::Timer.name()];
        let outside = run.parts.iter().filter(|one| outside.contains(&one.part));
        let outside_ns = outside.fold(0_u64, |sum, one| sum.saturating_add(one.ns));
        if !run.ended && outside_ns > run.ns / 2 {
            return None;
        }
        let processes: BTreeSet<u32> = self.threads.values().map(|thread| thread.tgid).collect();
        run.processes = processes.len() as u64;
        let used = self.cpu.threads.values().map(|used| used.on_cpu_ns);
        run.on_cpu_ns = Some(used.fold(0, u64::saturating_add)).filter(|ns| *ns > 0);
        run.stages = self.stages_of(&steps, &few);
        Some(run)
    }

    /// The program of a thread, by the name of its process's first one.
    fn program_of(&self, tid: u32) -> &str {
        let process = self.threads.get(&tid).map_or(tid, |thread| thread.tgid);
        match self.threads.contains_key(&process) {
            true => self.thread_name(process),
            false => self.thread_name(tid),
        }
    }

    fn parts_of(&self, steps: &[PathStep], few: &Few) -> Vec<RunPart> {
        let mut by_name: BTreeMap<(&str, Part), Summed<'_>> = BTreeMap::new();
        for step in steps {
            let (parts, short_sleeps_ns) = self.parts_of_step(step);
            let alone_ns = few.within(step.from_ns, step.to_ns);
            let thread = self.threads.get(&step.tid);
            for part in Part::ALL.into_iter().filter(|part| parts[*part] > 0) {
                let summed = by_name.entry((self.program_of(step.tid), part));
                let Summed {
                    part: sums,
                    processes,
                    functions,
                    kinds,
                } = summed.or_default();
                let own_ns = parts[part];
                let alone_ns = u128::from(alone_ns) * u128::from(own_ns) / u128::from(step.ns());
                sums.ns = sums.ns.saturating_add(own_ns);
                sums.alone_ns = sums.alone_ns.saturating_add(alone_ns as u64);
                processes.insert(thread.map_or(step.tid, |thread| thread.tgid));
                match (part, thread) {
                    (Part::OnCpu, Some(thread)) => {
                        let short_ns = sums.short_sleeps_ns.saturating_add(short_sleeps_ns);
                        sums.short_sleeps_ns = short_ns;
                        for sample in thread.samples_within(step.from_ns, step.to_ns) {
                            if let Some(name) = self.stacks.telling(sample.user_stack) {
                                *functions.entry(name).or_default() += sample.weight();
                            }
                        }
                    }
                    _ if step.part == Some(part) => {
                        if let Some(name) = self.stacks.telling(step.stack) {
                            *functions.entry(name).or_default() += own_ns;
                        }
                        if let Some(kind) = step.kind {
                            *kinds.entry(kind.name).or_default() += own_ns;
                        }
                    }
                    _ => {}
                }
            }
        }
        let parts = by_name
            .into_iter()
            .map(|((program, part), summed)| RunPart {
                program: program.to_owned(),
                part: part.name(),
                processes: summed.processes.len() as u64,
                function: mostly(summed.functions),
                kind: mostly(summed.kinds).map(str::to_owned),
                ..summed.part
            });
        let mut parts: Vec<RunPart> = parts.collect();
        parts.sort_by_key(|part| Reverse(part.ns));
        parts
    }

    /// Where the time of a step went, and how much of that on the CPU may be sleeps that were too
    /// short to be recorded. The sleep that follows tells what the kernel accounted before it.
    fn parts_of_step(&self, step: &PathStep) -> (Parts, u64) {
        let mut parts = Parts::default();
        let thread = self.threads.get(&step.tid);
        if let (Some(Part::OnCpu), Some(thread)) = (step.part, thread) {
            if let Some(mix) = thread.segment_before(step.to_ns) {
                spread(&mut parts, &mix, step.ns());
                return (parts, 0);
            }
            parts[Part::OnCpu] = step.ns();
            return (parts, self.slept_shortly(thread, step.ns()));
        }
        parts[step.part.unwrap_or(Part::Unknown)] = step.ns();
        (parts, 0)
    }

    /// Of so long without a long sleep, that in which a thread slept shortly, if it did so as much
    /// as ever.
    fn slept_shortly(&self, thread: &Thread, ns: u64) -> u64 {
        let Some(used) = self.cpu.threads.get(&(thread.tgid, thread.tid)) else {
            return 0;
        };
        let begun_ns = thread.started.map_or(0, |(at_ns, _)| at_ns);
        let begun_ns = begun_ns.max(self.meta.started_ns);
        let lived_ns = thread.ended_ns.unwrap_or(self.end_ns);
        let lived_ns = lived_ns.saturating_sub(begun_ns);
        let waits = thread.timeline.waits().iter();
        let slept = waits.map(|wait| wait.end_ns().min(self.end_ns).saturating_sub(wait.out_ns));
        let awake_ns = lived_ns.saturating_sub(slept.fold(0, u64::saturating_add));
        let ran_ns = used.on_cpu_ns.saturating_add(used.runnable_ns);
        let short_ns = awake_ns.saturating_sub(ran_ns);
        let share = u128::from(ns) * u128::from(short_ns) / u128::from(awake_ns.max(1));
        share as u64
    }

    fn stages_of(&self, steps: &[PathStep], few: &Few) -> Vec<RunStage> {
        let mut stages: Vec<(RunStage, BTreeMap<&'static str, u64>)> = Vec::new();
        let begun_ns = steps.first().map_or(0, |first| first.from_ns);
        for step in steps {
            let pid = self.threads.get(&step.tid).map_or(0, |one| one.tgid);
            if stages.last().is_none_or(|(last, _)| last.pid != pid) {
                let stage = RunStage {
                    program: self.program_of(step.tid).to_owned(),
                    pid,
                    command: self
                        .threads
                        .get(&pid)
                        .map_or_else(String::new, |first| first.command.clone()),
                    at_ns: step.from_ns.saturating_sub(begun_ns),
                    ..RunStage::default()
                };
                stages.push((stage, BTreeMap::new()));
            }
            if let Some((stage, parts)) = stages.last_mut() {
                stage.ns = stage.ns.saturating_add(step.ns());
                let alone_ns = few.within(step.from_ns, step.to_ns);
                stage.alone_ns = stage.alone_ns.saturating_add(alone_ns);
                *parts.entry(step.state).or_default() += step.ns();
            }
        }
        let mut longest: Vec<u64> = stages.iter().map(|(stage, _)| stage.ns).collect();
        longest.sort_unstable_by_key(|ns| Reverse(*ns));
        let least = longest.get(MAX_STAGES).map_or(0, |ns| ns.saturating_add(1));
        stages.retain(|(stage, _)| stage.ns >= least);
        let stages = stages.into_iter().map(|(stage, parts)| {
            let mostly = parts.into_iter().max_by_key(|(_, ns)| *ns);
            RunStage {
                mostly: mostly.map_or("", |(part, _)| part),
                ..stage
            }
        });
        stages.collect()
    }
}

/// What is summed up of one program's part.
#[derive(Default)]
struct Summed<'m> {
    part: RunPart,
    processes: BTreeSet<u32>,
    /// By samples on a CPU, or by time asleep.
    functions: BTreeMap<String, u64>,
    kinds: BTreeMap<&'m str, u64>,
}

/// What has more than half of all.
fn mostly<K: Ord>(of: BTreeMap<K, u64>) -> Option<K> {
    let all = of.values().copied().fold(0, u64::saturating_add);
    let most = of.into_iter().max_by_key(|(_, weight)| *weight)?;
    (most.1 > all / 2).then_some(most.0)
}

/// The steps of the path, the latest first, and whether they were too many.
fn back(model: &Linked, root: &Thread, from_ns: Ns, end_ns: Ns) -> (Vec<PathStep>, bool) {
    let sleeps = Sleeps::new(model);
    let mut steps = Vec::new();
    let (mut tid, mut now, mut at_once) = (root.tid, end_ns, 0);
    while now > from_ns {
        let thread = model.threads.get(&tid);
        let Some(thread) = thread.filter(|_| steps.len() < MAX_STEPS) else {
            steps.push(step(Part::Unknown, tid, from_ns, now, 0));
            return (steps, thread.is_some());
        };
        let born_ns = thread.started.map_or(from_ns, |(at_ns, _)| at_ns);
        let born_ns = born_ns.clamp(from_ns, now);
        let last = sleeps.before(thread, now);
        let Some(last) = last.filter(|sleep| sleep.wait.end_ns() > born_ns) else {
            active(&sleeps, thread, born_ns, now, 0, &mut steps);
            now = born_ns;
            tid = thread.started.map_or(0, |(_, maker)| maker);
            continue;
        };
        let wait = last.wait;
        let back_on_cpu = wait.end_ns().min(now);
        if back_on_cpu < now {
            active(&sleeps, thread, back_on_cpu, now, 0, &mut steps);
        }
        let woken_ns = wait.woken_ns().clamp(born_ns, back_on_cpu);
        if woken_ns < back_on_cpu {
            steps.push(step(Part::Runnable, tid, woken_ns, back_on_cpu, 0));
        }
        at_once = if woken_ns < now { 0 } else { at_once + 1 };
        let on = match was_for(&last, tid) {
            true => Some(last.waker),
            false => ended_by(model, thread, &last, woken_ns),
        };
        if let Some(on) = on.filter(|_| at_once < MAX_AT_ONCE) {
            tid = on;
            now = woken_ns;
            continue;
        }
        let began_ns = wait.out_ns.max(born_ns);
        if began_ns < woken_ns {
            steps.push(slept(&last, tid, began_ns, woken_ns, 0));
        }
        now = began_ns;
    }
    (steps, false)
}

/// Whether a sleep was for what the thread did that ended it.
fn was_for(sleep: &Sleep<'_>, tid: u32) -> bool {
    let by_another = sleep.waker != 0 && sleep.waker != tid;
    by_another && (sleep.is_lock || sleep.part == Part::Thread || sleep.waits_for(tid))
}

/// Of a thread that slept for others until its process ended: a thread of that process which was
/// awake then. Whichever thread of a process is gone last, tells the parent.
fn ended_by(model: &Linked, thread: &Thread, sleep: &Sleep<'_>, at_ns: Ns) -> Option<u32> {
    let of_others = [Part::Lock, Part::Thread, Part::Network, Part::Timer];
    let last = thread.timeline.waits().last()?;
    thread.ended_ns?;
    if last.seq != sleep.wait.seq || !of_others.contains(&sleep.part) {
        return None;
    }
    let before_ns = at_ns.saturating_sub(1);
    let awake = |other: &&Thread| {
        let lives = other
            .started
            .is_none_or(|(born_ns, _)| born_ns <= before_ns)
            && other.ended_ns.is_none_or(|ended_ns| ended_ns >= at_ns);
        let sleeps = matches!(other.timeline.at(before_ns), Activity::Sleeping(_));
        lives && !sleeps
    };
    let others = model.threads.values().filter(|other| {
        let same = other.tgid == thread.tgid && other.tid != thread.tid;
        same && awake(other)
    });
    // The first one, where that is among them.
    others
        .map(|other| other.tid)
        .min_by_key(|tid| *tid != thread.tgid)
}

/// When at most one thread of the run wanted a CPU, in order and apart.
struct Few {
    spans: Vec<(Ns, Ns)>,
    /// How long those before each are.
    before_ns: Vec<u64>,
}

impl Few {
    fn of(model: &Linked, from_ns: Ns, end_ns: Ns) -> Self {
        let mut edges: Vec<(Ns, i64)> = Vec::new();
        let mut awake = |from: Ns, to: Ns| {
            let (from, to) = (from.max(from_ns), to.min(end_ns));
            if from < to {
                edges.extend([(from, 1), (to, -1)]);
            }
        };
        for thread in model.threads.values() {
            let mut at_ns = thread.started.map_or(from_ns, |(at_ns, _)| at_ns);
            for wait in thread.timeline.waits() {
                awake(at_ns, wait.out_ns);
                at_ns = wait.woken_ns();
            }
            awake(at_ns, thread.ended_ns.unwrap_or(end_ns));
        }
        edges.sort_unstable();
        let (mut count, mut since_ns) = (0_i64, from_ns);
        let mut spans: Vec<(Ns, Ns)> = Vec::new();
        for (at_ns, change) in edges.into_iter().chain([(end_ns, 0)]) {
            if count <= 1 && since_ns < at_ns {
                match spans.last_mut().filter(|last| last.1 == since_ns) {
                    Some(last) => last.1 = at_ns,
                    None => spans.push((since_ns, at_ns)),
                }
            }
            count += change;
            since_ns = at_ns;
        }
        let mut all_ns = 0_u64;
        let before_ns = spans.iter().map(|(from, to)| {
            let before_ns = all_ns;
            all_ns = all_ns.saturating_add(to - from);
            before_ns
        });
        Self {
            before_ns: before_ns.collect(),
            spans,
        }
    }

    fn before(&self, at_ns: Ns) -> u64 {
        let after = self.spans.partition_point(|span| span.0 < at_ns);
        after.checked_sub(1).map_or(0, |last| {
            let (from, to) = self.spans[last];
            self.before_ns[last].saturating_add(at_ns.min(to).saturating_sub(from))
        })
    }

    /// How much of an interval they have.
    fn within(&self, from_ns: Ns, to_ns: Ns) -> u64 {
        self.before(to_ns).saturating_sub(self.before(from_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::{Script, TGID};

    const MS: u64 = 1_000_000;
    const WAIT4: u32 = 61;

    fn parts(run: &ProgramRun) -> Vec<(&str, &str, u64)> {
        let parts = run.parts.iter();
        parts
            .map(|one| (one.program.as_str(), one.part, one.ns / MS))
            .collect()
    }

    #[test]
    fn the_path_goes_over_the_child_that_ended_last_and_back_to_its_maker() {
        let mut script = Script::new();
        script.thread(TGID, "make");
        script
            .process_made(201, "cc", 1, TGID)
            .process_made(202, "cc", 2, TGID);
        script.wait(TGID, WAIT4, 3, 90).by(202).done();
        script
            .ends_thread(201, 40)
            .ends_thread(202, 90)
            .ends_thread(TGID, 100);
        let run = script.model().run().expect("it serves nobody, and ended");
        assert_eq!(run.ns / MS, 100);
        assert_eq!(
            parts(&run),
            [("cc", "on-cpu", 88), ("make", "on-cpu", 12)],
            "from 2 to 90 ms the second child"
        );
        let stages: Vec<_> = run
            .stages
            .iter()
            .map(|one| (one.pid, one.ns / MS))
            .collect();
        assert_eq!(stages, [(TGID, 2), (202, 88), (TGID, 10)]);
        // The first child ran beside it until it ended.
        assert_eq!(run.parts[0].alone_ns / MS, 50);
    }

    #[test]
    fn a_sleep_that_nobody_of_the_run_ended_is_a_part_of_its_own() {
        let mut script = Script::new();
        script.thread(TGID, "batch");
        script.sleeps(TGID, 0, 10, 60).ends_thread(TGID, 100);
        let run = script.model().run().expect("it serves nobody, and ended");
        assert_eq!(
            parts(&run),
            [("batch", "on-cpu", 50), ("batch", "timer", 50)]
        );
    }

    #[test]
    fn what_listens_or_mostly_waits_for_others_and_goes_on_is_no_run() {
        let mut script = Script::new();
        script.thread(TGID, "worker");
        script.sleeps(TGID, 0, 10, 60).sleeps(TGID, 0, 61, 90);
        assert_eq!(script.model().run(), None);
    }
}
