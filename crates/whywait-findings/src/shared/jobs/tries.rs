//! Jobs that sleep again and again in one place: they look whether something is as they want, and
//! sleep for a time if it is not.

use whywait_events::{Ns, Wait};
use whywait_model::{SystemCall, system_call};

use super::{QueuedJob, kept_by_streams};
use crate::numbers::{BY_CHANCE, EXECUTOR_ANSWERED_NS, MOST, Share, TRIES};
use crate::shared::intervals::sum;

/// Whether such sleeps have most of these, which are in order by thread. Between two sleeps of two
/// jobs one of these ends, and its request is answered. (A stream sleeps between its messages.)
pub(super) fn dominate(sleeps: &[(&Wait, u64)], jobs: &[QueuedJob<'_>]) -> bool {
    if kept_by_streams(jobs).is_some() {
        return false;
    }
    let answered = jobs.iter().filter_map(|job| job.request.answered_ns());
    let mut answered: Vec<Ns> = answered.collect();
    answered.sort_unstable();
    let none_ends = |from_ns: Ns| {
        let next = answered.get(answered.partition_point(|ns| *ns < from_ns));
        next.is_none_or(|ns| ns - from_ns > *EXECUTOR_ANSWERED_NS)
    };
    let again = |(one, _): &(&Wait, u64), (next, _): &(&Wait, u64)| {
        let Some(over_ns) = one.over_ns() else {
            return false;
        };
        let between_ns = next.out_ns.saturating_sub(over_ns);
        [one, next].map(|wait| system_call(wait)) == [SystemCall::Sleep; 2]
            && (one.tid, one.user_stack) == (next.tid, next.user_stack)
            && between_ns <= BY_CHANCE.of(over_ns.saturating_sub(one.out_ns))
            && none_ends(over_ns)
    };
    let in_tries = sleeps.chunk_by(again).filter(|run| run.len() >= *TRIES);
    let tried_ns = sum(in_tries.flatten().map(|(_, ns)| *ns));
    let all_ns = sum(sleeps.iter().map(|(_, ns)| *ns));
    Share::new(tried_ns, all_ns).is_at_least(*MOST)
}
