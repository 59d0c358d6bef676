//! What CPU time was for: by listener and by thread.

pub mod bursts;
pub mod sockets;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use whywait_events::Cpu;

use crate::cpu::bursts::Spinner;
use crate::cpu::sockets::{SocketUse, Sockets};

/// Threads and ports that are kept apart.
const MAX_SUBJECTS: usize = 100_000;
/// Threads that are told.
const MAX_THREADS: usize = 50;

/// CPU time and what it was for, summed up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Use {
    /// Nanoseconds on a CPU.
    pub on_cpu_ns: u64,
    /// Nanoseconds waiting for a CPU.
    pub runnable_ns: u64,
    /// Of `on_cpu_ns`: in stretches of polling in which no byte moved.
    pub futile_ns: u64,
    /// Requests whose first byte was read.
    pub requests: u64,
    /// Bytes read.
    pub bytes_in: u64,
    /// Bytes written.
    pub bytes_out: u64,
    /// Samples in user mode.
    pub user_samples: u64,
    /// Samples in the kernel.
    pub system_samples: u64,
    /// Sleeps in polls.
    pub poll_sleeps: u64,
    /// Of these: something ended them, and nothing was read or written before the next one.
    pub dry_sleeps: u64,
}

impl Use {
    fn add(&mut self, row: &Cpu) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.on_cpu_ns, row.on_cpu_ns);
        add(&mut self.runnable_ns, row.runnable_ns);
        add(&mut self.futile_ns, row.futile_ns);
        add(&mut self.requests, row.requests);
        add(&mut self.bytes_in, row.bytes_in);
        add(&mut self.bytes_out, row.bytes_out);
        add(&mut self.user_samples, row.user_samples);
        add(&mut self.system_samples, row.system_samples);
        add(&mut self.poll_sleeps, row.poll_sleeps);
        add(&mut self.dry_sleeps, row.dry_sleeps);
    }

    /// How much of the time was in user mode, by samples; `None` without any.
    fn user_ns(&self) -> Option<u64> {
        let samples = self.user_samples.saturating_add(self.system_samples);
        (samples > 0).then(|| {
            (u128::from(self.on_cpu_ns) * u128::from(self.user_samples) / u128::from(samples))
                as u64
        })
    }
}

/// All of a recording's CPU time.
#[derive(Debug, Clone, Default)]
pub struct CpuTime {
    /// By process and thread.
    pub threads: BTreeMap<(u32, u32), Use>,
    /// By process and port (0: unix sockets).
    pub ports: BTreeMap<(u32, i32), Use>,
    /// By connection.
    pub sockets: Sockets,
}

impl CpuTime {
    /// Adds a row of the recording.
    pub fn add(&mut self, row: &Cpu) {
        if row.tid != 0 {
            if self.threads.len() < MAX_SUBJECTS {
                self.threads
                    .entry((row.tgid, row.tid))
                    .or_default()
                    .add(row);
            }
        } else if row.port >= 0 && self.ports.len() < MAX_SUBJECTS {
            self.ports.entry((row.tgid, row.port)).or_default().add(row);
        }
    }

    /// What of a thread's CPU time was futile, as far as bursts saw it going round.
    pub fn futile_ns(&self, spinner: &Spinner) -> u64 {
        let Some(used) = self.threads.get(&(spinner.tgid, spinner.tid)) else {
            return 0;
        };
        let turns = spinner.spins.saturating_add(spinner.progress);
        (u128::from(used.futile_ns.min(used.on_cpu_ns)) * u128::from(spinner.spins))
            .checked_div(u128::from(turns))
            .unwrap_or(0) as u64
    }

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
        let sum = |of: fn(&Use) -> u64, uses: &mut dyn Iterator<Item = &Use>| {
            uses.map(of).fold(0u64, u64::saturating_add)
        };
        let total_ns = sum(|one| one.on_cpu_ns, &mut self.threads.values());
        let for_requests_ns = sum(|one| one.on_cpu_ns, &mut self.ports.values());
        let whole = Use {
            on_cpu_ns: total_ns,
            user_samples: sum(|one| one.user_samples, &mut self.threads.values()),
            system_samples: sum(|one| one.system_samples, &mut self.threads.values()),
            ..Use::default()
        };
        let mut by_port: BTreeMap<i32, (Use, BTreeSet<u32>)> = BTreeMap::new();
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

impl Use {
    fn merge(&mut self, other: &Use) {
        self.add(&Cpu {
            on_cpu_ns: other.on_cpu_ns,
            runnable_ns: other.runnable_ns,
            futile_ns: other.futile_ns,
            requests: other.requests,
            bytes_in: other.bytes_in,
            bytes_out: other.bytes_out,
            user_samples: other.user_samples,
            system_samples: other.system_samples,
            poll_sleeps: other.poll_sleeps,
            dry_sleeps: other.dry_sleeps,
            ..Cpu::default()
        });
    }
}

fn per(ns: u64, units: u64) -> Option<f64> {
    (units > 0).then(|| (ns as f64 / units as f64 * 1e3).round() / 1e3)
}

/// What CPU time was for. The field names are those of the JSON report (schema 1).
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct CpuSummary {
    /// CPU time of all threads.
    pub total_ns: u64,
    /// Of that in user mode, by samples.
    pub user_ns: Option<u64>,
    /// Of that in the kernel, by samples.
    pub system_ns: Option<u64>,
    /// What no thread used while it worked for a request.
    pub not_for_requests_ns: u64,
    /// In stretches of polling in which no byte moved, of processes in which bursts saw a thread go
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
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
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
    /// Of that in stretches of polling in which no byte moved.
    pub futile_ns: u64,
    /// CPU time a request.
    pub per_request_ns: Option<u64>,
    /// CPU time a byte, both ways.
    pub per_byte_ns: Option<f64>,
}

/// What a thread used.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
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
    /// Of that in stretches of polling in which no byte moved.
    pub futile_ns: u64,
}

#[cfg(test)]
mod tests {
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
