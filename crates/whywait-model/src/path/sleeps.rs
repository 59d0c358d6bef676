//! What is known of sleeps, and of the time between them, found out once for all paths: those of
//! requests that are under way at a time lead over the same ones.

use std::cell::RefCell;

use whywait_events::{Ns, Part, StackId, Wait};

use super::steps::{part_of, timed_out, waits_for_threads, waker};
use crate::calls::linked::Linked;
use crate::maps::{HashMap, HashSet};
use crate::timeline::Thread;
use crate::waits::kind::WaitKind;
use crate::waits::locks::Locks;
use crate::waits::system_call::descriptor;

/// A sleep of a thread.
#[derive(Clone, Copy)]
pub(super) struct Sleep<'m> {
    pub(super) wait: &'m Wait,
    /// What it was for, by the kernel's stack.
    pub(super) kind: Option<WaitKind>,
    /// What it is accounted as.
    pub(super) part: Part,
    /// The thread of the target that ended it; 0: none did.
    pub(super) waker: u32,
    /// It was for a lock.
    pub(super) is_lock: bool,
    /// The clock ended a wait for something else.
    pub(super) timed_out: bool,
    /// The connection of a client's on which it waited for more, by process and descriptor.
    pub(super) client: Option<(u32, i32)>,
    for_threads: bool,
}

impl Sleep<'_> {
    /// Whether another thread ended it, and that is what it waited for.
    pub(super) fn waits_for(&self, tid: u32) -> bool {
        self.waker != 0 && self.waker != tid && self.for_threads
    }
}

/// The sleeps of all threads.
pub(super) struct Sleeps<'m> {
    model: &'m Locks,
    /// Connections on which requests came and no calls went out, by process and descriptor.
    clients: HashSet<(u32, i32)>,
    /// By thread, in the order of its waits.
    known: RefCell<HashMap<u32, OfThread<'m>>>,
}

/// The sleeps of a thread, in the order of its waits.
struct OfThread<'m> {
    sleeps: Vec<Option<Sleep<'m>>>,
    /// The stack in which it was sampled most between each and the next one.
    stacks: Vec<Option<StackId>>,
    /// The place of the one that was asked for last: paths lead from each to the one before.
    last: usize,
}

impl OfThread<'_> {
    fn new(thread: &Thread) -> Self {
        let count = thread.timeline.waits().len();
        Self {
            sleeps: vec![None; count],
            stacks: vec![None; count],
            last: 0,
        }
    }
}

impl<'m> Sleeps<'m> {
    pub(super) fn new(model: &'m Linked) -> Self {
        let requests = model.lives().map(|request| (request.tgid, request.fd));
        Self {
            model,
            clients: requests
                .filter(|(tgid, fd)| !model.calls.went_out(*tgid, *fd))
                .collect(),
            known: RefCell::default(),
        }
    }

    /// What is known of a wait.
    pub(super) fn sleep(&self, wait: &'m Wait) -> Sleep<'m> {
        let model = self.model;
        let part = match part_of(model, wait) {
            Part::Timer if model.is_monitor(wait.tid) => Part::Thread,
            part => part,
        };
        Sleep {
            wait,
            kind: model.kind_of(wait),
            part,
            waker: waker(model, wait),
            is_lock: model.is_lock_wait(wait),
            timed_out: timed_out(model, wait),
            client: descriptor(wait)
                .map(|fd| (wait.tgid, fd))
                .filter(|connection| self.clients.contains(connection)),
            for_threads: waits_for_threads(wait),
        }
    }

    /// The last sleep of a thread that began before `at`.
    pub(super) fn before(&self, thread: &'m Thread, at: Ns) -> Option<Sleep<'m>> {
        let mut known = self.known.borrow_mut();
        let known = known.entry(thread.tid);
        let of_thread = known.or_insert_with(|| OfThread::new(thread));
        let place = thread.timeline.place_before(at, of_thread.last)?;
        of_thread.last = place;
        let wait = &thread.timeline.waits()[place];
        Some(*of_thread.sleeps[place].get_or_insert_with(|| self.sleep(wait)))
    }

    /// The stack in which a thread was sampled most in an interval; 0: none.
    pub(super) fn sampled_stack(&self, thread: &Thread, from_ns: Ns, to_ns: Ns) -> StackId {
        let find = || self.model.sampled_stack(thread, from_ns, to_ns);
        let mut known = self.known.borrow_mut();
        let Some(of_thread) = known.get_mut(&thread.tid) else {
            return find();
        };
        match thread.timeline.waits().get(of_thread.last..) {
            Some([slept, next, ..]) if (slept.end_ns(), next.out_ns) == (from_ns, to_ns) => {
                *of_thread.stacks[of_thread.last].get_or_insert_with(find)
            }
            _ => find(),
        }
    }
}
