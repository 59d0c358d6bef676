//! Connections that were given up before they were made, and who slept meanwhile.

use std::collections::HashMap;

use whywait_events::Exchange;
use whywait_model::{Model, PathStep, descriptor};

/// By the thread that began them and their descriptor, in order.
pub(crate) struct GivenUp<'m> {
    model: &'m Model,
    by_descriptor: HashMap<(u32, i32), Vec<&'m Exchange>>,
}

impl<'m> GivenUp<'m> {
    pub(crate) fn of(model: &'m Model) -> Self {
        let mut by_descriptor: HashMap<(u32, i32), Vec<&Exchange>> = HashMap::new();
        for row in model.given_up() {
            let own = by_descriptor.entry((row.send_tid, row.fd));
            own.or_default().push(row);
        }
        Self {
            model,
            by_descriptor,
        }
    }

    /// The one for which a thread slept in this step of a path: it had begun that, slept for its
    /// descriptor and gave it up afterwards. What sleeps for several things at a time goes on with
    /// any of them: a loop, or who connects to another address meanwhile.
    pub(crate) fn slept_for(&self, step: &PathStep) -> Option<&'m Exchange> {
        if self.by_descriptor.is_empty() {
            return None;
        }
        let thread = self.model.threads.get(&step.tid)?;
        let waits = thread.timeline.overlapping(step.from_ns, step.to_ns);
        let fd = descriptor(waits.first()?)?;
        let rows = self.by_descriptor.get(&(step.tid, fd))?;
        let before = rows.partition_point(|row| row.first_send_ns <= step.from_ns);
        let row = rows[..before].last()?;
        row.gone_ns
            .is_some_and(|ns| step.to_ns <= ns)
            .then_some(*row)
    }
}
