//! What several threads have at a time: permits of a semaphore, or locks that count as one.

use whywait_events::Wait;
use whywait_model::waits::{Primitive, WaitKey};
use whywait_model::{FrameOrigin, Model, origin};

use crate::finding::Evidence;

/// The class, in whatever language, whose functions a thread is in that waits for a permit, …
const OF_SEMAPHORE: &str = "emaphore";
/// … and such functions of glibc and musl. A runtime may build all its locks of them (CPython).
const OF_C: [&str; 3] = ["sem_wait", "sem_clockwait", "sem_timedwait"];

/// Whether a thread sleeps for a permit, by its stack.
fn waits_for_permit(model: &Model, wait: &Wait) -> bool {
    let labels = model.stacks.get(wait.user_stack);
    let labels = labels.map_or(&[][..], |stack| &stack.labels);
    let has = |part: &&str| labels.iter().any(|label| label.name.contains(part));
    let of_runtime = || {
        labels
            .iter()
            .any(|label| origin(label) == FrameOrigin::Runtime)
    };
    has(&OF_SEMAPHORE) || (OF_C.iter().any(has) && !of_runtime())
}

/// How many there are, and what they are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Several {
    number: usize,
    are: Are,
}

#[derive(Debug, Clone, Copy)]
enum Are {
    Permits,
    /// No semaphore is built of them.
    Monitors,
    PlacesOrLocks,
}

impl Several {
    pub(super) fn of(model: &Model, waits: &[&Wait]) -> Option<Self> {
        let mut keys: Vec<WaitKey> = waits.iter().map(|wait| model.key_of(wait)).collect();
        keys.sort_unstable();
        keys.dedup();
        let at_a_time = keys.iter().filter_map(|key| model.had_at_a_time(key));
        let number = at_a_time.max()?;
        let are = if keys
            .iter()
            .all(|key| key.object.primitive() == Some(Primitive::Monitor))
        {
            Are::Monitors
        } else if 2 * waits
            .iter()
            .filter(|wait| waits_for_permit(model, wait))
            .count()
            > waits.len()
        {
            Are::Permits
        } else {
            Are::PlacesOrLocks
        };
        Some(Self { number, are })
    }

    pub(super) fn number(self) -> usize {
        self.number
    }

    /// Whether there could be more of them.
    pub(super) fn may_be_permits(self) -> bool {
        !matches!(self.are, Are::Monitors)
    }

    /// `one of 3 permits of a semaphore`.
    pub(super) fn one_of_them(self) -> String {
        let them = match self.are {
            Are::Permits => "permits of a semaphore",
            Are::Monitors => "Java monitors",
            Are::PlacesOrLocks => "places or locks",
        };
        format!("one of {} {them}", self.number)
    }

    /// `permit of a semaphore (3 at a time)`.
    pub(super) fn what(self, lock: &str) -> String {
        let what = match self.are {
            Are::Permits => "permit of a semaphore",
            Are::Monitors | Are::PlacesOrLocks => lock,
        };
        format!("{what} ({} at a time)", self.number)
    }

    pub(super) fn evidence(self) -> Evidence {
        let are = match self.are {
            Are::Permits => "so many permits it has, or it is several semaphores",
            Are::Monitors => "which of them it was does not show",
            Are::PlacesOrLocks => "a pool or a semaphore of so many, or several locks",
        };
        Evidence::new(format!(
            "while somebody waited, up to {} threads had one at a time: {are}",
            self.number
        ))
    }
}
