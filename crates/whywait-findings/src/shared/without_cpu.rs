//! Slow requests that waited for a CPU for most of their time, and who had the CPUs meanwhile.

use whywait_events::Part;
use whywait_model::cpu::{CpuHolder, WithoutCpu};
use whywait_model::{Model, RequestRef};

use crate::facts::Facts;
use crate::finding::Saving;
use crate::numbers::{MOST, SLOW_NS, Share};
use crate::shared::intervals::sum;
use crate::shared::slow_paths::{self, Shares, SlowRequest, dominates};

/// Those of a recording.
pub(crate) struct Deprived<'m> {
    /// What they waited for a CPU.
    pub(crate) shares: Shares,
    /// What a fix saves at most each request that it saves something: of these, all of the time but
    /// for what the path was on a CPU and waited for devices, peers and timers, as threads without
    /// a CPU keep others waiting for their locks and answers; of others, what their reader had no
    /// CPU while they lay there.
    pub(crate) saved: Vec<(RequestRef<'m>, u64)>,
    /// Who had the CPUs.
    without: WithoutCpu,
}

impl<'m> Deprived<'m> {
    pub(crate) fn of(facts: &Facts<'m>) -> Self {
        let model = facts.model;
        let mut without = WithoutCpu::default();
        let mut pairs = Vec::new();
        let mut saved = Vec::new();
        for slow in &facts.slow().requests {
            let ns = without_cpu_ns(slow);
            if dominates(ns, slow.latency_ns) {
                without.add_request(model, slow.request);
                pairs.push((ns, slow.latency_ns));
                saved.push((
                    slow.request,
                    slow.latency_ns.saturating_sub(remains_ns(slow)),
                ));
            } else {
                let behind_ns = behind_ns(model, slow);
                saved.extend((behind_ns >= *SLOW_NS).then_some((slow.request, behind_ns)));
            }
        }
        Self {
            shares: Shares::new(pairs),
            saved,
            without,
        }
    }

    /// What a fix saves at most.
    pub(crate) fn saving(&self) -> Saving {
        Saving::latency(self.saved.iter().map(|(_, ns)| *ns).collect())
    }

    /// Who had the CPUs for how long, the longest first; `None`: of most of the time that is not
    /// known.
    pub(crate) fn holders(&self) -> Option<Vec<(&CpuHolder, u64)>> {
        Share::new(self.without.recorded_ns, self.without.ns)
            .is_at_least(*MOST)
            .then(|| self.without.holders())
            .filter(|holders| !holders.is_empty())
    }

    /// The processes that a holder was.
    pub(crate) fn pids(&self, holder: &CpuHolder) -> Vec<u32> {
        self.without.pids(holder)
    }

    /// The target's own threads among them, the longest first.
    pub(crate) fn own_threads(&self) -> Vec<u32> {
        self.without.own_threads()
    }
}

/// How long a request waited for a CPU, nanoseconds.
fn without_cpu_ns(slow: &SlowRequest<'_>) -> u64 {
    runnable_ns(slow)
        .saturating_add(slow.request.unserved_wakeup_ns)
        .min(slow.latency_ns)
}

/// The same with what its reader, which had others to serve first, had no CPU while it lay there.
fn behind_ns(model: &Model, slow: &SlowRequest<'_>) -> u64 {
    let request = slow.request;
    let reader = model.threads.get(&request.recv_tid);
    let unread_ns = reader.map_or(0, |thread| {
        thread.without_cpu_ns(request.ready_ns, request.served_ns())
    });
    runnable_ns(slow)
        .saturating_add(unread_ns.max(request.unserved_wakeup_ns))
        .min(slow.latency_ns)
}

/// How long threads on its path could run and had no CPU.
fn runnable_ns(slow: &SlowRequest<'_>) -> u64 {
    let runnable = slow_paths::steps(slow).filter(|(part, _)| *part == Part::Runnable);
    sum(runnable.map(|(_, step)| step.ns()))
}

/// What a request waited for that takes as long with more CPU time, and its work, nanoseconds.
fn remains_ns(slow: &SlowRequest<'_>) -> u64 {
    let remain = slow_paths::steps(slow).filter(|(part, _)| {
        matches!(
            part,
            Part::OnCpu | Part::Disk | Part::Network | Part::Timer | Part::PageFault
        )
    });
    sum(remain.map(|(_, step)| step.ns()))
}
