//! Who had the CPUs while threads that serve requests could run and had none.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;
use whywait_events::{CpuWait, NoCpu, Ns, Part};
use whywait_words::process_name;

use crate::model::Model;
use crate::requests::RequestRef;

/// Processes of one name that are counted.
const MAX_PIDS: usize = 10_000;
/// Holders that a report lists.
const SHOWN: usize = 10;

/// Who had a CPU that a thread waited for, or why nobody had.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum CpuHolder {
    /// Threads of the target itself.
    Own,
    /// Other processes: their name (hostile), and the path of their cgroup, where that is another
    /// one than the target's (hostile).
    Others(String, String),
    /// The kernel's own threads.
    Kernel,
    /// Nobody might: the target's cgroup had used up its CPU time.
    Quota,
    /// The virtual machine's host.
    Host,
    /// Nobody: the CPU was idle, and the thread on its way to it.
    Idle,
}

/// What threads that could run were without a CPU, by who had it: nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WithoutCpu {
    /// All of it.
    pub ns: u64,
    /// Of it, with a row that says who left the CPU: the rest was shorter than the threshold, or
    /// beyond what is recorded.
    pub recorded_ns: u64,
    /// For how much of it who had the CPU is known.
    known: BTreeMap<CpuHolder, u64>,
    /// The same of the target's own threads.
    own: BTreeMap<u32, u64>,
    /// Which processes those of one name and cgroup were.
    pids: BTreeMap<CpuHolder, BTreeSet<u32>>,
    /// Recorded and not known: before the last one that had the CPU, others had it.
    before_ns: u64,
}

impl WithoutCpu {
    /// Adds a thread's time without a CPU.
    pub fn add(&mut self, model: &Model, tid: u32, from_ns: Ns, to_ns: Ns) {
        let mut recorded_ns = 0_u64;
        let thread = model.threads.get(&tid);
        for row in thread.map_or(&[][..], |thread| thread.cpu_waits(from_ns, to_ns)) {
            let ns = row
                .in_ns
                .min(to_ns)
                .saturating_sub(row.from_ns.max(from_ns));
            recorded_ns = recorded_ns.saturating_add(ns);
            let (holder, known_ns) = match row.why {
                NoCpu::Quota => (CpuHolder::Quota, ns),
                NoCpu::Host => (CpuHolder::Host, ns),
                NoCpu::Task if row.by_tid == 0 => (CpuHolder::Idle, ns),
                NoCpu::Task => {
                    // It had the CPU last: what of that lies in this interval.
                    let since_ns = row.in_ns.saturating_sub(row.by_ran_ns).max(row.from_ns);
                    let known = row.in_ns.min(to_ns).saturating_sub(since_ns.max(from_ns));
                    (holder_of(model, row), known.min(ns))
                }
            };
            self.before_ns = self.before_ns.saturating_add(ns - known_ns);
            if holder == CpuHolder::Own {
                add(self.own.entry(row.by_tid).or_default(), known_ns);
            } else if matches!(holder, CpuHolder::Others(..)) {
                let pids = self.pids.entry(holder.clone()).or_default();
                if pids.len() < MAX_PIDS {
                    pids.insert(row.by_tgid);
                }
            }
            add(self.known.entry(holder).or_default(), known_ns);
        }
        add(&mut self.recorded_ns, recorded_ns);
        add(&mut self.ns, to_ns.saturating_sub(from_ns).max(recorded_ns));
    }

    /// Adds that of a request: on its path, and of its reader's wake-up.
    pub fn add_request(&mut self, model: &Model, request: RequestRef<'_>) {
        let steps = request.path().steps;
        for step in steps
            .iter()
            .filter(|step| step.part == Some(Part::Runnable))
        {
            self.add(model, step.tid, step.from_ns, step.to_ns);
        }
        let (wakeup_ns, served_ns) = (request.account().wakeup_ns, request.served_ns());
        if wakeup_ns > 0 {
            let from_ns = served_ns.saturating_sub(wakeup_ns);
            self.add(model, request.recv_tid, from_ns, served_ns);
        }
    }

    /// Who had the CPUs for how much of the recorded time, the longest first. Who had them before
    /// the last one had is shared out as what is known: over many waits, the last ones stand for
    /// all.
    pub fn holders(&self) -> Vec<(&CpuHolder, u64)> {
        let by_tasks = |holder: &CpuHolder| {
            matches!(
                holder,
                CpuHolder::Own | CpuHolder::Others(..) | CpuHolder::Kernel
            )
        };
        let tasks_ns = self.known.iter().filter(|(holder, _)| by_tasks(holder));
        let tasks_ns = tasks_ns.fold(0_u64, |sum, (_, ns)| sum.saturating_add(*ns));
        let shared = |holder: &CpuHolder, ns: u64| {
            if !by_tasks(holder) || tasks_ns == 0 {
                return ns;
            }
            let more = u128::from(self.before_ns) * u128::from(ns) / u128::from(tasks_ns);
            ns.saturating_add(u64::try_from(more).unwrap_or(u64::MAX))
        };
        let mut holders: Vec<(&CpuHolder, u64)> = self
            .known
            .iter()
            .map(|(holder, ns)| (holder, shared(holder, *ns)))
            .filter(|(_, ns)| *ns > 0)
            .collect();
        holders.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        holders
    }

    /// The processes that a holder was, if it was other ones.
    pub fn pids(&self, holder: &CpuHolder) -> Vec<u32> {
        let pids = self.pids.get(holder).into_iter().flatten();
        pids.copied().collect()
    }

    /// The target's own threads that had the CPUs, the longest first.
    pub fn own_threads(&self) -> Vec<u32> {
        let mut own: Vec<(u32, u64)> = self.own.iter().map(|(tid, ns)| (*tid, *ns)).collect();
        own.sort_by_key(|(tid, ns)| (std::cmp::Reverse(*ns), *tid));
        own.into_iter().map(|(tid, _)| tid).collect()
    }
}

fn add(sum: &mut u64, ns: u64) {
    *sum = sum.saturating_add(ns);
}

fn holder_of(model: &Model, row: &CpuWait) -> CpuHolder {
    if model.threads.contains_key(&row.by_tid) {
        CpuHolder::Own
    } else if row.by_kernel {
        CpuHolder::Kernel
    } else {
        let name = process_name(&row.by_name).to_owned();
        CpuHolder::Others(name, row.by_cgroup.clone())
    }
}

/// Who had the CPUs for a part of the time in which requests were without one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CpuHolderRow {
    /// `own-threads`, `processes`, `kernel-threads`, `quota` (the target's cgroup had used up its
    /// CPU time), `host` (the virtual machine's) or `idle` (nobody: the thread was on its way).
    pub who: &'static str,
    /// The processes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pids: Vec<u32>,
    /// Their name. Hostile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Their cgroup, where that is not the target's. Hostile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// For how long, nanoseconds.
    pub ns: u64,
}

impl CpuHolderRow {
    fn new(without: &WithoutCpu, holder: &CpuHolder, ns: u64) -> Self {
        let row = |who| Self {
            who,
            pids: without.pids(holder),
            name: None,
            cgroup: None,
            ns,
        };
        match holder {
            CpuHolder::Own => row("own-threads"),
            CpuHolder::Others(name, cgroup) => Self {
                name: Some(name.clone()),
                cgroup: (!cgroup.is_empty()).then(|| cgroup.clone()),
                ..row("processes")
            },
            CpuHolder::Kernel => row("kernel-threads"),
            CpuHolder::Quota => row("quota"),
            CpuHolder::Host => row("host"),
            CpuHolder::Idle => row("idle"),
        }
    }
}

impl Model {
    /// Who had the CPUs while the requests that are looked at one by one were without one.
    pub(crate) fn cpu_holders(&self) -> Vec<CpuHolderRow> {
        let mut without = WithoutCpu::default();
        for request in self.requests() {
            without.add_request(self, request);
        }
        let holders = without.holders().into_iter().take(SHOWN);
        holders
            .map(|(holder, ns)| CpuHolderRow::new(&without, holder, ns))
            .collect()
    }
}
