//! What a sleep on a futex was for, by scored evidence.
//!
//! The word alone says little: a mutex, a condition variable and a parked thread are all a 32-bit
//! number that somebody changes. What distinguishes them, from strong to weak: the functions that
//! the sleeper called; whether timeouts ended the sleeps; whether the word's surroundings name an
//! owner, and that owner ended the sleep; whether those who end sleeps on the word were letting go
//! of a lock, and sleep on it themselves; whether the sleeper had a request open, and whether those
//! had one, too; the value it expected. Each adds to the score of a class. A class needs a score,
//! and has to lead by some; otherwise the answer is [`WaitClass::Unknown`].

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use whywait_events::{Ns, StackId, Wait, WakeContext};

mod classify;
mod primitive;

pub(crate) use classify::classify;
pub use primitive::Primitive;
pub(crate) use primitive::{
    gil_address, gvl_frames, of_parking_lot, polled_lock, primitive, release,
};

/// What a wait on a futex, or for a lock, was for: one of five, by scored evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
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

/// What was seen of the sleeps on one word, or one lock, at one primitive.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Sleeps that ended and have rows of their own.
    pub count: u64,
    /// Of these ended by the call's timeout.
    pub timeouts: u64,
    /// Of these with a timeout.
    pub timed: u64,
    /// Of these while the thread had a request open.
    pub serving: u64,
    /// Of these while the thread had a request open, and ended by one that had another one.
    pub by_peers: u64,
    /// Of these ended by a thread that was letting go of a lock.
    pub released: u64,
    /// Of which without a doubt.
    pub released_surely: u64,
    /// Of these such that the owner beside the word ended the sleep.
    pub by_owner: u64,
    /// Of these such that the owner beside the word was another thread.
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

impl Seen {
    /// Adds what was seen of other sleeps.
    pub(crate) fn merge(&mut self, other: &Seen) {
        self.count += other.count;
        self.timeouts += other.timeouts;
        self.timed += other.timed;
        self.serving += other.serving;
        self.by_peers += other.by_peers;
        self.released += other.released;
        self.released_surely += other.released_surely;
        self.by_owner += other.by_owner;
        self.owned += other.owned;
        self.led_to_answers += other.led_to_answers;
        self.op = other.op;
        for (value, times) in &other.values {
            bump(&mut self.values, *value, *times);
        }
        for (tid, (times, ns)) in &other.waiters {
            if let Some(one) = entry(&mut self.waiters, *tid) {
                one.0 += times;
                one.1 = one.1.saturating_add(*ns);
            }
        }
        for (tid, times) in &other.wakers {
            bump(&mut self.wakers, *tid, *times);
        }
        for (what, times) in &other.others {
            bump(&mut self.others, *what, *times);
        }
        for (stack, ns) in &other.stacks {
            bump(&mut self.stacks, *stack, *ns);
        }
        for (stack, times) in &other.waker_stacks {
            bump(&mut self.waker_stacks, *stack, *times);
        }
    }
}

/// How a sleep ended.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ended {
    /// How long it was.
    pub(crate) slept_ns: Ns,
    /// Its thread had a request open all the while.
    pub(crate) serving: bool,
    /// A thread of the target ended it.
    pub(crate) by_target: bool,
    /// That thread had a request of its own in hand.
    pub(crate) by_peer: bool,
    /// That thread was letting go of a lock; `true`: without a doubt.
    pub(crate) letting_go: Option<bool>,
}

/// How many different values, threads and stacks are kept of an object.
const MAX_KEPT: usize = 64;

impl Seen {
    /// Adds a sleep that ended.
    pub(crate) fn add(&mut self, wait: &Wait, ended: &Ended) {
        self.count += 1;
        self.op = wait.args[1] as u32;
        let timed_out = wait.wake_context == WakeContext::Hardirq && wait.timeout;
        self.timeouts += u64::from(timed_out);
        self.timed += u64::from(wait.timeout);
        self.serving += u64::from(ended.serving);
        self.by_peers += u64::from(ended.serving && ended.by_peer);
        self.released += u64::from(ended.letting_go.is_some());
        self.released_surely += u64::from(ended.letting_go == Some(true));
        if wait.owner_tid != 0 && wait.owner_tid != wait.tid {
            self.owned += 1;
            self.by_owner += u64::from(wait.waker_tid == wait.owner_tid);
        }
        bump(&mut self.values, wait.args[2] as u32, 1);
        if let Some(one) = entry(&mut self.waiters, wait.tid) {
            one.0 += 1;
            one.1 = one.1.saturating_add(ended.slept_ns);
        }
        match wait.wake_context {
            WakeContext::Task if ended.by_target => bump(&mut self.wakers, wait.waker_tid, 1),
            WakeContext::Task => bump(&mut self.others, "another process", 1),
            _ if timed_out => bump(&mut self.others, "timeout", 1),
            WakeContext::Hardirq | WakeContext::Softirq => {
                bump(&mut self.others, "interrupt", 1);
            }
            WakeContext::Unknown | WakeContext::Exit => {}
        }
        if wait.user_stack != 0 {
            bump(&mut self.stacks, wait.user_stack, ended.slept_ns);
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

#[cfg(test)]
mod tests;
