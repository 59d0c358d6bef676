//! `futile-wakeups`: a thread goes round in its poll, and nothing moves.
//!
//! **Invariant.** A thread that is woken makes progress: it reads, writes, accepts, or otherwise
//! moves something on.
//!
//! **Evidence.** Samples found the thread in polls while it had read and written nothing for a
//! millisecond of its CPU time; in bursts of system-call tracing its polls returned at once because
//! of a descriptor, and until the next poll no call moved anything. The calls repeat.
//!
//! **Cost.** The CPU time of the intervals in which the thread was seen polling and no byte moved,
//! times the share of turns without progress. What a virtual machine's own threads used, its
//! collector and its compiler, is part of the bound, up to twice the loop's share of all else that
//! the process used: they work for the loop, too. Rates leave out what tracing adds to each call,
//! as measured on whywait's own calls.
//!
//! **Rings.** io_uring_enter is a poll too: one that returned without sleeping, submitted nothing,
//! and after which the program took no completion before it entered again. Where it was asked to
//! wait (`min_complete`), completions lie in the queue that nobody takes. Where it was not, the
//! program may poll on purpose: that is reported only if its rings completed less than
//! [`RING_BUSY_PER_SECOND`] operations a second, as a warning.
//!
//! **Guards.** Any call that moves something makes a turn one with progress, and so does any that
//! is not known. A poll that was asked not to wait is the program's own decision; one that ran into
//! its timeout did what it was asked to. A thread that slept was woken by somebody for something.
//! An edge-triggered descriptor tells of a new event each time, unless the program asks anew. A
//! turn of more than a millisecond of CPU time computes. Below [`SPINS`] of a CPU nothing is
//! said.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use whywait_events::BurstCall;
use whywait_model::cpu::{CpuUse, Spinner};
use whywait_model::{Model, Thread};
use whywait_words::{counted, duration, list, rate};

use crate::declaration::Declaration;
use crate::facts::Facts;
use crate::finding::{Cause, Confidence, Evidence, Finding, Saving, SavingKind, Severity};
use crate::numbers::{
    RING_BUSY_PER_SECOND, SPINS, SPINS_ERROR, SPINS_HELPED_TIMES, SPINS_QUEUED, Share,
};
use crate::shared::intervals::sum;
use crate::shared::runtime;
use crate::shared::spinning::{
    self, EMFILE, ENFILE, EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLRDHUP, IO_URING_ENTER, IOCTL,
    SIOCOUTQ, descriptor, is_accept, is_read,
};
use crate::shared::threads::named;

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "futile-wakeups",
    meaning: "a thread polls again and again, is woken at once each time, and nothing moves",
    severities: &[
        (Severity::Error, "from a quarter of a CPU on"),
        (Severity::Warning, "otherwise"),
    ],
    invariant: "a thread that is woken makes progress",
    explain: include_str!("explain.md"),
    waits: None,
    detect,
};

/// Why a loop does not stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    NoDescriptors,
    DrainsBySpinning,
    NothingToWrite,
    HangUp,
    NeverRead(&'static str),
    EndOfFile,
    NeverReaped,
    NeverWaits,
    Unknown,
}

impl Why {
    fn of(cycle: &[BurstCall]) -> Self {
        let Some(ready) = cycle.iter().find(|call| spinning::is_poll(call)) else {
            return Why::Unknown;
        };
        if ready.syscall == IO_URING_ENTER {
            return match (ready.ret, ready.value, ready.armed) {
                (..0, _, _) => Why::Unknown,
                (_, 1.., 1..) => Why::NeverReaped,
                (_, _, 0) => Why::NeverWaits,
                _ => Why::Unknown,
            };
        }
        let about = |call: &&BurstCall| call.fd == ready.fd && !spinning::is_poll(call);
        if cycle
            .iter()
            .any(|call| is_accept(call) && matches!(call.ret, EMFILE | ENFILE))
        {
            return Why::NoDescriptors;
        }
        let all: u32 = cycle
            .iter()
            .filter(|call| spinning::is_poll(call))
            .fold(0, |bits, call| bits | call.events);
        if cycle
            .iter()
            .any(|call| call.syscall == IOCTL && call.op == SIOCOUTQ && call.value > 0)
            && all & EPOLLOUT != 0
        {
            return Why::DrainsBySpinning;
        }
        if ready.events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP) != 0 {
            return Why::HangUp;
        }
        if ready.events & EPOLLIN != 0 {
            let mut reads = cycle.iter().filter(about).filter(|call| is_read(call));
            return match reads.next() {
                Some(read) if read.ret == 0 => Why::EndOfFile,
                Some(_) => Why::Unknown,
                None => Why::NeverRead(match ready.kind.as_str() {
                    "timerfd" => "the timer has expired",
                    "eventfd" => "the event has been signalled",
                    "listener" => "connections wait",
                    _ => "there is something to read",
                }),
            };
        }
        if ready.events & EPOLLOUT != 0 {
            return Why::NothingToWrite;
        }
        Why::Unknown
    }

    fn text(self) -> String {
        match self {
            Why::NoDescriptors => {
                "accept fails because the process is out of descriptors (EMFILE): the connection \
                 stays in the queue and the listener stays ready"
            }
            Why::DrainsBySpinning => {
                "it waits for the send queue to drain by asking for writability: the socket is \
                 writable at once, the peer has not read, and nothing changes until it does"
            }
            Why::NothingToWrite => {
                "it asks for writability and has nothing to write: a socket that can take more is \
                 ready all the time"
            }
            Why::HangUp => {
                "the peer has hung up, or the descriptor has an error, and nobody consumes that: \
                 epoll tells it whether it is asked for or not"
            }
            Why::NeverRead(what) => return format!("{what}, and nobody reads: it stays ready"),
            Why::EndOfFile => {
                "it reads the end of the stream again and again: a descriptor at its end stays \
                 ready until it is closed"
            }
            Why::NeverReaped => {
                "completions lie in the ring's queue and the program does not take them: a wait \
                 for one is over at once"
            }
            Why::NeverWaits => {
                "it asks the ring for completions without waiting for any (min_complete 0), and \
                 there are none"
            }
            Why::Unknown => "why it does not stop is not to be seen in its system calls",
        }
        .to_owned()
    }

    fn name(self) -> &'static str {
        match self {
            Why::NoDescriptors => "out-of-descriptors",
            Why::DrainsBySpinning => "drains-by-spinning",
            Why::NothingToWrite => "nothing-to-write",
            Why::HangUp => "hang-up-not-consumed",
            Why::NeverRead(_) => "never-read",
            Why::EndOfFile => "end-of-file-not-closed",
            Why::NeverReaped => "never-reaped",
            Why::NeverWaits => "never-waits",
            Why::Unknown => "unknown",
        }
    }

    fn fix(self) -> &'static str {
        match self {
            Why::NoDescriptors => {
                "raise the limit of open files, close idle connections, and take the listener out \
                 of epoll while accept fails (or keep a spare descriptor to accept and close with)"
            }
            Why::DrainsBySpinning => {
                "just close: the kernel delivers what is queued; or shutdown(SHUT_WR) and wait for \
                 the peer's end of file; never wait for the queue with EPOLLOUT"
            }
            Why::NothingToWrite => {
                "ask for EPOLLOUT only while there is something that a write could not take, and \
                 take it back (EPOLL_CTL_MOD) when all is written; or register it edge-triggered"
            }
            Why::HangUp => {
                "close the descriptor on EPOLLHUP and EPOLLERR (read SO_ERROR); an interest of 0 \
                 does not keep these away, only EPOLL_CTL_DEL does"
            }
            Why::NeverRead(_) => {
                "read the descriptor in its handler (a timerfd's or eventfd's eight bytes too), or \
                 take it out of epoll"
            }
            Why::EndOfFile => "close the descriptor when a read returns 0",
            Why::NeverReaped => {
                "take every completion (io_uring_cqe_seen, io_uring_cq_advance), also those that \
                 the program does not know or that failed"
            }
            Why::NeverWaits => {
                "wait for a completion when there is nothing else to do (io_uring_submit_and_wait, \
                 min_complete 1, with a timeout where other work has to go on)"
            }
            Why::Unknown => {
                "look at what the handler does with the descriptor, and take it out of epoll while \
                 nothing can"
            }
        }
    }
}

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
    // Threads of a process that go round for the same reason are one finding.
    let mut groups: BTreeMap<(u32, Why, u16), Vec<Spinner>> = BTreeMap::new();
    for spinner in model.bursts.threads() {
        if !spinner.goes_round() || spinner.spins < spinner.lost_races {
            continue;
        }
        let why = Why::of(&spinner.cycle);
        if why == Why::NeverWaits && !rings_are_idle(model, spinner.tgid) {
            continue;
        }
        let port = spinner.cycle.first().map_or(0, |call| call.local_port);
        groups
            .entry((spinner.tgid, why, port))
            .or_default()
            .push(spinner);
    }
    groups
        .into_iter()
        .filter_map(|((tgid, why, port), spinners)| {
            finding(model, &Spinning::of(model, tgid, why, port, &spinners)?)
        })
        .collect()
}

/// Whether a process's rings complete next to nothing.
fn rings_are_idle(model: &Model, tgid: u32) -> bool {
    let rings = model.rings.values();
    let rings = rings.filter(|state| state.ring.tgid == tgid);
    let completed = sum(rings.map(|state| state.ring.completed));
    let seconds = model.target().duration_ns as f64 / 1e9;
    (completed as f64) < *RING_BUSY_PER_SECOND as f64 * seconds
}

/// Threads of a process that go round for the same reason, with what that burnt.
struct Spinning<'a> {
    tgid: u32,
    port: u16,
    why: Why,
    spinners: &'a [Spinner],
    /// The one that burnt most.
    worst: &'a Spinner,
    /// What polled there.
    ready: &'a BurstCall,
    /// CPU time that was futile.
    total_ns: u64,
    /// The same, in thousandths of one CPU over the recording.
    permille: u64,
    /// … had they got the CPU whenever they wanted one: on a busy machine it is no smaller a fault.
    wanted_permille: u64,
}

impl<'a> Spinning<'a> {
    fn of(model: &Model, tgid: u32, why: Why, port: u16, spinners: &'a [Spinner]) -> Option<Self> {
        let futile_ns = |spinner: &Spinner| model.cpu.futile_ns(spinner);
        let total_ns = sum(spinners.iter().map(futile_ns));
        let duration_ns = model.target().duration_ns.max(1);
        let permille_of = |duration_ns: u64| {
            let permille = u128::from(total_ns) * 1000 / u128::from(duration_ns.max(1));
            permille.min(u128::from(u64::MAX)) as u64
        };
        let queued_ns = spinners
            .iter()
            .map(|spinner| spinning::use_of(model, spinner).runnable_ns)
            .max()
            .unwrap_or(0);
        let worst = spinners
            .iter()
            .max_by_key(|spinner| (futile_ns(spinner), spinner.tid))?;
        Some(Self {
            tgid,
            port,
            why,
            spinners,
            worst,
            ready: worst.cycle.first()?,
            total_ns,
            permille: permille_of(duration_ns),
            wanted_permille: permille_of(duration_ns - queued_ns.min(SPINS_QUEUED.of(duration_ns))),
        })
    }

    /// How often a second it goes round. A loop that spins runs whenever it gets a CPU.
    fn turns_per_second(&self, model: &Model) -> Option<f64> {
        let used = spinning::use_of(model, self.worst);
        let ready_ns = used.on_cpu_ns.saturating_add(used.runnable_ns).max(1);
        let share = used.on_cpu_ns as f64 / ready_ns as f64;
        self.worst.turn_ns().map(|ns| 1e9 / ns as f64 * share)
    }

    /// What the requests at its port used.
    fn requests(&self, model: &Model) -> CpuUse {
        let used = model.cpu.ports.get(&(self.tgid, i32::from(self.port)));
        used.filter(|_| self.port != 0).cloned().unwrap_or_default()
    }
}

fn finding(model: &Model, found: &Spinning<'_>) -> Option<Finding> {
    let wanted = Share::new(found.wanted_permille, 1000);
    if wanted.is_below(*SPINS) {
        return None;
    }
    let (worst, ready, why) = (found.worst, found.ready, found.why);
    let severity = if wanted.is_at_least(*SPINS_ERROR) && why != Why::NeverWaits {
        Severity::Error
    } else {
        Severity::Warning
    };
    let confidence = match why {
        Why::Unknown | Why::NeverWaits => Confidence::Medium,
        _ => Confidence::High,
    };
    let turn_ns = worst.turn_ns();
    let per_second = found.turns_per_second(model);
    let turns = turn_ns.and_then(|ns| model.cpu.futile_ns(worst).checked_div(ns));
    let calls = spinning::cycle(&worst.cycle);
    let goes_round = format!(
        "thread {} goes round in: {}",
        named(model, worst.tid),
        calls.join(", ")
    );
    let events = (ready.syscall != IO_URING_ENTER).then(|| spinning::bits(ready.events));
    let tids: Vec<u32> = found.spinners.iter().map(|spinner| spinner.tid).collect();
    let requests = found.requests(model);
    let (helped_ns, helpers) = helpers(model, found);
    let at_most_ns = found.total_ns.saturating_add(helped_ns);
    let each_ns = at_most_ns.checked_div(requests.requests);
    let each_at_most_ns = each_ns
        .map(|ns| vec![ns; requests.requests.min(100) as usize])
        .unwrap_or_default();
    let cause = "polling for nothing".to_owned();
    let finding = Finding::new(&DECLARATION, severity, title(found, per_second))
        .confidence(confidence)
        .about("pid", found.tgid)
        .about("threads", tids)
        .about("fd", json!((ready.fd >= 0).then_some(ready.fd)))
        .about(
            "fd_kind",
            json!((!ready.kind.is_empty()).then_some(&ready.kind)),
        )
        .about("port", json!((found.port != 0).then_some(found.port)))
        .about(
            "peer_port",
            json!((ready.peer_port != 0).then_some(ready.peer_port)),
        )
        .about("events", json!(events))
        .about("why", why.name())
        .about("cycle", calls)
        .about("calls_per_cycle", worst.cycle.len())
        .about("turn_ns", json!(turn_ns))
        .about("turns_per_second", json!(per_second.map(f64::round)))
        .about("turns", json!(turns))
        .about("cpu_permille", found.permille)
        .saving(Saving {
            each_at_most_ns,
            ..Saving::sum(SavingKind::Cpu, at_most_ns, requests.requests)
        })
        .evidence([
            Evidence::of_ns(turn_ns, goes_round),
            Evidence::new(why.text()),
            went_by(model, found),
        ])
        .evidence(served(found.port, &requests))
        .evidence(helpers)
        .cause(Cause::new(model, worst.tid, cause, worst.user_stack))
        .fix(why.fix());
    Some(finding)
}

fn title(found: &Spinning<'_>, per_second: Option<f64>) -> String {
    let what = descriptor(found.ready);
    let who = match (found.ready.syscall, found.spinners.len()) {
        (IO_URING_ENTER, 1) => format!("a loop entered {what}"),
        (IO_URING_ENTER, n) => format!("each of {n} loops entered {what}"),
        (_, 1) => format!("{what} woke its loop"),
        (_, n) => format!("{what} woke each of {n} loops"),
    };
    let how_often = per_second.map_or_else(
        || "again and again".to_owned(),
        |per_second| format!("{} times a second", rate(per_second)),
    );
    format!(
        "{who} {how_often} and nothing moved: {} of CPU time burnt, {} % of a CPU",
        duration(found.total_ns),
        found.permille / 10,
    )
}

/// How much of the thread's CPU time was futile, and how that is known.
fn went_by(model: &Model, found: &Spinning<'_>) -> Evidence {
    let used = spinning::use_of(model, found.worst);
    let text = format!(
        "{} of {} of the thread's CPU time went by in polls without a byte read or written; {} of \
         {} turns that were traced, in {}, moved nothing",
        duration(used.futile_ns),
        duration(used.on_cpu_ns),
        found.worst.spins,
        found.worst.turns,
        counted(found.worst.bursts, "burst"),
    );
    Evidence::of_ns(found.total_ns, text)
}

/// What the requests at the port cost.
fn served(port: u16, requests: &CpuUse) -> Option<Evidence> {
    let each_ns = requests.on_cpu_ns.checked_div(requests.requests)?;
    let text = format!(
        "the listener at port {port} used {} for {}: {} each",
        duration(requests.on_cpu_ns),
        counted(requests.requests, "request"),
        duration(each_ns)
    );
    Some(Evidence::of_ns(requests.on_cpu_ns, text))
}

/// A virtual machine works for a loop on other threads, too: each turn may leave garbage behind.
/// How much of that the loop's may be, and who did it.
fn helpers(model: &Model, found: &Spinning<'_>) -> (u64, Option<Evidence>) {
    let (helpers, helpers_ns) = runtime::helpers(model, found.tgid);
    let helped_ns = helped_ns(model, found.tgid, helpers_ns, found.total_ns);
    // Where there are many of a kind they are numbered.
    let kind = |thread: &&Thread| {
        let name = model.thread_name(thread.tid);
        name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '#')
            .to_owned()
    };
    let kinds: BTreeSet<String> = helpers.iter().map(kind).collect();
    let text = format!(
        "{} used {}, for this loop as well as for others: {} of it at most is part of the bound",
        list(&kinds.into_iter().collect::<Vec<_>>()),
        duration(helpers_ns),
        duration(helped_ns)
    );
    let evidence = (helpers_ns > 0).then(|| Evidence::of_ns(helped_ns, text));
    (helped_ns, evidence)
}

/// What of a virtual machine's own CPU time was for loops that burnt `futile_ns`, at most: a turn
/// of theirs may leave twice as much to do as what else the process does.
fn helped_ns(model: &Model, tgid: u32, helpers_ns: u64, futile_ns: u64) -> u64 {
    let threads = model.cpu.threads.range((tgid, 0)..=(tgid, u32::MAX));
    let process_ns = sum(threads.map(|(_, used)| used.on_cpu_ns));
    let others_ns = process_ns.saturating_sub(helpers_ns).max(1);
    let futile_ns = u128::from(futile_ns) * u128::from(*SPINS_HELPED_TIMES);
    let of_loops = u128::from(helpers_ns).saturating_mul(futile_ns) / u128::from(others_ns);
    of_loops.min(u128::from(helpers_ns)) as u64
}

#[cfg(test)]
mod tests;
