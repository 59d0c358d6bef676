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

use whywait_events::{Ns, Request, StackId, Wait};

use crate::joined::Joined;
use crate::maps::{HashMap, HashSet};
use crate::requests::life;
use crate::timeline::Thread;
use crate::waits::futex::WaitClass;
use crate::waits::system_call::{SystemCall, descriptor, system_call};

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

/// Where threads that read requests sleep when they have none in hand.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rests(HashSet<(u32, SystemCall, StackId)>);

impl Rests {
    /// From the long sleeps of threads that read requests. Of requests that were over sooner than
    /// the threshold there are only sums, so that shorter sleeps say nothing. Nor does what a
    /// thread did before it was seen with a request: it may have had one since before the
    /// recording. A bare sleep is no place to wait for work, but a part of some.
    pub(crate) fn of(joined: &Joined, requests: &[Request]) -> Self {
        let mut in_hand: HashMap<u32, Vec<(Ns, Ns)>> = HashMap::default();
        for request in requests {
            if let Some(recv_ns) = request.recv_ns {
                let span = (recv_ns, life::until_ns(request));
                in_hand.entry(request.recv_tid).or_default().push(span);
            }
        }
        let mut rests = HashSet::default();
        for (tid, spans) in &mut in_hand {
            let Some(thread) = joined.threads.get(tid) else {
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
                let long = wait.end_ns().saturating_sub(wait.out_ns) >= joined.threshold_ns();
                let place = wait.user_stack != 0 && system_call(wait) != SystemCall::Sleep;
                if long && place && busy_until_ns.is_some_and(|ns| ns <= wait.out_ns) {
                    rests.insert((wait.tgid, system_call(wait), wait.user_stack));
                }
            }
        }
        Self(rests)
    }

    /// Whether a thread that sleeps so has put the request aside, or waits for more of it.
    fn is_rest(&self, joined: &Joined, request: &Request, wait: &Wait) -> bool {
        if joined.is_lock_wait(wait) {
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
        let idles = joined
            .pools
            .iter()
            .any(|pool| pool.tgid == wait.tgid && pool.idles(wait));
        idles
            || joined.class_of(wait) == Some(WaitClass::Idle)
            // Nothing says where it is: no reason to accuse it.
            || wait.user_stack == 0
            || self.is_place(wait)
    }

    pub(super) fn is_place(&self, wait: &Wait) -> bool {
        self.0
            .contains(&(wait.tgid, system_call(wait), wait.user_stack))
    }

    fn state(&self, joined: &Joined, request: &Request) -> OpenState {
        let Some(recv_ns) = request.recv_ns else {
            return OpenState::Unread;
        };
        let rested = |thread: &Thread| {
            thread
                .timeline
                .overlapping(recv_ns, life::end_ns(request, joined.alive_until_ns))
                .iter()
                .filter(|wait| wait.out_ns >= recv_ns)
                .any(|wait| self.is_rest(joined, request, wait))
        };
        match joined.threads.get(&request.recv_tid) {
            Some(thread) if !rested(thread) => OpenState::InWork,
            _ => OpenState::SetAside,
        }
    }

    /// How far a request that is open has got.
    pub(super) fn open(&self, joined: &Joined, request: &Request, usual_ns: u64) -> Open {
        let state = self.state(joined, request);
        let age_ns = life::end_ns(request, joined.alive_until_ns) - request.ready_ns;
        let late = state != OpenState::SetAside && age_ns > usual_ns;
        Open { state, late }
    }
}
