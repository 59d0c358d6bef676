//! Numbers that are others than they are: what then breaks is what holds them.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::env;

use super::Share;

/// In the environment of a test program: `NAME 0` or `NAME infinite`.
pub(super) const VARIABLE: &str = "WHYWAIT_NUMBER";

/// What a number is instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Extreme {
    Zero,
    Infinite,
}

impl Extreme {
    pub(super) const BOTH: [Self; 2] = [Self::Zero, Self::Infinite];

    /// As the environment has it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Zero => "0",
            Self::Infinite => "infinite",
        }
    }
}

/// A number that is another.
pub(super) type Variation = (&'static str, Extreme);

thread_local! {
    static INSTEAD: RefCell<Vec<Variation>> = RefCell::new(of_environment().into_iter().collect());
    static READ: RefCell<Option<BTreeSet<&'static str>>> = const { RefCell::new(None) };
}

fn of_environment() -> Option<Variation> {
    let said = env::var(VARIABLE).ok()?;
    let (name, side) = said.split_once(' ')?;
    let side = Extreme::BOTH.into_iter().find(|one| one.name() == side)?;
    let number = super::LISTED.iter().find(|number| number.name == name)?;
    Some((number.name, side))
}

/// What this does while these numbers are others, for this thread.
pub(super) fn with<T>(variations: &[Variation], what: impl FnOnce() -> T) -> T {
    /// Whatever happens meanwhile, the numbers are themselves afterwards.
    struct Until(Vec<Variation>);

    impl Drop for Until {
        fn drop(&mut self) {
            INSTEAD.set(std::mem::take(&mut self.0));
        }
    }

    let _until = Until(INSTEAD.replace(variations.to_vec()));
    what()
}

/// What this does, and which numbers it reads.
pub(super) fn reading<T>(what: impl FnOnce() -> T) -> (T, BTreeSet<&'static str>) {
    READ.set(Some(BTreeSet::new()));
    let result = what();
    (result, READ.take().unwrap_or_default())
}

/// The ends of a type.
pub(super) trait Extremes: Sized {
    const ZERO: Self;
    /// More than there ever is. It can still be multiplied and added to.
    const INFINITE: Self;
}

impl Extremes for u64 {
    const ZERO: Self = 0;
    const INFINITE: Self = 1 << 48;
}

impl Extremes for usize {
    const ZERO: Self = 0;
    const INFINITE: Self = 1 << 48;
}

impl Extremes for u32 {
    const ZERO: Self = 0;
    const INFINITE: Self = u32::MAX;
}

impl Extremes for f64 {
    const ZERO: Self = 0.0;
    const INFINITE: Self = f64::INFINITY;
}

impl Extremes for Share {
    const ZERO: Self = Share::new(0, 1);
    const INFINITE: Self = Share::new(u64::INFINITE, 1);
}

/// The ends of a number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Varied<T> {
    name: &'static str,
    zero: T,
    infinite: T,
}

impl<T> Varied<T> {
    pub(super) const fn of(name: &'static str) -> Self
    where
        T: Extremes,
    {
        Self {
            name,
            zero: T::ZERO,
            infinite: T::INFINITE,
        }
    }

    /// What the number is instead of what it is.
    pub(super) fn instead(&self) -> Option<&T> {
        READ.with_borrow_mut(|read| {
            if let Some(read) = read {
                read.insert(self.name);
            }
        });
        let side = INSTEAD.with_borrow(|instead| {
            let mut instead = instead.iter();
            instead
                .find(|(name, _)| *name == self.name)
                .map(|(_, side)| *side)
        })?;
        Some(match side {
            Extreme::Zero => &self.zero,
            Extreme::Infinite => &self.infinite,
        })
    }
}
