//! What each thread did when.

use std::collections::BTreeMap;

use whywait_events::{
    Busy, CpuWait, Ns, Part, Parts, Preempted, Sample, ThreadChange, ThreadEvent, Wait,
};
use whywait_words::process_name;

/// What a thread did at a time, as far as long waits show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity<'a> {
    /// It ran, or was between short waits.
    Active,
    /// It had been woken from this long wait and waited for a CPU.
    Runnable(&'a Wait),
    /// It slept.
    Sleeping(&'a Wait),
}

/// The long waits of a thread, in order; they do not overlap.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    waits: Vec<Wait>,
}

impl Timeline {
    /// From sleeps in any order. What overlaps is cut off: one that lost its end, or rows of a
    /// damaged or forged recording.
    pub(crate) fn new(mut rows: Vec<Wait>) -> Self {
        rows.sort_by_key(|wait| (wait.out_ns, wait.seq));
        for next in 1..rows.len() {
            let next_ns = rows[next].out_ns;
            let wait = &mut rows[next - 1];
            if wait.end_ns() > next_ns {
                wait.in_ns = Some(next_ns);
                wait.wake_ns = wait.wake_ns.map(|wake| wake.min(next_ns));
            }
        }
        Self { waits: rows }
    }

    /// All of them.
    pub fn waits(&self) -> &[Wait] {
        &self.waits
    }

    /// Those that overlap `[from, to)`.
    pub fn overlapping(&self, from: Ns, to: Ns) -> &[Wait] {
        let first = self.waits.partition_point(|wait| wait.end_ns() <= from);
        let last = self.waits.partition_point(|wait| wait.out_ns < to);
        &self.waits[first..last.max(first)]
    }

    /// What the thread did at `at`.
    pub fn at(&self, at: Ns) -> Activity<'_> {
        match self.overlapping(at, at.saturating_add(1)).last() {
            None => Activity::Active,
            Some(wait) if wait.wake_ns.is_some_and(|wake| wake <= at) => Activity::Runnable(wait),
            Some(wait) => Activity::Sleeping(wait),
        }
    }

    /// The last wait that began before `at`, if any.
    pub fn before(&self, at: Ns) -> Option<&Wait> {
        self.place_before(at, 0).map(|at| &self.waits[at])
    }

    /// Its place among all, which is found at once if it is this one, or the one before.
    pub(crate) fn place_before(&self, at: Ns, likely: usize) -> Option<usize> {
        let began = |place: usize| self.waits.get(place).map_or(Ns::MAX, |wait| wait.out_ns);
        let is_last = |place: &usize| began(*place) < at && at <= began(*place + 1);
        let mut found = [Some(likely), likely.checked_sub(1)].into_iter().flatten();
        if let Some(place) = found.find(is_last) {
            return Some(place);
        }
        let after = self.waits.partition_point(|wait| wait.out_ns < at);
        after.checked_sub(1)
    }
}

/// A thread of the target.
#[derive(Debug, Clone, Default)]
pub struct Thread {
    /// Thread id.
    pub tid: u32,
    /// Process id.
    pub tgid: u32,
    /// Its last name. Hostile.
    pub name: String,
    /// The command line of the program that it became last, as far as it was read. Hostile.
    pub command: String,
    /// When it was made and by which thread, if that was seen.
    pub started: Option<(Ns, u32)>,
    /// When it first became another program, if that was seen.
    pub became_ns: Option<Ns>,
    /// When it ended, if that was seen.
    pub ended_ns: Option<Ns>,
    /// Its long waits.
    pub timeline: Timeline,
    /// Its intervals without I/O, in order.
    pub busy: Vec<Busy>,
    /// Its long intervals without a CPU that no sleep led to, in order; they do not overlap.
    pub preempted: Vec<Preempted>,
    /// Its long waits for a CPU with who had it, in order; they do not overlap.
    pub cpu_waits: Vec<CpuWait>,
    /// When it was seen on a CPU, in order.
    pub samples: Vec<Sample>,
}

impl Thread {
    /// The long intervals without a CPU that overlap `[from, to)`.
    pub fn preempted(&self, from: Ns, to: Ns) -> &[Preempted] {
        let first = self.preempted.partition_point(|row| row.in_ns <= from);
        let last = self.preempted.partition_point(|row| row.out_ns < to);
        &self.preempted[first..last.max(first)]
    }

    /// The long waits for a CPU that overlap `[from, to)`.
    pub fn cpu_waits(&self, from: Ns, to: Ns) -> &[CpuWait] {
        let first = self.cpu_waits.partition_point(|row| row.in_ns <= from);
        let last = self.cpu_waits.partition_point(|row| row.from_ns < to);
        &self.cpu_waits[first..last.max(first)]
    }

    /// When the sampling clock found it on a CPU in `[from, to)`.
    pub fn samples_within(&self, from: Ns, to: Ns) -> &[Sample] {
        let at = |ns: Ns| self.samples.partition_point(|sample| sample.at_ns < ns);
        let (first, last) = (at(from), at(to));
        &self.samples[first..last.max(first)]
    }

    /// How long it was preempted within `[from, to)`, as far as that is recorded: nanoseconds.
    pub fn preempted_ns(&self, from: Ns, to: Ns) -> u64 {
        self.preempted(from, to)
            .iter()
            .map(|row| row.in_ns.min(to).saturating_sub(row.out_ns.max(from)))
            .fold(0, u64::saturating_add)
    }

    /// How long it could have run and had no CPU within `[from, to)`, after a long sleep or
    /// preempted: nanoseconds.
    pub fn without_cpu_ns(&self, from: Ns, to: Ns) -> u64 {
        self.timeline
            .overlapping(from, to)
            .iter()
            .map(|wait| {
                wait.end_ns()
                    .min(to)
                    .saturating_sub(wait.woken_ns().max(from))
            })
            .fold(self.preempted_ns(from, to), u64::saturating_add)
    }

    /// When it was on a CPU at the earliest, from `at` on, as far as its long waits and preemptions
    /// show it.
    pub(crate) fn on_cpu_from(&self, at: Ns) -> Ns {
        if let Activity::Sleeping(wait) | Activity::Runnable(wait) = self.timeline.at(at) {
            return wait.end_ns();
        }
        let preempted = self.preempted(at, at.saturating_add(1)).first();
        preempted.map_or(at, |row| row.in_ns)
    }

    /// How it spent the interval before the long wait that follows `to_ns`, by that wait's row,
    /// without the preemptions that have rows of their own. `None`: there is no such wait, or its
    /// row does not say.
    pub fn segment_before(&self, to_ns: Ns) -> Option<Parts> {
        let waits = self.timeline.waits();
        let wait = waits.get(waits.partition_point(|wait| wait.out_ns < to_ns))?;
        let mut segment = wait.segment;
        let from_ns = wait.out_ns.saturating_sub(segment.total_ns());
        let preempted_ns = self.preempted_ns(from_ns, wait.out_ns);
        segment[Part::Runnable] = segment[Part::Runnable].saturating_sub(preempted_ns);
        (segment.total_ns() > 0).then_some(segment)
    }
}

/// When a thread was seen last, as far as long waits show it; 0: never.
pub(crate) fn last_seen(threads: &BTreeMap<u32, Thread>) -> Ns {
    let waits = threads
        .values()
        .filter_map(|thread| thread.timeline.waits().last());
    waits
        .map(|wait| wait.in_ns.unwrap_or(wait.out_ns))
        .max()
        .unwrap_or(0)
}

/// When the last thread ended; the recording's end while there is one that has not.
pub(crate) fn alive_until(threads: &BTreeMap<u32, Thread>, end_ns: Ns) -> Ns {
    let ended: Option<Vec<Ns>> = threads.values().map(|thread| thread.ended_ns).collect();
    let last = ended.and_then(|ended| ended.into_iter().max());
    last.map_or(end_ns, |ns| ns.min(end_ns))
}

/// Intervals without a CPU in order, by when each began and ended. What ends before it begins, or
/// overlaps the one before, comes from no kernel.
fn in_order<T>(mut rows: Vec<T>, bounds: impl Fn(&T) -> (Ns, Ns)) -> Vec<T> {
    rows.sort_by_key(&bounds);
    let mut until_ns = 0;
    rows.retain(|row| {
        let (from_ns, to_ns) = bounds(row);
        let sound = from_ns < to_ns && from_ns >= until_ns;
        if sound {
            until_ns = to_ns;
        }
        sound
    });
    rows
}

/// When a thread lost its CPU, and got one again.
fn lost_cpu(row: &Preempted) -> (Ns, Ns) {
    (row.out_ns, row.in_ns)
}

/// Intervals without I/O in order. What another one covers already, or a part of it, comes from no
/// kernel: a thread is in one at a time.
fn apart(mut rows: Vec<Busy>) -> Vec<Busy> {
    rows.sort_by_key(|row| (row.start_ns, std::cmp::Reverse(row.end_ns)));
    let mut until_ns = 0;
    rows.retain_mut(|row| {
        row.start_ns = row.start_ns.max(until_ns);
        until_ns = until_ns.max(row.end_ns);
        row.start_ns < row.end_ns
    });
    rows
}

/// Puts the rows of each thread together.
pub(crate) fn threads(
    events: &[ThreadEvent],
    waits: Vec<Wait>,
    busy: Vec<Busy>,
    preempted: Vec<Preempted>,
    cpu_waits: Vec<CpuWait>,
    samples: Vec<Sample>,
) -> BTreeMap<u32, Thread> {
    let mut threads: BTreeMap<u32, Thread> = BTreeMap::new();
    let mut events: Vec<&ThreadEvent> = events.iter().collect();
    events.sort_by_key(|event| event.at_ns);
    for event in events {
        let thread = threads.entry(event.tid).or_insert_with(|| Thread {
            tid: event.tid,
            ..Thread::default()
        });
        thread.tgid = event.tgid;
        if event.change == ThreadChange::Fork && event.parent_tid != 0 {
            thread.started = Some((event.at_ns, event.parent_tid));
        }
        thread.ended_ns = (event.change == ThreadChange::Exit).then_some(event.at_ns);
        if event.change == ThreadChange::Exec {
            thread.became_ns.get_or_insert(event.at_ns);
        }
        if !event.command.is_empty() {
            thread.command.clone_from(&event.command);
        }
        if event.change != ThreadChange::Exit || thread.name.is_empty() {
            // Of the first thread it is the process's.
            let name = match event.tid == event.tgid {
                true => process_name(&event.comm),
                false => &event.comm,
            };
            name.clone_into(&mut thread.name);
        }
    }
    let mut by_thread: BTreeMap<u32, Vec<Wait>> = BTreeMap::new();
    let mut known = |tid: u32, tgid: u32| {
        // Its beginning may be lost, or on another segment.
        threads.entry(tid).or_insert_with(|| Thread {
            tid,
            tgid,
            ..Thread::default()
        });
    };
    // Most of what a recording is in memory: each has the room that it needs, and no more.
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    for wait in &waits {
        known(wait.tid, wait.tgid);
        *counts.entry(wait.tid).or_default() += 1;
    }
    for wait in waits {
        let rows = by_thread.entry(wait.tid);
        let count = counts.get(&wait.tid).copied().unwrap_or(0);
        rows.or_insert_with(|| Vec::with_capacity(count)).push(wait);
    }
    busy.iter().for_each(|row| known(row.tid, row.tgid));
    preempted.iter().for_each(|row| known(row.tid, row.tgid));
    cpu_waits.iter().for_each(|row| known(row.tid, row.tgid));
    samples.iter().for_each(|row| known(row.tid, row.tgid));
    for (tid, rows) in by_thread {
        if let Some(thread) = threads.get_mut(&tid) {
            thread.timeline = Timeline::new(rows);
        }
    }
    for row in busy {
        if let Some(thread) = threads.get_mut(&row.tid) {
            thread.busy.push(row);
        }
    }
    for row in preempted {
        if let Some(thread) = threads.get_mut(&row.tid) {
            thread.preempted.push(row);
        }
    }
    for row in cpu_waits {
        if let Some(thread) = threads.get_mut(&row.tid) {
            thread.cpu_waits.push(row);
        }
    }
    for row in samples {
        if let Some(thread) = threads.get_mut(&row.tid) {
            thread.samples.push(row);
        }
    }
    for thread in threads.values_mut() {
        thread.busy = apart(std::mem::take(&mut thread.busy));
        thread.preempted = in_order(std::mem::take(&mut thread.preempted), lost_cpu);
        thread.cpu_waits = in_order(std::mem::take(&mut thread.cpu_waits), |row| {
            (row.from_ns, row.in_ns)
        });
        thread.samples.sort_by_key(|row| row.at_ns);
    }
    threads
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(seq: u32, out_ns: Ns, wake_ns: Option<Ns>, in_ns: Option<Ns>) -> Wait {
        Wait {
            tid: 1,
            tgid: 1,
            seq,
            out_ns,
            wake_ns,
            in_ns,
            ..Wait::default()
        }
    }

    #[test]
    fn a_thread_is_runnable_from_its_wake_to_its_cpu() {
        let line = Timeline::new(vec![
            wait(4, 10, Some(20), Some(25)),
            wait(9, 40, None, None),
        ]);
        assert_eq!(line.waits().len(), 2);
        assert_eq!(line.at(5), Activity::Active);
        assert!(matches!(line.at(10), Activity::Sleeping(_)));
        assert!(matches!(line.at(20), Activity::Runnable(_)));
        assert_eq!(line.at(25), Activity::Active);
        assert!(
            matches!(line.at(Ns::MAX - 1), Activity::Sleeping(wait) if wait.seq == 9),
            "it never ended"
        );
    }

    #[test]
    fn what_has_a_row_of_its_own_is_no_part_of_the_rest() {
        let mut slept = wait(1, 100, Some(150), Some(170));
        slept.segment[Part::OnCpu] = 60;
        slept.segment[Part::Runnable] = 40;
        let preempted = |out_ns, in_ns| Preempted {
            tid: 1,
            tgid: 1,
            out_ns,
            in_ns,
        };
        let thread = Thread {
            tid: 1,
            timeline: Timeline::new(vec![slept]),
            preempted: in_order(vec![preempted(180, 190), preempted(20, 50)], lost_cpu),
            ..Thread::default()
        };
        let segment = thread.segment_before(100).expect("the row tells");
        assert_eq!((segment[Part::OnCpu], segment[Part::Runnable]), (60, 10));
        assert_eq!(thread.segment_before(101), None, "no sleep follows");
        assert_eq!(thread.without_cpu_ns(40, 185), 10 + 20 + 5);
        assert_eq!(
            [10, 20, 120, 160, 189, 190].map(|at| thread.on_cpu_from(at)),
            [10, 50, 170, 170, 190, 190]
        );
    }

    #[test]
    fn a_thread_is_in_one_interval_without_io_at_a_time() {
        let busy = |start_ns, end_ns| Busy {
            start_ns,
            end_ns,
            ..Busy::default()
        };
        let rows = vec![
            busy(30, 40),
            busy(10, 15),
            busy(10, 20),
            busy(18, 25),
            busy(50, 45),
        ];
        let apart: Vec<_> = apart(rows)
            .iter()
            .map(|row| (row.start_ns, row.end_ns))
            .collect();
        assert_eq!(apart, [(10, 20), (20, 25), (30, 40)]);
    }

    #[test]
    fn what_overlaps_is_cut_off() {
        let line = Timeline::new(vec![
            wait(1, 10, Some(90), Some(100)),
            wait(2, 50, Some(60), Some(70)),
        ]);
        assert_eq!(line.waits()[0].in_ns, Some(50));
        assert_eq!(line.overlapping(0, 50).len(), 1);
        assert_eq!(line.overlapping(50, 60).len(), 1);
        assert_eq!(line.overlapping(70, 80).len(), 0);
        assert_eq!(line.before(50).map(|wait| wait.seq), Some(1));
    }
}
