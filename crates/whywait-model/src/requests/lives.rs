//! How far each request got, by its row and by what its threads did.

use std::collections::BTreeMap;
use std::ops::Deref;

use whywait_events::{Ns, Request, Wait, WakeContext};

use crate::maps::HashMap;
use crate::pools::EpollPool;
use crate::requests::histogram::{Histogram, Latency};
use crate::requests::jobs::KeptJobs;
use crate::requests::kept::{Counted, KeptRequests, OwnRequests};
use crate::requests::life;
use crate::requests::rests::{Open, OpenState, Rests};
use crate::requests::slowest::RequestSums;
use crate::timeline::Thread;
use crate::waits::locks::Locks;

/// When a target is ended as a whole its processes end within this time.
const ENDS_TOGETHER_NS: u64 = 10_000_000;

/// What was recorded and joined, with how far each request got.
#[derive(Debug, Clone)]
pub struct Lives {
    locks: Locks,
    /// The requests that are looked at one by one, by when they came.
    requests: Vec<Lived>,
    /// The other requests.
    pub(crate) sums: RequestSums,
    /// Latencies of all requests.
    pub(crate) latency: Histogram,
    /// Those of the target to itself.
    pub(crate) own: OwnRequests,
    /// Messages from brokers that were worked on.
    pub(crate) jobs: KeptJobs,
    /// Which of these the requests are.
    pub(crate) counted: Counted,
    /// Where threads sleep that have no request in hand.
    rests: Rests,
}

/// A request: its row, and how far it has got while it is open.
#[derive(Debug, Clone)]
struct Lived {
    row: Request,
    open: Option<Open>,
}

/// A request that is looked at one by one, by itself: without its calls and its path. The fields
/// are those of its row.
#[derive(Debug, Clone, Copy)]
pub struct Life<'m> {
    lives: &'m Lives,
    at: u32,
}

impl Deref for Lives {
    type Target = Locks;

    fn deref(&self) -> &Locks {
        &self.locks
    }
}

impl Deref for Life<'_> {
    type Target = Request;

    fn deref(&self) -> &Request {
        self.row()
    }
}

impl Lives {
    /// Finds out how far each got.
    pub(crate) fn of(locks: Locks, requests: KeptRequests) -> Self {
        let mut rows = requests.rows;
        rows.sort_by_key(|row| (row.ready_ns, row.socket, row.seq));
        name_readers(&mut rows);
        end_with_processes(&mut rows, &locks.threads, locks.alive_until_ns);
        let rests = Rests::of(&locks, &rows);
        let usual_ns = usual_ns(&requests.latency, &rows);
        let lived = rows.into_iter().map(|row| Lived {
            open: life::is_open(&row).then(|| rests.open(&locks, &row, usual_ns)),
            row,
        });
        Self {
            requests: lived.collect(),
            sums: requests.sums,
            latency: requests.latency,
            own: requests.own,
            jobs: requests.jobs,
            counted: requests.counted,
            rests,
            locks,
        }
    }

    /// The requests that are looked at one by one, by when they came.
    pub(crate) fn lives(&self) -> impl ExactSizeIterator<Item = Life<'_>> + Clone {
        (0..self.requests.len() as u32).map(|at| Life { lives: self, at })
    }

    /// The one that has this place among them.
    pub(crate) fn life_at(&self, at: u32) -> Life<'_> {
        Life { lives: self, at }
    }

    /// Whether a thread that read requests slept for long at the same place, in the same process,
    /// when it had none in hand: as when it waits for its next one.
    pub fn is_rest(&self, wait: &Wait) -> bool {
        self.rests.is_place(wait)
    }

    /// Percentiles over the requests that were answered.
    pub fn answered_latency(&self) -> Option<Latency> {
        answered_latency(&self.latency, self.requests.iter().map(|one| &one.row))
    }

    /// What 99 of 100 answered requests took at most; 0 when none was.
    pub fn usual_ns(&self) -> u64 {
        self.answered_latency().map_or(0, |latency| latency.p99)
    }
}

impl<'m> Life<'m> {
    fn lived(self) -> &'m Lived {
        &self.lives.requests[self.at as usize]
    }

    /// All of them.
    pub(crate) fn lives(self) -> &'m Lives {
        self.lives
    }

    /// Its place among them.
    pub(crate) fn index(self) -> u32 {
        self.at
    }

    /// The row of the recording.
    pub fn row(self) -> &'m Request {
        &self.lived().row
    }

    /// Names it in reports: `SOCKET:SEQ`.
    pub fn id(self) -> String {
        format!("{}:{}", self.socket, self.seq)
    }

    /// Where it came in: at a port (0 and the port), or at a program's unix sockets (its first
    /// process and 0): workers that were forked ahead share one.
    pub fn place(self) -> (u32, u16) {
        match self.local_port {
            0 => (self.lives.program(self.tgid), 0),
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
        self.lived().open.map(|open| open.state)
    }

    /// Whether it is open, nobody has set it aside, and it is older than what answered requests
    /// took, as a rule.
    pub fn is_late(self) -> bool {
        self.lived().open.is_some_and(|open| open.late)
    }

    /// Whether it counts: it was answered, or is late.
    pub fn counts(self) -> bool {
        self.is_answered() || self.is_late()
    }

    /// When it was over, or the target or the recording was.
    pub fn end_ns(self) -> Ns {
        life::end_ns(self.row(), self.lives.alive_until_ns)
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
            .unwrap_or(self.lives.end_ns)
            .min(self.until_ns())
            .max(self.ready_ns)
    }

    /// The pool that serves it, as far as known.
    pub fn pool(self) -> Option<&'m EpollPool> {
        let pools = &self.lives.pools;
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

    /// Whether the target was stopped for half of the request's time or more: what it took says
    /// nothing of the target.
    pub fn was_stopped(self) -> bool {
        let (from_ns, to_ns) = (self.ready_ns, self.end_ns());
        let stopped_ns = self
            .lives
            .stop_spans
            .iter()
            .map(|(from, to)| (*to).min(to_ns).saturating_sub((*from).max(from_ns)))
            .fold(0, u64::saturating_add);
        stopped_ns > 0 && stopped_ns.saturating_mul(2) >= to_ns - from_ns
    }
}

fn usual_ns(latency: &Histogram, rows: &[Request]) -> u64 {
    answered_latency(latency, rows.iter()).map_or(0, |latency| latency.p99)
}

fn answered_latency<'a>(
    latency: &Histogram,
    rows: impl Iterator<Item = &'a Request>,
) -> Option<Latency> {
    let mut slowest_ns: Vec<u64> = rows.filter_map(life::latency_ns).collect();
    slowest_ns.sort_unstable();
    latency.latency(&slowest_ns)
}

/// A process that goes on its own, while others of the target stay, takes with it what it has read:
/// a worker for each connection ends when its client says goodbye. Nobody waits for an answer then.
/// What the target had open when all of it was ended stays open.
fn end_with_processes(rows: &mut [Request], threads: &BTreeMap<u32, Thread>, alive_until_ns: Ns) {
    let open = |row: &Request| life::is_open(row) && row.recv_tid != 0;
    if !rows.iter().any(open) {
        return;
    }
    // When the last thread of each ended; `None`: there is one that has not.
    let mut ended: HashMap<u32, Option<Ns>> = HashMap::default();
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
    for row in rows.iter_mut().filter(|row| open(row)) {
        let gone_ns = went_alone_ns(row.recv_tid);
        row.gone_ns = gone_ns.map(|gone_ns| gone_ns.max(row.ready_ns));
    }
}

/// Of a request that was read before the recording began nobody saw who read it. Where the thread
/// that answered it answers what it has read, and nothing else, it was that one.
fn name_readers(rows: &mut [Request]) {
    let unnamed = |row: &Request| row.since_before && row.recv_ns.is_some() && row.recv_tid == 0;
    if !rows.iter().any(unnamed) {
        return;
    }
    let mut answers_its_own: HashMap<u32, bool> = HashMap::default();
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
