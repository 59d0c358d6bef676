//! Parts of a whole.

use std::cmp::Ordering;
use std::fmt;

use whywait_words::percent;

/// A part of a whole, as a threshold or as measured. Compared exactly, never rounded, and shown in
/// percent. Nothing of nothing is any share that one asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    part: u64,
    whole: u64,
}

impl Share {
    /// So much of so much.
    pub(crate) const fn new(part: u64, whole: u64) -> Self {
        Self { part, whole }
    }

    /// So many of so many.
    pub(crate) const fn counted(part: usize, whole: usize) -> Self {
        Self::new(part as u64, whole as u64)
    }

    pub(crate) const fn percent(percent: u64) -> Self {
        Self::new(percent, 100)
    }

    pub(crate) const fn one_in(whole: u64) -> Self {
        Self::new(1, whole)
    }

    /// This share of something, rounded down.
    pub(crate) fn of(self, something: u64) -> u64 {
        let part = u128::from(something) * u128::from(self.part) / u128::from(self.whole.max(1));
        u64::try_from(part).unwrap_or(u64::MAX)
    }

    pub(crate) fn is_at_least(self, other: Self) -> bool {
        self.compare(other).is_ge()
    }

    pub(crate) fn is_below(self, other: Self) -> bool {
        self.compare(other).is_lt()
    }

    pub(crate) fn exceeds(self, other: Self) -> bool {
        self.compare(other).is_gt()
    }

    /// No `Ord`: nothing of nothing is equal to all.
    fn compare(self, other: Self) -> Ordering {
        let one = u128::from(self.part) * u128::from(other.whole);
        one.cmp(&(u128::from(other.part) * u128::from(self.whole)))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part > self.whole {
            true => write!(formatter, "{} %", self.of(100)),
            false => formatter.write_str(&percent(self.part, self.whole)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_compared_exactly() {
        let third = Share::one_in(3);
        assert!(Share::new(1, 3).is_at_least(third));
        assert!(Share::new(333_333, 1_000_000).is_below(third));
        assert!(Share::new(333_334, 1_000_000).exceeds(third));
        assert!(!Share::counted(2, 6).exceeds(third));
        assert!(Share::new(u64::MAX, u64::MAX).is_at_least(Share::percent(100)));
    }

    #[test]
    fn nothing_of_nothing_is_any_share() {
        let nothing = Share::new(0, 0);
        assert!(nothing.is_at_least(Share::percent(95)));
        assert!(!nothing.exceeds(Share::percent(0)));
        assert!(!nothing.is_below(Share::percent(95)));
    }

    #[test]
    fn a_share_of_something_is_rounded_down() {
        assert_eq!(Share::one_in(8).of(80_007), 10_000);
        assert_eq!(Share::percent(150).of(u64::MAX), u64::MAX);
        let shown = [Share::percent(50), Share::one_in(1000), Share::percent(150)];
        assert_eq!(
            shown.map(|share| share.to_string()),
            ["50 %", "0.1 %", "150 %"]
        );
    }
}
