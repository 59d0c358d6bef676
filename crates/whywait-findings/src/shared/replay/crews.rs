//! Workers that read requests from sockets, one at a time, by what they read.

use crate::numbers::{CREW_OVERLAPPING, MOST, Share};
use std::collections::BTreeMap;

use whywait_model::RequestRef;

/// What each thread read, in order of reading.
pub(crate) type ReadByThread<'m> = BTreeMap<u32, Vec<RequestRef<'m>>>;

/// The workers that serve these requests, which came to one place, with what each read; `None`:
/// those who read them are none.
pub(crate) fn workers_of<'m>(
    requests: impl IntoIterator<Item = RequestRef<'m>>,
) -> Option<ReadByThread<'m>> {
    let mut in_hand = ReadByThread::new();
    let requests = requests.into_iter();
    for request in requests.filter(|request| request.recv_ns.is_some()) {
        in_hand.entry(request.recv_tid).or_default().push(request);
    }
    in_hand.remove(&0);
    for requests in in_hand.values_mut() {
        requests.sort_by_key(|request| request.recv_ns);
    }
    let none =
        in_hand.is_empty() || serve_several(&in_hand) || are_loops(&in_hand) || hand_over(&in_hand);
    (!none).then_some(in_hand)
}

/// Whether these threads have several requests in hand at a time, as event loops have. One that was
/// read and is never answered ends with its connection: a server that closes those that idle, when
/// it is short of workers (Apache's), reads what comes on them and drops it.
fn serve_several(in_hand: &ReadByThread<'_>) -> bool {
    let overlapping: usize = in_hand
        .values()
        .flat_map(|requests| requests.windows(2))
        .filter(|pair| pair[1].recv_ns < Some(pair[0].until_ns()))
        .count();
    let all: usize = in_hand.values().map(Vec::len).sum();
    Share::counted(overlapping, all).exceeds(*CREW_OVERLAPPING)
}

/// Whether these threads only read requests, which others answer.
fn hand_over(in_hand: &ReadByThread<'_>) -> bool {
    let answered = in_hand
        .values()
        .flatten()
        .filter(|request| request.is_answered());
    let (mut by_others, mut all) = (0, 0);
    for request in answered {
        by_others += usize::from(request.send_tid != request.recv_tid);
        all += 1;
    }
    Share::counted(by_others, all).exceeds(*MOST)
}

/// Whether it is one thread that alone polls what it reads: when it blocks, that is another
/// finding.
fn are_loops(in_hand: &ReadByThread<'_>) -> bool {
    let of_a_loop = |request: &RequestRef<'_>| {
        request.pool().is_some_and(|pool| {
            pool.epoll == request.epoll
                && pool.members.len() == 1
                && pool.members.contains_key(&request.recv_tid)
        })
    };
    in_hand.values().flatten().any(of_a_loop)
}
