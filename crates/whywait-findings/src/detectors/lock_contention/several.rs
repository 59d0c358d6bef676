//! What several threads have at a time: permits of a semaphore, or locks that count as one.

use whywait_events::Wait;
use whywait_model::Model;
use whywait_model::waits::WaitKey;

use crate::finding::Evidence;

/// Functions in which a thread waits for a permit: of glibc and musl, and of whatever calls its
/// class so (Java, Python, .NET, C++, Rust's libraries).
const OF_SEMAPHORE: [&str; 4] = ["emaphore", "sem_wait", "sem_clockwait", "sem_timedwait"];

/// How many there are, and whether they are permits of a semaphore.
#[derive(Debug, Clone, Copy)]
pub(super) struct Several {
    number: usize,
    of_semaphore: bool,
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
        Some(Self {
            number,
            of_semaphore: waits.iter().filter(for_permit).count() * 2 > waits.len(),
        })
    }

    pub(super) fn number(self) -> usize {
        self.number
    }

    /// `one of 3 permits of a semaphore`.
    pub(super) fn one_of_them(self) -> String {
        match self.of_semaphore {
            true => format!("one of {} permits of a semaphore", self.number),
            false => format!("one of {} permits or locks", self.number),
        }
    }

    /// `permit of a semaphore (3 at a time)`.
    pub(super) fn what(self, lock: &str) -> String {
        let what = if self.of_semaphore {
            "permit of a semaphore"
        } else {
            lock
        };
        format!("{what} ({} at a time)", self.number)
    }

    pub(super) fn evidence(self) -> Evidence {
        let is = match self.of_semaphore {
            true => "so many permits it has, or it is several semaphores",
            false => "a semaphore with so many permits, or several locks",
        };
        Evidence::new(format!(
            "while somebody waited, up to {} threads had one at a time: {is}",
            self.number
        ))
    }
}
