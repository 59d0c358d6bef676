//! The accept queues of the target's listeners: how many connections wait in each for somebody to
//! accept them, when whywait attaches, when a segment is closed and in the end.

use std::collections::HashMap;
use std::fs;

use whywait_events::{AcceptQueue, Event};

use crate::core::collector::{Collector, Keeper};
use crate::core::error::CaptureError;
use crate::core::iterate::{self, Scope};
use crate::core::kernel;
use crate::core::programs::Programs;
use crate::core::records::{Record, decode};
use crate::core::shared::Shared;

pub(crate) const COLLECTOR: Collector = Collector {
    keeper: |_| Box::new(Before::default()),
    ..Collector::NONE
};

/// What the kernel had counted when the recording began.
#[derive(Debug, Default)]
struct Before {
    looked: bool,
    /// What listeners had dropped, by their names. Those that are missing were made since.
    dropped: HashMap<u64, u32>,
    /// What had happened in the network namespace of the target's first process.
    namespace: Option<Namespace>,
}

/// What a network namespace counts of all its listeners; 0: not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Namespace {
    /// How often a connection found an accept queue full.
    overflows: u64,
    /// SYNs that were answered with a cookie, because too many had been answered before and were
    /// not followed by anything.
    cookies: u64,
    /// SYNs that were dropped for that.
    refused: u64,
}

impl Keeper for Before {
    /// Records the accept queues as they are now.
    fn look(&mut self, programs: &mut Programs, shared: &mut Shared) -> Result<(), CaptureError> {
        let listeners = |source| CaptureError::Iterate {
            what: "listeners",
            source,
        };
        let at_ns = kernel::now_ns();
        let first = !self.looked;
        self.looked = true;
        let mut buffer = Vec::new();
        for tgid in shared.processes.all() {
            let before = &mut self.namespace;
            let namespace_before = *before.get_or_insert_with(|| namespace_of(tgid));
            match iterate::attach(&programs.skel.progs.accept_queues, Scope::Process(tgid)) {
                Ok(link) => iterate::read(&link, &mut buffer).map_err(listeners)?,
                Err(_) if !whywait_target::alive(tgid) => continue,
                Err(error) => return Err(listeners(error)),
            }
            let mut bytes = buffer.as_slice();
            let mut descriptors = None;
            let mut namespace = None;
            while let Some((record, size)) = decode(bytes) {
                bytes = &bytes[size..];
                let Record::AcceptQueue(record) = record else {
                    continue;
                };
                // Of those with an empty queue nobody asks.
                let (open, limit) = match record.queued {
                    0 => (0, 0),
                    _ => *descriptors.get_or_insert_with(|| descriptors_of(tgid)),
                };
                if first {
                    self.dropped.insert(record.listener, record.dropped);
                }
                let dropped_before = self.dropped.get(&record.listener).copied();
                let now = *namespace.get_or_insert_with(|| namespace_of(tgid));
                shared.output.write(&Event::AcceptQueue(AcceptQueue {
                    at_ns,
                    tgid: record.tgid,
                    fd: record.fd,
                    listener: record.listener,
                    local_port: record.local_port,
                    queued: record.queued,
                    limit: record.limit,
                    dropped: record.dropped.wrapping_sub(dropped_before.unwrap_or(0)),
                    defers: record.defers != 0,
                    overflows: now.overflows.saturating_sub(namespace_before.overflows),
                    syn_cookies: now.cookies.saturating_sub(namespace_before.cookies),
                    syns_refused: now.refused.saturating_sub(namespace_before.refused),
                    descriptors: open,
                    descriptors_limit: limit,
                }))?;
            }
        }
        Ok(())
    }
}

/// How many descriptors a process has open, and how many it may have; 0: not known.
fn descriptors_of(tgid: u32) -> (u64, u64) {
    // The size of the folder is their number since Linux 6.2.
    let open = fs::metadata(format!("/proc/{tgid}/fd")).map_or(0, |folder| folder.len());
    let limits = fs::read_to_string(format!("/proc/{tgid}/limits")).unwrap_or_default();
    (open, limit_in(&limits).unwrap_or(0))
}

/// What the network namespace of a process counts.
fn namespace_of(tgid: u32) -> Namespace {
    let counters = fs::read_to_string(format!("/proc/{tgid}/net/netstat")).unwrap_or_default();
    let of = |name| counter_in(&counters, name).unwrap_or(0);
    Namespace {
        overflows: of("ListenOverflows"),
        cookies: of("SyncookiesSent"),
        refused: of("TCPReqQFullDrop"),
    }
}

/// A counter in the text of /proc/PID/net/netstat: a line of names, and one of values.
fn counter_in(counters: &str, wanted: &str) -> Option<u64> {
    let mut lines = counters
        .lines()
        .filter(|line| line.starts_with("TcpExt:"))
        .map(str::split_whitespace);
    let names = lines.next()?;
    let (_, value) = names.zip(lines.next()?).find(|(name, _)| *name == wanted)?;
    value.parse().ok()
}

/// The soft limit of open files in the text of /proc/PID/limits.
fn limit_in(limits: &str) -> Option<u64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_open_files_is_the_soft_one() {
        let limits = "Max processes     96043    96043    processes \n\
                      Max open files    1024     524288   files     \n";
        assert_eq!(limit_in(limits), Some(1024));
        assert_eq!(limit_in("Max open files  unlimited unlimited files"), None);
        assert_eq!(limit_in(""), None);
    }

    #[test]
    fn counters_stand_below_their_names() {
        let counters = "TcpExt: SyncookiesSent ListenOverflows ListenDrops\n\
                        TcpExt: 1 23 45\n\
                        IpExt: ListenOverflows\nIpExt: 6\n";
        assert_eq!(counter_in(counters, "ListenOverflows"), Some(23));
        assert_eq!(counter_in(counters, "SyncookiesSent"), Some(1));
        assert_eq!(counter_in(counters, "TCPReqQFullDrop"), None);
        assert_eq!(
            counter_in("TcpExt: ListenOverflows\n", "ListenOverflows"),
            None
        );
        assert_eq!(counter_in("", "ListenOverflows"), None);
    }

    #[test]
    fn a_process_has_descriptors_and_a_limit() {
        let (open, limit) = descriptors_of(std::process::id());
        assert!(0 < open && open <= limit, "{open} of {limit}");
    }
}
