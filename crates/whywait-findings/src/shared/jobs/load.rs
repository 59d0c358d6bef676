//! How many jobs are under way when, and when each of them began.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use whywait_events::Ns;
use whywait_model::{Model, RequestRef};

use super::QueuedJob;
use super::workers::{Workers, with_jobs};
use crate::numbers::{EXECUTOR_FULL, MOST, NEARLY_ALL, QUEUE_FULL, QUEUE_PAIRED, Share};
use crate::shared::intervals::{Interval, in_proportion, merged, sum};

/// A request that was read, and until when its job lasted.
#[derive(Clone, Copy)]
pub(super) struct Given<'m> {
    pub(super) request: RequestRef<'m>,
    /// … or came, where it waits for a worker since then.
    pub(super) read_ns: Ns,
    /// It was answered, or the recording ended.
    pub(super) done_ns: Ns,
    /// Who had its job was free again: later where it is a stream that went on.
    pub(super) free_ns: Ns,
}

impl<'m> Given<'m> {
    pub(super) fn of(model: &Model, workers: &Workers, request: RequestRef<'m>) -> Option<Self> {
        let read_ns = request.recv_ns?;
        let done_ns = request.answered_ns().unwrap_or(model.end_ns).max(read_ns);
        let kept_until_ns = request
            .ended_ns
            .map(|ended_ns| workers.notices(model, request.send_tid, ended_ns));
        Some(Self {
            request,
            read_ns,
            done_ns,
            free_ns: kept_until_ns.unwrap_or(done_ns).max(done_ns),
        })
    }

    /// The same if it waits for a worker since it came.
    fn since_it_came(self) -> Self {
        Self {
            read_ns: self.request.ready_ns.min(self.read_ns),
            ..self
        }
    }

    /// The same if a stream keeps nobody while it goes on, as those of a loop.
    fn of_loop(self) -> Self {
        Self {
            free_ns: self.done_ns,
            ..self
        }
    }
}

/// How many jobs and requests are under way when.
pub(super) struct Load {
    pub(super) at_a_time: usize,
    /// When a worker had a job, each by itself.
    pub(super) busy: Vec<Interval>,
    /// When as many jobs as ever were under way, and more requests: in order.
    pub(super) full: Vec<Interval>,
    /// … and how many requests were, and those of them that certainly had their job, apart where
    /// they are others.
    open: Vec<(Interval, usize, usize)>,
    pub(super) full_ns: u64,
    pub(super) open_ns: u64,
    /// Streams that go on may each have a worker meanwhile: never were fewer of them busy.
    keeps_streams: bool,
}

impl Load {
    fn of(model: &Model, workers: &Workers, given: &[Given<'_>]) -> Option<Self> {
        let busy: Vec<Interval> = workers
            .threads(model)
            .flat_map(|thread| with_jobs(model, workers, thread))
            .collect();
        let open = given.iter().map(|one| (one.read_ns, one.free_ns));
        let open: Vec<Interval> = open.collect();
        // Streams that go on.
        let going = given.iter().map(|one| (one.done_ns, one.free_ns));
        let going: Vec<Interval> = going.collect();
        let mut edges: Vec<(Ns, usize, i64)> = Vec::new();
        for (what, intervals) in [(0, &busy), (1, &open), (2, &going)] {
            for (from_ns, to_ns) in intervals.iter().filter(|one| one.0 < one.1) {
                edges.push((*from_ns, what, 1));
                edges.push((*to_ns, what, -1));
            }
        }
        edges.sort_unstable();
        // From when until when how many jobs, requests and streams were under way.
        let mut spans: Vec<(Interval, [usize; 3])> = Vec::new();
        let mut now = [0_i64; 3];
        for (at, (from_ns, what, change)) in edges.iter().enumerate() {
            now[*what] += change;
            if let Some((to_ns, ..)) = edges.get(at + 1).filter(|next| next.0 > *from_ns) {
                let count = now.map(|count| usize::try_from(count).unwrap_or(0));
                spans.push(((*from_ns, *to_ns), count));
            }
        }
        let length = |span: &(Interval, [usize; 3])| span.0.1 - span.0.0;
        let all = workers.tids.len();
        let going = spans.iter().filter(|(_, [_, _, going])| *going > 0);
        let going_ns = sum(going.clone().map(length));
        let kept = going.filter(|(_, [busy, _, going])| busy >= going.min(&all));
        let kept = Share::new(sum(kept.map(length)), going_ns);
        // While more requests are under way, no more jobs are; but for a moment, in which one hands
        // over and another one takes over. Of more jobs than requests some are nobody's.
        let at_a_time = (1..=all).find(|most| {
            let waiting = spans.iter();
            let waiting = waiting.filter(|(_, [busy, open, _])| open > most && open >= busy);
            let no_more = waiting.clone().filter(|(_, [busy, ..])| busy <= most);
            Share::new(sum(no_more.map(length)), sum(waiting.map(length))).is_at_least(*NEARLY_ALL)
        })?;
        let more = |open: usize| open > at_a_time;
        let is_full = |busy: usize| Share::counted(busy, at_a_time).is_at_least(*EXECUTOR_FULL);
        let waiting_ns = sum(spans.iter().filter(|span| more(span.1[1])).map(length));
        let full = spans
            .iter()
            .filter(|(_, [busy, open, _])| more(*open) && is_full(*busy));
        let full: Vec<_> = full.collect();
        let full_ns = sum(full.iter().map(|span| length(span)));
        if Share::new(full_ns, waiting_ns).is_below(*QUEUE_FULL) {
            return None;
        }
        let open_ns = full
            .iter()
            .map(|span| length(span).saturating_mul(span.1[1] as u64));
        Some(Self {
            at_a_time,
            full_ns,
            open_ns: sum(open_ns),
            open: full
                .iter()
                .map(|span| (span.0, span.1[1], span.1[2]))
                .collect(),
            full: merged(full.iter().map(|span| span.0).collect()),
            busy,
            keeps_streams: going_ns > 0 && kept.is_at_least(*NEARLY_ALL),
        })
    }
}

impl Load {
    /// What each request waited if all that are under way wait for as long: of so many, all but
    /// those whose jobs are under way. A stream that goes on does not wait.
    fn in_proportion<'m>(&self, given: &[Given<'m>]) -> Vec<QueuedJob<'m>> {
        let mut before_ns = 0_u64;
        let waited: Vec<(Interval, u64, u64)> = self
            .open
            .iter()
            .map(|(span, open, going)| {
                let others = open - going;
                let wait = in_proportion(
                    span.1 - span.0,
                    (open - self.at_a_time) as u64,
                    others as u64,
                );
                let so_far_ns = before_ns;
                before_ns = before_ns.saturating_add(wait);
                (*span, wait, so_far_ns)
            })
            .collect();
        let until = |at_ns: Ns| {
            let after = waited.partition_point(|(span, ..)| span.0 < at_ns);
            let Some((span, wait, so_far_ns)) = after.checked_sub(1).map(|last| waited[last])
            else {
                return 0;
            };
            let part_ns = at_ns.min(span.1) - span.0;
            so_far_ns.saturating_add(in_proportion(wait, part_ns, span.1 - span.0))
        };
        let mut open = BinaryHeap::new();
        let jobs = given.iter().map(|one| {
            let waited_ns = until(one.done_ns).saturating_sub(until(one.read_ns));
            QueuedJob::new(*one, waited_ns, &mut open)
        });
        jobs.collect()
    }
}

/// How many jobs are under way at a time, the jobs, and whether they begin in order.
pub(super) type Taken<'m> = (Load, Vec<QueuedJob<'m>>, bool);

/// See [`Taken`]. Streams that go on keep workers, as far as that fits.
pub(super) fn taken<'m>(
    model: &Model,
    workers: &Workers,
    given: &[Given<'m>],
) -> Option<Taken<'m>> {
    let kept = Load::of(model, workers, given).filter(|load| load.keeps_streams);
    let kept = match kept.map(|load| (in_turn(given, load.at_a_time), load)) {
        Some((Some(jobs), load)) => return Some((load, jobs, true)),
        Some((None, load)) => Some(load),
        None => None,
    };
    let of_loop: Vec<Given<'_>> = given.iter().map(|one| one.of_loop()).collect();
    let load = Load::of(model, workers, &of_loop);
    match load.map(|load| (in_turn(&of_loop, load.at_a_time), load)) {
        Some((Some(jobs), load)) => Some((load, jobs, true)),
        other => {
            let (load, given) = match kept {
                Some(load) => (load, given),
                None => (other?.1, &of_loop[..]),
            };
            let jobs = load.in_proportion(given);
            Some((load, jobs, false))
        }
    }
}

/// Workers that read requests are what unread ones wait for, too, if most of the time is waited by
/// those that were read. Else nobody may have polled: that is no matter of jobs.
pub(super) fn with_unread<'m>(
    model: &Model,
    workers: &Workers,
    given: &[Given<'m>],
    read: Taken<'m>,
) -> Taken<'m> {
    let waited_ns = |taken: &Taken<'_>| sum(taken.1.iter().map(|job| job.waited_ns));
    let mut came: Vec<Given<'_>> = given.iter().map(|one| one.since_it_came()).collect();
    came.sort_by_key(|one| one.read_ns);
    match taken(model, workers, &came) {
        Some(all) if Share::new(waited_ns(&read), waited_ns(&all)).is_at_least(*MOST) => all,
        _ => read,
    }
}

/// When the job of each request began, in the order in which they were read; `None`: they are not
/// done in that order, for some were done before their turn.
fn in_turn<'m>(given: &[Given<'m>], at_a_time: usize) -> Option<Vec<QueuedJob<'m>>> {
    let mut free: BinaryHeap<Reverse<Ns>> = BinaryHeap::new();
    let mut open: BinaryHeap<Reverse<Ns>> = BinaryHeap::new();
    let mut jobs = Vec::new();
    let mut in_turn = 0;
    for one in given {
        let read_ns = one.read_ns;
        let turn_ns = match free.len() < at_a_time {
            true => read_ns,
            false => free.pop().map_or(read_ns, |Reverse(ns)| ns.max(read_ns)),
        };
        in_turn += usize::from(turn_ns <= one.done_ns);
        free.push(Reverse(one.free_ns.max(turn_ns)));
        let waited_ns = turn_ns.min(one.done_ns) - read_ns;
        jobs.push(QueuedJob::new(*one, waited_ns, &mut open));
    }
    Share::counted(in_turn, jobs.len())
        .is_at_least(*QUEUE_PAIRED)
        .then_some(jobs)
}
