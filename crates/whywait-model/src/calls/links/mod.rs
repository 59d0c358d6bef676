//! Which request each call is made for. A request lives on a task, and a thread may work for many:
//! so a link rests on evidence, and what leaves a doubt makes none.
//!
//! - *task*: the call was sent for the task that read the request, or that answered it.
//! - *thread*: its thread slept in the call and served no other request then, in a process whose
//!   threads answer what they read.
//! - *alone*, *nested*: of all requests of the process this is the only one that was read before
//!   the call was sent and not answered before the reply was read; alone, if there was no other at
//!   all. That needs a row of each slow request, and a peer that is asked for requests only: one
//!   call to it that lies within no request takes this evidence from all.
//!
//! What is left is undecided: it may be any candidate's, and leaves a range of times. How the time
//! of a request splits: [`time`].

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use whywait_events::{Exchange, Ns, Request};

use crate::model::Model;
use crate::requests::RequestRef;

mod process;
mod spans;
mod time;
mod totals;

pub use time::{LinkCounts, PeerTime, Range, TaskTime};
pub use totals::TaskTotals;

use process::Process;

#[cfg(test)]
mod tests;

/// What shows that a call is a request's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkKind {
    /// Both have the same task.
    Task,
    /// The request's thread slept in it.
    Thread,
    /// No other request was under way.
    Alone,
    /// It lies within no other request.
    Nested,
}

/// Whose a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    /// A request's: its place among all of them.
    Certain(u32, LinkKind),
    /// One of several requests', or of none.
    Undecided,
    /// No request's: none was under way.
    Nobody,
}

/// The links of a recording.
#[derive(Debug, Clone, Default)]
pub(crate) struct Links {
    /// Of each slow call, in their order.
    of_call: Vec<Link>,
    /// By request: the calls that are certainly its own, in order.
    of_request: BTreeMap<u32, Vec<u32>>,
    /// What is known of each process that made calls.
    processes: BTreeMap<u32, Process>,
}

/// A call while its request is looked for.
struct Sought {
    call: u32,
    /// The only request within which it lies, and whether there was another at the time.
    only: Option<(u32, LinkKind)>,
}

impl Links {
    /// Finds them, once everything else is in place.
    pub(crate) fn of(model: &Model) -> Self {
        let exchanges = model.exchanges();
        let mut links = Self {
            of_call: vec![Link::Undecided; exchanges.len()],
            ..Self::default()
        };
        let mut calls: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (at, call) in exchanges.iter().enumerate() {
            calls.entry(call.tgid).or_default().push(at as u32);
        }
        for (tgid, calls) in &calls {
            links.link(model, *tgid, calls);
        }
        for (at, link) in links.of_call.iter().enumerate() {
            if let Link::Certain(request, _) = link {
                links
                    .of_request
                    .entry(*request)
                    .or_default()
                    .push(at as u32);
            }
        }
        for (tgid, calls) in &calls {
            let process = Process::of(model, &links, *tgid, calls);
            links.processes.insert(*tgid, process);
        }
        links
    }

    /// Links the calls of a process, which are in order.
    fn link(&mut self, model: &Model, tgid: u32, calls: &[u32]) {
        let requests = Requests::of(model, tgid);
        let mut under_way: Vec<u32> = Vec::new();
        let mut next = 0;
        let mut sought: Vec<Sought> = Vec::new();
        let mut asked_for_itself: BTreeSet<u32> = BTreeSet::new();
        for at in calls {
            let call = &model.exchanges()[*at as usize];
            let begun_ns = call.first_send_ns;
            while let Some(request) = requests.read.get(next)
                && requests.read_ns(*request) <= begun_ns
            {
                under_way.push(*request);
                next += 1;
            }
            under_way.retain(|request| requests.until_ns(*request) >= begun_ns);
            let replied_ns = call.first_read_ns;
            let others_later = requests
                .read
                .get(next)
                .is_some_and(|other| requests.read_ns(*other) <= replied_ns.unwrap_or(Ns::MAX));
            let until_ns = replied_ns.unwrap_or(begun_ns);
            let mut candidates = under_way
                .iter()
                .rev()
                .copied()
                .filter(|request| requests.until_ns(*request) >= until_ns);
            let link = requests
                .of_task(call, candidates.clone())
                .map(|request| Link::Certain(request, LinkKind::Task))
                .or_else(|| {
                    let request = requests.of_thread(model, call, &under_way)?;
                    Some(Link::Certain(request, LinkKind::Thread))
                });
            if let Some(link) = link {
                self.of_call[*at as usize] = link;
                continue;
            }
            match (candidates.next(), candidates.next()) {
                (None, _) => {
                    self.of_call[*at as usize] = Link::Nobody;
                    if requests.have_begun_by(begun_ns) {
                        asked_for_itself.insert(call.peer);
                    }
                }
                // Without a reply nobody knows how long it was waited for.
                (Some(only), None) if replied_ns.is_some() && requests.complete => {
                    let alone = under_way.len() == 1 && !others_later;
                    let kind = if alone {
                        LinkKind::Alone
                    } else {
                        LinkKind::Nested
                    };
                    sought.push(Sought {
                        call: *at,
                        only: Some((only, kind)),
                    });
                }
                _ => {}
            }
        }
        for one in sought {
            let peer = model.exchanges()[one.call as usize].peer;
            if let Some((request, kind)) = one.only.filter(|_| !asked_for_itself.contains(&peer)) {
                self.of_call[one.call as usize] = Link::Certain(request, kind);
            }
        }
    }

    /// Whose a call is.
    pub(crate) fn of_call(&self, call: usize) -> Link {
        self.of_call.get(call).copied().unwrap_or(Link::Undecided)
    }

    /// The calls that are certainly a request's own, in order.
    pub(crate) fn of_request(&self, request: u32) -> &[u32] {
        self.of_request.get(&request).map_or(&[], Vec::as_slice)
    }

    fn process(&self, tgid: u32) -> Option<&Process> {
        self.processes.get(&tgid)
    }
}

/// The requests of a process that were read, by when they were.
struct Requests<'m> {
    all: Vec<RequestRef<'m>>,
    read: Vec<u32>,
    /// Each slow one has a row, and is what it seems to be.
    complete: bool,
    /// The thread that read a request answers it, always.
    keep_threads: bool,
}

impl<'m> Requests<'m> {
    fn of(model: &'m Model, tgid: u32) -> Self {
        let all: Vec<RequestRef<'m>> = model.requests().collect();
        let of_process = |row: &Request| row.tgid == tgid && row.recv_ns.is_some();
        let mut read: Vec<u32> = (0..all.len() as u32)
            .filter(|at| of_process(all[*at as usize].row()))
            .collect();
        read.sort_by_key(|at| (all[*at as usize].recv_ns, *at));
        let rows = || read.iter().map(|at| all[*at as usize].row());
        let complete = model.sums.slow == 0 && !rows().any(|row| row.multiplexed);
        let keep_threads =
            rows().all(|row| row.recv_tid != 0 && [0, row.recv_tid].contains(&row.send_tid));
        Self {
            all,
            read,
            complete,
            keep_threads,
        }
    }

    fn read_ns(&self, request: u32) -> Ns {
        self.all[request as usize].recv_ns.unwrap_or(Ns::MAX)
    }

    fn until_ns(&self, request: u32) -> Ns {
        self.all[request as usize].until_ns()
    }

    fn have_begun_by(&self, ns: Ns) -> bool {
        self.read
            .first()
            .is_some_and(|first| self.read_ns(*first) <= ns)
    }

    /// The only candidate with the call's task.
    fn of_task(&self, call: &Exchange, candidates: impl Iterator<Item = u32>) -> Option<u32> {
        if call.task == 0 {
            return None;
        }
        let mut same = candidates.filter(|request| {
            let row = self.all[*request as usize].row();
            [row.recv_task, row.send_task].contains(&call.task)
        });
        let only = same.next()?;
        same.next().is_none().then_some(only)
    }

    /// The request of a thread that slept in the call, where it can be no other's.
    fn of_thread(&self, model: &Model, call: &Exchange, under_way: &[u32]) -> Option<u32> {
        let replied_ns = call.first_read_ns?;
        if !self.keep_threads || call.read_tid != call.send_tid {
            return None;
        }
        let mut of_thread = under_way
            .iter()
            .copied()
            .filter(|request| self.all[*request as usize].recv_tid == call.send_tid);
        let only = of_thread.next()?;
        if of_thread.next().is_some() || self.until_ns(only) < replied_ns {
            return None;
        }
        let timeline = &model.threads.get(&call.send_tid)?.timeline;
        let waits = timeline.overlapping(call.last_send_ns, replied_ns);
        let slept = waits.iter().any(|wait| {
            let awaited = model.calls.awaited(wait);
            awaited.is_some_and(|other| (other.socket, other.seq) == (call.socket, call.seq))
        });
        slept.then_some(only)
    }
}
