//! Whether the CPUs are so crowded that a peer on the same machine must be late now and then, too.

use crate::numbers::{CROWDED_RARE, CROWDED_WAITS, Share};
use whywait_events::Part;
use whywait_model::Model;

/// Whether calls to this machine that made a few requests late, each by `each_ns` (the largest
/// first), are no more than what the scheduler does here: as many requests waited in the watched
/// program itself for a CPU, for a good part of that. Why the peer took so long is not known then,
/// as it is not watched.
pub(crate) fn explains(model: &Model, each_ns: &[u64]) -> bool {
    let Some(last) = each_ns.len().checked_sub(1) else {
        return false;
    };
    if Share::new(each_ns.len() as u64, model.requests_count()).exceeds(*CROWDED_RARE) {
        return false;
    }
    let for_cpu = model.requests().map(|request| {
        let account = request.account();
        let preempted_ns = account.service[Part::Runnable];
        account.wakeup_ns.saturating_add(preempted_ns)
    });
    let mut waited_ns: Vec<u64> = for_cpu.collect();
    if last >= waited_ns.len() {
        return false;
    }
    let (_, as_often_ns, _) = waited_ns.select_nth_unstable_by(last, |one, other| other.cmp(one));
    as_often_ns.saturating_mul(*CROWDED_WAITS) >= each_ns[each_ns.len() / 2]
}
