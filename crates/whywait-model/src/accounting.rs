//! Where a request's time went. The parts sum to its wall time; what is not known is `unknown`.

use std::ops::AddAssign;

use whywait_events::{Part, Parts, Request};

use crate::input::RequestSums;
use crate::model::Model;
use crate::path;
use crate::summary::{ReadyUnserved, Time};

/// How a request's time splits, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Account {
    /// Ready and not read, while a capable thread idled and nobody polled.
    pub stranded_ns: u64,
    /// Ready and not read, while every capable thread was busy, or one polled and had not got to it.
    pub pool_busy_ns: u64,
    /// Ready and not read, while a thread that had been woken was on its way.
    pub wakeup_ns: u64,
    /// From the first read to the last byte of the response.
    pub service: Parts,
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
        self.total_ns() - self.service[Part::Unknown]
    }

    /// Of requests that were only summed up: none of them was looked at one by one, so what is not a wake-up is taken as a
    /// busy pool, which is what short waits of ready requests are.
    pub(crate) fn of_sums(sums: &RequestSums) -> Self {
        let wakeup_ns = sums.unserved_wakeup_ns.min(sums.unserved_ns);
        let served_ns = sums.total_ns.saturating_sub(sums.unserved_ns);
        Self { stranded_ns: 0, pool_busy_ns: sums.unserved_ns - wakeup_ns, wakeup_ns, service: fit(sums.service, served_ns) }
    }

    /// In the shape of the report. Locks are not told from other waits for threads yet, hence `None`; io_uring is `None`
    /// unless something waited for it.
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
            lock: part(Part::Lock).filter(|ns| *ns > 0),
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

/// Makes parts sum to `total_ns`: what is missing is unknown; what is too much (clocks of two CPUs may be read a moment apart)
/// is taken from the largest part first.
fn fit(mut parts: Parts, total_ns: u64) -> Parts {
    let sum = parts.total_ns();
    if sum <= total_ns {
        parts[Part::Unknown] = parts[Part::Unknown].saturating_add(total_ns - sum);
        return parts;
    }
    let mut excess = sum - total_ns;
    while excess > 0 {
        let Some(largest) = Part::ALL.into_iter().max_by_key(|part| parts[*part]) else { break };
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
pub(crate) fn account(model: &Model, request: &Request) -> Account {
    let ready_ns = request.ready_ns;
    let read_ns = model.served_ns(request);
    let unserved_ns = read_ns - ready_ns;
    // A socket whose read interest is off waits for nobody.
    let stranded_ns = model
        .pool_of(request)
        .filter(|_| request.read_armed != Some(false))
        .map_or(0, |pool| pool.stranded(model, ready_ns, read_ns).iter().map(|piece| piece.to_ns - piece.from_ns).sum())
        .min(unserved_ns);
    let wakeup_ns = request.unserved_wakeup_ns.min(unserved_ns - stranded_ns);
    let service = match (request.recv_ns, request.last_send_ns) {
        (Some(recv_ns), Some(last_send_ns)) => service(model, request, recv_ns, last_send_ns),
        _ => Parts::default(),
    };
    Account { stranded_ns, pool_busy_ns: unserved_ns - stranded_ns - wakeup_ns, wakeup_ns, service }
}

/// The kernel counted how the serving thread spent its time, short waits and all. Where that thread waited for other
/// threads of the target, the critical path says what it waited for.
fn service(model: &Model, request: &Request, recv_ns: u64, last_send_ns: u64) -> Parts {
    let total_ns = last_send_ns.saturating_sub(recv_ns);
    let mut parts = fit(request.service, total_ns);
    let elsewhere = path::time_on_other_threads(model, request);
    let found_ns = elsewhere.total_ns();
    let moved_ns = found_ns.min(parts[Part::Thread]);
    if moved_ns == 0 {
        return parts;
    }
    parts[Part::Thread] -= moved_ns;
    let mut left_ns = moved_ns;
    for part in Part::ALL {
        // In proportion, should the path have found more than the thread waited.
        let share = (u128::from(elsewhere[part]) * u128::from(moved_ns) / u128::from(found_ns)) as u64;
        parts[part] += share;
        left_ns -= share;
    }
    parts[Part::Thread] += left_ns;
    parts
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
        assert_eq!((cut.total_ns(), cut[Part::Timer], cut[Part::OnCpu]), (90, 60, 30));
        assert_eq!(fit(parts, 0).total_ns(), 0);
    }
}
