//! The table of waits: per object that threads wait for (a futex word, a file, a socket, a device),
//! who waited, for how long, for what, who ended it, and how much of it slow requests really waited
//! for.
//!
//! A large sum of waiting proves nothing by itself: a thread that idles all day has the largest.
//! The columns that count are the class and the share on critical paths.

mod siblings;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use whywait_events::Part;

use crate::maps::HashMap;
use crate::model::Model;
use crate::waits::futex::{self, WaitClass};
use crate::waits::objects::{WaitKey, WaitObject, WaitSums};

/// A row of the table of waits: what threads waited for, and how.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct WaitRow {
    /// Process id; of several the one that waited longest.
    pub tgid: u32,
    /// All processes that waited so: those that run the same program have one row.
    pub pids: Vec<u32>,
    /// What kind of wait it is, in a word or two: `lock`, `condition variable`, `fsync`, `epoll`,
    /// `socket`, …
    pub what: String,
    /// For futexes: what the waits are for, by scored evidence. `None` for other waits.
    pub class: Option<WaitClass>,
    /// What the class rests on, the strongest first, in words.
    pub reasons: Vec<String>,
    /// For futexes: the address of the lock or word, in hex (`0x…`).
    #[serde(serialize_with = "hex")]
    #[schemars(with = "Option<String>")]
    pub address: Option<u64>,
    /// What is mapped there: a path, `[heap]`, `[stack]`, `[anonymous]`. Hostile.
    pub mapping: Option<String>,
    /// File descriptor, for calls that take one as their first argument.
    pub fd: Option<i32>,
    /// How many waits, short ones too where they are known.
    pub count: u64,
    /// Of these shorter than the recording's threshold, or too many to have rows of their own: only
    /// the sums of them are known.
    pub short: u64,
    /// Asleep, altogether, nanoseconds.
    pub total_ns: u64,
    /// The longest.
    pub longest_ns: u64,
    /// Waits that had not ended when the recording did.
    pub unfinished: u64,
    /// Who waited, the longest first.
    pub threads: Vec<WaitThread>,
    /// Who ended the waits, as a rule: a thread, or `timeout`, `network`, `interrupt`.
    pub waker: Option<WaitWaker>,
    /// Nanoseconds of these waits that lie on the critical paths of slow requests.
    pub critical_ns: u64,
    /// The same as a share of `total_ns`; `None` when nothing was waited.
    pub critical_share: Option<f64>,
    /// What the waiting was in: the innermost function of the application, or else the innermost
    /// one. Hostile.
    pub function: Option<String>,
    /// The stack in which most of the waiting was, innermost first. Hostile.
    pub stack: Vec<String>,
}

/// A thread that waited.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct WaitThread {
    /// Thread id.
    pub tid: u32,
    /// Its name, hostile.
    pub thread: String,
    /// How many waits.
    pub count: u64,
    /// Asleep, nanoseconds.
    pub total_ns: u64,
}

/// Who ended waits.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct WaitWaker {
    /// In words: a thread's name, or `timeout`, `network`, `interrupt`, `another process`. Hostile.
    pub who: String,
    /// The thread, if it is one of the target.
    pub tid: Option<u32>,
    /// How many of the waits it ended.
    pub count: u64,
}

fn hex<S: Serializer>(address: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    match address {
        Some(address) => serializer.collect_str(&format_args!("{address:#x}")),
        None => serializer.serialize_none(),
    }
}

impl Model {
    /// The table of waits, the longest first.
    pub fn waits(&self) -> Vec<WaitRow> {
        let critical = critical(self);
        let mut rows: Vec<WaitRow> = self
            .objects
            .iter()
            .map(|(key, sums)| row(self, key, sums, critical.get(key).copied().unwrap_or(0)))
            .collect();
        rows = siblings::merged(self, rows);
        rows.sort_by(|a, b| {
            let order = |row: &WaitRow| {
                (
                    std::cmp::Reverse(row.total_ns),
                    std::cmp::Reverse(row.unfinished),
                )
            };
            order(a).cmp(&order(b)).then_with(|| {
                (a.tgid, &a.what, a.address, a.fd).cmp(&(b.tgid, &b.what, b.address, b.fd))
            })
        });
        rows
    }
}

/// How much of the waits for each thing is on the critical paths of slow requests.
fn critical(model: &Model) -> HashMap<WaitKey, u64> {
    let mut critical: HashMap<WaitKey, u64> = HashMap::default();
    for (step, paths) in model.steps_on_paths() {
        if matches!(step.part, None | Some(Part::OnCpu | Part::Runnable)) {
            continue;
        }
        let wait = model
            .threads
            .get(&step.tid)
            .and_then(|thread| thread.timeline.before(step.to_ns));
        if let Some(wait) = wait {
            let ns = critical.entry(model.key_of(wait)).or_default();
            *ns = ns.saturating_add(step.ns().saturating_mul(paths));
        }
    }
    critical
}

fn row(model: &Model, key: &WaitKey, sums: &WaitSums, critical_ns: u64) -> WaitRow {
    let seen = &sums.seen;
    let (address, fd) = match &key.object {
        WaitObject::Futex { address, .. } => (Some(*address), None),
        WaitObject::Descriptor { fd, .. } => (None, Some(*fd)),
        WaitObject::Epoll(_) | WaitObject::Lock(_) | WaitObject::Other(_) => (None, None),
    };
    let mut threads: Vec<WaitThread> = seen
        .waiters
        .iter()
        .map(|(tid, (count, total_ns))| WaitThread {
            tid: *tid,
            thread: model.thread_name(*tid).to_owned(),
            count: *count,
            total_ns: *total_ns,
        })
        .collect();
    for tid in &sums.unfinished {
        if !seen.waiters.contains_key(tid) {
            threads.push(WaitThread {
                tid: *tid,
                thread: model.thread_name(*tid).to_owned(),
                ..WaitThread::default()
            });
        }
    }
    threads.sort_by_key(|thread| (std::cmp::Reverse(thread.total_ns), thread.tid));
    let stack = seen
        .stacks
        .iter()
        .max_by_key(|(stack, ns)| (**ns, std::cmp::Reverse(**stack)))
        .map_or(0, |(stack, _)| *stack);
    let total_ns = sums.total_ns.saturating_add(sums.short_ns);
    WaitRow {
        tgid: key.tgid,
        pids: vec![key.tgid],
        what: key.object.name(),
        class: sums.class,
        reasons: sums.reasons.clone(),
        address,
        mapping: address
            .and_then(|address| model.objects.mapping(key.tgid, address))
            .map(str::to_owned),
        fd,
        count: seen.count.saturating_add(sums.short),
        short: sums.short,
        total_ns,
        longest_ns: sums.longest_ns.max(sums.short_longest_ns),
        unfinished: sums.unfinished.len() as u64,
        threads,
        waker: waker(model, seen),
        critical_ns,
        critical_share: share(critical_ns, total_ns),
        function: model.stacks.telling(stack),
        stack: model.stacks.names(stack),
    }
}

/// How much of the waiting was on critical paths; `None` when nothing was waited.
fn share(critical_ns: u64, total_ns: u64) -> Option<f64> {
    (total_ns > 0).then(|| critical_ns.min(total_ns) as f64 / total_ns as f64)
}

fn waker(model: &Model, seen: &futex::Seen) -> Option<WaitWaker> {
    let thread = seen
        .wakers
        .iter()
        .max_by_key(|(tid, count)| (**count, std::cmp::Reverse(**tid)));
    let other = seen.others.iter().max_by_key(|(_, count)| **count);
    match (thread, other) {
        (Some((tid, count)), other) if other.is_none_or(|(_, others)| others <= count) => {
            Some(WaitWaker {
                who: model.thread_name(*tid).to_owned(),
                tid: Some(*tid),
                count: *count,
            })
        }
        (_, Some((who, count))) => Some(WaitWaker {
            who: (*who).to_owned(),
            tid: None,
            count: *count,
        }),
        _ => None,
    }
}
