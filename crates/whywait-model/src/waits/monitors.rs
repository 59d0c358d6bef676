//! Threads with which a runtime looks after the others.
//!
//! Go's monitor (`sysmon`, `runtime/proc.go`) sleeps and looks again, whatever requests do. Whom it
//! wakes has waited for what it found: a turn on one of the processors, mostly. It has not waited
//! for the monitor's sleep.

use whywait_events::StackId;

use crate::maps::{HashMap, HashSet};
use crate::stacks::StackNames;
use crate::timeline::Thread;

/// The function that Go's monitor never leaves.
const GOS: &str = "runtime.sysmon";

/// Those among these threads.
pub(crate) fn among<'t>(
    threads: impl Iterator<Item = &'t Thread>,
    stacks: &StackNames,
) -> HashSet<u32> {
    let mut known: HashMap<StackId, bool> = HashMap::default();
    let mut is_monitors = |stack: StackId| {
        *known.entry(stack).or_insert_with(|| {
            let text = stacks.get(stack);
            text.is_some_and(|text| text.labels.iter().any(|label| &*label.name == GOS))
        })
    };
    threads
        .filter(|thread| {
            let stacks = thread.timeline.waits().iter().map(|wait| wait.user_stack);
            // Whatever it sleeps in, it is there.
            stacks
                .filter(|stack| *stack != 0)
                .take(1)
                .any(&mut is_monitors)
        })
        .map(|thread| thread.tid)
        .collect()
}
