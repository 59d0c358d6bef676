//! The calls that were made while a request was under way.

use serde::Serialize;
use whywait_events::{Exchange, Ns};

use crate::requests::RequestRef;

/// So many are shown: the longest.
const MAX_SHOWN: usize = 40;

/// The calls of a process that lie within a request, from its reading to its answer: only slow ones
/// are known. The field names are those of the JSON report (schema 1).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct CallsWithin {
    /// Whether all of them are the request's own: its thread served nothing else meanwhile, or it
    /// was alone under way. Else they are those of all requests, and which is whose does not show.
    pub own: bool,
    /// How many there are.
    pub count: u64,
    /// The longest of them, in order.
    pub longest: Vec<CallWithin>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct CallWithin {
    /// Whom it asked. Hostile.
    pub peer: String,
    /// From the request's arrival to the first byte sent.
    pub at_ns: u64,
    /// From the first byte sent to the last byte of the reply read.
    pub ns: u64,
    /// Of that, until the reply was in the kernel.
    pub with_peer_ns: u64,
}

impl RequestRef<'_> {
    /// The calls within it; `None`: there are none, as far as known.
    pub(crate) fn calls_within(self) -> Option<CallsWithin> {
        let (from_ns, to_ns) = (self.recv_ns?, self.answered_ns()?);
        let all = self.model().exchanges();
        let first = all.partition_point(|call| call.first_send_ns < from_ns);
        let lies_within = |call: &&Exchange| {
            call.tgid == self.tgid && call.last_read_ns.is_some_and(|ns| ns <= to_ns)
        };
        let mut calls: Vec<&Exchange> = all[first..]
            .iter()
            .take_while(|call| call.first_send_ns <= to_ns)
            .filter(lies_within)
            .collect();
        if calls.is_empty() {
            return None;
        }
        let own = self.others_meanwhile(from_ns, to_ns);
        if own == Own::OfThread {
            calls.retain(|call| call.send_tid == self.recv_tid);
        }
        let count = calls.len() as u64;
        calls.sort_by_key(|call| std::cmp::Reverse(took_ns(call)));
        calls.truncate(MAX_SHOWN);
        calls.sort_by_key(|call| (call.first_send_ns, call.socket, call.seq));
        (count > 0).then(|| CallsWithin {
            own: own != Own::Unknown,
            count,
            longest: calls
                .into_iter()
                .map(|call| self.call_within(call))
                .collect(),
        })
    }

    /// Whose the calls are that were made between two moments.
    fn others_meanwhile(self, from_ns: Ns, to_ns: Ns) -> Own {
        let mut own = Own::All;
        for other in self.model().requests() {
            let itself = (other.socket, other.seq) == (self.socket, self.seq);
            let meanwhile = other.ready_ns < to_ns && other.until_ns() > from_ns;
            if itself || !meanwhile || other.tgid != self.tgid {
                continue;
            }
            if other.recv_tid == self.recv_tid || self.send_tid != self.recv_tid {
                return Own::Unknown;
            }
            own = Own::OfThread;
        }
        own
    }

    fn call_within(self, call: &Exchange) -> CallWithin {
        let peer = self.model().peer(call.peer);
        let came_ns = call
            .arrived_ns
            .or(call.first_read_ns)
            .unwrap_or(call.first_send_ns);
        CallWithin {
            peer: peer.map_or_else(|| "?".to_owned(), |peer| peer.to_string()),
            at_ns: call.first_send_ns.saturating_sub(self.ready_ns),
            ns: took_ns(call),
            with_peer_ns: came_ns.saturating_sub(call.first_send_ns),
        }
    }
}

/// Which calls of a process are a request's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Own {
    /// All: no other is under way.
    All,
    /// Those of its thread, which serves no other meanwhile.
    OfThread,
    Unknown,
}

fn took_ns(call: &Exchange) -> u64 {
    let read_ns = call.last_read_ns.unwrap_or(call.first_send_ns);
    read_ns.saturating_sub(call.first_send_ns)
}
