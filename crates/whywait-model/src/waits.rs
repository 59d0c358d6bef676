//! The table of waits: per object that threads wait for (a futex word, a file, a socket, a device), who waited, for how long,
//! for what, who ended it, and how much of it slow requests really waited for.
//!
//! A large sum of waiting proves nothing by itself: a thread that idles all day has the largest. The columns that tell are
//! the class and the share on critical paths.

use serde::{Serialize, Serializer};

use crate::futex::Class;

/// What threads waited for, and how.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct WaitRow {
    /// Process id.
    pub tgid: u32,
    /// What kind of wait it is, in a word or two: `lock`, `condition variable`, `fsync`, `epoll`, `socket`, …
    pub what: String,
    /// For futexes: what the waits are for, by scored evidence. `None` for other waits.
    pub class: Option<Class>,
    /// What the class rests on, the strongest first, in words.
    pub reasons: Vec<String>,
    /// For futexes: the address of the lock or word, in hex (`0x…`).
    #[serde(serialize_with = "hex")]
    pub address: Option<u64>,
    /// What is mapped there: a path, `[heap]`, `[stack]`, `[anonymous]`. Hostile.
    pub mapping: Option<String>,
    /// File descriptor, for calls that take one as their first argument.
    pub fd: Option<i32>,
    /// How many waits, short ones too where they are known.
    pub count: u64,
    /// Thereof shorter than the recording's threshold, of which only the sums are known.
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
    /// What the waiting was in: the innermost function of the application, or else the innermost one. Hostile.
    pub function: Option<String>,
    /// The stack in which most of the waiting was, innermost first. Hostile.
    pub stack: Vec<String>,
}

/// A thread that waited.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
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
