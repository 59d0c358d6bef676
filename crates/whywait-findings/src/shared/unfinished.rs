//! Waits and requests that had not ended when the recording did.

use whywait_events::{Wait, WakeContext};
use whywait_model::{Model, RequestRef};

/// How long a sleep that did not end lasted: until the recording's end, or the process's.
pub(crate) fn lasted_ns(model: &Model, wait: &Wait) -> u64 {
    let until = match (wait.wake_context, wait.wake_ns) {
        (WakeContext::Exit, Some(ended_ns)) => ended_ns,
        _ => model.end_ns,
    };
    until.saturating_sub(wait.out_ns)
}

/// Requests that were read and not answered.
pub(crate) fn unanswered(model: &Model) -> impl Iterator<Item = RequestRef<'_>> {
    model.requests().filter(|request| request.is_unanswered())
}
