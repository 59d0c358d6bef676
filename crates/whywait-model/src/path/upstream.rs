//! What a request's own calls say of its path. A thread that serves several requests does other
//! things while a call of this one is with its peer: then it was the peer that this one waited for.
//!
//! Only where the link is certain, and others were under way: what is done while there is no other
//! request may be this one's, alongside its call.

use whywait_events::{Ns, Part};

use super::PathStep;
use super::steps::step;
use crate::calls::linked::Linked;
use crate::requests::lives::Life;

/// So many intervals of a request are looked at, the longest.
const MAX_INTERVALS: usize = 256;

/// When a call was with its peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WithPeer {
    pub(crate) from_ns: Ns,
    pub(crate) to_ns: Ns,
    /// The peer's number.
    pub(crate) peer: u32,
    /// The thread that sent the call.
    pub(crate) tid: u32,
}

impl WithPeer {
    fn ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }
}

/// The same path, in order, with the request's calls in it.
pub(super) fn with_calls(model: &Linked, request: Life<'_>, steps: Vec<PathStep>) -> Vec<PathStep> {
    let intervals = apart(model.links.with_peers(model, request));
    if intervals.is_empty() {
        return steps;
    }
    let mut with_calls = Vec::with_capacity(steps.len());
    let mut next = 0;
    for step in steps {
        while intervals
            .get(next)
            .is_some_and(|one| one.to_ns <= step.from_ns)
        {
            next += 1;
        }
        let meanwhile = intervals[next..]
            .iter()
            .take_while(|one| one.from_ns < step.to_ns);
        // What nobody has read made no call.
        if step.part.is_none() {
            with_calls.push(step);
            continue;
        }
        let mut at_ns = step.from_ns;
        for one in meanwhile {
            let (from_ns, to_ns) = (one.from_ns.max(at_ns), one.to_ns.min(step.to_ns));
            if at_ns < from_ns {
                with_calls.push(piece(&step, at_ns, from_ns));
            }
            with_calls.push(called(&step, one, from_ns, to_ns));
            at_ns = to_ns;
        }
        if at_ns < step.to_ns || step.from_ns == step.to_ns {
            with_calls.push(piece(&step, at_ns, step.to_ns));
        }
    }
    joined(with_calls)
}

/// The intervals in order. Of two at a time the reply that came later was waited for.
fn apart(mut all: Vec<WithPeer>) -> Vec<WithPeer> {
    if all.len() > MAX_INTERVALS {
        all.sort_by_key(|one| std::cmp::Reverse(one.ns()));
        all.truncate(MAX_INTERVALS);
    }
    all.sort_by_key(|one| (one.from_ns, one.to_ns));
    let mut apart: Vec<WithPeer> = Vec::with_capacity(all.len());
    for mut one in all {
        if let Some(last) = apart.last_mut() {
            if one.to_ns <= last.to_ns {
                continue;
            }
            last.to_ns = last.to_ns.min(one.from_ns);
            if last.from_ns >= last.to_ns {
                one.from_ns = last.from_ns;
                apart.pop();
            }
        }
        if one.from_ns < one.to_ns {
            apart.push(one);
        }
    }
    apart
}

/// A piece of a step, with what others did meanwhile who had a lock.
fn piece(of: &PathStep, from_ns: Ns, to_ns: Ns) -> PathStep {
    let meanwhile = of.meanwhile.iter();
    let meanwhile = meanwhile.filter(|one| one.from_ns < to_ns && one.to_ns > from_ns);
    PathStep {
        from_ns,
        to_ns,
        meanwhile: meanwhile
            .map(|one| piece(one, one.from_ns.max(from_ns), one.to_ns.min(to_ns)))
            .collect(),
        ..of.clone()
    }
}

/// What a piece of a step is while a call was with its peer: a sleep for the network stays what it
/// was, and says for whom.
fn called(of: &PathStep, one: &WithPeer, from_ns: Ns, to_ns: Ns) -> PathStep {
    if of.part == Some(Part::Network) {
        return PathStep {
            peer: one.peer,
            ..piece(of, from_ns, to_ns)
        };
    }
    PathStep {
        peer: one.peer,
        by_call: true,
        ..step(Part::Network, one.tid, from_ns, to_ns, 0)
    }
}

/// What was several steps of other work is one wait for a peer.
fn joined(steps: Vec<PathStep>) -> Vec<PathStep> {
    let mut joined: Vec<PathStep> = Vec::with_capacity(steps.len());
    for step in steps {
        match joined.last_mut() {
            Some(last) if goes_on(last, &step) => last.to_ns = step.to_ns,
            _ => joined.push(step),
        }
    }
    joined
}

fn goes_on(last: &PathStep, step: &PathStep) -> bool {
    let same = (last.peer, last.tid) == (step.peer, step.tid);
    last.by_call && step.by_call && same && last.to_ns == step.from_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_peer(from_ns: Ns, to_ns: Ns, peer: u32) -> WithPeer {
        WithPeer {
            from_ns,
            to_ns,
            peer,
            tid: 1,
        }
    }

    fn spans(all: &[WithPeer]) -> Vec<(Ns, Ns, u32)> {
        let apart = apart(all.to_vec());
        let spans = apart.iter().map(|one| (one.from_ns, one.to_ns, one.peer));
        spans.collect()
    }

    #[test]
    fn of_two_calls_at_a_time_the_later_reply_is_waited_for() {
        assert_eq!(
            spans(&[with_peer(10, 50, 1), with_peer(20, 80, 2)]),
            [(10, 20, 1), (20, 80, 2)]
        );
        assert_eq!(
            spans(&[with_peer(10, 90, 1), with_peer(20, 80, 2)]),
            [(10, 90, 1)]
        );
        assert_eq!(
            spans(&[with_peer(10, 50, 1), with_peer(10, 80, 2)]),
            [(10, 80, 2)]
        );
        assert_eq!(spans(&[with_peer(10, 10, 1)]), []);
    }

    #[test]
    fn no_more_than_so_many_are_looked_at() {
        let all: Vec<WithPeer> = (0..1000)
            .map(|n| with_peer(10 * n, 10 * n + 5, 1))
            .collect();
        assert_eq!(apart(all).len(), MAX_INTERVALS);
    }
}
