//! Responses that were under way when the recording began, or when it ended: of the first no
//! request is known, and of the last no end. What they are is measured when somebody looks: the
//! bytes that the clients got between two looks, and what held back the others.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;
use whywait_events::{Ns, ResponseLook};

use crate::model::Model;
use crate::rows::Rows;

/// The looks at responses.
#[derive(Debug, Clone, Default)]
pub struct ResponseLooks(Rows<ResponseLook, 100_000>);

/// Responses that were under way when the recording began, or when it ended. What a server sends
/// unasked, as events, is one, too.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct OngoingResponses {
    /// How many.
    pub count: u64,
    /// Of these: were asked for before the recording began, and are in no latency.
    pub before: u64,
    /// Of these: bytes went to the client after the last look but one, or were still on their way
    /// at the last.
    pub to_the_end: u64,
    /// For how long the oldest had lasted, with what was before the recording.
    pub oldest_ns: u64,
    /// Bytes that the clients acknowledged while they were looked at.
    pub bytes: u64,
    /// For how long they were looked at, together. The next four sum to that.
    pub ns: u64,
    /// Of that: bytes were held back because the client did not read (its window was closed).
    pub client_ns: u64,
    /// … because the server's send buffer was full, and the client had room.
    pub buffer_ns: u64,
    /// … bytes were on their way, and nothing else held back others.
    pub network_ns: u64,
    /// … the client had all that the server had written.
    pub server_ns: u64,
    /// How many percent of the recording the threads that wrote last were on a CPU, on average;
    /// `None`: none is known.
    pub writers_on_cpu_percent: Option<u64>,
}

/// One of them.
#[derive(Debug, Default)]
struct Ongoing {
    socket: u64,
    began_ns: Ns,
    from_ns: Ns,
    to_ns: Ns,
    before: bool,
    to_the_end: bool,
    bytes: u64,
    client_ns: u64,
    buffer_ns: u64,
    network_ns: u64,
    writers: BTreeSet<(u32, u32)>,
}

impl ResponseLooks {
    /// Takes a row of the recording.
    pub fn add(&mut self, row: &ResponseLook) {
        self.0.push(row.clone());
    }

    pub(crate) fn left_out(&self) -> u64 {
        self.0.left_out()
    }

    /// The threads of which each alone wrote one response for as long as it was looked at, and no
    /// other one: on which connection, and from when until when.
    pub fn writers(&self) -> BTreeMap<u32, (u64, Ns, Ns)> {
        let mut by_writer: BTreeMap<u32, Vec<(u64, Ns, Ns)>> = BTreeMap::new();
        for one in self.ongoing() {
            if let [(_, tid)] = Vec::from_iter(&one.writers)[..] {
                let wrote = (one.socket, one.from_ns, one.to_ns);
                by_writer.entry(*tid).or_default().push(wrote);
            }
        }
        let one = |(tid, wrote): (u32, Vec<(u64, Ns, Ns)>)| match wrote[..] {
            [only] => Some((tid, only)),
            _ => None,
        };
        by_writer.into_iter().filter_map(one).collect()
    }

    /// The responses that began before the recording, or were not over in the end.
    fn ongoing(&self) -> impl Iterator<Item = Ongoing> {
        let mut of_requests: BTreeMap<(u64, u32), Vec<&ResponseLook>> = BTreeMap::new();
        for row in self.0.iter() {
            of_requests
                .entry((row.socket, row.seq))
                .or_default()
                .push(row);
        }
        of_requests.into_values().map(|rows| Ongoing::of(&rows))
    }
}

impl Ongoing {
    fn of(rows: &[&ResponseLook]) -> Self {
        let mut one = Self {
            began_ns: Ns::MAX,
            from_ns: Ns::MAX,
            ..Self::default()
        };
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        for row in rows {
            one.socket = row.socket;
            // What the client has, was written by when it was sent last.
            let until_ns = match row.unacknowledged {
                0 => row.at_ns.saturating_sub(row.sent_ago_ns),
                _ => row.at_ns,
            };
            let until_ns = until_ns.max(row.since_ns);
            let looked_ns = until_ns - row.since_ns;
            let asked_ns = match row.asked_ago_ns {
                0 => row.since_ns,
                ago_ns => row.at_ns.saturating_sub(ago_ns),
            };
            one.began_ns = one.began_ns.min(asked_ns);
            one.from_ns = one.from_ns.min(row.since_ns);
            one.to_ns = one.to_ns.max(until_ns);
            one.before |= row.seq == 0;
            one.to_the_end |= row.last;
            add(&mut one.bytes, row.acknowledged);
            // These come by steps of a clock: together they are no more than there was.
            let mut left_ns = looked_ns;
            for (sum, ns) in [
                (&mut one.client_ns, row.window_ns),
                (&mut one.buffer_ns, row.buffer_ns),
                (&mut one.network_ns, row.network_ns),
            ] {
                let ns = ns.min(left_ns);
                left_ns -= ns;
                add(sum, ns);
            }
            if row.tid != 0 {
                one.writers.insert((row.tgid, row.tid));
            }
        }
        one
    }

    /// For how long it was looked at.
    fn looked_ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }
}

impl Model {
    /// The responses that were under way when the recording began, or when it ended, for the
    /// recording's threshold at least; `None`: there were none. Those that were over when somebody
    /// looked for the second time are not among them: for how long they went on is not known.
    pub fn responses_under_way(&self) -> Option<OngoingResponses> {
        let mut sum = OngoingResponses::default();
        let mut writers = BTreeSet::new();
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        let least_ns = self.threshold_ns().max(1);
        for one in self.responses.ongoing() {
            let ns = one.looked_ns();
            if ns < least_ns || !(one.before || one.to_the_end) {
                continue;
            }
            add(&mut sum.count, 1);
            add(&mut sum.before, u64::from(one.before));
            add(&mut sum.to_the_end, u64::from(one.to_the_end));
            sum.oldest_ns = sum.oldest_ns.max(one.to_ns.saturating_sub(one.began_ns));
            add(&mut sum.bytes, one.bytes);
            add(&mut sum.ns, ns);
            add(&mut sum.client_ns, one.client_ns);
            add(&mut sum.buffer_ns, one.buffer_ns);
            add(&mut sum.network_ns, one.network_ns);
            writers.extend(one.writers);
        }
        let held_ns = [sum.client_ns, sum.buffer_ns, sum.network_ns]
            .into_iter()
            .fold(0, u64::saturating_add);
        sum.server_ns = sum.ns.saturating_sub(held_ns);
        sum.writers_on_cpu_percent = self.on_cpu_percent(&writers);
        (sum.count > 0).then_some(sum)
    }

    /// How many percent of the recording these threads were on a CPU, on average.
    fn on_cpu_percent(&self, threads: &BTreeSet<(u32, u32)>) -> Option<u64> {
        let used = threads.iter().filter_map(|one| self.cpu.threads.get(one));
        let used_ns: Vec<u64> = used.map(|used| used.on_cpu_ns).collect();
        let watched_ns = self.end_ns.saturating_sub(self.meta.started_ns);
        let all_ns = watched_ns.saturating_mul(used_ns.len() as u64);
        let used_ns = used_ns.into_iter().fold(0, u64::saturating_add);
        (u128::from(used_ns) * 100)
            .checked_div(u128::from(all_ns))
            .map(|percent| percent.min(100) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::Script;

    const S: u64 = 1_000_000_000;

    /// A look at `at_s` at what was asked for 9 s before the recording.
    fn look(at_s: u64, acknowledged: u64, unacknowledged: u32) -> ResponseLook {
        ResponseLook {
            since_ns: at_s.saturating_sub(2) * S,
            at_ns: at_s * S,
            last: at_s == 4,
            socket: 5,
            acknowledged,
            unacknowledged,
            ..ResponseLook::default()
        }
    }

    fn under_way(looks: &[ResponseLook]) -> Option<OngoingResponses> {
        let mut script = Script::new();
        looks.iter().for_each(|look| {
            script.response(look);
        });
        script.model().responses_under_way()
    }

    #[test]
    fn a_client_that_does_not_read_is_the_limit() {
        let held = |look: ResponseLook| ResponseLook {
            window_ns: look.at_ns - look.since_ns,
            asked_ago_ns: look.at_ns + S,
            ..look
        };
        let looks = [look(0, 0, 900), look(2, 4000, 900), look(4, 4000, 900)];
        let found = under_way(&looks.map(held)).expect("one");
        let expected = OngoingResponses {
            count: 1,
            before: 1,
            to_the_end: 1,
            oldest_ns: 4 * S,
            bytes: 8000,
            ns: 4 * S,
            client_ns: 4 * S,
            ..OngoingResponses::default()
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn a_server_that_writes_bit_by_bit_is_the_limit() {
        let sent = |look: ResponseLook| ResponseLook {
            network_ns: S / 2,
            sent_ago_ns: S / 10,
            ..look
        };
        let looks = [look(2, 4000, 0), look(4, 4000, 0)];
        let found = under_way(&looks.map(sent)).expect("one");
        assert_eq!(found.ns, 39 * S / 10);
        assert_eq!((found.network_ns, found.server_ns), (S, 29 * S / 10));
        assert_eq!(found.count, 1);
    }

    #[test]
    fn what_was_on_its_way_for_a_moment_is_none() {
        let at_once = ResponseLook {
            sent_ago_ns: 2 * S,
            ..look(2, 900, 0)
        };
        assert_eq!(under_way(&[look(0, 0, 900), at_once]), None);
        assert_eq!(under_way(&[]), None);
    }

    #[test]
    fn one_that_was_asked_for_and_answered_meanwhile_is_a_request_like_others() {
        let asked = |look: ResponseLook| ResponseLook { seq: 3, ..look };
        let looks = [look(2, 900, 900)].map(asked);
        assert_eq!(under_way(&looks), None);
        let looks = [look(2, 900, 900), look(4, 900, 900)].map(asked);
        let found = under_way(&looks).expect("one");
        assert_eq!((found.before, found.to_the_end), (0, 1));
    }

    #[test]
    fn forged_looks_overflow_nothing() {
        let forged = ResponseLook {
            at_ns: u64::MAX,
            acknowledged: u64::MAX,
            unacknowledged: u32::MAX,
            asked_ago_ns: u64::MAX,
            window_ns: u64::MAX,
            buffer_ns: u64::MAX,
            network_ns: u64::MAX,
            ..look(0, 0, 0)
        };
        let others = ResponseLook {
            socket: 6,
            ..forged.clone()
        };
        let found = under_way(&[forged.clone(), forged, others]).expect("two");
        assert_eq!((found.count, found.bytes), (2, u64::MAX));
    }

    #[test]
    fn who_writes_one_response_and_no_other_is_its_writer() {
        let mut looks = ResponseLooks::default();
        for (tid, socket) in [(1, 5), (2, 6), (3, 7), (3, 8)] {
            for at_s in [2, 4] {
                looks.add(&ResponseLook {
                    tid,
                    socket,
                    ..look(at_s, 100, 10)
                });
            }
        }
        // Another thread goes on with it.
        looks.add(&ResponseLook {
            tid: 4,
            socket: 6,
            ..look(6, 100, 10)
        });
        assert_eq!(looks.writers(), [(1, (5, 0, 4 * S))].into());
    }
}
