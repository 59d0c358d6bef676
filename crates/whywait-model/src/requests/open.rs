//! Requests that are open when the recording ends: how long they have been, and whether anybody is
//! late with them.
//!
//! Not every request is owed an answer: a subscription, a long poll, a stream that goes one way.
//! What tells them apart is where the thread that read the request is:
//! - *unread*: nobody has read it. Whatever it asks, somebody is late.
//! - *in work*: its thread has not rested since it read it. It sleeps for something in particular,
//!   or runs.
//! - *set aside*: its thread has rested since: it polled, or slept where it sleeps when it has no
//!   request at all. Whether work waits somewhere or the request waits for an event does not show.
//!
//! At the end of a recording under load some requests are under way as a matter of course. *Late*
//! are those that nobody set aside and that are older than what 99 of 100 answered requests took.
//! They count with their age: in sums, in percentiles, for findings.

use std::collections::{BTreeMap, HashMap, HashSet};

use schemars::JsonSchema;
use serde::Serialize;
use whywait_events::{Ns, StackId, Wait};

use crate::model::Model;
use crate::requests::{RequestRef, life};
use crate::timeline::Thread;
use crate::waits::system_call::{SystemCall, system_call};
use crate::waits::{WaitClass, descriptor};

/// How far a request that is open has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenState {
    /// Nobody has read it.
    Unread,
    /// The thread that read it has not rested since.
    InWork,
    /// The thread that read it has rested since: it may wait for an event.
    SetAside,
}

/// An open request's state, and whether it is late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Open {
    pub(crate) state: OpenState,
    pub(crate) late: bool,
}

/// Requests that are open when the recording ends, of those that have been for the recording's
/// threshold.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct OpenRequests {
    /// How many.
    pub count: u64,
    /// Of which nobody has read.
    pub unread: u64,
    /// Of the unread: those on connections that nobody has accepted.
    pub unaccepted: u64,
    /// Of which the thread that read it has not rested since.
    pub in_work: u64,
    /// Of which the thread that read it has rested since: they may wait for an event.
    pub set_aside: u64,
    /// Of which are late: unread or in work, and older than what 99 of 100 answered requests took.
    pub late: u64,
    /// Some were there before the recording began: their age is at least as given.
    pub since_before: bool,
    /// The age of the oldest one.
    pub oldest_ns: u64,
    /// The age of the oldest one that is late.
    pub oldest_late_ns: u64,
    /// The age of the oldest one that was set aside.
    pub oldest_set_aside_ns: u64,
    /// Who has those in work, the oldest first.
    pub in_work_by: Vec<OpenReader>,
}

/// A thread that has requests in work.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct OpenReader {
    /// Thread id.
    pub tid: u32,
    /// Its name. Hostile.
    pub thread: String,
    /// How many it has.
    pub count: u64,
    /// The age of the oldest.
    pub oldest_ns: u64,
}

/// Where threads that read requests sleep when they have none in hand.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rests(HashSet<(u32, SystemCall, StackId)>);

impl Rests {
    /// From the long sleeps of threads that read requests. Of requests that were over sooner than
    /// the threshold there are only sums, so that shorter sleeps say nothing. Nor does what a
    /// thread did before it was seen with a request: it may have had one since before the
    /// recording. A bare sleep is no place to wait for work, but a part of some.
    pub(crate) fn of(model: &Model) -> Self {
        let mut in_hand: HashMap<u32, Vec<(Ns, Ns)>> = HashMap::new();
        for request in model.requests() {
            if let Some(recv_ns) = request.recv_ns {
                let span = (recv_ns, life::until_ns(request.row()));
                in_hand.entry(request.recv_tid).or_default().push(span);
            }
        }
        let mut rests = HashSet::new();
        for (tid, spans) in &mut in_hand {
            let Some(thread) = model.threads.get(tid) else {
                continue;
            };
            spans.sort_unstable();
            let mut next = 0;
            // A thread that began meanwhile had nothing in hand.
            let mut busy_until_ns = thread.started.map(|_| 0);
            for wait in thread.timeline.waits() {
                while let Some((_, to_ns)) =
                    spans.get(next).filter(|(from, _)| *from <= wait.out_ns)
                {
                    busy_until_ns = busy_until_ns.max(Some(*to_ns));
                    next += 1;
                }
                let long = wait.end_ns().saturating_sub(wait.out_ns) >= model.threshold_ns();
                let place = wait.user_stack != 0 && system_call(wait) != SystemCall::Sleep;
                if long && place && busy_until_ns.is_some_and(|ns| ns <= wait.out_ns) {
                    rests.insert((wait.tgid, system_call(wait), wait.user_stack));
                }
            }
        }
        Self(rests)
    }

    /// Whether a thread that sleeps so has put the request aside, or waits for more of it.
    fn is_rest(&self, model: &Model, request: RequestRef<'_>, wait: &Wait) -> bool {
        if model.is_lock_wait(wait) {
            return false;
        }
        let call = system_call(wait);
        // A poll of one descriptor is a wait for that.
        let waits_for = descriptor(wait);
        match call {
            SystemCall::Poll if waits_for.is_none() => return true,
            SystemCall::Uring => return true,
            SystemCall::File | SystemCall::Sleep | SystemCall::Child if wait.user_stack == 0 => {
                return false;
            }
            _ => {}
        }
        if waits_for.is_some() && waits_for == Some(request.fd) && wait.tgid == request.tgid {
            return true;
        }
        let idles = model
            .pools
            .iter()
            .any(|pool| pool.tgid == wait.tgid && pool.idles(wait));
        idles
            || model.class_of(wait) == Some(WaitClass::Idle)
            // Nothing says where it is: no reason to accuse it.
            || wait.user_stack == 0
            || self.is_place(wait)
    }

    fn is_place(&self, wait: &Wait) -> bool {
        self.0
            .contains(&(wait.tgid, system_call(wait), wait.user_stack))
    }

    fn state(&self, model: &Model, request: RequestRef<'_>) -> OpenState {
        let Some(recv_ns) = request.recv_ns else {
            return OpenState::Unread;
        };
        let rested = |thread: &Thread| {
            thread
                .timeline
                .overlapping(recv_ns, request.end_ns())
                .iter()
                .filter(|wait| wait.out_ns >= recv_ns)
                .any(|wait| self.is_rest(model, request, wait))
        };
        match model.threads.get(&request.recv_tid) {
            Some(thread) if !rested(thread) => OpenState::InWork,
            _ => OpenState::SetAside,
        }
    }
}

impl Model {
    /// Whether a thread that read requests slept for long at the same place, in the same process,
    /// when it had none in hand: as when it waits for its next one.
    pub fn is_rest(&self, wait: &Wait) -> bool {
        self.rests.is_place(wait)
    }

    /// The state of each request that is open, in their order.
    pub(crate) fn open_states(&self) -> Vec<Option<Open>> {
        if !self.requests().any(|request| request.is_open()) {
            return vec![None; self.requests().len()];
        }
        let usual_ns = self.usual_ns();
        let open = |request: RequestRef<'_>| {
            let state = self.rests.state(self, request);
            let late = state != OpenState::SetAside && request.age_ns() > usual_ns;
            Open { state, late }
        };
        self.requests()
            .map(|request| request.is_open().then(|| open(request)))
            .collect()
    }

    /// What 99 of 100 answered requests took at most; 0 when none was.
    pub fn usual_ns(&self) -> u64 {
        self.answered_latency().map_or(0, |latency| latency.p99)
    }

    /// The requests that are open when the recording ends; `None` when there are none.
    pub fn open_requests(&self) -> Option<OpenRequests> {
        let mut sums = OpenRequests::default();
        let mut readers: BTreeMap<u32, OpenReader> = BTreeMap::new();
        for request in self.requests() {
            let Some(state) = request.open_state() else {
                continue;
            };
            let age_ns = request.age_ns();
            sums.count += 1;
            sums.oldest_ns = sums.oldest_ns.max(age_ns);
            sums.since_before |= request.since_before;
            if request.is_late() {
                sums.late += 1;
                sums.oldest_late_ns = sums.oldest_late_ns.max(age_ns);
            }
            match state {
                OpenState::Unread => {
                    sums.unread += 1;
                    sums.unaccepted += u64::from(request.unaccepted);
                }
                OpenState::InWork => {
                    sums.in_work += 1;
                    let tid = request.recv_tid;
                    let reader = readers.entry(tid).or_insert_with(|| OpenReader {
                        tid,
                        thread: self.thread_name(tid).to_owned(),
                        ..OpenReader::default()
                    });
                    reader.count += 1;
                    reader.oldest_ns = reader.oldest_ns.max(age_ns);
                }
                OpenState::SetAside => {
                    sums.set_aside += 1;
                    sums.oldest_set_aside_ns = sums.oldest_set_aside_ns.max(age_ns);
                }
            }
        }
        sums.in_work_by = readers.into_values().collect();
        sums.in_work_by
            .sort_by_key(|reader| (std::cmp::Reverse(reader.oldest_ns), reader.tid));
        (sums.count > 0).then_some(sums)
    }
}
