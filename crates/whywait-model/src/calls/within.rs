//! The calls that were made while a request was under way.

use schemars::JsonSchema;
use serde::Serialize;
use whywait_events::Exchange;

use super::links::{Link, LinkKind};
use crate::requests::RequestRef;

/// So many are shown: the longest.
const MAX_SHOWN: usize = 40;

/// The calls of a process that lie within a request, from its reading to its answer, and are or may
/// be its own: only slow ones are known. The field names are those of the JSON report (schema 1).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct CallsWithin {
    /// Whether all of them are the request's own. Else others' may be among them: each says.
    pub own: bool,
    /// How many there are.
    pub count: u64,
    /// The longest of them, in order.
    pub longest: Vec<CallWithin>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct CallWithin {
    /// What shows that it is the request's own; absent: it may be another's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkKind>,
    /// Whom it asked. Hostile.
    pub peer: String,
    /// What it asked for; absent: that is not known. Hostile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// From the request's arrival to the first byte sent.
    pub at_ns: u64,
    /// From the first byte sent to the last byte of the reply read.
    pub ns: u64,
    /// Of that, until the reply was in the kernel.
    pub with_peer_ns: u64,
    /// Bytes sent.
    pub bytes_out: u64,
}

impl RequestRef<'_> {
    /// The calls within it; `None`: there are none, as far as known.
    pub(crate) fn calls_within(self) -> Option<CallsWithin> {
        let (from_ns, to_ns) = (self.recv_ns?, self.answered_ns()?);
        let all = self.model().exchanges();
        let first = all.partition_point(|call| call.first_send_ns < from_ns);
        let within = all[first..]
            .iter()
            .take_while(|call| call.first_send_ns <= to_ns)
            .enumerate();
        let index = self.index();
        let mut calls: Vec<(&Exchange, Option<LinkKind>)> = within
            .filter_map(|(at, call)| match self.model().links.of_call(first + at) {
                Link::Certain(request, kind) => (request == index).then_some((call, Some(kind))),
                Link::Undecided => {
                    let lies_within = call.last_read_ns.is_some_and(|ns| ns <= to_ns);
                    (lies_within && call.tgid == self.tgid).then_some((call, None))
                }
                Link::Nobody => None,
            })
            .collect();
        if calls.is_empty() {
            return None;
        }
        let own = calls.iter().all(|(_, link)| link.is_some());
        let count = calls.len() as u64;
        calls.sort_by_key(|(call, _)| std::cmp::Reverse(took_ns(call)));
        calls.truncate(MAX_SHOWN);
        calls.sort_by_key(|(call, _)| (call.first_send_ns, call.socket, call.seq));
        Some(CallsWithin {
            own,
            count,
            longest: calls
                .into_iter()
                .map(|(call, link)| self.call_within(call, link))
                .collect(),
        })
    }

    fn call_within(self, call: &Exchange, link: Option<LinkKind>) -> CallWithin {
        let came_ns = call
            .arrived_ns
            .or(call.first_read_ns)
            .unwrap_or(call.first_send_ns);
        CallWithin {
            link,
            peer: self.model().name_of_peer(call.peer),
            name: self.model().name_of_call(call).map(str::to_owned),
            at_ns: call.first_send_ns.saturating_sub(self.ready_ns),
            ns: took_ns(call),
            with_peer_ns: came_ns.saturating_sub(call.first_send_ns),
            bytes_out: call.bytes_out,
        }
    }
}

fn took_ns(call: &Exchange) -> u64 {
    let read_ns = call.last_read_ns.unwrap_or(call.first_send_ns);
    read_ns.saturating_sub(call.first_send_ns)
}
