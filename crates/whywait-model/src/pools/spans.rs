//! Intervals of the whole recording, so that their sum within any time is found at once.

use whywait_events::Ns;

/// Intervals in order, none touching another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PoolSpans(Vec<Span>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Span {
    from_ns: Ns,
    to_ns: Ns,
    /// The length of all before.
    before_ns: u64,
}

impl PoolSpans {
    /// Adds one that begins where the last one ends, or later.
    pub(super) fn add(&mut self, from_ns: Ns, to_ns: Ns) {
        match self.0.last_mut() {
            Some(last) if last.to_ns >= from_ns => last.to_ns = last.to_ns.max(to_ns),
            last => {
                let before_ns = last.map_or(0, |last| {
                    last.before_ns.saturating_add(last.to_ns - last.from_ns)
                });
                self.0.push(Span {
                    from_ns,
                    to_ns,
                    before_ns,
                });
            }
        }
    }

    /// How much of `[from_ns, to_ns)` they are.
    pub(super) fn within(&self, from_ns: Ns, to_ns: Ns) -> u64 {
        let up_to = |ns: Ns| {
            let after = self.0.partition_point(|span| span.from_ns < ns);
            let last = after.checked_sub(1).map(|at| &self.0[at]);
            last.map_or(0, |last| {
                let of_last = ns.min(last.to_ns) - last.from_ns;
                last.before_ns.saturating_add(of_last)
            })
        };
        up_to(to_ns).saturating_sub(up_to(from_ns))
    }

    /// The longest one within `[from_ns, to_ns)`, the first of equals.
    pub(super) fn longest(&self, from_ns: Ns, to_ns: Ns) -> Option<(Ns, Ns)> {
        let first = self.0.partition_point(|span| span.to_ns <= from_ns);
        let last = self.0.partition_point(|span| span.from_ns < to_ns);
        let within = self.0.get(first..last)?.iter();
        within
            .map(|span| (span.from_ns.max(from_ns), span.to_ns.min(to_ns)))
            .rev()
            .max_by_key(|(from_ns, to_ns)| to_ns - from_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_the_longest_are_cut_at_the_edges() {
        let mut spans = PoolSpans::default();
        for (from, to) in [(10, 20), (20, 25), (40, 50), (60, 75)] {
            spans.add(from, to);
        }
        for (from, to, sum, longest) in [
            (0, 100, 40, Some((10, 25))),
            (0, Ns::MAX, 40, Some((10, 25))),
            (12, 45, 18, Some((12, 25))),
            (25, 40, 0, None),
            (44, 47, 3, Some((44, 47))),
            (45, 70, 15, Some((60, 70))),
            (80, 90, 0, None),
        ] {
            assert_eq!(spans.within(from, to), sum, "{from} {to}");
            assert_eq!(spans.longest(from, to), longest, "{from} {to}");
        }
        assert_eq!(spans.within(30, 10), 0);
    }
}
