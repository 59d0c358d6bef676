//! What the CPU time of the target was for: the totals of the BPF programs, as rows of what was
//! added since the last look.

use std::collections::{BTreeMap, HashMap};

use libbpf_rs::{Map, MapCore, MapFlags};
use whywait_events::recording::WriteError;
use whywait_events::{Cpu, Event};

use crate::core::collector::{Collector, Keeper};
use crate::core::error::CaptureError;
use crate::core::iterate::{self, Scope};
use crate::core::kernel;
use crate::core::programs::Programs;
use crate::core::records::{Record, decode, view};
use crate::core::shared::{Shared, Stage};
use crate::core::skel::types::{self, record_type};

pub(crate) mod connections;

/// Its programs are the hooks of others.
pub(crate) const COLLECTOR: Collector = Collector {
    takes: &[record_type::RECORD_CPU, record_type::RECORD_SOCKET],
    keeper: |_| Box::new(CpuTotals::default()),
    ..Collector::NONE
};

/// Ports and threads whose totals are remembered. Beyond that they are not recorded.
const MAX_SUBJECTS: usize = 1 << 17;

/// The totals at the last look.
#[derive(Default)]
struct CpuTotals {
    threads: HashMap<u32, Cpu>,
    ports: BTreeMap<(u32, u32), Cpu>,
}

impl CpuTotals {
    /// A thread has ended: what it used since the last look.
    fn ended(&mut self, record: &types::cpu_record) -> Option<Cpu> {
        let total = of_thread(record);
        let before = self.threads.remove(&record.tid).unwrap_or_default();
        Some(since(&total, &before)).filter(used)
    }

    /// What was used since the last look, by threads that live and for the ports.
    fn since_last(
        &mut self,
        at_ns: u64,
        threads: &[types::cpu_record],
        ports: &Map<'_>,
    ) -> Vec<Cpu> {
        let mut rows = Vec::new();
        let mut sums: BTreeMap<(u32, u32), types::listener_sum> = of_map(ports);
        for record in threads {
            let total = of_thread(record);
            let before = self.threads.get(&record.tid).cloned().unwrap_or_default();
            if self.threads.len() < MAX_SUBJECTS || self.threads.contains_key(&record.tid) {
                rows.push(since(&total, &before));
                self.threads.insert(record.tid, total);
            }
            add(
                sums.entry((record.tgid, record.open_port)).or_default(),
                &record.open,
            );
        }
        for (key, sum) in sums {
            let total = of_port(at_ns, key, &sum);
            let before = self.ports.get(&key).cloned().unwrap_or_default();
            if self.ports.len() < MAX_SUBJECTS || self.ports.contains_key(&key) {
                rows.push(since(&total, &before));
                self.ports.insert(key, total);
            }
        }
        rows.retain(used);
        rows
    }
}

impl Keeper for CpuTotals {
    fn take(&mut self, record: Record, shared: &mut Shared) -> Result<(), WriteError> {
        match record {
            Record::Cpu(record) => match self.ended(&record) {
                Some(row) => shared.output.write(&Event::Cpu(row)),
                None => Ok(()),
            },
            Record::Socket(record) => connections::write_ended(&record, shared),
            _ => Ok(()),
        }
    }

    /// Writes what was used of the CPUs since the last time.
    fn look(&mut self, programs: &mut Programs, shared: &mut Shared) -> Result<(), CaptureError> {
        if shared.stage == Stage::Begins {
            return Ok(());
        }
        let threads: Vec<_> = totals(programs, &shared.processes.all())
            .into_values()
            .collect();
        let ports = &programs.skel.maps.listeners;
        for row in self.since_last(kernel::now_ns(), &threads, ports) {
            shared.output.write(&Event::Cpu(row))?;
        }
        Ok(())
    }
}

/// The totals of the threads that live, by thread.
pub(crate) fn totals(programs: &Programs, processes: &[u32]) -> BTreeMap<u32, types::cpu_record> {
    /// With more processes than this, one walk over all tasks costs less than one each.
    const SCOPED_PROCESSES: usize = 32;
    let scopes: Vec<Scope> = if processes.len() <= SCOPED_PROCESSES {
        processes.iter().copied().map(Scope::Process).collect()
    } else {
        vec![Scope::All]
    };
    let mut found = BTreeMap::new();
    let mut buffer = Vec::new();
    for scope in scopes {
        // A process may have ended by now.
        let Ok(link) = iterate::attach(&programs.skel.progs.tell_cpu, scope) else {
            continue;
        };
        if iterate::read(&link, &mut buffer).is_err() {
            continue;
        }
        let mut rest = buffer.as_slice();
        while let Some((record, size)) = decode(rest) {
            if let Record::Cpu(record) = record {
                found.insert(record.tid, *record);
            }
            rest = &rest[size..];
        }
    }
    found
}

fn of_map(map: &Map<'_>) -> BTreeMap<(u32, u32), types::listener_sum> {
    map.keys()
        .filter_map(|key| {
            let value = map.lookup(&key, MapFlags::ANY).ok()??;
            let key: types::listener_key = view(&key)?;
            Some(((key.tgid, key.port), view(&value)?))
        })
        .collect()
}

fn add(sum: &mut types::listener_sum, more: &types::listener_sum) {
    sum.cpu_ns += more.cpu_ns;
    sum.futile_ns += more.futile_ns;
    sum.requests += more.requests;
    sum.bytes_in += more.bytes_in;
    sum.bytes_out += more.bytes_out;
    sum.user_samples += more.user_samples;
    sum.system_samples += more.system_samples;
}

fn of_thread(record: &types::cpu_record) -> Cpu {
    Cpu {
        at_ns: record.at_ns,
        tgid: record.tgid,
        tid: record.tid,
        port: -1,
        on_cpu_ns: record.on_cpu_ns,
        runnable_ns: record.runnable_ns,
        futile_ns: record.futile_ns,
        user_samples: record.user_samples,
        system_samples: record.system_samples,
        poll_sleeps: record.poll_sleeps,
        dry_sleeps: record.dry_sleeps,
        ..Cpu::default()
    }
}

fn of_port(at_ns: u64, (tgid, port): (u32, u32), sum: &types::listener_sum) -> Cpu {
    Cpu {
        at_ns,
        tgid,
        port: port as i32,
        on_cpu_ns: sum.cpu_ns,
        futile_ns: sum.futile_ns,
        requests: sum.requests,
        bytes_in: sum.bytes_in,
        bytes_out: sum.bytes_out,
        user_samples: sum.user_samples,
        system_samples: sum.system_samples,
        ..Cpu::default()
    }
}

/// The totals are read while they grow, so one may seem to shrink by a little.
fn since(total: &Cpu, before: &Cpu) -> Cpu {
    let since = |of: fn(&Cpu) -> u64| of(total).saturating_sub(of(before));
    Cpu {
        on_cpu_ns: since(|row| row.on_cpu_ns),
        runnable_ns: since(|row| row.runnable_ns),
        futile_ns: since(|row| row.futile_ns),
        requests: since(|row| row.requests),
        bytes_in: since(|row| row.bytes_in),
        bytes_out: since(|row| row.bytes_out),
        user_samples: since(|row| row.user_samples),
        system_samples: since(|row| row.system_samples),
        poll_sleeps: since(|row| row.poll_sleeps),
        dry_sleeps: since(|row| row.dry_sleeps),
        ..total.clone()
    }
}

fn used(row: &Cpu) -> bool {
    row.on_cpu_ns != 0 || row.requests != 0 || row.bytes_in != 0 || row.bytes_out != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(tid: u32, on_cpu_ns: u64) -> types::cpu_record {
        types::cpu_record {
            tid,
            tgid: 1,
            on_cpu_ns,
            ..types::cpu_record::default()
        }
    }

    #[test]
    fn a_thread_that_ends_tells_what_was_not_told_yet() {
        let mut totals = CpuTotals::default();
        totals.threads.insert(7, of_thread(&record(7, 100)));
        let row = totals.ended(&record(7, 130)).expect("it used more");
        assert_eq!((row.on_cpu_ns, row.tid, row.port), (30, 7, -1));
        assert!(totals.threads.is_empty());
        assert_eq!(totals.ended(&record(8, 0)), None, "it used nothing");
    }

    #[test]
    fn totals_that_seem_to_shrink_are_no_time() {
        let (total, before) = (of_thread(&record(7, 90)), of_thread(&record(7, 100)));
        assert_eq!(since(&total, &before).on_cpu_ns, 0);
    }
}
