//! What is common to peers on whose connections several calls are under way at a time: when
//! something was sent or read there, and what is said of the requests that waited for it.

use whywait_events::Ns;
use whywait_model::{Model, Peer};

use super::{DECLARATION, FIX};
use crate::finding::{Confidence, Evidence, Finding, Saving};
use crate::numbers::MIN_REQUESTS;
use crate::shared::crowding;
use crate::shared::slow_paths::{self, Shares};

/// From one moment to the next, on average.
pub(super) fn spacing_ns(moments: &[Ns]) -> u64 {
    let ends = moments.first().zip(moments.last());
    ends.map_or(0, |(first, last)| last - first) / (moments.len() as u64).max(1)
}

/// The first from this moment on, if it comes within so long.
pub(super) fn next(moments: &[Ns], from_ns: Ns, within_ns: u64) -> Option<Ns> {
    let at = moments.partition_point(|ns| *ns < from_ns);
    let ns = moments.get(at).copied();
    ns.filter(|ns| ns - from_ns <= within_ns)
}

/// The last one up to this moment, if it came within so long before.
pub(super) fn last(moments: &[Ns], until_ns: Ns, within_ns: u64) -> Option<Ns> {
    let after = moments.partition_point(|ns| *ns <= until_ns);
    let ns = after.checked_sub(1).map(|at| moments[at]);
    ns.filter(|ns| until_ns - ns <= within_ns)
}

/// Requests that waited for a peer: of each how long, and what it took; `over` what kind of
/// connections, and by which threads.
pub(super) struct Together<'m, 'a> {
    pub(super) peer: Peer<'m>,
    pub(super) waits: Vec<(u64, u64)>,
    pub(super) over: &'a str,
    pub(super) tids: &'a [u32],
}

impl Together<'_, '_> {
    /// None where they are few, or where it was this machine that had no time.
    pub(super) fn finding(
        self,
        model: &Model,
        slow_ns: u64,
        evidence: [String; 2],
    ) -> Option<Finding> {
        if self.waits.len() < *MIN_REQUESTS {
            return None;
        }
        let (peer, shares) = (self.peer, Shares::new(self.waits));
        if peer.tgid().is_some() && crowding::explains(model, &shares.each_ns) {
            return None;
        }
        let title = format!(
            "{} spent {} of their time waiting for {peer}, over {}",
            shares.requests(),
            shares.percent(),
            self.over
        );
        let finding = Finding::new(&DECLARATION, shares.severity(slow_ns)?, title)
            .confidence(Confidence::Medium)
            .about_peer(peer)
            .about("shared_connection", true)
            .saving(Saving::latency(shares.each_ns.clone()))
            .evidence([Evidence::of_ns(shares.ns, shares.spread(slow_ns))])
            .evidence(evidence.map(Evidence::new))
            .fix(FIX);
        let first = self.tids.first().copied();
        let tids = self.tids.iter().copied();
        Some(slow_paths::about_processes(model, finding, first, tids))
    }
}
