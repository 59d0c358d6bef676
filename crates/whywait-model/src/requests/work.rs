//! What the target did altogether, to hold against what its jobs took.

use crate::model::Model;
use crate::waits::system_call::lets_time_pass;
use crate::waits::{Primitive, WaitClass, WaitObject};

/// So many, and how long they took together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Acts {
    /// How many.
    pub count: u64,
    /// Nanoseconds, all together.
    pub ns: u64,
}

impl Acts {
    fn add(&mut self, count: u64, ns: u64) {
        self.count = self.count.saturating_add(count);
        self.ns = self.ns.saturating_add(ns);
    }
}

/// What the threads of the target did, as far as it shows that they did not wait for something to
/// do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Work {
    /// On a CPU, or waiting for a lock: nanoseconds.
    pub busy_ns: u64,
    /// Sleeps until a time, but for those of the threads with which a runtime looks after others.
    pub sleeps: Acts,
    /// Calls.
    pub calls: Acts,
}

impl Model {
    /// What the target did altogether.
    pub fn work(&self) -> Work {
        let mut work = Work::default();
        for used in self.cpu.threads.values() {
            work.busy_ns = work.busy_ns.saturating_add(used.on_cpu_ns);
        }
        for sums in self.calls.sums.values() {
            work.calls.add(sums.count, sums.total_ns);
        }
        for (key, sums) in self.objects.iter() {
            if is_a_time(&key.object) {
                let own = |tid: &u32| !self.is_monitor(*tid);
                let waiters = sums.seen.waiters.iter().filter(|(tid, _)| own(tid));
                waiters.for_each(|(_, (count, ns))| work.sleeps.add(*count, *ns));
            } else if sums.class == Some(WaitClass::Lock) {
                let ns = sums.total_ns.saturating_add(sums.short_ns);
                work.busy_ns = work.busy_ns.saturating_add(ns);
            }
        }
        work
    }
}

/// Whether threads let a time pass there, and wait for nothing else.
fn is_a_time(object: &WaitObject) -> bool {
    match object {
        WaitObject::Other(what) => what == Primitive::Sleep.name() || lets_time_pass(what),
        object => object.primitive() == Some(Primitive::Sleep),
    }
}
