//! What a sleep on a futex was for, by scored evidence.
//!
//! The word alone says little: a mutex, a condition variable and a parked thread are all a 32-bit
//! number that somebody changes. What tells them apart, from strong to weak: the functions that the
//! sleeper called; whether timeouts ended the sleeps; whether the word's surroundings name an
//! owner, and that owner ended the sleep; whether those who end sleeps on the word sleep on it
//! themselves; whether the sleeper had a request open; the value it expected. Each adds to the
//! score of a class. A class needs [`ENOUGH`] and has to lead by [`CLEAR`]; otherwise the answer is
//! [`WaitClass::Unknown`].

use std::collections::BTreeMap;

use serde::Serialize;
use whywait_events::{Ns, StackId, Wait, WakeContext};

use crate::stacks::{FrameOrigin, StackText, origin};

/// What a thread waited for on a futex.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitClass {
    /// For a lock that another thread held.
    Lock,
    /// For work to come: nothing was being kept waiting.
    Idle,
    /// For the answer to something that it had asked for, or for a thread's end.
    Result,
    /// For a time to come.
    Timer,
    /// The evidence does not say.
    Unknown,
}

impl WaitClass {
    /// The name that reports use.
    pub const fn name(self) -> &'static str {
        match self {
            WaitClass::Lock => "lock",
            WaitClass::Idle => "idle",
            WaitClass::Result => "result",
            WaitClass::Timer => "timer",
            WaitClass::Unknown => "unknown",
        }
    }
}

/// What a thread called that slept on a futex, from its stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Primitive {
    Mutex,
    RwLock,
    Condvar,
    Semaphore,
    Park,
    Join,
    Barrier,
    Once,
    /// A lock of a database, on a row or a table, that a process for each connection waits for
    /// (PostgreSQL).
    Database,
    /// The lock that a thread of CPython needs to run Python code.
    Gil,
    /// A thread of Go's scheduler without a goroutine to run.
    GoIdle,
}

impl Primitive {
    /// For reports.
    pub const fn name(self) -> &'static str {
        match self {
            Primitive::Mutex => "mutex",
            Primitive::RwLock => "read-write lock",
            Primitive::Condvar => "condition variable",
            Primitive::Semaphore => "semaphore",
            Primitive::Park => "park",
            Primitive::Join => "join",
            Primitive::Barrier => "barrier",
            Primitive::Once => "once",
            Primitive::Database => "lock of the database",
            Primitive::Gil => "Python interpreter's lock (GIL)",
            Primitive::GoIdle => "idle in Go's scheduler",
        }
    }

    /// Whether it is held by one thread and released by it.
    pub const fn is_lock(self) -> bool {
        matches!(
            self,
            Primitive::Mutex
                | Primitive::RwLock
                | Primitive::Once
                | Primitive::Database
                | Primitive::Gil
        )
    }
}

/// Parts of function names, all of which a name must have, and what a thread in such a function
/// waits at. The first match from the innermost frame outwards counts, so that a mutex that is
/// taken again within a condition variable is a mutex.
const PRIMITIVES: &[(&[&str], Primitive)] = &[
    // Rust's standard library
    (&["mutex::futex::Mutex", "lock"], Primitive::Mutex),
    (&["rwlock::futex::RwLock"], Primitive::RwLock),
    (&["condvar::futex::Condvar"], Primitive::Condvar),
    (&["once::futex::Once"], Primitive::Once),
    (&["sync::reentrant_lock", "lock"], Primitive::Mutex),
    (&["sync::barrier::Barrier", "wait"], Primitive::Barrier),
    (&["Condvar", "wait"], Primitive::Condvar),
    (&["thread", "JoinInner", "join"], Primitive::Join),
    (&["thread", "JoinHandle", "join"], Primitive::Join),
    (&["parking::futex::Parker"], Primitive::Park),
    (&["std::thread", "park"], Primitive::Park),
    // parking_lot
    (&["raw_mutex::RawMutex", "lock_slow"], Primitive::Mutex),
    (&["raw_fair_mutex::RawFairMutex", "lock"], Primitive::Mutex),
    (&["raw_rwlock::RawRwLock", "slow"], Primitive::RwLock),
    (&["raw_rwlock::RawRwLock", "wait_for"], Primitive::RwLock),
    (&["parking_lot::condvar"], Primitive::Condvar),
    (&["parking_lot::once"], Primitive::Once),
    // the GNU C library and musl
    (&["lll_lock_wait"], Primitive::Mutex),
    (&["pthread_mutex_lock"], Primitive::Mutex),
    (&["pthread_mutex_timedlock"], Primitive::Mutex),
    (&["pthread_mutex_clocklock"], Primitive::Mutex),
    (&["pthread_mutex_cond_lock"], Primitive::Mutex),
    (&["pthread_rwlock_"], Primitive::RwLock),
    (&["pthread_cond_"], Primitive::Condvar),
    (&["pthread_barrier_wait"], Primitive::Barrier),
    (&["pthread_once"], Primitive::Once),
    (&["sem_wait"], Primitive::Semaphore),
    (&["sem_timedwait"], Primitive::Semaphore),
    (&["sem_clockwait"], Primitive::Semaphore),
    (&["pthread_join"], Primitive::Join),
    (&["pthread_clockjoin"], Primitive::Join),
    (&["pthread_timedjoin"], Primitive::Join),
    // Go
    (&["runtime.lock2"], Primitive::Mutex),
    (&["runtime.semasleep"], Primitive::Semaphore),
    (&["runtime.stopm"], Primitive::GoIdle),
    (&["runtime.mPark"], Primitive::GoIdle),
    (&["runtime.findRunnable"], Primitive::GoIdle),
    (&["runtime.stoplockedm"], Primitive::GoIdle),
    (&["runtime.templateThread"], Primitive::GoIdle),
    // interpreters and virtual machines
    (&["take_gil"], Primitive::Gil),
    (&["ObjectMonitor", "enter"], Primitive::Mutex),
    (&["ObjectMonitor", "wait"], Primitive::Condvar),
    (&["Monitor", "lock_without_safepoint"], Primitive::Mutex),
    (&["Parker::park"], Primitive::Park),
    (&["uv_cond_"], Primitive::Condvar),
    (&["uv_mutex_lock"], Primitive::Mutex),
    (&["uv_sem_wait"], Primitive::Semaphore),
];

/// What a thread waits at, as its stack tells: a function of the library that has it, between the
/// system call and the application.
pub(crate) fn primitive(stack: &StackText) -> Option<Primitive> {
    for label in &stack.labels {
        let found = PRIMITIVES
            .iter()
            .find(|(parts, _)| parts.iter().all(|part| label.name.contains(part)));
        // CPython waits for its lock in a loop of timed waits at a condition variable, and for the
        // mutex of that.
        if let Some((_, Primitive::Condvar | Primitive::Mutex)) = found
            && stack.labels.iter().any(|label| &*label.name == "take_gil")
        {
            return Some(Primitive::Gil);
        }
        if let Some((_, primitive)) = found {
            return Some(*primitive);
        }
        if label.named && origin(label) == FrameOrigin::App {
            return None;
        }
    }
    None
}

/// An address that stands for CPython's lock, from one of the three words at which threads wait for
/// it: two of a condition variable of the C library (its last 8 bytes, aligned to 8) and, behind
/// that, the one of its mutex (`_gil_runtime_state` in Include/internal/pycore_gil.h; `g_signals`
/// in sysdeps/nptl/bits/thread-shared-types.h).
pub(crate) fn gil_address(stack: &StackText, word: u64) -> u64 {
    let at_mutex = stack
        .labels
        .iter()
        .take_while(|label| &*label.name != "take_gil")
        .any(|label| label.name.contains("mutex_") || label.name.contains("lll_lock_wait"));
    let word = if at_mutex { word.wrapping_sub(8) } else { word };
    word & !7
}

/// The functions in which a program waits for a lock of its own without a futex, in a poll for a
/// signal or an event from the one that has it; what the lock is.
const POLLED_LOCKS: &[(&str, Primitive)] = &[
    // PostgreSQL's queue for its locks on rows, tables and transactions
    // (src/backend/storage/lmgr/proc.c)
    ("ProcSleep", Primitive::Database),
];
/// Such a function lies no more than so many calls above the system call.
const POLLED_LOCK_DEPTH: usize = 8;

/// The lock that a thread waits for that sleeps in a poll, as the functions tell.
pub(crate) fn polled_lock(stack: &StackText) -> Option<Primitive> {
    let labels = stack.labels.iter().take(POLLED_LOCK_DEPTH);
    labels
        .filter_map(|label| {
            POLLED_LOCKS
                .iter()
                .find(|(name, _)| *label.name == **name)
                .map(|(_, primitive)| *primitive)
        })
        .next()
}

/// A name in a stack that only `parking_lot` has: then the address beside the word is what the
/// thread queues for.
pub(crate) fn of_parking_lot(stack: &StackText) -> bool {
    stack
        .labels
        .iter()
        .any(|label| label.name.contains("parking_lot"))
}

/// What was seen of the sleeps on one word, or one lock, at one primitive.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Sleeps that ended, told one by one.
    pub count: u64,
    /// Thereof ended by the call's timeout.
    pub timeouts: u64,
    /// Thereof with a timeout.
    pub timed: u64,
    /// Thereof while the thread had a request open.
    pub serving: u64,
    /// Thereof such that the owner beside the word ended the sleep; and those that had an owner at
    /// all.
    pub by_owner: u64,
    /// Thereof such that the owner beside the word was another thread.
    pub owned: u64,
    /// How often which value was expected.
    pub values: BTreeMap<u32, u64>,
    /// Who slept, how often and how long.
    pub waiters: BTreeMap<u32, (u64, u64)>,
    /// Who ended sleeps, how often; threads of the target.
    pub wakers: BTreeMap<u32, u64>,
    /// Sleeps that a thread ended after which the sleeper ended one of a thread that was serving,
    /// or answered itself.
    pub led_to_answers: u64,
    /// What ended them when it was no thread of the target.
    pub others: BTreeMap<&'static str, u64>,
    /// Where the sleepers were, and for how long.
    pub stacks: BTreeMap<StackId, u64>,
    /// Where the wakers were, and how often.
    pub waker_stacks: BTreeMap<StackId, u64>,
    /// The system call's operation of the last sleep.
    pub op: u32,
    /// Whether the value was ever the id of a thread of the process.
    pub value_is_thread: Option<u32>,
    /// Sleeps where the threads of an event loop park that have nothing to do.
    pub parked_in_pool: u64,
}

/// How many different values, threads and stacks are kept of an object.
const MAX_KEPT: usize = 64;

impl Seen {
    /// Adds a sleep that ended. `serving`: its thread had a request open all the while.
    pub(crate) fn add(&mut self, wait: &Wait, slept_ns: Ns, serving: bool, by_target: bool) {
        self.count += 1;
        self.op = wait.args[1] as u32;
        let timed_out = wait.wake_context == WakeContext::Hardirq && wait.timeout;
        self.timeouts += u64::from(timed_out);
        self.timed += u64::from(wait.timeout);
        self.serving += u64::from(serving);
        if wait.owner_tid != 0 && wait.owner_tid != wait.tid {
            self.owned += 1;
            self.by_owner += u64::from(wait.waker_tid == wait.owner_tid);
        }
        bump(&mut self.values, wait.args[2] as u32, 1);
        if let Some(one) = entry(&mut self.waiters, wait.tid) {
            one.0 += 1;
            one.1 = one.1.saturating_add(slept_ns);
        }
        match wait.wake_context {
            WakeContext::Task if by_target => bump(&mut self.wakers, wait.waker_tid, 1),
            WakeContext::Task => bump(&mut self.others, "another process", 1),
            _ if timed_out => bump(&mut self.others, "timeout", 1),
            WakeContext::Hardirq | WakeContext::Softirq => {
                bump(&mut self.others, "interrupt", 1);
            }
            WakeContext::Unknown | WakeContext::Exit => {}
        }
        if wait.user_stack != 0 {
            bump(&mut self.stacks, wait.user_stack, slept_ns);
        }
        if wait.waker_stack != 0 {
            bump(&mut self.waker_stacks, wait.waker_stack, 1);
        }
    }
}

pub(crate) fn entry<K: Ord, V: Default>(map: &mut BTreeMap<K, V>, key: K) -> Option<&mut V> {
    if map.len() >= MAX_KEPT && !map.contains_key(&key) {
        return None;
    }
    Some(map.entry(key).or_default())
}

pub(crate) fn bump<K: Ord>(map: &mut BTreeMap<K, u64>, key: K, by: u64) {
    if let Some(value) = entry(map, key) {
        *value = value.saturating_add(by);
    }
}

/// A class needs this score…
const ENOUGH: i32 = 4;
/// … and this much more than the next.
const CLEAR: i32 = 2;

/// FUTEX_WAIT_BITSET, FUTEX_CMD_MASK (include/uapi/linux/futex.h).
const CMD_MASK: u32 = 0x7f;
const LOCK_PI: [u32; 2] = [6, 13];

/// What the sleeps were for, and why, the strongest reason first.
pub(crate) fn classify(seen: &Seen, primitive: Option<Primitive>) -> (WaitClass, Vec<String>) {
    let mut reasons: Vec<(WaitClass, i32, String)> = Vec::new();
    let mut say = |class, score, text: String| reasons.push((class, score, text));
    let count = seen.count.max(1);
    let most = |n: u64| n * 10 >= count * 9;
    match primitive {
        Some(lock) if lock.is_lock() => say(
            WaitClass::Lock,
            10,
            format!("the sleeper was taking a {}", lock.name()),
        ),
        Some(Primitive::Join) => say(
            WaitClass::Result,
            10,
            "the sleeper was joining a thread".to_owned(),
        ),
        Some(Primitive::GoIdle) => say(
            WaitClass::Idle,
            10,
            "a thread of Go's scheduler that had no goroutine to run".to_owned(),
        ),
        Some(other) => say(
            WaitClass::Lock,
            -10,
            format!("the sleeper was at a {}, which nobody holds", other.name()),
        ),
        None => {}
    }
    // CPython asks for its lock again every 5 ms.
    if seen.timeouts > 0 && most(seen.timeouts) && primitive != Some(Primitive::Gil) {
        say(
            WaitClass::Timer,
            14,
            format!(
                "{} of {count} waits were ended by their timeout",
                seen.timeouts
            ),
        );
    }
    if LOCK_PI.contains(&(seen.op & CMD_MASK)) {
        say(
            WaitClass::Lock,
            10,
            "the system call takes a priority-inheriting lock".to_owned(),
        );
    }
    if seen.by_owner > 0 && seen.by_owner * 2 >= count {
        say(
            WaitClass::Lock,
            8,
            format!(
                "the owner that stands beside the word ended {} of {count} waits",
                seen.by_owner
            ),
        );
    }
    if let Some(thread) = seen.value_is_thread
        && seen.values.len() == 1
    {
        say(
            WaitClass::Result,
            8,
            format!(
                "the word held the id of thread {thread}, and the kernel clears it at the thread's end"
            ),
        );
    }
    if seen.parked_in_pool > 0 && most(seen.parked_in_pool) {
        say(
            WaitClass::Idle,
            9,
            "the sleeper was where the threads of its event loop park that have nothing to do"
                .to_owned(),
        );
    }
    let mutual = seen
        .wakers
        .keys()
        .filter(|tid| seen.waiters.contains_key(tid))
        .count();
    if mutual >= 2 && mutual * 2 >= seen.wakers.len() {
        say(
            WaitClass::Lock,
            // Not enough alone: two that hand work to and fro over one word do the same.
            3,
            format!("{mutual} threads both wait on it and end each other's waits"),
        );
    }
    let value = |wanted: u32| seen.values.get(&wanted).copied().unwrap_or(0);
    if most(value(2)) {
        say(
            WaitClass::Lock,
            2,
            "the word said \"locked, with waiters\" (2)".to_owned(),
        );
    }
    if most(value(u32::MAX)) {
        say(
            WaitClass::Lock,
            -4,
            "the word said \"parked\" (-1)".to_owned(),
        );
    }
    if seen.serving > 0 && seen.serving * 10 >= count * 8 {
        say(
            WaitClass::Result,
            4,
            format!(
                "in {} of {count} waits the thread had read a request and not answered it",
                seen.serving
            ),
        );
    } else if seen.serving == 0 && seen.led_to_answers > 0 && seen.led_to_answers * 2 >= count {
        say(
            WaitClass::Idle,
            4,
            format!(
                "nothing was open while it waited, and after {} of {count} waits it did what others were waiting for",
                seen.led_to_answers
            ),
        );
    }
    decide(reasons)
}

fn decide(mut reasons: Vec<(WaitClass, i32, String)>) -> (WaitClass, Vec<String>) {
    let score = |class: WaitClass| {
        reasons
            .iter()
            .filter(|(of, ..)| *of == class)
            .map(|(_, score, _)| score)
            .sum::<i32>()
    };
    let mut scores: Vec<(i32, WaitClass)> = [
        WaitClass::Lock,
        WaitClass::Idle,
        WaitClass::Result,
        WaitClass::Timer,
    ]
    .map(|class| (score(class), class))
    .to_vec();
    scores.sort_by_key(|(score, class)| (std::cmp::Reverse(*score), *class));
    let (best, class) = scores[0];
    let class = if best >= ENOUGH && best - scores[1].0.max(0) >= CLEAR {
        class
    } else {
        WaitClass::Unknown
    };
    reasons.sort_by_key(|(of, score, _)| (*of != class, std::cmp::Reverse(score.abs())));
    (class, reasons.into_iter().map(|(.., text)| text).collect())
}

#[cfg(test)]
mod tests;
