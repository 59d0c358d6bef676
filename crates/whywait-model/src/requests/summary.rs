//! What the accounting says of a recording as a whole: the figures of a report, apart from its
//! findings.
//!
//! The field names are those of the JSON report (schema 1). What is not known is `None`, never a
//! made-up zero.

use std::collections::BTreeMap;

use serde::Serialize;

/// What was watched.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Target {
    /// Process id of the launched command or of the process that was attached to.
    pub pid: u32,
    /// Command line, hostile.
    pub command: String,
    /// How long it was watched.
    pub duration_ns: u64,
    /// How many threads of it were seen.
    pub threads: u32,
}

/// The requests, their latency and where their time went.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Requests {
    /// How many.
    pub count: u64,
    /// How many took at least the recording's threshold.
    pub slow: u64,
    /// The recording's threshold for "slow".
    pub slow_threshold_ns: u64,
    /// From the first byte in the kernel to the last byte of the response. `None` without requests.
    pub latency_ns: Option<Latency>,
    /// Sums over all requests.
    pub time: Time,
    /// Attributed time over total time, `None` without requests.
    pub closure: Option<f64>,
    /// The slowest requests, slowest first.
    pub slowest: Vec<Slow>,
}

/// Percentiles in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[allow(missing_docs)]
pub struct Latency {
    pub p50: u64,
    pub p99: u64,
    pub max: u64,
}

/// Nanoseconds, summed over requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Time {
    /// From the first byte in the kernel until the target read it.
    pub ready_unserved: ReadyUnserved,
    /// The serving thread ran.
    pub on_cpu: Option<u64>,
    /// The serving thread waited for a CPU.
    pub runnable: Option<u64>,
    /// It waited for a lock.
    pub lock: Option<u64>,
    /// It waited for another thread.
    pub thread: Option<u64>,
    /// It waited for a device or filesystem.
    pub disk: Option<u64>,
    /// It waited for the network or another process.
    pub network: Option<u64>,
    /// It waited for a time to come.
    pub timer: Option<u64>,
    /// It waited in `io_uring_enter`.
    pub uring: Option<u64>,
    /// It waited for a page.
    pub page_fault: Option<u64>,
    /// None of these: the remainder.
    pub unknown: Option<u64>,
}

/// Why a request that the kernel had was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ReadyUnserved {
    /// A capable thread was idle and nobody polled.
    pub stranded: Option<u64>,
    /// Every capable thread was busy (or a thread polled, yet had not got to it).
    pub pool_busy: Option<u64>,
    /// A thread had been woken for it and was on its way.
    pub wakeup: Option<u64>,
}

/// One slow request.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Slow {
    /// Names it: `SOCKET:SEQ`.
    pub id: String,
    /// Local port, `None` for unix sockets.
    pub port: Option<u16>,
    /// From the start of the recording to its first byte.
    pub at_ns: u64,
    /// From its first byte in the kernel to the last byte of its response.
    pub latency_ns: u64,
    /// How that time splits.
    pub time: Time,
    /// Its critical path, from arrival to response.
    pub path: Vec<Step>,
}

/// One step of a critical path.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Step {
    /// What the time was: `ready-unserved` (before a thread read it) or the name of a part
    /// (`on-cpu`, `timer`, …).
    pub state: String,
    /// The thread it is about, 0 when none.
    pub tid: u32,
    /// The thread's name, hostile.
    pub thread: String,
    /// How long.
    pub ns: u64,
    /// What it was in: the innermost function of the application, or else the innermost one.
    /// Hostile.
    pub function: Option<String>,
    /// Function names, innermost first; empty when no stack was taken. Hostile.
    pub stack: Vec<String>,
    /// The thread that ended the wait, if one did.
    pub woken_by: Option<u32>,
    /// What a sleep was for, as the kernel's stack tells: `fsync, journal commit`.
    pub kind: Option<String>,
    /// Kernel functions of a sleep, innermost first; empty when no stack was taken.
    pub kernel: Vec<String>,
    /// For a wait for a lock: what the thread that held it did meanwhile.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub meanwhile: Vec<Step>,
}

/// What the report rests on.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Coverage {
    /// Kernel events that were handled for the target.
    pub events: u64,
    /// Things lost, for any reason.
    pub lost: u64,
    /// The same by reason; only reasons that occurred.
    pub lost_by_reason: BTreeMap<String, u64>,
    /// Sleeps, short ones too, whose wake was not seen.
    pub unmatched_wakes: u64,
    /// Connections on which something was written long after the last response, just before they
    /// ended: not counted as part of it.
    #[serde(skip_serializing_if = "is_zero")]
    pub farewells: u64,
    /// Share of the distinct frames that have a name; `None` without frames.
    pub frames_symbolised: Option<f64>,
    /// Stacks whose unwinding ended before the thread's start.
    pub truncated_stacks: u64,
    /// Long waits that ended.
    pub waits: u64,
    /// Those of them without a user stack.
    pub waits_without_stack: u64,
    /// Critical paths of slow requests that were too long to be followed to their beginning.
    pub truncated_paths: u64,
    /// How often all system calls were traced for a moment.
    #[serde(skip_serializing_if = "is_zero")]
    pub bursts: u64,
    /// … and how long altogether, nanoseconds.
    #[serde(skip_serializing_if = "is_zero")]
    pub traced_ns: u64,
    /// How long threads of the target stood on a CPU that the virtual machine's host had taken
    /// away, nanoseconds.
    #[serde(skip_serializing_if = "is_zero")]
    pub stolen_ns: u64,
    /// `waits` or `full`.
    pub tier: String,
    /// Whether the recording was finished (and not cut off, or damaged).
    pub complete: bool,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}
