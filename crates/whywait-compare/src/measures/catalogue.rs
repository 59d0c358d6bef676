//! What a budget may name: measures with their statistics and units.

use super::Unit;

/// A measure that a budget may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedMeasure {
    /// Its name in a budget.
    pub name: &'static str,
    /// The statistics that there are of it. The first is the one that is meant when none is named.
    pub stats: &'static [&'static str],
    /// The unit of each of them, but for `share`.
    pub unit: Unit,
    /// What it is, in words.
    pub what: &'static str,
}

/// The measures that are of one of several: of which, comes after them.
pub const UPSTREAM: &str = "upstream";
/// … The other one.
pub const ROUTE: &str = "route";

const PART: &[&str] = &["mean", "p50", "p90", "p99", "max", "share"];

const fn part(name: &'static str, what: &'static str) -> NamedMeasure {
    NamedMeasure {
        name,
        stats: PART,
        unit: Unit::Ns,
        what,
    }
}

/// All of them, in the order in which they are listed.
pub const ALL: &[NamedMeasure] = &[
    NamedMeasure {
        name: "latency",
        stats: &["mean", "p50", "p90", "p99", "max"],
        unit: Unit::Ns,
        what: "a request, from its first byte in the kernel to the last byte of its response",
    },
    NamedMeasure {
        name: "requests",
        stats: &["rate"],
        unit: Unit::PerSecond,
        what: "requests answered a second",
    },
    NamedMeasure {
        name: "requests",
        stats: &["count"],
        unit: Unit::Count,
        what: "requests answered",
    },
    NamedMeasure {
        name: "requests",
        stats: &["late"],
        unit: Unit::Count,
        what: "requests still open at the end that have taken longer than answered ones do",
    },
    NamedMeasure {
        name: "cpu",
        stats: &["per-request"],
        unit: Unit::Ns,
        what: "CPU time of all threads, for each request",
    },
    NamedMeasure {
        name: "cpu",
        stats: &["serving"],
        unit: Unit::Ns,
        what: "CPU time of the serving thread, for each request",
    },
    NamedMeasure {
        name: "cpu",
        stats: &["cores"],
        unit: Unit::Count,
        what: "CPUs in use, on average",
    },
    part(
        "ready-unserved.stranded",
        "waiting unread, although a capable thread was idle",
    ),
    part(
        "ready-unserved.pool-busy",
        "waiting unread: all capable threads were busy",
    ),
    part(
        "ready-unserved.wakeup",
        "waiting unread: the reader was being woken",
    ),
    part("on-cpu", "the serving thread ran"),
    part("runnable", "it waited for a CPU"),
    part("lock", "it waited for a lock"),
    part("thread", "it waited for another thread"),
    part("disk", "it waited for a device or filesystem"),
    part("network", "it waited for the network or another process"),
    part("timer", "it waited for a time to come"),
    part("uring", "it waited in io_uring_enter"),
    part("page-fault", "it waited for a page"),
    part("unknown", "none of these"),
    NamedMeasure {
        name: "calls",
        stats: &["per-request"],
        unit: Unit::Count,
        what: "calls of the target to others, for each request",
    },
    NamedMeasure {
        name: "calls",
        stats: &["rate"],
        unit: Unit::PerSecond,
        what: "calls of the target to others a second",
    },
    NamedMeasure {
        name: UPSTREAM,
        stats: &["mean", "p50", "p99", "max"],
        unit: Unit::Ns,
        what: "a call to a peer, whose address comes next: upstream 127.0.0.1:5432 p99",
    },
    NamedMeasure {
        name: ROUTE,
        stats: &["p99", "max"],
        unit: Unit::Ns,
        what: "a request of a route, whose name comes next: route \"GET /orders/{id}\" p99",
    },
    NamedMeasure {
        name: "futile-wakeups",
        stats: &["rate"],
        unit: Unit::PerSecond,
        what: "threads woken a second without making progress",
    },
    NamedMeasure {
        name: "in-flight",
        stats: &["mean", "max"],
        unit: Unit::Count,
        what: "io_uring operations in flight",
    },
    NamedMeasure {
        name: "operations",
        stats: &["rate"],
        unit: Unit::PerSecond,
        what: "io_uring operations submitted a second",
    },
    NamedMeasure {
        name: "operations",
        stats: &["kernel", "unreaped", "queued"],
        unit: Unit::Ns,
        what: "an io_uring operation's mean time: with the kernel; completed but not taken; \
               published but not submitted",
    },
    NamedMeasure {
        name: "cpu",
        stats: &["per-operation"],
        unit: Unit::Ns,
        what: "CPU time of all threads, for each io_uring operation, where there are no requests",
    },
];

/// The entry for a measure's statistic.
pub fn entry(name: &str, stat: &str) -> Option<&'static NamedMeasure> {
    ALL.iter()
        .find(|entry| entry.name == name && entry.stats.contains(&stat))
}

/// The unit of a statistic.
pub fn unit(entry: &NamedMeasure, stat: &str) -> Unit {
    if stat == "share" {
        Unit::Share
    } else {
        entry.unit
    }
}

#[cfg(test)]
mod tests {
    use super::super::requests::PARTS;
    use super::*;

    #[test]
    fn each_part_of_a_requests_time_is_listed() {
        for name in PARTS {
            assert!(entry(name, "p99").is_some(), "{name}");
        }
    }
}
