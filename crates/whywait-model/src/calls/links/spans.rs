//! Sets of moments: intervals in order that neither touch nor overlap.

use whywait_events::Ns;

/// A set of moments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Spans {
    /// From and to.
    spans: Vec<(Ns, Ns)>,
    /// Up to each of them: how long those before it last.
    before_ns: Vec<u64>,
}

impl Spans {
    /// All moments of these intervals, which may overlap. One that ends before it begins has none.
    pub(super) fn of(intervals: impl IntoIterator<Item = (Ns, Ns)>) -> Self {
        let mut sorted: Vec<(Ns, Ns)> = intervals
            .into_iter()
            .filter(|(from, to)| from < to)
            .collect();
        sorted.sort_unstable();
        let mut spans: Vec<(Ns, Ns)> = Vec::new();
        for (from, to) in sorted {
            match spans.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => spans.push((from, to)),
            }
        }
        Self::in_order(spans)
    }

    fn in_order(spans: Vec<(Ns, Ns)>) -> Self {
        let mut before_ns = Vec::with_capacity(spans.len());
        let mut sum = 0_u64;
        for (from, to) in &spans {
            before_ns.push(sum);
            sum = sum.saturating_add(to - from);
        }
        Self { spans, before_ns }
    }

    /// Each, as from and to.
    pub(super) fn into_iter(self) -> impl Iterator<Item = (Ns, Ns)> {
        self.spans.into_iter()
    }

    /// How long they last.
    pub(super) fn total_ns(&self) -> u64 {
        self.before(Ns::MAX)
    }

    /// How long they last within an interval.
    pub(super) fn within_ns(&self, from: Ns, to: Ns) -> u64 {
        self.before(to).saturating_sub(self.before(from))
    }

    /// How long they last up to a moment.
    fn before(&self, at: Ns) -> u64 {
        let after = self.spans.partition_point(|(from, _)| *from < at);
        let Some(last) = after.checked_sub(1) else {
            return 0;
        };
        let (from, to) = self.spans[last];
        self.before_ns[last].saturating_add(to.min(at) - from)
    }

    /// Those within an interval.
    pub(super) fn clip(&self, from: Ns, to: Ns) -> Self {
        let first = self.spans.partition_point(|(_, end)| *end <= from);
        let last = self.spans.partition_point(|(begin, _)| *begin < to);
        let clipped = self.spans[first..last.max(first)]
            .iter()
            .map(|(begin, end)| ((*begin).max(from), (*end).min(to)));
        Self::of(clipped)
    }

    /// The moments of either.
    pub(super) fn or(&self, other: &Self) -> Self {
        Self::of(self.spans.iter().chain(&other.spans).copied())
    }

    /// The moments of this that are none of the other's.
    pub(super) fn without(&self, other: &Self) -> Self {
        let mut rest = Vec::new();
        // Those of a request are few, and those of its process many.
        let begin = self.spans.first().map_or(Ns::MAX, |(from, _)| *from);
        let first = other.spans.partition_point(|(_, end)| *end <= begin);
        let mut others = other.spans[first..].iter().peekable();
        for (from, to) in &self.spans {
            let mut at = *from;
            while let Some((begin, end)) = others.peek() {
                if *end <= at {
                    others.next();
                    continue;
                }
                if begin >= to {
                    break;
                }
                if *begin > at {
                    rest.push((at, *begin));
                }
                at = *end;
                if end >= to {
                    break;
                }
                others.next();
            }
            if at < *to {
                rest.push((at, *to));
            }
        }
        Self::in_order(rest)
    }

    /// The moments of both.
    pub(super) fn and(&self, other: &Self) -> Self {
        self.without(&self.without(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(intervals: &[(Ns, Ns)]) -> Spans {
        Spans::of(intervals.iter().copied())
    }

    #[test]
    fn they_are_in_order_and_apart() {
        let some = spans(&[(5, 9), (0, 3), (2, 4), (9, 10), (7, 2)]);
        assert_eq!(some, spans(&[(0, 4), (5, 10)]));
        assert_eq!(some.total_ns(), 9);
        assert_eq!(some.within_ns(3, 6), 2);
        assert_eq!(some.within_ns(6, 3), 0);
        assert_eq!(some.within_ns(20, 30), 0);
        assert_eq!(some.clip(3, 6), spans(&[(3, 4), (5, 6)]));
        assert_eq!(Spans::default().total_ns(), 0);
    }

    #[test]
    fn sets_are_added_and_taken_away() {
        let (a, b) = (
            spans(&[(0, 10), (20, 30)]),
            spans(&[(2, 4), (8, 22), (40, 50)]),
        );
        assert_eq!(a.without(&b), spans(&[(0, 2), (4, 8), (22, 30)]));
        assert_eq!(a.and(&b), spans(&[(2, 4), (8, 10), (20, 22)]));
        assert_eq!(a.or(&b), spans(&[(0, 30), (40, 50)]));
        assert_eq!(a.without(&a), Spans::default());
        assert_eq!(Spans::default().without(&a), Spans::default());
    }

    /// Against sets of single moments.
    #[test]
    fn any_two_sets_do() {
        let mut state = 7_u64;
        let mut next = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..500 {
            let mut some = || -> Vec<(Ns, Ns)> {
                (0..next(6))
                    .map(|_| {
                        let from = next(30);
                        (from, from + next(6))
                    })
                    .collect()
            };
            let (one, other) = (some(), some());
            let has =
                |set: &[(Ns, Ns)], at| set.iter().any(|(from, to)| (*from..*to).contains(&at));
            let (a, b) = (spans(&one), spans(&other));
            let count = |is_in: &dyn Fn(Ns) -> bool| (0..40).filter(|at| is_in(*at)).count() as u64;
            let (in_a, in_b) = (|at| has(&one, at), |at| has(&other, at));
            assert_eq!(a.total_ns(), count(&in_a));
            assert_eq!(a.or(&b).total_ns(), count(&|at| in_a(at) || in_b(at)));
            assert_eq!(a.and(&b).total_ns(), count(&|at| in_a(at) && in_b(at)));
            assert_eq!(a.without(&b).total_ns(), count(&|at| in_a(at) && !in_b(at)));
            assert_eq!(
                a.within_ns(5, 17),
                count(&|at| in_a(at) && (5..17).contains(&at))
            );
        }
    }
}
