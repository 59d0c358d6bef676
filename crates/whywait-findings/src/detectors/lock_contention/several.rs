//! What several threads have at a time: permits of a semaphore, or locks that count as one.

use whywait_events::Wait;
use whywait_model::Model;
use whywait_model::waits::{Primitive, WaitKey};

use crate::finding::Evidence;

/// Functions in which a thread waits for a permit: of glibc and musl, and of whatever calls its
/// class so (Java, Python, .NET, C++, Rust's libraries).
const OF_SEMAPHORE: [&str; 4] = ["emaphore", "sem_wait", "sem_clockwait", "sem_timedwait"];

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
    PermitsOrLocks,
}

impl Several {
    pub(super) fn of(model: &Model, waits: &[&Wait]) -> Option<Self> {
        let mut keys: Vec<WaitKey> = waits.iter().map(|wait| model.key_of(wait)).collect();
        keys.sort_unstable();
        keys.dedup();
        let at_a_time = keys.iter().filter_map(|key| model.had_at_a_time(key));
        let number = at_a_time.max()?;
        let for_permit = |wait: &&&Wait| {
            let stack = model.stacks.get(wait.user_stack);
            stack.is_some_and(|stack| {
                let mut names = stack.labels.iter().map(|label| &*label.name);
                names.any(|name| OF_SEMAPHORE.iter().any(|part| name.contains(part)))
            })
        };
        let are = if keys
            .iter()
            .all(|key| key.object.primitive() == Some(Primitive::Monitor))
        {
            Are::Monitors
        } else if waits.iter().filter(for_permit).count() * 2 > waits.len() {
            Are::Permits
        } else {
            Are::PermitsOrLocks
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
            Are::PermitsOrLocks => "permits or locks",
        };
        format!("one of {} {them}", self.number)
    }

    /// `permit of a semaphore (3 at a time)`.
    pub(super) fn what(self, lock: &str) -> String {
        let what = match self.are {
            Are::Permits => "permit of a semaphore",
            Are::Monitors | Are::PermitsOrLocks => lock,
        };
        format!("{what} ({} at a time)", self.number)
    }

    pub(super) fn evidence(self) -> Evidence {
        let are = match self.are {
            Are::Permits => "so many permits it has, or it is several semaphores",
            Are::Monitors => "which of them it was does not show",
            Are::PermitsOrLocks => "a semaphore with so many permits, or several locks",
        };
        Evidence::new(format!(
            "while somebody waited, up to {} threads had one at a time: {are}",
            self.number
        ))
    }
}
