//! Connections that carry several calls at a time, each of which need not wait for the reply to the
//! one before it: a client that pipelines (Redis), or that gives each call a number (HTTP/2), or a
//! proxy that writes what several clients ask in one go. What
//! is recorded as a call there is several, and of as many requests.

use std::collections::{BTreeMap, BTreeSet};

use whywait_events::{Exchange, Ns};

/// So few calls show nothing.
const LEAST_CALLS: usize = 20;
/// In percent: in so many calls more was sent later on, before the reply …
const SENT_LATER: usize = 20;
/// … by so long. What is written in one go takes less, …
const LATER_NS: u64 = 100_000;
/// … and what is longer has to wait for room.
const IN_ONE_GO: u64 = 64 << 10;

/// What is written for several at once shows by the answers: in percent, so many follow on a reply
/// within one part in so many of the time from one to the next. By chance as many would.
const FOLLOW: usize = 90;
const UNLIKELY: u64 = 4;

/// Those among the sockets of a process, by its calls to peers of which most calls have a row, and
/// when requests were answered. Where each request has a call of its own there are none: a body
/// that comes in pieces looks the same.
pub(super) fn sockets<'a>(
    calls: impl Iterator<Item = &'a Exchange>,
    answers: &[Ns],
) -> BTreeSet<u64> {
    let (mut all, mut counts) = (0, BTreeMap::<u64, (usize, usize)>::new());
    let mut of_peer: BTreeMap<u32, Vec<&Exchange>> = BTreeMap::new();
    for call in calls {
        all += 1;
        of_peer.entry(call.peer).or_default().push(call);
        let (count, later) = counts.entry(call.socket).or_default();
        *count += 1;
        let sent_ns = call.last_send_ns.saturating_sub(call.first_send_ns);
        *later += usize::from(sent_ns >= LATER_NS && call.bytes_out < IN_ONE_GO);
    }
    if answers.len() * 2 < all * 3 {
        return BTreeSet::new();
    }
    let later = counts
        .into_iter()
        .filter(|(_, (count, later))| *count >= LEAST_CALLS && later * 100 >= count * SENT_LATER);
    let mut shared: BTreeSet<u64> = later.map(|(socket, _)| socket).collect();
    let followed = of_peer
        .values()
        .filter(|calls| answers_follow(calls, answers));
    shared.extend(followed.flatten().map(|call| call.socket));
    shared
}

fn answers_follow(calls: &[&Exchange], answers: &[Ns]) -> bool {
    let read = calls
        .iter()
        .flat_map(|call| [call.first_read_ns, call.last_read_ns]);
    let mut read: Vec<Ns> = read.flatten().collect();
    read.sort_unstable();
    read.dedup();
    let (Some(first), Some(last)) = (read.first(), read.last()) else {
        return false;
    };
    let at_once_ns = (last - first) / read.len() as u64 / UNLIKELY;
    let follows = |answer_ns: &&Ns| {
        let after = read.partition_point(|read_ns| read_ns <= *answer_ns);
        let before = after.checked_sub(1).map(|at| read[at]);
        before.is_some_and(|read_ns| **answer_ns - read_ns <= at_once_ns)
    };
    let follow = answers.iter().filter(follows).count();
    calls.len() >= LEAST_CALLS && follow * 100 >= answers.len() * FOLLOW
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls on connection 7, of which each fifth had more sent so much later.
    fn calls(later_ns: u64) -> Vec<Exchange> {
        let call = |n: u64| Exchange {
            socket: 7,
            first_send_ns: 1_000_000 * n,
            last_send_ns: 1_000_000 * n + if n.is_multiple_of(5) { later_ns } else { 0 },
            bytes_out: 300,
            ..Exchange::default()
        };
        (0..40).map(call).collect()
    }

    /// So many answers, each so long after a reply that is read once every millisecond.
    fn answers(count: u64, after_ns: u64) -> Vec<Ns> {
        (0..count)
            .map(|n| 1_000_000 * (n % 40) + 600_000 + after_ns)
            .collect()
    }

    #[test]
    fn answers_that_follow_on_replies_share_a_connection() {
        let mut calls = calls(0);
        for call in &mut calls {
            call.first_read_ns = Some(call.first_send_ns + 600_000);
        }
        let shared = |answers: &[Ns]| sockets(calls.iter(), answers).len();
        assert_eq!(shared(&answers(80, 200_000)), 1);
        assert_eq!(shared(&answers(80, 300_000)), 0, "at any time");
        assert_eq!(shared(&answers(59, 200_000)), 0, "each may have its own");
    }

    #[test]
    fn more_requests_than_calls_that_grow_share_a_connection() {
        let shared = |later_ns, answered| {
            let answers = answers(answered, 300_000);
            sockets(calls(later_ns).iter(), &answers).len()
        };
        assert_eq!(shared(LATER_NS, 60), 1);
        assert_eq!(shared(LATER_NS, 59), 0, "each may have its own");
        assert_eq!(shared(LATER_NS - 1, 60), 0, "written in one go");
        let few = calls(LATER_NS);
        assert_eq!(
            sockets(few[..LEAST_CALLS - 1].iter(), &answers(60, 300_000)).len(),
            0
        );
    }
}
