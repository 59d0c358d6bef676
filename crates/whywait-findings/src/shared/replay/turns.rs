//! A thread that serves several requests at a time, by turns: a loop. Which request each of its
//! turns was for is not known, so its own time is what is replayed: without a piece of it, all that
//! follows is earlier by as much, until it has nothing left to do. Clients that wait for an answer
//! come sooner for the next one.

use std::collections::BTreeSet;

use whywait_events::{Ns, Wait};
use whywait_model::{Model, RequestRef, Thread};

use super::workers::{Worked, follows};
use crate::finding::RequestName;
use crate::numbers::TURN_AT_ONCE_NS;
use crate::shared::intervals::{Interval, in_proportion, merged, overlap_ns, sum};

/// What names a request: its socket and number, and when it came.
pub(crate) fn name(request: RequestRef<'_>) -> RequestName {
    (request.socket, request.seq, request.ready_ns)
}

/// When a loop had nothing to do.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// In order, apart.
    idle: Vec<Interval>,
}

/// When a loop read a request as soon as it came, and no other one lay there for longer.
fn reads_at_once<'a>(requests: &'a [RequestRef<'_>]) -> impl Iterator<Item = Ns> + 'a {
    // What came, and what was read, in order.
    let mut changes: Vec<(Ns, bool, usize)> = Vec::new();
    for (at, request) in requests.iter().enumerate() {
        changes.push((request.ready_ns, false, at));
        changes.push((request.served_ns(), true, at));
    }
    changes.sort_unstable();
    let mut unread: BTreeSet<(Ns, usize)> = BTreeSet::new();
    changes.into_iter().filter_map(move |(at_ns, read, at)| {
        let ready_ns = requests[at].ready_ns;
        if !read {
            unread.insert((ready_ns, at));
            return None;
        }
        unread.remove(&(ready_ns, at));
        let oldest_ns = unread.first().map_or(ready_ns, |(ns, _)| ready_ns.min(*ns));
        (at_ns.saturating_sub(oldest_ns) < *TURN_AT_ONCE_NS).then_some(at_ns)
    })
}

/// A piece of a loop's time that a fix takes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) from_ns: Ns,
    pub(crate) to_ns: Ns,
    /// So much of it.
    pub(crate) ns: u64,
}

/// A request that a loop serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Served {
    pub(crate) name: RequestName,
    pub(crate) ready_ns: Ns,
    pub(crate) read_ns: Ns,
    pub(crate) answered_ns: Ns,
    /// When it waited for others, whatever the loop did; in order, apart.
    pub(crate) calls: Vec<Interval>,
}

impl Served {
    /// As far as the loop has to do with it: until its answer begins, or the end of the recording.
    pub(crate) fn of(request: RequestRef<'_>) -> Self {
        Self {
            name: name(request),
            ready_ns: request.ready_ns,
            read_ns: request.served_ns(),
            answered_ns: request.waited_until_ns().max(request.served_ns()),
            calls: Vec::new(),
        }
    }

    /// The same, with when its calls were with their peers.
    pub(crate) fn with_calls(self, calls: &[Interval]) -> Self {
        Self {
            calls: merged(calls.to_vec()),
            ..self
        }
    }

    /// As a server sees it that takes one at a time.
    const fn worked(&self) -> Worked {
        Worked {
            socket: self.name.0,
            ready_ns: self.ready_ns,
            taken_ns: self.read_ns,
            answered_ns: self.answered_ns,
            free_ns: self.answered_ns,
        }
    }

    /// How much of an interval its calls were with their peers.
    fn called_ns(&self, within: Interval) -> u64 {
        sum(self.calls.iter().map(|call| overlap_ns(*call, within)))
    }
}

impl Turns {
    /// Of a thread that reads these requests, and waits for work where `waits` says so.
    ///
    /// Most of what a loop waits for its work is too short to be seen. But where nobody waits for
    /// it whom one would see, it is behind with nothing; nor is it where it reads at once what
    /// comes, and nothing older lies there.
    pub(crate) fn of(
        model: &Model,
        thread: &Thread,
        requests: &[RequestRef<'_>],
        waits: impl Fn(&Wait) -> bool,
    ) -> Self {
        let sleeps = thread.timeline.waits().iter().filter(|wait| waits(wait));
        let asleep = sleeps.map(|wait| {
            let woken_ns = wait.over_ns().unwrap_or(model.end_ns);
            (wait.out_ns, woken_ns.max(wait.out_ns))
        });
        let mut idle: Vec<Interval> = asleep.collect();
        let spans = requests.iter().map(|one| (one.ready_ns, one.end_ns()));
        let mut at_ns = 0;
        for (from_ns, to_ns) in merged(spans.collect()) {
            idle.push((at_ns, from_ns));
            at_ns = to_ns;
        }
        idle.push((at_ns, Ns::MAX));
        idle.extend(reads_at_once(requests).map(|at_ns| (at_ns, at_ns)));
        Self { idle: merged(idle) }
    }

    /// By how much each of these requests would take less at most without these pieces, which are
    /// in order and do not overlap.
    ///
    /// Clients that wait for their answers come again sooner after them. So all that one of them is
    /// spared is no more than what has gone of the loop's time by then.
    pub(crate) fn savings(&self, pieces: &[Piece], requests: &[Served]) -> Vec<u64> {
        let mut each = self.if_arrivals_stay(pieces, requests);
        let mut order: Vec<usize> = (0..requests.len()).collect();
        order.sort_by_key(|at| requests[*at].ready_ns);
        let jobs: Vec<Worked> = order.iter().map(|at| requests[*at].worked()).collect();
        let gone = Goes::of(pieces);
        // Of each request and those that its client waited for before.
        let mut all = vec![0_u64; requests.len()];
        for (place, before) in follows(&jobs).into_iter().enumerate() {
            let at = order[place];
            if let Some(before) = before.map(|before| order[before]) {
                let gone_ns = gone.by(requests[at].answered_ns);
                each[at] = each[at].min(gone_ns.saturating_sub(all[before]));
                all[at] = all[before];
            }
            all[at] = all[at].saturating_add(each[at]);
        }
        each
    }

    /// The same where clients do not come sooner.
    pub(crate) fn if_arrivals_stay(&self, pieces: &[Piece], requests: &[Served]) -> Vec<u64> {
        let gone = Goes::of(pieces);
        // When the loop did something for a request that shows: it read it, or answered it.
        let mut did: Vec<Ns> = requests
            .iter()
            .flat_map(|request| [request.read_ns, request.answered_ns])
            .collect();
        did.sort_unstable();
        requests
            .iter()
            .map(|request| {
                let before = did.partition_point(|at_ns| *at_ns < request.answered_ns);
                let others_ns = before.checked_sub(1).map_or(0, |last| did[last]);
                let idle = self
                    .idle
                    .partition_point(|(from, _)| *from <= request.read_ns);
                let since = idle.checked_sub(1).map_or(0, |last| self.idle[last].1);
                let ahead_ns = match since >= request.read_ns {
                    true => 0,
                    false => gone.by(request.read_ns).saturating_sub(gone.by(since)),
                };
                self.saving(pieces, request, others_ns, (ahead_ns, idle))
            })
            .collect()
    }

    /// … of one request: until when the loop did something for others; how far ahead it is when it
    /// reads this one, and how often it had been idle by then.
    fn saving(
        &self,
        pieces: &[Piece],
        request: &Served,
        others_ns: Ns,
        (mut ahead_ns, idle): (u64, usize),
    ) -> u64 {
        let mut saved_ns = ahead_ns.min(request.read_ns.saturating_sub(request.ready_ns));
        let first = pieces.partition_point(|piece| piece.to_ns <= request.read_ns);
        let mut pieces = pieces[first..].iter().peekable();
        let mut idle = self.idle[idle..].iter().peekable();
        let mut at_ns = request.read_ns;
        while at_ns < request.answered_ns {
            let piece = pieces
                .peek()
                .map_or(Ns::MAX, |piece| piece.from_ns.max(at_ns));
            let rest = idle.peek().map_or(Ns::MAX, |(from, _)| (*from).max(at_ns));
            let next_ns = piece.min(rest).min(request.answered_ns);
            // What it does here for others, this one may have waited for: then it is earlier by as
            // much as the loop is, and no more than that took.
            let until_ns = next_ns.min(others_ns).max(at_ns);
            let waited_ns = until_ns - at_ns - request.called_ns((at_ns, until_ns));
            saved_ns = saved_ns.max(ahead_ns.min(saved_ns.saturating_add(waited_ns)));
            if next_ns == request.answered_ns {
                break;
            }
            if rest <= piece {
                ahead_ns = 0;
                at_ns = idle.next().map_or(next_ns, |(_, to)| (*to).max(next_ns));
            } else if let Some(piece) = pieces.next() {
                let to_ns = piece.to_ns.min(request.answered_ns);
                let gone_ns = piece.within(next_ns, to_ns);
                ahead_ns = ahead_ns.saturating_add(gone_ns);
                let kept_ns = to_ns.saturating_sub(next_ns);
                let called_ns = request.called_ns((next_ns, to_ns));
                let waited_ns = kept_ns.saturating_sub(called_ns);
                saved_ns = saved_ns.saturating_add(in_proportion(gone_ns, waited_ns, kept_ns));
                at_ns = to_ns.max(next_ns);
            }
        }
        saved_ns.min(request.answered_ns.saturating_sub(request.ready_ns))
    }
}

/// How much of a loop's time has gone.
struct Goes<'a> {
    pieces: &'a [Piece],
    /// Of all before each piece.
    before_ns: Vec<u64>,
}

impl<'a> Goes<'a> {
    fn of(pieces: &'a [Piece]) -> Self {
        let mut before_ns = Vec::with_capacity(pieces.len() + 1);
        let mut all = 0_u64;
        for piece in pieces {
            before_ns.push(all);
            all = all.saturating_add(piece.ns);
        }
        before_ns.push(all);
        Self { pieces, before_ns }
    }

    /// From the beginning until then.
    fn by(&self, at: Ns) -> u64 {
        let ended = self.pieces.partition_point(|piece| piece.to_ns <= at);
        let part = self.pieces.get(ended);
        let part = part.map_or(0, |piece| piece.within(0, at));
        self.before_ns[ended].saturating_add(part)
    }
}

impl Piece {
    /// How much of it goes within `[from_ns, to_ns)`.
    fn within(&self, from_ns: Ns, to_ns: Ns) -> u64 {
        let shared_ns = overlap_ns((self.from_ns, self.to_ns), (from_ns, to_ns));
        in_proportion(shared_ns, self.ns, self.to_ns.saturating_sub(self.from_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::CLIENT_COMES_BACK_NS;

    fn piece(from_ns: Ns, to_ns: Ns) -> Piece {
        Piece {
            from_ns,
            to_ns,
            ns: to_ns - from_ns,
        }
    }

    fn served(number: u32, ready_ns: Ns, read_ns: Ns, answered_ns: Ns) -> Served {
        Served {
            name: (1, number, ready_ns),
            ready_ns,
            read_ns,
            answered_ns,
            calls: Vec::new(),
        }
    }

    /// A loop is kept for 300, and then serves four that came meanwhile or while it did so, 20
    /// each.
    #[test]
    fn who_comes_after_the_piece_waits_for_what_it_left_behind() {
        // No client comes so soon after its answer.
        let step = *CLIENT_COMES_BACK_NS;
        let turns = Turns {
            idle: vec![(0, 100 * step), (480 * step, 1_000 * step)],
        };
        let requests = [
            (100, 100, 400),
            (150, 400, 420),
            (160, 420, 440),
            (410, 440, 460),
            (430, 460, 480),
            (1_000, 1_000, 1_020),
        ];
        let requests = requests
            .map(|(ready, read, answered)| served(1, ready * step, read * step, answered * step));
        let savings = turns.savings(&[piece(100 * step, 400 * step)], &requests);
        let savings: Vec<u64> = savings.iter().map(|ns| ns / step).collect();
        assert_eq!(savings[0], 300);
        assert!(savings[1] >= 250 && savings[2] >= 260, "{savings:?}");
        // They came after the piece had ended, and waited all the same.
        assert!(savings[3] >= 30 && savings[4] >= 30, "{savings:?}");
        assert_eq!(savings[5], 0, "it had nothing to do before");
    }

    /// Requests await something for long: what the loop did for others meanwhile kept none of them
    /// but for the piece itself.
    #[test]
    fn a_loop_that_was_idle_in_between_is_not_ahead() {
        let turns = Turns {
            idle: vec![(0, 10), (60, 200), (220, 500)],
        };
        let requests = [served(1, 5, 10, 210)];
        let savings = turns.savings(&[piece(20, 60)], &requests);
        assert_eq!(savings, [40]);
        assert_eq!(turns.savings(&[piece(210, 220)], &requests), [0]);
    }

    /// A loop that is never idle is kept once, for 300. Each of its two clients ends 300 earlier,
    /// for which each of its later requests comes earlier, too.
    #[test]
    fn who_waits_for_answers_is_spared_a_piece_once() {
        let turns = Turns {
            idle: vec![(0, 100)],
        };
        let mut requests = vec![served(1, 100, 100, 450), served(2, 110, 450, 500)];
        for n in 0..20 {
            let came = 450 + n * 50;
            requests.push(served(3 + n as u32, came, came + 50, came + 100));
        }
        for (at, request) in requests.iter_mut().enumerate() {
            request.name.0 = at as u64 % 2;
        }
        let savings = turns.savings(&[piece(100, 400)], &requests);
        assert_eq!(savings.iter().sum::<u64>(), 600, "{savings:?}");
    }

    /// Loops by chance: all that comes is done at once, in order of arrival.
    #[test]
    fn no_loop_that_does_everything_in_order_saves_more() {
        let mut state = 3_u64;
        let mut below = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..300 {
            let mut ready = 0;
            let work: Vec<(u64, u64, u64)> = (0..30)
                .map(|_| {
                    ready += below(220);
                    let gone = if below(4) == 0 { below(500) } else { 0 };
                    (ready, 1 + below(100), gone)
                })
                .collect();
            let done = |with: bool| -> Vec<(u64, u64)> {
                let mut free = 0;
                let each = work.iter().map(|(ready, kept, gone)| {
                    let read = free.max(*ready);
                    free = read + kept + if with { *gone } else { 0 };
                    (read, free)
                });
                each.collect()
            };
            let (before, after) = (done(true), done(false));
            let mut free = 0;
            let mut idle = Vec::new();
            for (read, answered) in &before {
                if *read > free {
                    idle.push((free, *read));
                }
                free = *answered;
            }
            let pieces: Vec<Piece> = work
                .iter()
                .zip(&before)
                .filter(|((_, _, gone), _)| *gone > 0)
                .map(|((_, _, gone), (read, _))| piece(*read, read + gone))
                .collect();
            let requests: Vec<Served> = work
                .iter()
                .zip(&before)
                .map(|((ready, ..), (read, answered))| served(0, *ready, *read, *answered))
                .collect();
            let bounds = Turns { idle }.if_arrivals_stay(&pieces, &requests);
            for (at, bound) in bounds.iter().enumerate() {
                let saved = before[at].1 - after[at].1;
                let took = before[at].1 - work[at].0;
                assert!(saved <= *bound && *bound <= took, "{saved} {bound} {took}");
            }
        }
    }
}
