//! Where a request's time went. The parts sum to its wall time; what is not known is `unknown`.

use std::ops::AddAssign;

use schemars::JsonSchema;
use serde::Serialize;
use whywait_events::{Part, Parts};

use crate::joined::Joined;
use crate::path::Path;
use crate::requests::lives::Life;
use crate::requests::slowest::RequestSums;
use crate::waits::system_call;

/// How a request's time splits, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Account {
    /// Ready and not read, while a capable thread idled and nobody polled.
    pub stranded_ns: u64,
    /// Ready and not read, while every capable thread was busy, or one polled and had not got to
    /// it.
    pub pool_busy_ns: u64,
    /// Ready and not read, while a thread that had been woken was on its way.
    pub wakeup_ns: u64,
    /// From the first read to the last byte of the response.
    pub service: Parts,
}

/// Nanoseconds, summed over requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Time {
    /// From the first byte in the kernel until the target read it.
    pub ready_unserved: ReadyUnserved,
    /// The serving thread ran.
    pub on_cpu: Option<u64>,
    /// The serving thread waited for a CPU.
    pub runnable: Option<u64>,
    /// It waited for a lock.
    pub lock: Option<u64>,
    /// It waited for another thread.
    pub thread: Option<u64>,
    /// It waited for a device or filesystem.
    pub disk: Option<u64>,
    /// It waited for the network or another process.
    pub network: Option<u64>,
    /// It waited for a time to come.
    pub timer: Option<u64>,
    /// It waited in `io_uring_enter`.
    pub uring: Option<u64>,
    /// It waited for a page.
    pub page_fault: Option<u64>,
    /// None of these: the remainder.
    pub unknown: Option<u64>,
}

/// Why a request that the kernel had was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ReadyUnserved {
    /// A capable thread was idle and nobody polled.
    pub stranded: Option<u64>,
    /// Every capable thread was busy (or a thread polled, yet had not got to it).
    pub pool_busy: Option<u64>,
    /// A thread had been woken for it and was on its way.
    pub wakeup: Option<u64>,
}

impl Account {
    /// All of it.
    pub fn total_ns(&self) -> u64 {
        self.stranded_ns
            .saturating_add(self.pool_busy_ns)
            .saturating_add(self.wakeup_ns)
            .saturating_add(self.service.total_ns())
    }

    /// All but what is unknown.
    pub fn attributed_ns(&self) -> u64 {
        self.total_ns().saturating_sub(self.service[Part::Unknown])
    }

    /// Of requests that were only summed up: none of them was looked at one by one, so what is not
    /// a wake-up is taken as a busy pool, which is what short waits of ready requests are.
    pub(crate) fn of_sums(sums: &RequestSums) -> Self {
        let wakeup_ns = sums.unserved_wakeup_ns.min(sums.unserved_ns);
        let served_ns = sums.total_ns.saturating_sub(sums.unserved_ns);
        Self {
            stranded_ns: 0,
            pool_busy_ns: sums.unserved_ns - wakeup_ns,
            wakeup_ns,
            service: fit(sums.service, served_ns),
        }
    }

    /// In the shape of the report. io_uring is `None` unless something waited for it.
    pub fn time(&self) -> Time {
        let part = |part| Some(self.service[part]);
        Time {
            ready_unserved: ReadyUnserved {
                stranded: Some(self.stranded_ns),
                pool_busy: Some(self.pool_busy_ns),
                wakeup: Some(self.wakeup_ns),
            },
            on_cpu: part(Part::OnCpu),
            runnable: part(Part::Runnable),
            lock: part(Part::Lock),
            thread: part(Part::Thread),
            disk: part(Part::Disk),
            network: part(Part::Network),
            timer: part(Part::Timer),
            uring: part(Part::Uring).filter(|ns| *ns > 0),
            page_fault: part(Part::PageFault),
            unknown: part(Part::Unknown),
        }
    }
}

impl AddAssign for Account {
    fn add_assign(&mut self, other: Account) {
        self.stranded_ns = self.stranded_ns.saturating_add(other.stranded_ns);
        self.pool_busy_ns = self.pool_busy_ns.saturating_add(other.pool_busy_ns);
        self.wakeup_ns = self.wakeup_ns.saturating_add(other.wakeup_ns);
        self.service += other.service;
    }
}

/// Makes parts sum to `total_ns`: what is missing is unknown; what is too much (clocks of two CPUs
/// may be read a moment apart) is taken from the largest part first.
fn fit(mut parts: Parts, total_ns: u64) -> Parts {
    let sum = parts.total_ns();
    if sum <= total_ns {
        parts[Part::Unknown] = parts[Part::Unknown].saturating_add(total_ns - sum);
        return parts;
    }
    let mut excess = sum - total_ns;
    while excess > 0 {
        let Some(largest) = Part::ALL.into_iter().max_by_key(|part| parts[*part]) else {
            break;
        };
        let cut = parts[largest].min(excess);
        if cut == 0 {
            break;
        }
        parts[largest] -= cut;
        excess -= cut;
    }
    parts
}

/// Where a request's time went.
pub(crate) fn account(request: Life<'_>, path: &Path<'_>) -> Account {
    let ready_ns = request.ready_ns;
    let read_ns = request.served_ns();
    let unserved_ns = read_ns - ready_ns;
    // A socket whose read interest is off waits for nobody.
    let stranded_ns = request
        .pool()
        .filter(|_| request.read_armed != Some(false))
        .map_or(0, |pool| pool.stranded_ns(ready_ns, read_ns))
        .min(unserved_ns);
    let wakeup_ns = request.unserved_wakeup_ns.min(unserved_ns - stranded_ns);
    let service = request.recv_ns.map_or_else(Parts::default, |recv_ns| {
        service(request, path, recv_ns, request.end_ns())
    });
    Account {
        stranded_ns,
        pool_busy_ns: unserved_ns - stranded_ns - wakeup_ns,
        wakeup_ns,
        service,
    }
}

/// What of a path is unknown as it lies in sleeps that ended and whose wake was not seen.
pub(crate) fn unmatched_wakes_ns(model: &Joined, path: &Path<'_>) -> u64 {
    let unknown = path
        .steps
        .iter()
        .filter(|step| step.part == Some(Part::Unknown));
    unknown
        .filter_map(|step| {
            let timeline = &model.threads.get(&step.tid)?.timeline;
            let wait = timeline.before(step.to_ns)?;
            let unmatched = wait.wake_ns.is_none() && wait.in_ns.is_some();
            (unmatched && wait.end_ns() >= step.to_ns).then(|| step.ns())
        })
        .fold(0, u64::saturating_add)
}

/// The critical path shows which waits the response waited for; in a loop that serves many requests
/// those are not all that its thread had. What lies between long waits the path only knows as
/// "active": there the kernel's sums, short waits and all, say how the time was spent.
fn service(request: Life<'_>, path: &Path<'_>, recv_ns: u64, answered_ns: u64) -> Parts {
    let model = request.lives();
    let total_ns = answered_ns.saturating_sub(recv_ns);
    let one_thread = request.recv_tid == request.send_tid;
    // The kernel has counted all of it, whatever the path is lacking.
    if path.truncated && one_thread {
        return fit(request.service, total_ns);
    }
    let between = one_thread
        .then(|| between_long_waits(request, recv_ns, answered_ns))
        .flatten();
    let mut parts = Parts::default();
    for step in &path.steps {
        let Some(part) = step.part else { continue };
        let ns = step.to_ns - step.from_ns;
        if part != Part::OnCpu {
            parts[part] = parts[part].saturating_add(ns);
        } else if let (Some(mix), true) = (&between, step.tid == request.recv_tid) {
            spread(&mut parts, mix, ns);
        } else if let Some(mix) = model
            .threads
            .get(&step.tid)
            .and_then(|thread| thread.segment_before(step.to_ns))
        {
            spread(&mut parts, &mix, ns);
        } else {
            parts[Part::OnCpu] = parts[Part::OnCpu].saturating_add(ns);
        }
    }
    fit(parts, total_ns)
}

/// What the kernel counted for the thread that read and answered, without its long waits and the
/// preemptions that are recorded; `None` when that leaves nothing.
fn between_long_waits(request: Life<'_>, recv_ns: u64, answered_ns: u64) -> Option<Parts> {
    let model = request.lives();
    let mut rest = request.service;
    let thread = model.threads.get(&request.recv_tid)?;
    let preempted_ns = thread.preempted_ns(recv_ns, answered_ns);
    rest[Part::Runnable] = rest[Part::Runnable].saturating_sub(preempted_ns);
    for wait in thread.timeline.overlapping(recv_ns, answered_ns) {
        let within = |from: u64, to: u64| to.min(answered_ns).saturating_sub(from.max(recv_ns));
        let woken_ns = wait.woken_ns();
        let part = system_call::part(wait, model.threads.contains_key(&wait.waker_tid));
        rest[part] = rest[part].saturating_sub(within(wait.out_ns, woken_ns));
        rest[Part::Runnable] = rest[Part::Runnable].saturating_sub(within(woken_ns, wait.end_ns()));
    }
    (rest.total_ns() > 0).then_some(rest)
}

/// Adds `ns` to the parts in the proportion of `mix`.
pub(crate) fn spread(parts: &mut Parts, mix: &Parts, ns: u64) {
    let total = mix.total_ns().max(1);
    let mut left_ns = ns;
    for part in Part::ALL {
        // Parts whose sum is beyond counting come from no kernel.
        let share = match mix[part].checked_mul(ns) {
            Some(product) => product / total,
            None => (u128::from(mix[part]) * u128::from(ns) / u128::from(total)) as u64,
        };
        let share = share.min(left_ns);
        parts[part] = parts[part].saturating_add(share);
        left_ns -= share;
    }
    // What division leaves over.
    parts[Part::OnCpu] = parts[Part::OnCpu].saturating_add(left_ns);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_sum_to_the_total_whatever_was_counted() {
        let mut parts = Parts::default();
        parts[Part::OnCpu] = 30;
        parts[Part::Timer] = 100;
        assert_eq!(fit(parts, 150)[Part::Unknown], 20);
        let cut = fit(parts, 90);
        assert_eq!(
            (cut.total_ns(), cut[Part::Timer], cut[Part::OnCpu]),
            (90, 60, 30)
        );
        assert_eq!(fit(parts, 0).total_ns(), 0);
    }
}
