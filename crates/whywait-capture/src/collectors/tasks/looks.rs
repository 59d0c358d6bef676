//! What the tasks of slow requests do while these are under way: where each waits, which no thread
//! shows.
//!
//! They are looked at while requests are slow, and only then, in the memory of their process. What
//! that takes of the CPU is measured and bounded: the next look comes a hundred times later than
//! the last one took.
//!
//! Which goroutine has read a request is known. Of streams of HTTP/2 one reads all: those that it
//! has begun are looked at, and which was for which stream shows when that ends. Of Python's tasks
//! none has: their loop reads. So all of a process that has slow requests are looked at, and which
//! of them was a request's shows when it answers.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use libbpf_rs::Link;
use rustix::time::{ClockId, clock_gettime};
use whywait_events::{Event, Ns, TaskLook, TaskState};
use whywait_stacks::{TaskLocks, TaskPlace, Unwound};

use super::streams::{ConnectionKey, StreamKey, StreamTasks};
use crate::core::error::CaptureError;
use crate::core::iterate;
use crate::core::kernel;
use crate::core::programs::Programs;
use crate::core::records::{Record, decode};
use crate::core::shared::Shared;
use crate::core::skel::types;

/// Looks are not more frequent: 50 a second.
const SHORTEST_BETWEEN: Duration = Duration::from_millis(20);
/// So long after something was slow it is looked whether anything is now.
const SLOW_FOR_NS: u64 = 1_000_000_000;
/// So often it is looked even if nothing was slow.
const LOOK_ANYWAY: Duration = Duration::from_secs(1);
/// Looking takes at most one part in so many of a CPU.
const SHARE: u32 = 100;
/// So many are read in one look, for a millisecond or so: of more, others each time.
const MAX_AT_ONCE: usize = 64;

/// Looks at tasks, when it is time.
pub(super) struct SlowTasks {
    link: Option<Link>,
    next: Instant,
    /// When it looked last.
    looked_at: Instant,
    buffer: Vec<u8>,
    /// Some were under way at the last look.
    found: bool,
    /// How many tasks were passed over so far because there were more.
    passed_over: u64,
    streams: StreamTasks,
    /// Programs in which readers of connections begin those who work for streams: where one has
    /// begun none, none works.
    by_readers: BTreeSet<u32>,
    /// Processes that were looked at before.
    known: BTreeSet<u32>,
    /// When a first look at some was not counted, last.
    not_counted: Option<Instant>,
}

impl Default for SlowTasks {
    fn default() -> Self {
        Self {
            link: None,
            next: Instant::now(),
            looked_at: Instant::now(),
            buffer: Vec::new(),
            found: false,
            passed_over: 0,
            streams: StreamTasks::default(),
            by_readers: BTreeSet::new(),
            known: BTreeSet::new(),
            not_counted: None,
        }
    }
}

impl SlowTasks {
    /// Looks if that is due, and something is slow or was a moment ago; else now and then, for what
    /// is stuck was never seen to be slow.
    pub(super) fn turn(
        &mut self,
        programs: &Programs,
        shared: &mut Shared,
    ) -> Result<(), CaptureError> {
        let now_ns = kernel::now_ns();
        let slow = programs
            .variables()
            .is_some_and(|variables| now_ns.saturating_sub(variables.slow_until_ns) < SLOW_FOR_NS);
        let now_and_then = self.looked_at.elapsed() >= LOOK_ANYWAY;
        if Instant::now() < self.next || !(slow || self.found || now_and_then) {
            return Ok(());
        }
        self.look(programs, shared)
    }

    /// Looks at the tasks of slow requests.
    pub(super) fn look(
        &mut self,
        programs: &Programs,
        shared: &mut Shared,
    ) -> Result<(), CaptureError> {
        let begun = cpu_time();
        let slow = self.slow(programs)?;
        self.found = !slow.is_empty();
        let at_ns = kernel::now_ns();
        let mut tasks = tasks_of(&slow, shared);
        tasks.extend(self.of_streams(&slow, shared)?);
        let some = chosen(tasks.len(), MAX_AT_ONCE, at_ns);
        self.passed_over += (tasks.len() - some.len()) as u64;
        for index in some {
            self.read(&tasks[index], at_ns, shared)?;
        }
        self.looked_at = Instant::now();
        let took = match self.is_first_look(&slow) {
            true => Duration::ZERO,
            false => cpu_time().saturating_sub(begun),
        };
        self.next = self.looked_at + (took * SHARE).max(SHORTEST_BETWEEN);
        Ok(())
    }

    /// Whether some of these processes were never looked at. Then their programs' tables are read,
    /// and what does not change is found in them: that comes once, and says nothing of the next
    /// look. Where processes come and go it is so once in a while.
    fn is_first_look(&mut self, slow: &[types::slow_task_record]) -> bool {
        let known = self.known.len();
        self.known.extend(slow.iter().map(|record| record.tgid));
        let counted_for = |at: Instant| self.looked_at.duration_since(at);
        let rare = self
            .not_counted
            .is_none_or(|at| counted_for(at) >= LOOK_ANYWAY);
        let first = self.known.len() > known && rare;
        if first {
            self.not_counted = Some(self.looked_at);
        }
        first
    }

    /// The slow requests that are under way.
    fn slow(&mut self, programs: &Programs) -> Result<Vec<types::slow_task_record>, CaptureError> {
        let link = match self.link.take() {
            Some(link) => link,
            None => attach(programs)?,
        };
        let walked = iterate::read(&link, &mut self.buffer);
        self.link = Some(link);
        walked.map_err(|source| CaptureError::Iterate {
            what: "slow requests",
            source,
        })?;
        let mut slow = Vec::new();
        let mut bytes = self.buffer.as_slice();
        while let Some((record, size)) = decode(bytes) {
            bytes = &bytes[size..];
            if let Record::SlowTask(record) = record {
                slow.push(*record);
            }
        }
        Ok(slow)
    }

    /// The goroutines that may work for slow streams. What shows by now of those that have is
    /// recorded.
    fn of_streams<'s>(
        &mut self,
        slow: &'s [types::slow_task_record],
        shared: &mut Shared,
    ) -> Result<Vec<SlowTask<'s>>, CaptureError> {
        let mut readers: BTreeMap<u32, BTreeMap<u64, (u64, BTreeSet<StreamKey>)>> = BTreeMap::new();
        for record in slow.iter().filter(|record| record.connection != 0) {
            let of_process = readers.entry(record.tgid).or_default();
            let connection = of_process.entry(record.connection).or_default();
            connection.0 = record.task;
            connection.1.insert((record.socket, record.seq));
        }
        let (mut now, mut tasks) = (BTreeMap::new(), Vec::new());
        for (tgid, connections) in readers {
            let reading: Vec<u64> = connections.values().map(|(reader, _)| *reader).collect();
            let Some(families) = shared.output.unwinder.families(tgid, &reading) else {
                continue;
            };
            if families.iter().any(|family| !family.children.is_empty()) {
                self.by_readers.insert(tgid);
            }
            let by_readers = self.by_readers.contains(&tgid);
            for ((id, (_, streams)), family) in connections.into_iter().zip(families) {
                let work = match by_readers {
                    true => family.children,
                    // Those who read other connections work for no stream.
                    false if family.siblings.iter().any(|(at, _)| reading.contains(at)) => {
                        Vec::new()
                    }
                    false => family.siblings,
                };
                let key = (tgid, id);
                let one = |(address, id)| SlowTask::OfStream { key, address, id };
                tasks.extend(work.iter().copied().map(one));
                let ids = work.into_iter().map(|(_, id)| id).collect();
                now.insert(key, (streams, ids));
            }
        }
        for look in self.streams.round(&now) {
            shared.output.write(&Event::TaskLook(look))?;
        }
        tasks.retain(|task| match task {
            SlowTask::OfStream { key, id, .. } => self.streams.may_serve(*key, *id),
            SlowTask::Goroutine(_) | SlowTask::Python(..) => true,
        });
        Ok(tasks)
    }

    /// Records what shows of streams that are still open.
    pub(super) fn so_far(&mut self, shared: &mut Shared) -> Result<(), CaptureError> {
        for look in self.streams.so_far() {
            shared.output.write(&Event::TaskLook(look))?;
        }
        Ok(())
    }

    /// Counters for the recording.
    pub(super) fn counters(&self) -> Vec<(String, u64)> {
        vec![
            ("tasks.passed-over".to_owned(), self.passed_over),
            ("tasks.of-no-stream".to_owned(), self.streams.nobodys),
        ]
    }

    /// Reads a task, and records what it does. Those of one look have the time of the look.
    fn read(
        &mut self,
        slow: &SlowTask<'_>,
        at_ns: Ns,
        shared: &mut Shared,
    ) -> Result<(), CaptureError> {
        let unwinder = &mut shared.output.unwinder;
        let (place, request, found) = match slow {
            SlowTask::Goroutine(slow) => {
                let found = unwinder.goroutine(slow.tgid, slow.task);
                let found = found.map(|found| (found.state, found.stack, TaskLocks::default()));
                ((slow.tgid, slow.task), (slow.socket, slow.seq), found)
            }
            SlowTask::OfStream { key, address, id } => {
                let found = unwinder.goroutine(key.0, *address);
                // Its place may have another one by now.
                let Some(found) = found.filter(|found| found.id == *id) else {
                    return Ok(());
                };
                let found = (found.state, found.stack, TaskLocks::default());
                let look = look_at((key.0, *address), (0, 0), found, at_ns, shared)?;
                self.streams.look(*key, *id, look);
                return Ok(());
            }
            SlowTask::Python(tgid, place) => {
                let Some(found) = unwinder.task(*tgid, *place) else {
                    return Ok(());
                };
                let stack = found.frames.map(|frames| Unwound {
                    frames,
                    ..Unwound::default()
                });
                let address = found.address;
                let found = (found.state, stack, found.locks);
                ((*tgid, address), (0, 0), Some(found))
            }
        };
        if let Some(found) = found {
            let look = look_at(place, request, found, at_ns, shared)?;
            shared.output.write(&Event::TaskLook(look))?;
        }
        Ok(())
    }
}

fn attach(programs: &Programs) -> Result<Link, CaptureError> {
    let map = programs.skel.maps.sockets.as_fd();
    let program = &programs.skel.progs.slow_tasks;
    iterate::attach_to_sockets(program, map, "slow_tasks")
}

/// A task to look at.
enum SlowTask<'s> {
    /// The goroutine that has read a request.
    Goroutine(&'s types::slow_task_record),
    /// A goroutine, by its address and its id, that may work for a stream of a connection.
    OfStream {
        key: ConnectionKey,
        address: u64,
        id: u64,
    },
    /// A task of Python's, in a process that has slow requests.
    Python(u32, TaskPlace),
}

fn tasks_of<'s>(slow: &'s [types::slow_task_record], shared: &mut Shared) -> Vec<SlowTask<'s>> {
    let mut tasks = Vec::new();
    let mut pythons = BTreeSet::new();
    for record in slow.iter().filter(|record| record.connection == 0) {
        match record.task {
            0 => {
                pythons.insert(record.tgid);
            }
            _ => tasks.push(SlowTask::Goroutine(record)),
        }
    }
    for tgid in pythons {
        let places = shared.output.unwinder.tasks(tgid).into_iter();
        tasks.extend(places.map(|place| SlowTask::Python(tgid, place)));
    }
    tasks
}

/// A look at a task, with its stack recorded.
fn look_at(
    (tgid, address): (u32, u64),
    (socket, seq): (u64, u32),
    (state, stack, locks): (TaskState, Option<Unwound>, TaskLocks),
    at_ns: Ns,
    shared: &mut Shared,
) -> Result<TaskLook, CaptureError> {
    let output = &mut shared.output;
    let read_ns = kernel::now_ns();
    let stack = match stack {
        Some(unwound) => output.unwound(unwound)?.0,
        None => 0,
    };
    Ok(TaskLook {
        at_ns,
        read_ns,
        tgid,
        task: output.task(tgid, address),
        socket,
        seq,
        state,
        stack,
        lock: locks.awaited,
        held: locks.held,
    })
}

/// Some of so many, evenly, and which of them by chance: all are as likely.
fn chosen(count: usize, at_most: usize, seed: u64) -> Vec<usize> {
    if count <= at_most {
        return (0..count).collect();
    }
    // The clock's nanoseconds, with their bits mixed.
    let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let first = usize::try_from(mixed).unwrap_or(0) % count;
    let place = |i: usize| (first + i * count / at_most) % count;
    (0..at_most).map(place).collect()
}

/// The CPU time of this thread so far.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, ns) = (time.tv_sec, time.tv_nsec);
    Duration::new(
        u64::try_from(seconds).unwrap_or(0),
        u32::try_from(ns).unwrap_or(0),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn some_of_many_are_different_ones_each_time() {
        assert_eq!(chosen(3, 64, 5), [0, 1, 2]);
        let mut seen = BTreeSet::new();
        for seed in 0..1000 {
            let some = BTreeSet::from_iter(chosen(1000, 64, seed));
            assert_eq!(some.len(), 64, "none is there twice");
            seen.extend(some);
        }
        assert_eq!(seen.len(), 1000, "and each has its turn");
    }
}
