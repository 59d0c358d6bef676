//! CPU time as reports show it. The field names are those of the JSON report (schema 1).

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

use super::bursts::Spinner;
use super::sockets::SocketUse;
use super::{CpuTime, CpuUse};
use crate::model::Model;

/// Threads that are reported.
const MAX_THREADS: usize = 50;

/// What CPU time was for. The field names are those of the JSON report (schema 1).
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct CpuSummary {
    /// CPU time of all threads.
    pub total_ns: u64,
    /// Of that in user mode, by samples.
    pub user_ns: Option<u64>,
    /// Of that in the kernel, by samples.
    pub system_ns: Option<u64>,
    /// What no thread used while it worked for a request.
    pub not_for_requests_ns: u64,
    /// Between reads and answers, on the connections that are reported: of the time for requests
    /// what is for no other task of an event loop; `None`: not recorded.
    pub answering_ns: Option<u64>,
    /// In intervals of polling in which no byte moved, of processes in which bursts saw a thread go
    /// round.
    pub futile_ns: u64,
    /// By listener, the most expensive first.
    pub listeners: Vec<ListenerCpu>,
    /// By connection, the most expensive first: those that used 10 ms, or 1 ms and were open in the
    /// end.
    pub sockets: Vec<SocketUse>,
    /// Connections beyond those.
    pub more_sockets: u64,
    /// By thread, the most expensive first.
    pub threads: Vec<ThreadCpu>,
    /// Threads beyond those.
    pub more_threads: u64,
}

/// What the requests that came in at a port used.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct ListenerCpu {
    /// Local port, `None` for unix sockets.
    pub port: Option<u16>,
    /// Processes that served it.
    pub processes: u64,
    /// Requests whose first byte was read; a TLS handshake is one.
    pub requests: u64,
    /// Bytes read.
    pub bytes_in: u64,
    /// Bytes written.
    pub bytes_out: u64,
    /// CPU time from reading a request until the thread read another or slept in a poll.
    pub cpu_ns: u64,
    /// Of that in user mode, by samples.
    pub user_ns: Option<u64>,
    /// Of that in the kernel, by samples.
    pub system_ns: Option<u64>,
    /// Of that in intervals of polling in which no byte moved.
    pub futile_ns: u64,
    /// CPU time a request.
    pub per_request_ns: Option<u64>,
    /// CPU time a byte, both ways.
    pub per_byte_ns: Option<f64>,
}

/// What a thread used.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct ThreadCpu {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Its name, hostile.
    pub thread: String,
    /// CPU time.
    pub cpu_ns: u64,
    /// Of that in user mode, by samples.
    pub user_ns: Option<u64>,
    /// Of that in the kernel, by samples.
    pub system_ns: Option<u64>,
    /// Of that in intervals of polling in which no byte moved.
    pub futile_ns: u64,
}

impl Model {
    /// What CPU time was for; `None` when the recording does not say.
    pub fn cpu_summary(&self) -> Option<CpuSummary> {
        // Only bursts prove that what looks futile is.
        let mut spinners = self.bursts.threads();
        spinners.retain(Spinner::goes_round);
        self.cpu
            .summary(|tid| self.thread_name(tid).to_owned(), spinners)
    }
}

impl CpuTime {
    /// The report's section, given the threads that bursts saw going round; `None` when the
    /// recording has no such rows.
    pub(crate) fn summary(
        &self,
        name: impl Fn(u32) -> String,
        spinners: Vec<Spinner>,
    ) -> Option<CpuSummary> {
        if self.threads.is_empty() {
            return None;
        }
        let spinning: BTreeSet<u32> = spinners.iter().map(|spinner| spinner.tgid).collect();
        let spins = |tgid: u32| spinning.contains(&tgid);
        let sum = |of: fn(&CpuUse) -> u64, uses: &mut dyn Iterator<Item = &CpuUse>| {
            uses.map(of).fold(0u64, u64::saturating_add)
        };
        let total_ns = sum(|one| one.on_cpu_ns, &mut self.threads.values());
        let for_requests_ns = sum(|one| one.on_cpu_ns, &mut self.ports.values());
        let whole = CpuUse {
            on_cpu_ns: total_ns,
            user_samples: sum(|one| one.user_samples, &mut self.threads.values()),
            system_samples: sum(|one| one.system_samples, &mut self.threads.values()),
            ..CpuUse::default()
        };
        let mut by_port: BTreeMap<i32, (CpuUse, BTreeSet<u32>)> = BTreeMap::new();
        for ((tgid, port), one) in &self.ports {
            let (sum, processes) = by_port.entry(*port).or_default();
            processes.insert(*tgid);
            let mut one = one.clone();
            if !spins(*tgid) {
                one.futile_ns = 0;
            }
            sum.merge(&one);
        }
        let mut listeners: Vec<ListenerCpu> = by_port
            .into_iter()
            .map(|(port, (sum, processes))| ListenerCpu {
                port: u16::try_from(port).ok().filter(|port| *port != 0),
                processes: processes.len() as u64,
                requests: sum.requests,
                bytes_in: sum.bytes_in,
                bytes_out: sum.bytes_out,
                cpu_ns: sum.on_cpu_ns,
                user_ns: sum.user_ns(),
                system_ns: sum.user_ns().map(|user| sum.on_cpu_ns.saturating_sub(user)),
                futile_ns: sum.futile_ns,
                per_request_ns: sum.on_cpu_ns.checked_div(sum.requests),
                per_byte_ns: per(sum.on_cpu_ns, sum.bytes_in.saturating_add(sum.bytes_out)),
            })
            .collect();
        // What was written before anything was read is nobody's request.
        listeners.retain(|row| row.cpu_ns > 0 || row.requests > 0);
        listeners.sort_by_key(|row| (std::cmp::Reverse(row.cpu_ns), row.port));
        let mut threads: Vec<ThreadCpu> = self
            .threads
            .iter()
            .map(|((pid, tid), one)| ThreadCpu {
                pid: *pid,
                tid: *tid,
                thread: name(*tid),
                cpu_ns: one.on_cpu_ns,
                user_ns: one.user_ns(),
                system_ns: one.user_ns().map(|user| one.on_cpu_ns.saturating_sub(user)),
                futile_ns: if spins(*pid) { one.futile_ns } else { 0 },
            })
            .collect();
        threads.sort_by_key(|row| (std::cmp::Reverse(row.cpu_ns), row.tid));
        let more_threads = threads.len().saturating_sub(MAX_THREADS) as u64;
        threads.truncate(MAX_THREADS);
        let burnt = spinners
            .into_iter()
            .map(|spinner| {
                let ns = self.futile_ns(&spinner);
                (spinner, ns)
            })
            .collect::<Vec<_>>();
        let (sockets, more_sockets) = self.sockets.summary(&burnt);
        Some(CpuSummary {
            total_ns,
            user_ns: whole.user_ns(),
            system_ns: whole.user_ns().map(|user| total_ns.saturating_sub(user)),
            not_for_requests_ns: total_ns.saturating_sub(for_requests_ns),
            answering_ns: self.sockets.answering_ns(),
            futile_ns: self
                .threads
                .iter()
                .filter(|((pid, _), _)| spins(*pid))
                .map(|(_, one)| one.futile_ns)
                .fold(0, u64::saturating_add),
            listeners,
            sockets,
            more_sockets,
            threads,
            more_threads,
        })
    }
}

fn per(ns: u64, units: u64) -> Option<f64> {
    (units > 0).then(|| (ns as f64 / units as f64 * 1e3).round() / 1e3)
}

#[cfg(test)]
mod tests {
    use whywait_events::Cpu;

    use super::*;

    fn row(tid: u32, port: i32, on_cpu_ns: u64, requests: u64) -> Cpu {
        Cpu {
            tgid: 1,
            tid,
            port,
            on_cpu_ns,
            requests,
            user_samples: 1,
            system_samples: 3,
            ..Cpu::default()
        }
    }

    fn spins() -> Vec<Spinner> {
        vec![Spinner {
            tgid: 1,
            tid: 5,
            spins: u64::MAX,
            progress: u64::MAX,
            ..Spinner::default()
        }]
    }

    #[test]
    fn listeners_stand_side_by_side_and_the_rest_is_nobodys() {
        let mut cpu = CpuTime::default();
        for one in [
            row(5, -1, 600, 0),
            row(5, -1, 400, 0),
            row(0, 80, 500, 10),
            row(0, 443, 300, 10),
        ] {
            cpu.add(&one);
        }
        let summary = cpu
            .summary(|_| "loop".to_owned(), spins())
            .expect("there are rows");
        assert_eq!((summary.total_ns, summary.not_for_requests_ns), (1000, 200));
        assert_eq!(summary.user_ns, Some(250));
        let ports: Vec<(Option<u16>, Option<u64>)> = summary
            .listeners
            .iter()
            .map(|one| (one.port, one.per_request_ns))
            .collect();
        assert_eq!(ports, [(Some(80), Some(50)), (Some(443), Some(30))]);
    }

    #[test]
    fn forged_rows_overflow_nothing() {
        let mut cpu = CpuTime::default();
        for _ in 0..3 {
            cpu.add(&row(5, -1, u64::MAX, u64::MAX));
            cpu.add(&row(0, 70_000, u64::MAX, u64::MAX));
        }
        let summary = cpu
            .summary(|_| String::new(), spins())
            .expect("there are rows");
        assert_eq!(summary.listeners[0].port, None);
        assert_eq!(CpuTime::default().summary(|_| String::new(), spins()), None);
    }
}
