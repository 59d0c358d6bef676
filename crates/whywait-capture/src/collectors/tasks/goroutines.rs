//! What the goroutines of slow requests do while these are under way: where each waits, which no
//! thread shows.
//!
//! They are looked at while requests are slow, and only then, in the memory of their process. What
//! that takes of the CPU is measured and bounded: the next look comes a hundred times later than
//! the last one took.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use libbpf_rs::Link;
use rustix::time::{ClockId, clock_gettime};
use whywait_events::{Event, Ns, TaskLook};

use crate::core::error::{CaptureError, one_line};
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
/// Looking takes at most one part in so many of a CPU.
const SHARE: u32 = 100;
/// So many are read in one look, for a millisecond or so: of more, others each time.
const MAX_AT_ONCE: usize = 64;

/// Looks at goroutines, when it is time.
pub(super) struct Goroutines {
    link: Option<Link>,
    next: Instant,
    buffer: Vec<u8>,
    /// Some were under way at the last look.
    found: bool,
    /// How many slow requests were passed over so far because there were more.
    passed_over: u64,
}

impl Default for Goroutines {
    fn default() -> Self {
        Self {
            link: None,
            next: Instant::now(),
            buffer: Vec::new(),
            found: false,
            passed_over: 0,
        }
    }
}

impl Goroutines {
    /// Looks if that is due, and something is slow or was a moment ago.
    pub(super) fn turn(
        &mut self,
        programs: &Programs,
        shared: &mut Shared,
    ) -> Result<(), CaptureError> {
        let now_ns = kernel::now_ns();
        let slow = programs
            .variables()
            .is_some_and(|variables| now_ns.saturating_sub(variables.slow_until_ns) < SLOW_FOR_NS);
        if Instant::now() < self.next || !(slow || self.found) {
            return Ok(());
        }
        self.look(programs, shared)
    }

    /// Looks at the goroutines of slow requests.
    pub(super) fn look(
        &mut self,
        programs: &Programs,
        shared: &mut Shared,
    ) -> Result<(), CaptureError> {
        let begun = cpu_time();
        let slow = self.slow(programs)?;
        self.found = !slow.is_empty();
        let at_ns = kernel::now_ns();
        let some = chosen(slow.len(), MAX_AT_ONCE, at_ns);
        self.passed_over += (slow.len() - some.len()) as u64;
        for index in some {
            read(&slow[index], at_ns, shared)?;
        }
        let took = cpu_time().saturating_sub(begun);
        self.next = Instant::now() + (took * SHARE).max(SHORTEST_BETWEEN);
        Ok(())
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

    /// Counters for the recording.
    pub(super) fn counters(&self) -> Vec<(String, u64)> {
        vec![("tasks.passed-over".to_owned(), self.passed_over)]
    }
}

fn attach(programs: &Programs) -> Result<Link, CaptureError> {
    let map = programs.skel.maps.sockets.as_fd();
    let link = programs.skel.progs.slow_tasks.attach_iter(map);
    link.map_err(|error| {
        CaptureError::of_limits(&error).unwrap_or_else(|| CaptureError::Attach {
            program: "slow_tasks",
            reason: one_line(&error),
        })
    })
}

/// Reads a goroutine, and records what it does. Those of one look have the time of the look.
fn read(
    slow: &types::slow_task_record,
    at_ns: Ns,
    shared: &mut Shared,
) -> Result<(), CaptureError> {
    let output = &mut shared.output;
    let Some(found) = output.unwinder.goroutine(slow.tgid, slow.task) else {
        return Ok(());
    };
    let read_ns = kernel::now_ns();
    let stack = match found.stack {
        Some(unwound) => output.unwound(unwound)?.0,
        None => 0,
    };
    let task = output.task(slow.tgid, slow.task);
    output.write(&Event::TaskLook(TaskLook {
        at_ns,
        read_ns,
        tgid: slow.tgid,
        task,
        socket: slow.socket,
        seq: slow.seq,
        state: found.state,
        stack,
    }))?;
    Ok(())
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
