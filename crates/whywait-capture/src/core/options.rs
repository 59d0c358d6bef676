//! How to record.

use std::time::SystemTime;

/// How to record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Sleeps, busy intervals and requests below this are only counted, nanoseconds.
    pub threshold_ns: u64,
    /// How much of a stack to copy for unwinding, bytes; between 2048 and 32768.
    pub stack_bytes: u32,
    /// Samples a second and CPU; 0: none.
    pub sample_hz: u32,
    /// Look at all that is looked at now and then, and close a segment of the recording, after this
    /// long, nanoseconds. What is not closed is lost if whywait is killed.
    pub segment_ns: u64,
    /// … but close one only at every so many looks: fewer and larger files.
    pub looks_in_segment: u32,
    /// Trace system calls for a moment now and then, also where nothing suggests a look.
    pub full: bool,
    /// What requests and calls are called is wanted.
    pub names: NamesWanted,
    /// HTTP/2 in TLS is wanted, too: probes are set at the functions of the target's TLS libraries.
    pub tls: bool,
    /// Measure what the BPF programs cost, with the kernel's run-time statistics (which cost
    /// something themselves).
    pub measure_cost: bool,
    /// For benchmarks: the hooks that run for each event do nothing, so that what they cost is the
    /// kernel's.
    pub hooks_do_nothing: bool,
    /// For tests: a process from which no switch is seen, as on kernels that do not trace what some
    /// processes do.
    pub untraced_process: Option<u32>,
    /// For tests: functions of the kernel that it refuses to have called.
    pub refused_functions: Vec<&'static str>,
    /// For tests: tracepoints that the kernel does not have.
    pub absent_tracepoints: Vec<&'static str>,
    /// The target does nothing before it is watched: it waits to begin.
    pub target_waits: bool,
    /// Load the programs, but attach only at this time.
    pub begin_at: Option<SystemTime>,
    /// The user to whom the recording belongs.
    pub owner: Option<(u32, u32)>,
}

/// Which names are wanted. They are made of the first bytes of requests and calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NamesWanted {
    /// Method and path of HTTP.
    pub routes: bool,
    /// What databases are asked.
    pub statements: bool,
}

impl NamesWanted {
    /// Whether any are.
    pub fn any(self) -> bool {
        self.routes || self.statements
    }
}

/// Shorter sleeps end before a sweep would see them.
const SWEEP_MIN_NS: u64 = 4_000_000;

impl Options {
    /// The sweep reads the stack of a thread that has slept for this long.
    pub(crate) fn sweep_min_ns(&self) -> u64 {
        self.threshold_ns.max(SWEEP_MIN_NS)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            threshold_ns: 1_000_000,
            stack_bytes: 8192,
            sample_hz: 199,
            segment_ns: 2_000_000_000,
            looks_in_segment: 1,
            full: false,
            names: NamesWanted::default(),
            tls: false,
            measure_cost: false,
            hooks_do_nothing: false,
            untraced_process: None,
            refused_functions: Vec::new(),
            absent_tracepoints: Vec::new(),
            begin_at: None,
            target_waits: false,
            owner: None,
        }
    }
}
