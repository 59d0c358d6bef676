//! The accept queues of the target's listeners, over a recording.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use whywait_events::AcceptQueue as Look;

use crate::requests::retries::{self, Dropped};

/// The looks at each listener, of which the first and the last are kept, and those after which more
/// had been dropped.
#[derive(Debug, Clone, Default)]
pub struct AcceptQueues {
    /// By the listener's name and port.
    listeners: BTreeMap<(u64, u16), Listener>,
}

#[derive(Debug, Clone, Default)]
struct Listener {
    first: Look,
    /// The last, of each process that has it open.
    last: BTreeMap<u32, Look>,
    /// By when it was looked at: how many packets had been dropped since the recording began,
    /// because the queue was full.
    overflows: BTreeMap<u64, u32>,
    /// What was dropped may have been handshakes' ends.
    defers: bool,
    /// It was, at one of the looks.
    was_full: bool,
}

/// The accept queue of a listener.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct AcceptQueue {
    /// The port, `None` for unix sockets.
    pub port: Option<u16>,
    /// How many connections were in it when it was first looked at; `None`: that was the only look.
    pub queued_at_first: Option<u32>,
    /// How many when it was looked at last.
    pub queued: u32,
    /// How many may be: one more is not turned away yet.
    pub limit: u32,
    /// Connections, or packets of theirs, that the kernel dropped there meanwhile, for whatever
    /// reason: what ends a handshake is among them where a server wants connections with their
    /// first data only (TCP_DEFER_ACCEPT).
    pub dropped: u32,
    /// How many of these because the accept queue was full, at most. Where handshakes' ends are
    /// dropped it counts only if the queue was full when somebody looked: it may have been another
    /// listener's.
    pub overflows: u32,
    /// When these were.
    #[serde(skip)]
    pub when_dropped: Vec<Dropped>,
    /// SYNs that were answered with a cookie, in the whole network namespace.
    pub syn_cookies: u64,
    /// SYNs that were dropped because too many connections were half made there.
    pub syns_refused: u64,
    /// The processes that can accept from it.
    pub holders: Vec<Holder>,
}

/// A process that has a listener open.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Holder {
    /// Process id.
    pub pid: u32,
    /// Its descriptor of the listener.
    pub fd: u32,
    /// How many descriptors it had open; `None`: not known.
    pub descriptors: Option<u64>,
    /// How many it may have open; `None`: not known.
    pub descriptors_limit: Option<u64>,
}

impl AcceptQueues {
    /// Takes a row of the recording.
    pub fn add(&mut self, row: &Look) {
        let listener = self
            .listeners
            .entry((row.listener, row.local_port))
            .or_insert_with(|| Listener {
                first: row.clone(),
                last: BTreeMap::new(),
                overflows: BTreeMap::new(),
                defers: row.defers,
                was_full: false,
            });
        if row.at_ns < listener.first.at_ns {
            listener.first = row.clone();
        }
        listener.overflows.insert(row.at_ns, overflows(row));
        listener.was_full |= row.queued > row.limit;
        let last = listener.last.entry(row.tgid).or_default();
        if row.at_ns >= last.at_ns {
            *last = row.clone();
        }
    }

    /// How each was in the end.
    pub fn all(&self) -> impl Iterator<Item = AcceptQueue> {
        self.listeners.values().filter_map(Listener::over_all)
    }
}

impl Listener {
    fn over_all(&self) -> Option<AcceptQueue> {
        let at_ns = self.last.values().map(|look| look.at_ns).max()?;
        // Those that have closed it since are no longer among its holders.
        let holders: Vec<&Look> = self
            .last
            .values()
            .filter(|look| look.at_ns == at_ns)
            .collect();
        let last = holders.first()?;
        let known = |n: u64| (n != 0).then_some(n);
        Some(AcceptQueue {
            port: (last.local_port != 0).then_some(last.local_port),
            queued_at_first: (self.first.at_ns < at_ns).then_some(self.first.queued),
            queued: last.queued,
            limit: last.limit,
            dropped: last.dropped,
            syn_cookies: last.syn_cookies,
            syns_refused: last.syns_refused,
            overflows: if self.knows_why() { overflows(last) } else { 0 },
            when_dropped: self.when_dropped(),
            holders: holders
                .iter()
                .map(|look| Holder {
                    pid: look.tgid,
                    fd: look.fd,
                    descriptors: known(look.descriptors),
                    descriptors_limit: known(look.descriptors_limit),
                })
                .collect(),
        })
    }
}

impl Listener {
    /// Whether what was dropped there can be told to be for a full queue.
    fn knows_why(&self) -> bool {
        !self.defers || self.was_full
    }

    fn when_dropped(&self) -> Vec<Dropped> {
        // A listener that is made meanwhile has dropped nothing before.
        let mut before = (0, 0);
        let mut dropped = Vec::new();
        if !self.knows_why() {
            return dropped;
        }
        for (at_ns, packets) in &self.overflows {
            if *packets > before.1 {
                dropped.push(Dropped {
                    from_ns: before.0,
                    to_ns: *at_ns,
                    packets: packets - before.1,
                });
            }
            before = (*at_ns, *packets);
        }
        dropped
    }
}

/// What the listener dropped, as far as some queue of the namespace was full as often.
fn overflows(look: &Look) -> u32 {
    u32::try_from(look.overflows).map_or(look.dropped, |n| n.min(look.dropped))
}

impl Holder {
    /// Whether it cannot accept: it may not open another descriptor.
    pub fn is_out(&self) -> bool {
        let known = self.descriptors.zip(self.descriptors_limit);
        known.is_some_and(|(open, limit)| open >= limit)
    }
}

impl AcceptQueue {
    /// Whether there is no room for one more: the kernel drops those who come.
    pub fn is_full(&self) -> bool {
        self.queued > self.limit
    }

    /// What clients waited together for what a full queue dropped, in a recording that began and
    /// ended then: at least, at most; by how Linux tries again.
    pub fn clients_waited_ns(&self, begun_ns: u64, end_ns: u64) -> (u64, u64) {
        let dropped = self.when_dropped.iter().map(|one| Dropped {
            from_ns: one.from_ns.max(begun_ns).min(one.to_ns),
            ..*one
        });
        retries::waited_ns(&dropped.collect::<Vec<_>>(), end_ns)
    }

    /// Whether it deserves a look: connections were waiting in it, or were dropped, or more were
    /// begun than made.
    pub(crate) fn matters(&self) -> bool {
        self.queued > 0 || self.overflows > 0 || self.syn_cookies > 0 || self.syns_refused > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(at_ns: u64, tgid: u32, queued: u32, dropped: u32) -> Look {
        Look {
            at_ns,
            tgid,
            fd: 3,
            listener: 7,
            local_port: 80,
            queued,
            limit: 4,
            dropped,
            ..Look::default()
        }
    }

    #[test]
    fn the_first_and_the_last_look_count() {
        let mut queues = AcceptQueues::default();
        for row in [look(2, 1, 5, 30), look(1, 1, 1, 10), look(3, 1, 2, 45)] {
            queues.add(&row);
        }
        let queue = queues.all().next().expect("a queue");
        assert_eq!(
            (queue.queued_at_first, queue.queued, queue.dropped),
            (Some(1), 2, 45)
        );
        assert!(!queue.is_full() && queue.matters());
    }

    #[test]
    fn ends_of_handshakes_are_no_overflows() {
        let overflows = |defers: bool, queued: u32| {
            let mut queues = AcceptQueues::default();
            for (at_ns, queued, dropped) in [(1, 0, 0), (2, queued, 900), (3, 0, 950)] {
                queues.add(&Look {
                    overflows: u64::from(dropped / 100),
                    defers,
                    ..look(at_ns, 1, queued, dropped)
                });
            }
            let queue = queues.all().next().expect("a queue");
            assert_eq!(queue.dropped, 950);
            (queue.overflows, queue.when_dropped.len())
        };
        assert_eq!(overflows(false, 0), (9, 1));
        // Some other listener's, as far as anybody can tell.
        assert_eq!(overflows(true, 0), (0, 0));
        assert_eq!(overflows(true, 5), (9, 1));
    }

    #[test]
    fn a_process_that_has_closed_the_listener_does_not_hold_it() {
        let mut queues = AcceptQueues::default();
        for row in [look(1, 1, 0, 0), look(1, 2, 0, 0), look(2, 2, 5, 0)] {
            queues.add(&row);
        }
        let queue = queues.all().next().expect("a queue");
        let pids: Vec<u32> = queue.holders.iter().map(|holder| holder.pid).collect();
        assert_eq!(pids, [2]);
        assert!(queue.is_full());
    }
}
