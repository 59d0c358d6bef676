//! Slow requests that waited for a CPU for most of their time, and who had the CPUs meanwhile.

use whywait_events::Part;
use whywait_model::Model;
use whywait_model::cpu::{CpuHolder, WithoutCpu};

use crate::facts::Facts;
use crate::numbers::{MOST, Share};
use crate::shared::intervals::sum;
use crate::shared::slow_paths::{self, Shares, SlowRequest, dominates};

/// Those of a recording.
pub(crate) struct Deprived {
    /// What they waited for a CPU.
    pub(crate) shares: Shares,
    /// What a fix saves at most each of them: all of its time but for what its path was on a CPU
    /// and waited for devices, peers and timers. Threads without a CPU keep others waiting, for
    /// their locks, their answers and to be read.
    pub(crate) saved: Vec<u64>,
    /// Who had the CPUs.
    without: WithoutCpu,
}

impl Deprived {
    pub(crate) fn of(facts: &Facts<'_>) -> Self {
        let mut without = WithoutCpu::default();
        let model = facts.model;
        let without_cpu_ns = |slow: &SlowRequest<'_>| without_cpu_ns(model, slow);
        let requests = facts.slow().requests.iter();
        let deprived: Vec<&SlowRequest<'_>> = requests
            .filter(|slow| dominates(without_cpu_ns(slow), slow.latency_ns))
            .collect();
        for slow in &deprived {
            without.add_request(model, slow.request);
        }
        let pair = |slow: &&SlowRequest<'_>| (without_cpu_ns(slow), slow.latency_ns);
        let saved = |slow: &&SlowRequest<'_>| slow.latency_ns.saturating_sub(remains_ns(slow));
        Self {
            shares: Shares::new(deprived.iter().map(pair)),
            saved: deprived.iter().map(saved).collect(),
            without,
        }
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

/// How long a request waited for a CPU, nanoseconds. While it lay unread its reader did: a thread
/// that was woken for it, or one that had others to serve first.
fn without_cpu_ns(model: &Model, slow: &SlowRequest<'_>) -> u64 {
    let request = slow.request;
    let runnable = slow_paths::steps(slow).filter(|(part, _)| *part == Part::Runnable);
    let ns = sum(runnable.map(|(_, step)| step.ns()));
    let reader = model.threads.get(&request.recv_tid);
    let unread_ns = reader.map_or(0, |thread| {
        thread.without_cpu_ns(request.ready_ns, request.served_ns())
    });
    ns.saturating_add(unread_ns.max(request.unserved_wakeup_ns))
        .min(slow.latency_ns)
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
