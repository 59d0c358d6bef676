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
    answers: &[Answered],
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

/// When a request was read, 0: not known, and when its answer began.
pub(super) type Answered = (Ns, Ns);

fn answers_follow(calls: &[&Exchange], answers: &[Answered]) -> bool {
    // With the place of the call that each may be the reply to.
    let replies = calls.iter().enumerate().flat_map(|(at, call)| {
        let read = [call.first_read_ns, call.last_read_ns];
        read.into_iter().flatten().map(move |ns| (ns, at))
    });
    let mut replies: Vec<(Ns, usize)> = replies.collect();
    replies.sort_unstable();
    replies.dedup();
    let (Some(first), Some(last)) = (replies.first(), replies.last()) else {
        return false;
    };
    let at_once_ns = (last.0 - first.0) / replies.len() as u64 / UNLIKELY;
    let followed = |(read_ns, answer_ns): &Answered| {
        let after = replies.partition_point(|reply| reply.0 <= *answer_ns);
        let just_before = replies[..after].iter().rev();
        let mut just_before = just_before.take_while(|reply| answer_ns - reply.0 <= at_once_ns);
        just_before.find(|(_, at)| *read_ns <= calls[*at].last_send_ns)
    };
    let mut carried: Vec<Carried> = calls.iter().map(|call| (0, call.bytes_out)).collect();
    let mut follow = 0;
    for (_, at) in answers.iter().filter_map(followed) {
        carried[*at].0 += 1;
        follow += 1;
    }
    let many = calls.len() >= LEAST_CALLS && follow * 100 >= answers.len() * FOLLOW;
    many && longer_for_more(carried)
}

/// How many answers followed on a call's reply, and how many bytes it has.
type Carried = (u64, u64);

/// Whether calls on which more answers follow are longer: what is written for several at once is.
/// By half as much at least as if each request's part were as long as any other's. Else each is one
/// call, whatever its length, and the others wait for what its end makes free. Where as many follow
/// on each it does not show.
fn longer_for_more(mut calls: Vec<Carried>) -> bool {
    calls.retain(|(answers, _)| *answers > 0);
    calls.sort_by_key(|(answers, _)| *answers);
    let half = calls.len() / 2;
    let sums = |calls: &[Carried]| {
        let sum = |of: fn(&Carried) -> u64| calls.iter().map(of).map(u128::from).sum::<u128>();
        (sum(|one| one.0), sum(|one| one.1))
    };
    let (few, more) = (sums(&calls[..half]), sums(&calls[calls.len() - half..]));
    2 * more.1.saturating_sub(few.1) * few.0 >= (more.0 - few.0) * few.1
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

    /// So many answers, each so long after a reply that is read once every millisecond. Their
    /// requests were read before all calls.
    fn answers(count: u64, after_ns: u64) -> Vec<Answered> {
        (0..count)
            .map(|n| (0, 1_000_000 * (n % 40) + 600_000 + after_ns))
            .collect()
    }

    /// Calls that carry one to three each, some 600 us after which that many are answered, 80 in
    /// all. Their requests were read before all calls.
    fn answered(bytes_out: fn(u64) -> u64, after_ns: u64) -> (Vec<Exchange>, Vec<Answered>) {
        let mut calls = calls(0);
        let mut answers = Vec::new();
        for (n, call) in (0..).zip(&mut calls) {
            let read_ns = call.first_send_ns + 600_000;
            call.first_read_ns = Some(read_ns);
            call.bytes_out = bytes_out(n);
            answers.extend((0..=n % 3).map(|_| (0, read_ns + after_ns)));
        }
        answers.push((0, 40_000_000));
        (calls, answers)
    }

    /// A hundred bytes for each.
    fn in_each(n: u64) -> u64 {
        100 * (1 + n % 3)
    }

    #[test]
    fn answers_that_follow_on_replies_share_a_connection() {
        let shared = |after_ns, count: usize| {
            let (calls, answers) = answered(in_each, after_ns);
            sockets(calls.iter(), &answers[..count]).len()
        };
        assert_eq!(shared(200_000, 80), 1);
        assert_eq!(shared(300_000, 80), 0, "at any time");
        assert_eq!(shared(200_000, 59), 0, "each may have its own");
    }

    #[test]
    fn a_call_is_for_no_request_that_was_read_after_it_had_been_sent() {
        // Nearly a tenth of them, or more, was read just after the call was sent: it waited for
        // something else that the call's end made free.
        let shared = |late: usize| {
            let (calls, mut answers) = answered(in_each, 0);
            for (read_ns, answer_ns) in answers.iter_mut().skip(1).step_by(9).take(late) {
                *read_ns = *answer_ns - 599_999;
            }
            sockets(calls.iter(), &answers).len()
        };
        assert_eq!(shared(7), 1);
        assert_eq!(shared(8), 0);
    }

    #[test]
    fn calls_of_any_length_that_are_no_longer_for_more_carry_one_each() {
        let shared = |bytes_out| {
            let (calls, answers) = answered(bytes_out, 0);
            sockets(calls.iter(), &answers).len()
        };
        assert_eq!(shared(|n| 100 + in_each(n)), 1, "with a head");
        assert_eq!(shared(|_| 100), 0);
        assert_eq!(shared(|n| 100 * (1 + n / 3 % 4)), 0, "of any length");
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
