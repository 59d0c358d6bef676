//! What the model needs of a recording: the slowest requests, and what threads did while they were
//! under way.
//!
//! Two passes, so that memory depends on what is reported, not on the recording's length: first the
//! requests, of which the slowest are kept and the others summed up; then the rows that overlap the
//! kept ones.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet};

use whywait_events::recording::{Meta, ReadError, Recording};
use whywait_events::{
    Busy, Ns, Part, Parts, Preempted, Request, Sample, StackId, ThreadEvent, Wait,
};

use crate::cpu::CpuTime;
use crate::cpu::bursts::Bursts;
use crate::requests::histogram::Histogram;
use crate::rings::RingInput;
use crate::stacks::StackNames;
use crate::waits::objects::Objects;
use crate::waits::sleeps::Sleeps;
use crate::waits::system_call::{Call, call};

/// Requests that are looked at one by one.
const MAX_REQUESTS: usize = 20_000;
/// Rows of each other kind that are kept.
const MAX_ROWS: usize = 1_000_000;
/// Sockets whose last row may still be replaced.
const MAX_PENDING: usize = 65_536;
/// Distinct poll stacks kept for each epoll instance.
const MAX_POLL_STACKS: usize = 64;
/// Distinct sleeps on futexes, by stack, thread and word, kept for each process.
const MAX_PARKS: usize = 16_384;
/// Waits that are kept where no request was seen: what threads wait for is all that there is to
/// look at.
const MAX_WAITS_ALONE: usize = 200_000;
/// Rows from this long before a request matter to it too: they show what its server was doing when
/// it came.
const LOOK_BACK_NS: Ns = 5_000_000;

/// Requests that are not looked at one by one, summed up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestSums {
    /// How many.
    pub count: u64,
    /// How many of them were slow.
    pub slow: u64,
    /// Their latencies, nanoseconds.
    pub total_ns: u64,
    /// Of that: until the target read them.
    pub unserved_ns: u64,
    /// Of that: the reader had been woken and was on its way.
    pub unserved_wakeup_ns: u64,
    /// How the rest was spent.
    pub service: Parts,
}

/// Who polled an epoll instance, over the whole recording.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Polls {
    /// Threads that slept in it for long, and how often.
    pub threads: BTreeMap<u32, u64>,
    /// Their stacks.
    pub stacks: BTreeSet<StackId>,
}

/// What the model is made from.
#[derive(Debug, Clone, Default)]
pub struct Input {
    /// What was recorded, where and how.
    pub meta: Meta,
    /// Changes of threads.
    pub threads: Vec<ThreadEvent>,
    /// The slowest requests, one row each.
    pub requests: Vec<Request>,
    /// The other requests.
    pub sums: RequestSums,
    /// Latencies of all requests.
    pub(crate) latency: Histogram,
    /// Long waits around the kept requests.
    pub waits: Vec<Wait>,
    /// Stretches without I/O around them.
    pub busy: Vec<Busy>,
    /// Stretches without a CPU within them.
    pub preempted: Vec<Preempted>,
    /// Samples within them.
    pub samples: Vec<Sample>,
    /// Who polled what, over the whole recording: by process and epoll instance.
    pub polls: BTreeMap<(u32, u32), Polls>,
    /// Where threads slept on futexes, over the whole recording: by process, stack and thread, with
    /// the words.
    pub parks: BTreeMap<u32, BTreeSet<(StackId, u32, u64)>>,
    /// What was waited for, over the whole recording.
    pub objects: Objects,
    /// Rings of io_uring.
    pub rings: RingInput,
    /// What CPU time was for.
    pub cpu: CpuTime,
    /// What bursts of system-call tracing saw.
    pub bursts: Bursts,
    /// Names of stacks.
    pub stacks: StackNames,
    /// The recording's counters.
    pub counters: BTreeMap<String, u64>,
    /// Rows that were left out because there were too many.
    pub left_out: u64,
    /// What of the recording could not be read, in words.
    pub damaged: Vec<String>,
}

impl Input {
    /// Reads a recording.
    ///
    /// # Errors
    /// When the recording went away while it was read. What is damaged is left out and said in
    /// `damaged`.
    pub fn read(recording: &Recording) -> Result<Self, ReadError> {
        let mut input = Input {
            meta: recording.meta().clone(),
            ..Input::default()
        };
        let mut requests = Slowest::new(MAX_REQUESTS);
        recording.requests(None, &mut |row| requests.add(row))?;
        input.counters = recording.counters()?;
        let (kept, sums, latency) = requests.finish();
        input.sums = sums;
        input.latency = latency;
        input.take_counters();
        input.requests = kept;
        recording.threads(None, &mut |row| {
            if input.threads.len() < MAX_ROWS {
                input.threads.push(row.clone());
            }
        })?;
        // What a wait was for shows in its stack.
        input.stacks = StackNames::read(&recording.stacks()?);
        input.objects.serve(&input.requests);
        let windows = Windows::around(&input.requests);
        let alone = input.requests.is_empty() && input.sums.count == 0;
        let mut left_out = 0u64;
        let tids: HashSet<u32> = input.threads.iter().map(|thread| thread.tid).collect();
        // The whole of the waits is walked, also for who polls what.
        let mut sleeps = Sleeps::default();
        let mut settled = |wait: &Wait, until_ns: Ns| {
            input.note(wait, &tids);
            if alone && input.waits.len() >= MAX_WAITS_ALONE {
                left_out += 1;
            } else if alone || windows.overlap(wait.out_ns, until_ns) {
                // The sleep that shows when one without an end was over at the latest may lie
                // outside of the windows.
                let in_ns = (until_ns < Ns::MAX).then_some(until_ns);
                let known = Wait {
                    in_ns,
                    ..wait.clone()
                };
                push(&mut input.waits, &known, &mut left_out);
            }
        };
        recording.waits(None, &mut |row| sleeps.add(row, &mut settled))?;
        sleeps.finish(&mut settled);
        if let Some(range) = windows.range() {
            recording.busy(Some(range.clone()), &mut |row| {
                if windows.overlap(row.start_ns, row.end_ns) {
                    push(&mut input.busy, row, &mut left_out);
                }
            })?;
            recording.preempted(Some(range.clone()), &mut |row| {
                if windows.overlap(row.out_ns, row.in_ns) {
                    push(&mut input.preempted, row, &mut left_out);
                }
            })?;
            recording.samples(Some(range), &mut |row| {
                if windows.overlap(row.at_ns, row.at_ns.saturating_add(1)) {
                    push(&mut input.samples, row, &mut left_out);
                }
            })?;
        }
        input.left_out = left_out;
        input.rings = RingInput::read(recording, &input.threads)?;
        recording.cpu(&mut |row| input.cpu.add(row))?;
        recording.sockets(&mut |row| input.cpu.sockets.add(row))?;
        recording.bursts(&mut |row| input.bursts.add(row))?;
        recording.calls(&mut |row| input.bursts.add_call(row))?;
        recording.futexes(&mut |sum| input.objects.add_short(sum))?;
        // The open segment of a recording that was cut off is what "cut off" means, and not damage
        // on top of it.
        let cut_off = !input.meta.complete;
        input.damaged = recording
            .damaged()
            .iter()
            .filter(|damage| !(cut_off && damage.what.ends_with(".open")))
            .map(|damage| format!("{}: {}", damage.what, damage.reason))
            .collect();
        Ok(input)
    }

    /// Notes who polls what and who parks where: what a pool is shows over the whole recording.
    pub(crate) fn note(&mut self, wait: &Wait, tids: &HashSet<u32>) {
        self.objects
            .add(wait, &self.stacks, |tid| tids.contains(&tid));
        if call(wait) == Call::Futex && wait.user_stack != 0 {
            let parks = self.parks.entry(wait.tgid).or_default();
            if parks.len() < MAX_PARKS {
                parks.insert((wait.user_stack, wait.tid, wait.args[0]));
            }
        }
        if wait.epoll == 0 || call(wait) != Call::Poll {
            return;
        }
        let polls = self.polls.entry((wait.tgid, wait.epoll)).or_default();
        *polls.threads.entry(wait.tid).or_default() += 1;
        if wait.user_stack != 0 && polls.stacks.len() < MAX_POLL_STACKS {
            polls.stacks.insert(wait.user_stack);
        }
    }

    /// Adds the requests that the kernel side summed up.
    pub(crate) fn take_counters(&mut self) {
        let of = |name: &str| self.counters.get(name).copied().unwrap_or(0);
        let sums = &mut self.sums;
        sums.count = sums.count.saturating_add(of("requests.count"));
        sums.slow = sums.slow.saturating_add(of("requests.slow"));
        sums.total_ns = sums.total_ns.saturating_add(of("requests.total-ns"));
        sums.unserved_ns = sums.unserved_ns.saturating_add(of("requests.unserved-ns"));
        sums.unserved_wakeup_ns = sums
            .unserved_wakeup_ns
            .saturating_add(of("requests.unserved-wakeup-ns"));
        for part in Part::ALL {
            let ns = of(&format!("requests.service.{}", part.name()));
            sums.service[part] = sums.service[part].saturating_add(ns);
        }
        self.latency.raise_max(of("requests.max-ns"));
        for (name, count) in &self.counters {
            if let Some(bucket) = name
                .strip_prefix("latency.bucket.")
                .and_then(|number| number.parse().ok())
            {
                self.latency.add_bucket(bucket, *count);
            }
        }
    }

    /// Adds a request from a row of its own; for scripts of events.
    pub(crate) fn take_request(&mut self, row: &Request) {
        if let Some(ns) = latency_ns(row) {
            self.latency.add(ns);
        }
        self.requests.push(row.clone());
    }
}

fn push<T: Clone>(rows: &mut Vec<T>, row: &T, left_out: &mut u64) {
    if rows.len() < MAX_ROWS {
        rows.push(row.clone());
    } else {
        *left_out += 1;
    }
}

/// From the first byte in the kernel to the last byte of the response; `None` when it was not
/// answered.
pub(crate) fn latency_ns(request: &Request) -> Option<u64> {
    Some(request.last_send_ns?.saturating_sub(request.ready_ns))
}

/// Whether a row tells of a request that there cannot have been: nobody ever read it, and yet a
/// later one of its connection was read. What is sent on a connection is read in order. (The kernel
/// tells of what is ready on one CPU while the answer to the request before is noted on another.)
fn was_none(former: &Request, row: &Request) -> bool {
    former.recv_ns.is_none()
        && former.last_send_ns.is_none()
        && former.seq < row.seq
        && row.recv_ns.is_some()
}

/// Keeps the slowest requests and sums up the rest.
struct Slowest {
    limit: usize,
    /// By socket: its last row, which a later row for the same request replaces.
    pending: HashMap<u64, Request>,
    kept: BinaryHeap<Reverse<Ranked>>,
    sums: RequestSums,
    latency: Histogram,
}

/// A request in the order of how much it matters.
struct Ranked(u64, Request);

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Ranked {}
impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let key = |ranked: &Ranked| {
            (
                ranked.0,
                Reverse((ranked.1.ready_ns, ranked.1.socket, ranked.1.seq)),
            )
        };
        key(self).cmp(&key(other))
    }
}

impl Slowest {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            pending: HashMap::new(),
            kept: BinaryHeap::new(),
            sums: RequestSums::default(),
            latency: Histogram::default(),
        }
    }

    fn add(&mut self, row: &Request) {
        if self.pending.len() >= MAX_PENDING {
            let rows: Vec<Request> = self.pending.drain().map(|(_, row)| row).collect();
            rows.into_iter().for_each(|row| self.settle(row));
        }
        if let Some(former) = self.pending.insert(row.socket, row.clone())
            && former.seq != row.seq
            && !was_none(&former, row)
        {
            self.settle(former);
        }
    }

    fn settle(&mut self, row: Request) {
        let rank = match latency_ns(&row) {
            Some(ns) => {
                self.latency.add(ns);
                ns
            }
            // Not answered: it matters most, and how long it waited is not known here.
            None => u64::MAX,
        };
        self.kept.push(Reverse(Ranked(rank, row)));
        if self.kept.len() > self.limit
            && let Some(Reverse(Ranked(ns, row))) = self.kept.pop()
            && ns != u64::MAX
        {
            self.sums.count += 1;
            self.sums.slow += 1;
            self.sums.total_ns = self.sums.total_ns.saturating_add(ns);
            let unserved = row
                .recv_ns
                .unwrap_or(row.ready_ns)
                .saturating_sub(row.ready_ns);
            self.sums.unserved_ns = self.sums.unserved_ns.saturating_add(unserved);
            self.sums.unserved_wakeup_ns = self
                .sums
                .unserved_wakeup_ns
                .saturating_add(row.unserved_wakeup_ns.min(unserved));
            self.sums.service += row.service;
        }
    }

    fn finish(mut self) -> (Vec<Request>, RequestSums, Histogram) {
        let rows: Vec<Request> = self.pending.drain().map(|(_, row)| row).collect();
        rows.into_iter().for_each(|row| self.settle(row));
        let mut kept: Vec<Request> = self
            .kept
            .into_iter()
            .map(|Reverse(Ranked(_, row))| row)
            .collect();
        kept.sort_by_key(|row| (row.ready_ns, row.socket, row.seq));
        (kept, self.sums, self.latency)
    }
}

/// The times in which kept requests were under way, merged and in order.
struct Windows(Vec<(Ns, Ns)>);

impl Windows {
    fn around(requests: &[Request]) -> Self {
        let mut spans: Vec<(Ns, Ns)> = requests
            .iter()
            .map(|row| {
                (
                    row.ready_ns.saturating_sub(LOOK_BACK_NS),
                    row.last_send_ns.unwrap_or(Ns::MAX),
                )
            })
            .collect();
        spans.sort_unstable();
        let mut merged: Vec<(Ns, Ns)> = Vec::new();
        for (from, to) in spans {
            match merged.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => merged.push((from, to)),
            }
        }
        Self(merged)
    }

    fn overlap(&self, from: Ns, to: Ns) -> bool {
        let at = self.0.partition_point(|(_, end)| *end < from);
        self.0.get(at).is_some_and(|(start, _)| *start <= to)
    }

    fn range(&self) -> Option<std::ops::Range<Ns>> {
        Some(self.0.first()?.0..self.0.last()?.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(socket: u64, seq: u32, ready_ns: Ns, last_send_ns: Ns) -> Request {
        Request {
            socket,
            seq,
            ready_ns,
            recv_ns: Some(ready_ns),
            first_send_ns: Some(last_send_ns),
            last_send_ns: Some(last_send_ns),
            ..Request::default()
        }
    }

    #[test]
    fn a_later_row_of_the_same_request_replaces_the_earlier() {
        let mut slowest = Slowest::new(10);
        slowest.add(&answered(1, 1, 0, 100));
        slowest.add(&answered(1, 1, 0, 500));
        slowest.add(&answered(1, 2, 600, 700));
        let (kept, sums, _) = slowest.finish();
        assert_eq!(
            kept.iter().map(|row| row.last_send_ns).collect::<Vec<_>>(),
            [Some(500), Some(700)]
        );
        assert_eq!(sums.count, 0);
    }

    #[test]
    fn a_request_that_nobody_read_before_later_ones_were_read_was_none() {
        let unread = |seq, ready_ns| Request {
            socket: 1,
            seq,
            ready_ns,
            ..Request::default()
        };
        let mut slowest = Slowest::new(10);
        slowest.add(&unread(1, 0));
        slowest.add(&answered(1, 3, 600, 700));
        slowest.add(&unread(4, 800));
        let (kept, ..) = slowest.finish();
        assert_eq!(
            kept.iter().map(|row| row.seq).collect::<Vec<_>>(),
            [3, 4],
            "the last one may wait for its reader still"
        );
    }

    #[test]
    fn beyond_the_limit_the_fastest_are_summed_up() {
        let mut slowest = Slowest::new(2);
        for (socket, latency) in [(1, 10), (2, 30), (3, 20), (4, 40)] {
            slowest.add(&answered(socket, 1, 0, latency));
        }
        let (kept, sums, latency) = slowest.finish();
        let mut sockets: Vec<u64> = kept.iter().map(|row| row.socket).collect();
        sockets.sort_unstable();
        assert_eq!(sockets, [2, 4]);
        assert_eq!((sums.count, sums.total_ns), (2, 30));
        assert_eq!(
            latency.latency(&[]).map(|latency| latency.max),
            Some(40),
            "percentiles are over all of them"
        );
    }

    #[test]
    fn rows_outside_of_every_request_do_not_matter() {
        let ms = 1_000_000;
        let windows = Windows::around(&[
            answered(1, 1, 100 * ms, 200 * ms),
            answered(2, 1, 150 * ms, 250 * ms),
        ]);
        assert!(windows.overlap(190 * ms, 300 * ms));
        assert!(windows.overlap(0, Ns::MAX), "a wait that spans it all");
        assert!(!windows.overlap(0, 90 * ms));
        assert!(!windows.overlap(260 * ms, Ns::MAX));
    }
}
