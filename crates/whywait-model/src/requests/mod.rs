//! Requests: which are looked at one by one, how far each got, and where its time went.

use std::collections::{BTreeMap, HashMap};
use std::ops::Deref;

use whywait_events::{Ns, Request, WakeContext};

use crate::model::Model;
use crate::path::{self, Path, PathStep};
use crate::pools::EpollPool;
use crate::timeline::Thread;

pub mod abandoned;
pub mod accept_queues;
pub(crate) mod account;
pub(crate) mod histogram;
pub(crate) mod life;
pub(crate) mod multiplexed;
pub(crate) mod open;
pub mod retries;
pub(crate) mod rows;
pub(crate) mod slowest;
pub(crate) mod summary;
pub mod tails;
pub(crate) mod wire;

pub use abandoned::AbandonedRequests;
pub use accept_queues::{AcceptQueue, AcceptQueues};
pub use account::Account;
pub use histogram::LatencyBucket;
pub use multiplexed::Multiplexed;
pub use open::{OpenReader, OpenRequests, OpenState};
pub use rows::RequestRow;
pub use slowest::RequestSums;
pub use summary::{
    Latency, OwnRequests, Percentile, ReadyUnserved, Requests, Slow, SummedUp, Time,
};
pub use tails::{Held, Tails};
pub use wire::{Connecting, Sending, Sent, Wire};

/// A request of the model: the row, and where its time went.
#[derive(Debug, Clone, Default)]
pub(crate) struct Accounted {
    row: Request,
    account: Account,
    /// While it is open: how far it has got.
    open: Option<open::Open>,
    path: path::kept::Kept,
    /// What of its time is unknown as it was spent in sleeps whose wake was not seen.
    unmatched_wakes_ns: u64,
}

/// A request that is looked at one by one. It knows its model, and so its account, its critical
/// path and its pool; the fields are those of its row.
#[derive(Debug, Clone, Copy)]
pub struct RequestRef<'m> {
    model: &'m Model,
    accounted: &'m Accounted,
}

/// When a target is ended as a whole its processes end within this time.
const ENDS_TOGETHER_NS: u64 = 10_000_000;

impl Deref for RequestRef<'_> {
    type Target = Request;

    fn deref(&self) -> &Request {
        &self.accounted.row
    }
}

impl<'m> RequestRef<'m> {
    /// The row of the recording.
    pub fn row(self) -> &'m Request {
        &self.accounted.row
    }

    pub(crate) fn model(self) -> &'m Model {
        self.model
    }

    /// Names it in reports: `SOCKET:SEQ`.
    pub fn id(self) -> String {
        format!("{}:{}", self.socket, self.seq)
    }

    /// Its place among all that are looked at one by one.
    pub(crate) fn index(self) -> u32 {
        let key = |row: &Request| (row.ready_ns, row.socket, row.seq);
        let all = &self.model.requests;
        let at = all.partition_point(|one| key(&one.row) < key(self.row()));
        at as u32
    }

    /// Where it came in: at a port (0 and the port), or at a program's unix sockets (its first
    /// process and 0): workers that were forked ahead share one.
    pub fn place(self) -> (u32, u16) {
        match self.local_port {
            0 => (self.model.program(self.tgid), 0),
            port => (0, port),
        }
    }

    /// Whether the last byte of its response was written; otherwise it is open.
    pub fn is_answered(self) -> bool {
        self.answered_ns().is_some()
    }

    /// When the last byte of its response was written; `None` while it is open.
    pub fn answered_ns(self) -> Option<Ns> {
        life::answered_ns(self.row())
    }

    /// Whether it was neither answered nor given up when the recording ended.
    pub fn is_open(self) -> bool {
        life::is_open(self.row())
    }

    /// While it is open: how far it has got.
    pub fn open_state(self) -> Option<OpenState> {
        self.accounted.open.map(|open| open.state)
    }

    /// Whether it is open, nobody has set it aside, and it is older than what answered requests
    /// took, as a rule.
    pub fn is_late(self) -> bool {
        self.accounted.open.is_some_and(|open| open.late)
    }

    /// Whether it counts: it was answered, or is late.
    pub fn counts(self) -> bool {
        self.is_answered() || self.is_late()
    }

    /// When it was over, or the target or the recording was.
    pub fn end_ns(self) -> Ns {
        let end_ns = life::over_ns(self.row()).unwrap_or(self.model.alive_until_ns);
        end_ns.max(self.ready_ns)
    }

    /// From its first byte in the kernel to its end, or the recording's.
    pub fn age_ns(self) -> u64 {
        self.end_ns() - self.ready_ns
    }

    /// What it took as far as that counts: its latency, or, while it is late, its age.
    pub fn took_ns(self) -> Option<u64> {
        self.counts().then(|| self.age_ns())
    }

    /// Until when it was under way: `Ns::MAX` while it is open.
    pub fn until_ns(self) -> Ns {
        life::until_ns(self.row())
    }

    /// From its first byte in the kernel to the last byte of its response; `None` while it is open.
    pub fn latency_ns(self) -> Option<u64> {
        life::latency_ns(self.row())
    }

    /// Whether a thread read it, and nothing of a response was written.
    pub fn is_unanswered(self) -> bool {
        life::is_unanswered(self.row())
    }

    /// When it ceased to wait for a thread to read it: it was read, or it was over.
    pub fn served_ns(self) -> Ns {
        self.recv_ns.unwrap_or(self.end_ns()).max(self.ready_ns)
    }

    /// Until when it can have waited for the loop that serves it. One that was read and not
    /// answered may be what the loop does meanwhile, or want no answer at all (a client's
    /// close_notify). Nobody waits for one that was given up.
    pub fn waited_until_ns(self) -> Ns {
        self.first_send_ns
            .or(self.recv_ns)
            .unwrap_or(self.model.end_ns)
            .min(self.until_ns())
            .max(self.ready_ns)
    }

    /// Where its time went.
    pub fn account(self) -> &'m Account {
        &self.accounted.account
    }

    /// Its critical path; while it is open, that of its thread up to the recording's end.
    pub fn path(self) -> Path<'m> {
        self.accounted.path.path(&self.model.path_steps)
    }

    /// The pool that serves it, as far as known.
    pub fn pool(self) -> Option<&'m EpollPool> {
        let pools = &self.model.pools;
        if self.epoll != 0 {
            return pools.iter().find(|pool| {
                pool.epoll == self.epoll && (self.tgid == 0 || pool.tgid == self.tgid)
            });
        }
        // Not registered with an epoll instance (any more): the pool of the thread that read it, if
        // it is in one only.
        let mut of_reader = pools
            .iter()
            .filter(|pool| pool.members.contains_key(&self.recv_tid));
        match (of_reader.next(), of_reader.next()) {
            (Some(pool), None) => Some(pool),
            _ => None,
        }
    }
}

impl Model {
    /// The requests that are looked at one by one, by when they came.
    pub fn requests(&self) -> impl ExactSizeIterator<Item = RequestRef<'_>> + Clone {
        self.requests.iter().map(|accounted| RequestRef {
            model: self,
            accounted,
        })
    }

    /// The request that has this place among all that are looked at one by one.
    pub(crate) fn request_at(&self, place: u32) -> RequestRef<'_> {
        RequestRef {
            model: self,
            accounted: &self.requests[place as usize],
        }
    }

    /// A request by its name, `SOCKET:SEQ`; `None` when it is not one that is looked at one by one.
    pub fn request(&self, id: &str) -> Option<RequestRef<'_>> {
        self.requests().find(|request| request.id() == id)
    }

    /// Accounts for all requests, once everything else is in place.
    pub(crate) fn account(&mut self) {
        let states = self.open_states();
        for (one, state) in self.requests.iter_mut().zip(states) {
            one.open = state;
        }
        let (steps, paths) = path::kept::all(self);
        self.path_steps = steps;
        for (one, path) in self.requests.iter_mut().zip(paths) {
            one.path = path;
        }
        let account = |request: RequestRef<'_>| {
            let path = request.path();
            let unmatched_ns = account::unmatched_wakes_ns(self, &path);
            (account::account(request, &path), unmatched_ns)
        };
        let accounts: Vec<(Account, u64)> = self.requests().map(account).collect();
        for (one, (account, unmatched_ns)) in self.requests.iter_mut().zip(accounts) {
            (one.account, one.unmatched_wakes_ns) = (account, unmatched_ns);
        }
    }

    /// Each step that is on paths of requests, and on how many.
    pub(crate) fn steps_on_paths(&self) -> impl Iterator<Item = (&PathStep, u64)> {
        let mut paths = vec![0_u64; self.path_steps.len()];
        let requests = self.requests.iter();
        for at in requests.flat_map(|request| request.path.places()) {
            paths[*at as usize] += 1;
        }
        self.path_steps.iter().zip(paths)
    }

    /// What of the requests' time is unknown as the kernel did not show the wakes that ended it, of
    /// those requests that count.
    pub(crate) fn unmatched_wakes_ns(&self) -> u64 {
        self.requests()
            .filter(|request| request.counts())
            .map(|request| request.accounted.unmatched_wakes_ns)
            .fold(0, u64::saturating_add)
    }

    /// Critical paths that were too long to be followed to their beginning.
    pub(crate) fn truncated_paths(&self) -> u64 {
        self.requests
            .iter()
            .filter(|request| request.path.is_truncated())
            .count() as u64
    }
}

/// Requests of which the time is not accounted for yet, by when they came.
pub(crate) fn in_order(mut rows: Vec<Request>) -> Vec<Accounted> {
    rows.sort_by_key(|row| (row.ready_ns, row.socket, row.seq));
    name_readers(&mut rows);
    rows.into_iter()
        .map(|row| Accounted {
            row,
            ..Accounted::default()
        })
        .collect()
}

/// A process that goes on its own, while others of the target stay, takes with it what it has read:
/// a worker for each connection ends when its client says goodbye. Nobody waits for an answer then.
/// What the target had open when all of it was ended stays open.
pub(crate) fn end_with_processes(
    requests: &mut [Accounted],
    threads: &BTreeMap<u32, Thread>,
    alive_until_ns: Ns,
) {
    let open = |one: &Accounted| life::is_open(&one.row) && one.row.recv_tid != 0;
    if !requests.iter().any(open) {
        return;
    }
    // When the last thread of each ended; `None`: there is one that has not.
    let mut ended: HashMap<u32, Option<Ns>> = HashMap::new();
    for thread in threads.values() {
        let last = ended.entry(thread.tgid).or_insert(Some(0));
        *last = last.zip(thread.ended_ns).map(|(one, other)| one.max(other));
    }
    let went_alone_ns = |tid: u32| {
        let thread = threads.get(&tid)?;
        let last_wait = thread.timeline.waits().last();
        let killed = last_wait.is_some_and(|wait| wait.wake_context == WakeContext::Exit);
        let ended_ns = ended.get(&thread.tgid).copied().flatten()?;
        let alone = ended_ns.saturating_add(ENDS_TOGETHER_NS) <= alive_until_ns;
        (alone && !killed).then_some(ended_ns)
    };
    for one in requests.iter_mut().filter(|one| open(one)) {
        let gone_ns = went_alone_ns(one.row.recv_tid);
        one.row.gone_ns = gone_ns.map(|gone_ns| gone_ns.max(one.row.ready_ns));
    }
}

/// Of a request that was read before the recording began nobody saw who read it. Where the thread
/// that answered it answers what it has read, and nothing else, it was that one.
fn name_readers(rows: &mut [Request]) {
    let unnamed = |row: &Request| row.since_before && row.recv_ns.is_some() && row.recv_tid == 0;
    if !rows.iter().any(unnamed) {
        return;
    }
    let mut answers_its_own: HashMap<u32, bool> = HashMap::new();
    for row in rows
        .iter()
        .filter(|row| row.recv_tid != 0 && row.send_tid != 0)
    {
        let own = row.recv_tid == row.send_tid;
        *answers_its_own.entry(row.send_tid).or_insert(true) &= own;
    }
    for row in rows.iter_mut().filter(|row| unnamed(row)) {
        if answers_its_own.get(&row.send_tid) == Some(&true) {
            row.recv_tid = row.send_tid;
        }
    }
}

/// When a request was seen last; 0: never.
pub(crate) fn last_seen(rows: &[Request]) -> Ns {
    rows.iter()
        .map(|row| life::answered_ns(row).unwrap_or(row.ready_ns))
        .max()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests;
