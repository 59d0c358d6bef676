//! What several threads waited for at once, and one of them brought about: a commit for all.

use std::collections::{BTreeMap, HashMap};

use whywait_events::{Ns, Wait, WakeContext};
use whywait_model::Model;

use super::crews::ReadByThread;

/// One time that a thread waited for an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AwaitedEvent {
    /// The event's number.
    pub(super) event: usize,
    pub(super) from_ns: Ns,
    pub(super) to_ns: Ns,
}

/// The events of some threads.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// By thread, in order.
    awaited: HashMap<u32, Vec<AwaitedEvent>>,
    /// By thread, in order: which it brought about when.
    brought: HashMap<u32, Vec<(Ns, usize)>>,
}

impl Events {
    /// The events that these threads waited for with a request in hand, and that another one of
    /// them brought about which had one, too.
    pub(super) fn of(model: &Model, in_hand: &ReadByThread<'_>) -> Self {
        let serves = |tid: u32, at_ns: Ns| {
            in_hand.get(&tid).is_some_and(|requests| {
                let after = requests.partition_point(|one| one.recv_ns <= Some(at_ns));
                let last = after.checked_sub(1).map(|last| requests[last].until_ns());
                last.is_some_and(|until_ns| until_ns > at_ns)
            })
        };
        let mut ended: BTreeMap<(u32, Ns), Vec<&Wait>> = BTreeMap::new();
        let threads = in_hand.keys().filter_map(|tid| model.threads.get(tid));
        for wait in threads.flat_map(|thread| thread.timeline.waits()) {
            let Some(wake_ns) = wait.wake_ns else {
                continue;
            };
            let by_another = wait.wake_context == WakeContext::Task && wait.waker_tid != wait.tid;
            if by_another
                && serves(wait.tid, wait.out_ns)
                && serves(wait.waker_tid, wake_ns)
                && !model.is_lock_wait(wait)
            {
                ended
                    .entry((wait.waker_tid, wake_ns))
                    .or_default()
                    .push(wait);
            }
        }
        let mut events = Self::default();
        for (event, ((by, at_ns), waits)) in ended.into_iter().enumerate() {
            events.brought.entry(by).or_default().push((at_ns, event));
            for wait in waits {
                let awaited = AwaitedEvent {
                    event,
                    from_ns: wait.out_ns,
                    to_ns: wait.in_ns.unwrap_or(model.end_ns),
                };
                events.awaited.entry(wait.tid).or_default().push(awaited);
            }
        }
        for awaited in events.awaited.values_mut() {
            awaited.sort_by_key(|one| one.from_ns);
        }
        events
    }

    /// What a thread waited for, from a time within `[from_ns, to_ns)` on.
    pub(super) fn awaited(&self, tid: u32, from_ns: Ns, to_ns: Ns) -> &[AwaitedEvent] {
        let all = self.awaited.get(&tid).map_or(&[][..], Vec::as_slice);
        let first = all.partition_point(|one| one.from_ns < from_ns);
        let last = all.partition_point(|one| one.from_ns < to_ns);
        &all[first..last.max(first)]
    }

    /// What a thread brought about in `[from_ns, to_ns)`.
    pub(super) fn brought(&self, tid: u32, from_ns: Ns, to_ns: Ns) -> &[(Ns, usize)] {
        let all = self.brought.get(&tid).map_or(&[][..], Vec::as_slice);
        let first = all.partition_point(|(at_ns, _)| *at_ns < from_ns);
        let last = all.partition_point(|(at_ns, _)| *at_ns < to_ns);
        &all[first..last.max(first)]
    }
}
