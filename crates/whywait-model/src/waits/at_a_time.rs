//! How many threads at a time have what others wait for, where the locks of a kind count as one: a
//! semaphore with several permits, or several locks.

use std::collections::BTreeMap;

use whywait_events::{Ns, Wait, WakeContext};

use crate::joined::Joined;
use crate::waits::futex::Primitive;
use crate::waits::locks::LetGo;
use crate::waits::objects::WaitKey;

/// Who wakes another one so soon after it was woken has not let go of anything worth a wait: who
/// takes a permit of `java.util.concurrent` wakes the next one in the queue, which may find none.
const AT_ONCE_NS: Ns = 100_000;

/// So many had one at a time if it was so for one in so many parts of the time in which somebody
/// waited. Not all that have one show at each moment: of two that are given back at once, one may
/// have been the end of both waits.
const NOTABLE: u64 = 10;

/// When each thread had one, of those that waited for it: from when it was woken until it ended
/// another one's wait.
#[derive(Debug, Clone, Default)]
pub(super) struct HadBySeveral {
    had: BTreeMap<u32, Vec<(Ns, Ns)>>,
    at_a_time: usize,
}

/// Whether threads of one process may have several of what these locks are, and their waits show
/// how many.
fn may_be_had_by_several(key: &WaitKey) -> bool {
    let one_of_program = matches!(
        key.object.primitive(),
        Some(Primitive::JavaLock | Primitive::OwnLock | Primitive::Monitor)
    );
    key.object.may_be_several() && one_of_program
}

impl HadBySeveral {
    /// `None`: one at a time had it, or it does not show.
    pub(super) fn of(joined: &Joined, key: &WaitKey, let_go: &[LetGo]) -> Option<Self> {
        if !may_be_had_by_several(key) {
            return None;
        }
        let threads = joined.threads.values();
        let threads = threads.filter(|thread| thread.tgid == key.tgid);
        let waits = threads.flat_map(|thread| thread.timeline.waits());
        let waits: Vec<&Wait> = waits.filter(|wait| joined.key_of(wait) == *key).collect();
        let mut given: BTreeMap<u32, Vec<Ns>> = BTreeMap::new();
        for one in let_go {
            if !has_just_got_it(joined, key, one) {
                given.entry(one.by).or_default().push(one.at_ns);
            }
        }
        let mut several = Self::default();
        for wait in &waits {
            let woken_ns = wait.woken_ns();
            let given = given.get(&wait.tid).map_or(&[][..], Vec::as_slice);
            let given_ns = given.get(given.partition_point(|ns| *ns <= woken_ns));
            if let Some(given_ns) = given_ns
                && wait.wake_context == WakeContext::Task
                && has_it_throughout(joined, key, wait, *given_ns)
            {
                let had = several.had.entry(wait.tid).or_default();
                had.push((woken_ns, *given_ns));
            }
        }
        several.at_a_time = several.for_a_notable_time(&waits);
        (several.at_a_time > 1).then_some(several)
    }

    /// How many threads had one at a time, at most, but for moments. Who takes one that is free
    /// leaves no trace before it ends another one's wait, so there may be more.
    pub(super) fn at_a_time(&self) -> usize {
        self.at_a_time
    }

    /// Since when a thread has had the one that it had at a time, if that shows.
    pub(super) fn since(&self, tid: u32, at_ns: Ns) -> Option<Ns> {
        let had = self.had.get(&tid)?;
        let next = had.partition_point(|(_, until_ns)| *until_ns < at_ns);
        let (from_ns, _) = had.get(next)?;
        (*from_ns < at_ns).then_some(*from_ns)
    }

    fn for_a_notable_time(&self, waits: &[&Wait]) -> usize {
        // When, how many more have one, and how many more wait.
        let mut changes: Vec<(Ns, i64, i64)> = Vec::new();
        for (from_ns, until_ns) in self.had.values().flatten() {
            changes.extend([(*from_ns, 1, 0), (*until_ns, -1, 0)]);
        }
        for wait in waits {
            changes.extend([(wait.out_ns, 0, 1), (wait.woken_ns(), 0, -1)]);
        }
        changes.sort_unstable();
        let (mut having, mut waiting, mut since_ns) = (0, 0, 0);
        let mut by_number: BTreeMap<i64, u64> = BTreeMap::new();
        for (at_ns, have, wait) in changes {
            if waiting > 0 {
                *by_number.entry(having).or_default() += at_ns.saturating_sub(since_ns);
            }
            having += have;
            waiting += wait;
            since_ns = at_ns;
        }
        let all_ns: u64 = by_number.values().sum();
        let mut with_as_many_ns = 0u64;
        let number = by_number.into_iter().rev().find(|(_, ns)| {
            with_as_many_ns += ns;
            with_as_many_ns.saturating_mul(NOTABLE) >= all_ns
        });
        usize::try_from(number.map_or(0, |(number, _)| number)).unwrap_or_default()
    }
}

/// Whether who ended another one's wait had itself been woken from one just before.
fn has_just_got_it(joined: &Joined, key: &WaitKey, let_go: &LetGo) -> bool {
    let thread = joined.threads.get(&let_go.by);
    let waits = thread.map_or(&[][..], |thread| thread.timeline.waits());
    let last = waits[..waits.partition_point(|wait| wait.out_ns < let_go.at_ns)].last();
    last.is_some_and(|wait| {
        wait.in_ns
            .is_some_and(|in_ns| let_go.at_ns.saturating_sub(in_ns) < AT_ONCE_NS)
            && joined.key_of(wait) == *key
    })
}

/// Whether a thread that was woken may have had it all the while: it served the same request, and
/// neither waited for one again nor slept for its next request.
fn has_it_throughout(joined: &Joined, key: &WaitKey, wait: &Wait, until_ns: Ns) -> bool {
    let from_ns = wait.woken_ns();
    let Some(thread) = joined.threads.get(&wait.tid) else {
        return false;
    };
    let serving_since = joined.objects.serving_since(wait.tid, until_ns);
    if serving_since.is_some_and(|since_ns| since_ns > from_ns) {
        return false;
    }
    let mut slept = thread.timeline.overlapping(from_ns, until_ns).iter();
    slept.all(|other| {
        other.out_ns < from_ns
            || (!joined.objects.between_requests(other) && joined.key_of(other) != *key)
    })
}
