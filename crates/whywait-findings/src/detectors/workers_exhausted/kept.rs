//! Workers that connections keep, as a rule since before the recording began: nobody saw them
//! accept these, or read from them.
//!
//! They show when somebody looks at the connections that the target has accepted: a thread that
//! sleeps on one of them serves it. That nobody else could have taken what waits is inferred: there
//! are no other threads that do the same, and each of the others rested meanwhile, for something
//! that is no work.

use std::collections::{BTreeMap, BTreeSet};

use whywait_events::{Connection, Ns, Part, Wait};
use whywait_model::{
    Activity, Model, RequestRef, Role, SystemCall, Thread, is_accept, system_call,
};

use crate::numbers::SLOW_NS;
use crate::shared::intervals::{Interval, overlap_ns};
use crate::shared::replay::ReadByThread;

/// By thread, the connections on which it slept when somebody looked, or to which it wrote a
/// response all the while.
#[derive(Debug, Default)]
pub(super) struct KeptWorkers<'m> {
    connections: BTreeMap<u32, Vec<&'m Connection>>,
    /// When each wrote a response that was under way.
    writing: BTreeMap<u32, Interval>,
}

impl<'m> KeptWorkers<'m> {
    /// Those of a port.
    pub(super) fn of(model: &'m Model, port: u16) -> Self {
        let mut kept = Self::default();
        // Where there are too many connections, some have no row.
        if model.counters.get("connections.over-limit").copied() > Some(0) {
            return kept;
        }
        let writers = model.responses.writers();
        for (at_ns, tgids) in model.open_connections.looks_at(port) {
            for (tid, (socket, from_ns, to_ns)) in &writers {
                let connection = model.open_connections.of_socket(*socket, at_ns);
                if let Some(connection) = connection.filter(|on| on.local_port == port) {
                    kept.connections.entry(*tid).or_default().push(connection);
                    kept.writing.insert(*tid, (*from_ns, *to_ns));
                }
            }
            let threads = model.threads.values();
            for thread in threads.filter(|thread| tgids.contains(&thread.tgid)) {
                let Activity::Sleeping(wait) = thread.timeline.at(at_ns) else {
                    continue;
                };
                let on = model.open_connections.slept_on(wait, at_ns);
                if let Some(connection) = on.filter(|on| on.local_port == port) {
                    kept.connections
                        .entry(thread.tid)
                        .or_default()
                        .push(connection);
                }
            }
        }
        kept
    }

    pub(super) fn threads(&self) -> impl Iterator<Item = u32> {
        self.connections.keys().copied()
    }

    /// Whether a thread wrote a response then, of which nobody saw the request.
    pub(super) fn writes(&self, tid: u32, at_ns: Ns) -> bool {
        let interval = self.writing.get(&tid);
        interval.is_some_and(|(from_ns, to_ns)| (*from_ns..*to_ns).contains(&at_ns))
    }

    /// How many of them write responses.
    pub(super) fn writers(&self) -> usize {
        self.writing.len()
    }

    pub(super) fn has(&self, tid: u32) -> bool {
        self.connections.contains_key(&tid)
    }

    /// The descriptors of the connections that keep a thread.
    pub(super) fn descriptors(&self, tid: u32) -> impl Iterator<Item = i32> {
        let connections = self.connections.get(&tid).into_iter().flatten();
        connections.filter_map(|connection| i32::try_from(connection.fd).ok())
    }

    /// The connections, each once.
    pub(super) fn connections(&self) -> Vec<&'m Connection> {
        let all = self.connections.values().flatten();
        let by_socket: BTreeMap<u64, &'m Connection> = all
            .map(|connection| (connection.socket, *connection))
            .collect();
        by_socket.into_values().collect()
    }

    /// Adds them to those who read, with the requests that came on their connections and of which
    /// the reader is not known: they were read before the recording began.
    pub(super) fn join(&self, in_hand: &mut ReadByThread<'m>, requests: &[RequestRef<'m>]) {
        for (tid, connections) in &self.connections {
            let sockets: BTreeSet<u64> = connections.iter().map(|one| one.socket).collect();
            let from_before = requests.iter().filter(|request| {
                let read = request.recv_ns.is_some() && request.recv_tid == 0;
                read && sockets.contains(&request.socket)
            });
            let of_thread = in_hand.entry(*tid).or_default();
            of_thread.extend(from_before);
            of_thread.sort_by_key(|request| request.recv_ns);
        }
    }

    /// Whether nobody but these and those who read could have taken what waited from when to when.
    /// `holders`: who has the listener.
    pub(super) fn and_those_are_all(
        &self,
        model: &Model,
        readers: &ReadByThread<'_>,
        holders: impl IntoIterator<Item = u32>,
        waited: Interval,
    ) -> bool {
        let keepers = model.processes_of(self.connections.keys().copied());
        let processes: BTreeSet<u32> = keepers.iter().copied().chain(holders).collect();
        let roles: BTreeSet<Role> = self
            .connections
            .keys()
            .map(|tid| model.role(*tid))
            .collect();
        let mut others = model.threads.values().filter(|thread| {
            processes.contains(&thread.tgid)
                && !self.has(thread.tid)
                && !readers.contains_key(&thread.tid)
                && thread.ended_ns.is_none_or(|ns| ns > waited.0)
        });
        let lone = |tgid| {
            let of = |tid: &&u32| model.threads.get(*tid).is_some_and(|one| one.tgid == tgid);
            self.connections.keys().filter(of).count() == 1
        };
        !self.connections.is_empty()
            && others.all(|thread| {
                let first = thread.tid == thread.tgid;
                let other_role = first || !roles.contains(&model.role(thread.tid));
                other_role
                    && rested(model, thread, waited, !keepers.contains(&thread.tgid))
                    && !(lone(thread.tgid) && waits_for_another(thread, waited))
            })
    }
}

/// Whether a thread rested at some time meanwhile: who takes work would have taken it then.
/// `apart`: nobody of its process is kept.
fn rested(model: &Model, thread: &Thread, waited: Interval, apart: bool) -> bool {
    let rests = |wait: &Wait| match system_call(wait) {
        // A loop may have its listener taken out of its poll, for a reason of its own.
        SystemCall::Poll => wait.epoll == 0 || apart,
        SystemCall::Stream => {
            let kind = model.kind_of(wait);
            kind.is_some_and(|kind| kind.part != Some(Part::Network))
        }
        SystemCall::Futex | SystemCall::Other => !super::is_lock(model, wait),
        SystemCall::Sleep | SystemCall::Child => true,
        _ => is_accept(wait),
    };
    long_sleeps(thread, waited).any(rests)
}

/// Those of which a slow request's time passed meanwhile.
fn long_sleeps(thread: &Thread, waited: Interval) -> impl Iterator<Item = &Wait> {
    let sleeps = thread.timeline.overlapping(waited.0, waited.1).iter();
    sleeps.filter(move |wait| overlap_ns((wait.out_ns, wait.woken_ns()), waited) >= *SLOW_NS)
}

/// Whether a thread slept until another one has something for it: where one thread alone is kept,
/// it may be the one that accepts, and this one of those to whom it hands on.
fn waits_for_another(thread: &Thread, waited: Interval) -> bool {
    long_sleeps(thread, waited).any(|wait| system_call(wait) == SystemCall::Futex)
}

/// Whether it waits for the other side to take more.
pub(super) fn writes(wait: &Wait) -> bool {
    /// write, writev, sendfile, sendto, sendmsg, sendmmsg.
    const WRITES: [u32; 6] = [1, 20, 40, 44, 46, 307];
    wait.syscall.is_some_and(|call| WRITES.contains(&call))
}
