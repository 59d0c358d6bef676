//! What the model needs of a recording: the slowest requests, and what threads did while they were
//! under way.
//!
//! Two passes, so that memory depends on what is reported, not on the recording's length: first the
//! requests, of which the slowest are kept and the others summed up; then the rows that overlap the
//! kept ones.

use std::collections::{BTreeMap, BTreeSet};

use whywait_events::recording::{ReadError, Recording};
use whywait_events::{
    Abandoned, AcceptQueue, Burst, BurstCall, Busy, Connection, Cpu, CpuWait, DnsQuery, FileLock,
    FutexSum, NameRow, Ns, Part, Preempted, Push, Request, ResponseLook, Sample, SocketCpu,
    StackId, Tail, TaskLook, ThreadEvent, Wait, WorkKind,
};

use crate::calls::Calls;
use crate::maps::HashSet;
use crate::recorded::Recorded;
use crate::requests::histogram::Histogram;
use crate::requests::kept::{Counted, KeptRequests, OwnRequests};
use crate::requests::life;
use crate::requests::slowest::{RequestSums, Slowest, Windows};
use crate::rings::RingInput;
use crate::rows::Rows;
use crate::stacks::StackNames;
use crate::waits::objects::WaitObjects;
use crate::waits::sleeps::Sleeps;
use crate::waits::system_call::{SystemCall, descriptor, is_accept, polls_several, system_call};

/// Requests that are looked at one by one.
const MAX_REQUESTS: usize = 20_000;
/// Rows of each other kind that are kept.
const MAX_ROWS: usize = 1_000_000;
/// Waits that are kept where no request was seen: what threads wait for is all that there is to
/// look at.
const MAX_WAITS_ALONE: usize = 200_000;
/// Distinct poll stacks kept for each epoll instance.
const MAX_POLL_STACKS: usize = 64;
/// Distinct sleeps on futexes, by stack, thread and word, kept for each process.
const MAX_PARKS: usize = 16_384;

/// Who polled an epoll instance, or in a process without one, over the whole recording.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Polls {
    /// Threads that slept in it for long, and how often.
    pub threads: BTreeMap<u32, u64>,
    /// Their stacks.
    pub stacks: BTreeSet<StackId>,
}

/// Requests, as they are read: the slowest, the sums of the others, and all latencies.
type SlowestAndRest = (Vec<Request>, RequestSums, Histogram);

/// What the model is made from: rows as they were read.
#[derive(Debug, Clone, Default)]
pub struct Input {
    /// What is taken as it is.
    pub recorded: Recorded,
    /// The requests.
    pub requests: KeptRequests,
    /// Changes of threads.
    pub threads: Rows<ThreadEvent, MAX_ROWS>,
    /// Long waits around the kept requests.
    pub waits: Rows<Wait, MAX_ROWS>,
    /// Intervals without I/O around them.
    pub busy: Rows<Busy, MAX_ROWS>,
    /// Intervals without a CPU within them.
    pub preempted: Rows<Preempted, MAX_ROWS>,
    /// Waits for a CPU within them, with who had it.
    pub cpu_waits: Rows<CpuWait, MAX_ROWS>,
    /// Samples within them.
    pub samples: Rows<Sample, MAX_ROWS>,
    /// Who polled what, over the whole recording: by process and epoll instance, 0 where a poll or
    /// a select named several descriptors itself.
    pub polls: BTreeMap<(u32, u32), Polls>,
    /// Where threads slept on futexes, over the whole recording: by process, stack and thread, with
    /// the words.
    pub parks: BTreeMap<u32, BTreeSet<(StackId, u32, u64)>>,
    /// What was waited for, over the whole recording.
    pub objects: WaitObjects,
    /// The io_uring rings.
    pub rings: RingInput,
    /// What the target asked of others.
    pub calls: Calls,
}

impl Input {
    /// Reads a recording.
    ///
    /// # Errors
    /// When the recording went away while it was read. What is damaged is left out and said in
    /// `damaged`.
    pub fn read(recording: &Recording) -> Result<Self, ReadError> {
        let mut input = Input::default();
        input.recorded.meta = recording.meta().clone();
        let mut requests = Slowest::new(MAX_REQUESTS);
        let mut own = Slowest::new(MAX_REQUESTS);
        let mut jobs = Slowest::new(MAX_REQUESTS);
        let mut handed = Slowest::new(MAX_REQUESTS);
        // Whose connection it was is not known of a request that was read before the recording
        // began: those that follow on it tell.
        let mut before: Vec<Request> = Vec::new();
        let mut own_sockets: HashSet<u64> = HashSet::default();
        recording.read::<Request>(None, &mut |row| {
            if row.own && own_sockets.len() < MAX_ROWS {
                own_sockets.insert(row.socket);
            }
            match row.own {
                _ if matches!(row.kind, WorkKind::Job | WorkKind::HandedJob) => {
                    input.requests.jobs.note(row);
                    match row.kind {
                        WorkKind::HandedJob => handed.add(row),
                        _ => jobs.add(row),
                    }
                }
                true => own.add(row),
                false if row.since_before && before.len() < MAX_ROWS => before.push(row.clone()),
                false => requests.add(row),
            }
        })?;
        for row in &before {
            if own_sockets.contains(&row.socket) {
                own.add(row);
            } else {
                requests.add(row);
            }
        }
        input.recorded.counters = recording.counters()?;
        let jobs = [jobs.finish(), handed.finish()];
        input.take_requests(requests.finish(), jobs, own.finish());
        recording.read::<ThreadEvent>(None, &mut |row| {
            input.threads.push(row.clone());
        })?;
        // What a wait was for shows in its stack.
        input.recorded.stacks = StackNames::read(&recording.stacks()?);
        input.objects.serve(&input.requests.rows);
        let windows = Windows::around(&input.requests.rows);
        let alone = input.requests.rows.is_empty() && input.requests.sums.count == 0;
        let tids: HashSet<u32> = input.threads.iter().map(|thread| thread.tid).collect();
        // The whole of the waits is walked, also for who polls what.
        let mut sleeps = Sleeps::default();
        let mut settled = |wait: &Wait, until_ns: Ns| {
            input.note(wait, &tids);
            if alone && input.waits.len() >= MAX_WAITS_ALONE {
                input.waits.leave_out();
            } else if alone || windows.overlap(wait.out_ns, until_ns) {
                // The sleep that shows when one without an end was over at the latest may lie
                // outside of the windows.
                let in_ns = (until_ns < Ns::MAX).then_some(until_ns);
                let known = Wait {
                    in_ns,
                    ..wait.clone()
                };
                input.waits.push(known);
            }
        };
        recording.read::<Wait>(None, &mut |row| sleeps.add(row, &mut settled))?;
        sleeps.finish(&mut settled);
        if let Some(range) = windows.range() {
            recording.read::<Busy>(Some(range.clone()), &mut |row| {
                if windows.overlap(row.start_ns, row.end_ns) {
                    input.busy.push(row.clone());
                }
            })?;
            recording.read::<Preempted>(Some(range.clone()), &mut |row| {
                if windows.overlap(row.out_ns, row.in_ns) {
                    input.preempted.push(row.clone());
                }
            })?;
            recording.read::<CpuWait>(Some(range), &mut |row| {
                if windows.overlap(row.from_ns, row.in_ns) {
                    input.cpu_waits.push(row.clone());
                }
            })?;
        }
        recording.read::<Sample>(None, &mut |row| {
            input.recorded.sampled.add(row);
            if windows.overlap(row.at_ns, row.at_ns.saturating_add(1)) {
                input.samples.push(row.clone());
            }
        })?;
        input.rings = RingInput::read(recording, &input.threads)?;
        recording.read::<AcceptQueue>(None, &mut |row| input.recorded.accept_queues.add(row))?;
        recording.read::<FileLock>(None, &mut |row| input.recorded.file_locks.add(row))?;
        let connections = &mut input.recorded.open_connections;
        recording.read::<Connection>(None, &mut |row| connections.add(row))?;
        recording.read::<Tail>(None, &mut |row| input.recorded.tails.add(row))?;
        recording.read::<ResponseLook>(None, &mut |row| input.recorded.responses.add(row))?;
        recording.read::<TaskLook>(None, &mut |row| {
            if windows.overlap(row.at_ns, row.at_ns.saturating_add(1)) {
                input.recorded.task_looks.add(row);
            }
        })?;
        recording.read::<Abandoned>(None, &mut |row| {
            input.recorded.abandoned.push(row.clone());
        })?;
        recording.read::<Push>(None, &mut |row| {
            input.recorded.pushes.push(row.clone());
        })?;
        recording.read::<DnsQuery>(None, &mut |row| {
            input.recorded.dns.push(row.clone());
        })?;
        input.calls = Calls::read(recording)?;
        recording.read::<NameRow>(None, &mut |row| input.recorded.given_names.add(row))?;
        recording.read::<Cpu>(None, &mut |row| input.recorded.cpu.add(row))?;
        recording.read::<SocketCpu>(None, &mut |row| input.recorded.cpu.sockets.add(row))?;
        recording.read::<Burst>(None, &mut |row| input.recorded.bursts.add(row))?;
        recording.read::<BurstCall>(None, &mut |row| input.recorded.bursts.add_step(row))?;
        recording.read::<FutexSum>(None, &mut |sum| input.objects.add_short(sum))?;
        // The open segment of a recording that was cut off is what "cut off" means, and not damage
        // on top of it.
        let cut_off = !input.recorded.meta.complete;
        input.recorded.damaged = recording
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
            .add(wait, &self.recorded.stacks, |tid| tids.contains(&tid));
        self.recorded.stops.add(wait, &self.recorded.stacks);
        if is_accept(wait)
            && let Some(fd) = descriptor(wait)
            && self.recorded.acceptors.len() < MAX_PARKS
        {
            let acceptors = self.recorded.acceptors.entry((wait.tgid, fd)).or_default();
            acceptors.insert(wait.tid);
        }
        if system_call(wait) == SystemCall::Futex && wait.user_stack != 0 {
            let parks = self.parks.entry(wait.tgid).or_default();
            if parks.len() < MAX_PARKS {
                parks.insert((wait.user_stack, wait.tid, wait.args[0]));
            }
        }
        if !polls_several(wait) {
            return;
        }
        let polls = self.polls.entry((wait.tgid, wait.epoll)).or_default();
        *polls.threads.entry(wait.tid).or_default() += 1;
        if wait.user_stack != 0 && polls.stacks.len() < MAX_POLL_STACKS {
            polls.stacks.insert(wait.user_stack);
        }
    }

    /// Takes the requests of others. Those of the target to itself are a part of what others' wait
    /// for; where there are no others, as where a program measures itself, they are what there is.
    /// So it is with jobs: who serves nobody and works on messages has these. Of jobs and of those
    /// that were handed on it is those that took longer: who hands them on does nothing else, and
    /// who does not may have helpers for something else, as for a log.
    fn take_requests(
        &mut self,
        others: SlowestAndRest,
        [jobs, handed]: [SlowestAndRest; 2],
        own: SlowestAndRest,
    ) {
        let of = |whose: Counted, name: &str| {
            let counter = format!("{}requests.{name}", whose.counters());
            self.recorded.counters.get(&counter).copied().unwrap_or(0)
        };
        let count = |(kept, sums, _): &SlowestAndRest, summed_up: u64| {
            let answered = kept.iter().filter(|row| life::latency_ns(row).is_some());
            summed_up
                .saturating_add(sums.count)
                .saturating_add(answered.count() as u64)
        };
        let others_count = count(&others, of(Counted::Others, "count"));
        let took_ns = |(kept, sums, _): &SlowestAndRest, whose: Counted| {
            let kept_ns = kept.iter().filter_map(life::latency_ns);
            let kept_ns = kept_ns.fold(sums.total_ns, u64::saturating_add);
            kept_ns.saturating_add(of(whose, "total-ns"))
        };
        let jobs_ns = took_ns(&jobs, Counted::Jobs);
        let handed_ns = took_ns(&handed, Counted::HandedJobs);
        let (jobs, jobs_ns, kind) = if handed_ns > jobs_ns {
            (handed, handed_ns, Counted::HandedJobs)
        } else {
            (jobs, jobs_ns, Counted::Jobs)
        };
        let jobs_count = count(&jobs, of(kind, "count"));
        let own_count = count(&own, of(Counted::Own, "count"));
        let counted = if others_count > 0 || !others.0.is_empty() {
            Counted::Others
        } else if jobs_count > 0 || !jobs.0.is_empty() {
            kind
        } else if own_count > 0 {
            Counted::Own
        } else {
            Counted::Others
        };
        self.requests.jobs.total_ns = jobs_ns;
        self.requests.jobs.count = jobs_count;
        self.requests.own = OwnRequests {
            count: own_count,
            counted: counted == Counted::Own,
        };
        self.requests.counted = counted;
        let (kept, sums, latency) = match counted {
            Counted::Others => others,
            Counted::Jobs | Counted::HandedJobs => jobs,
            Counted::Own => own,
        };
        self.requests.rows = kept;
        self.requests.sums = sums;
        self.requests.latency = latency;
        self.take_counters(counted.counters());
    }

    /// Adds the requests that the kernel side summed up, under names that begin so.
    pub(crate) fn take_counters(&mut self, whose: &str) {
        let of = |name: &str| {
            let counter = self.recorded.counters.get(&format!("{whose}{name}"));
            counter.copied().unwrap_or(0)
        };
        let sums = &mut self.requests.sums;
        sums.count = sums.count.saturating_add(of("requests.count"));
        sums.slow = sums.slow.saturating_add(of("requests.slow"));
        sums.total_ns = sums.total_ns.saturating_add(of("requests.total-ns"));
        sums.unserved_ns = sums.unserved_ns.saturating_add(of("requests.unserved-ns"));
        sums.unserved_wakeup_ns = sums
            .unserved_wakeup_ns
            .saturating_add(of("requests.unserved-wakeup-ns"));
        sums.multiplexed = sums.multiplexed.saturating_add(of("requests.multiplexed"));
        for part in Part::ALL {
            let ns = of(&format!("requests.service.{}", part.name()));
            sums.service[part] = sums.service[part].saturating_add(ns);
        }
        self.requests.latency.raise_max(of("requests.max-ns"));
        let prefix = format!("{whose}latency.bucket.");
        for (name, count) in &self.recorded.counters {
            if let Some(bucket) = name
                .strip_prefix(&prefix)
                .and_then(|number| number.parse().ok())
            {
                self.requests.latency.add_bucket(bucket, *count);
            }
        }
    }

    /// Rows that were left out because there were too many.
    pub(crate) fn left_out(&self) -> u64 {
        let of_each = [
            self.threads.left_out(),
            self.waits.left_out(),
            self.busy.left_out(),
            self.preempted.left_out(),
            self.cpu_waits.left_out(),
            self.samples.left_out(),
            self.recorded.sampled.left_out(),
            self.recorded.stops.left_out(),
            self.objects.left_out(),
            self.recorded.tails.rows().left_out(),
            self.recorded.open_connections.left_out(),
            self.recorded.responses.left_out(),
            self.recorded.task_looks.left_out(),
            self.recorded.abandoned.left_out(),
            self.recorded.dns.left_out(),
            self.recorded.file_locks.left_out(),
            self.recorded.given_names.left_out(),
            self.recorded.pushes.left_out(),
            self.calls.exchanges.left_out(),
            self.calls.short.left_out(),
            self.calls.given_up.left_out(),
        ];
        of_each.into_iter().fold(0, u64::saturating_add)
    }

    /// Adds a request from a row of its own; for scripts of events.
    pub(crate) fn take_request(&mut self, row: &Request) {
        if let Some(ns) = life::latency_ns(row) {
            self.requests.latency.add(ns);
        }
        self.requests.rows.push(row.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(latencies: &[u64]) -> SlowestAndRest {
        let mut slowest = Slowest::new(10);
        for (socket, latency) in (1..).zip(latencies) {
            slowest.add(&Request {
                socket,
                seq: 1,
                recv_ns: Some(0),
                first_send_ns: Some(*latency),
                last_send_ns: Some(*latency),
                ..Request::default()
            });
        }
        slowest.finish()
    }

    fn input() -> Input {
        let counters = [
            ("requests.count", 5),
            ("requests.total-ns", 50),
            ("own.requests.count", 7),
            ("own.requests.total-ns", 70),
        ];
        let mut input = Input::default();
        input.recorded.counters = counters.map(|(name, n)| (name.to_owned(), n)).into();
        input
    }

    #[test]
    fn the_targets_own_requests_are_not_counted_again() {
        let mut input = input();
        input.take_requests(kept(&[100]), [kept(&[70]), kept(&[])], kept(&[90, 80]));
        let own = OwnRequests {
            count: 9,
            counted: false,
        };
        assert_eq!(input.requests.own, own);
        assert_eq!(input.requests.rows.len(), 1);
        assert_eq!(
            (input.requests.sums.count, input.requests.sums.total_ns),
            (5, 50)
        );
    }

    #[test]
    fn where_there_are_no_others_the_targets_own_count() {
        let mut input = input();
        input.recorded.counters.remove("requests.count");
        input.recorded.counters.remove("requests.total-ns");
        input.take_requests(kept(&[]), [kept(&[]), kept(&[])], kept(&[90, 80]));
        let own = OwnRequests {
            count: 9,
            counted: true,
        };
        assert_eq!(input.requests.own, own);
        assert_eq!(input.requests.rows.len(), 2);
        assert_eq!(
            (input.requests.sums.count, input.requests.sums.total_ns),
            (7, 70)
        );
    }

    #[test]
    fn jobs_are_the_requests_of_who_serves_nobody() {
        let mut input = input();
        input.take_requests(kept(&[100]), [kept(&[90, 80]), kept(&[70])], kept(&[]));
        assert_eq!(input.requests.counted, Counted::Others);
        assert_eq!(
            (input.requests.jobs.count, input.requests.jobs.total_ns),
            (2, 170)
        );
        input.recorded.counters.remove("requests.count");
        input.take_requests(kept(&[]), [kept(&[90]), kept(&[90, 80])], kept(&[70]));
        assert_eq!(input.requests.counted, Counted::HandedJobs);
        assert_eq!(input.requests.rows.len(), 2);
        assert!(!input.requests.own.counted);
    }
}
