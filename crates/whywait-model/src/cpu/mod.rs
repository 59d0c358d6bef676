//! What CPU time was for: by listener and by thread.

use std::collections::BTreeMap;

use whywait_events::Cpu;

pub(crate) mod bursts;
mod clock;
pub(crate) mod holders;
mod sampled;
pub(crate) mod sockets;
mod summary;

pub use bursts::{Bursts, Spinner};
pub use holders::{CpuHolder, CpuHolderRow, WithoutCpu};
pub use sampled::{Sampled, SampledPlace};
pub use sockets::{SocketUse, Sockets};
pub use summary::{CpuSummary, ListenerCpu, ThreadCpu};

/// Threads and ports that are kept apart.
const MAX_SUBJECTS: usize = 100_000;

/// CPU time and what it was for, summed up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuUse {
    /// Nanoseconds on a CPU.
    pub on_cpu_ns: u64,
    /// Nanoseconds waiting for a CPU.
    pub runnable_ns: u64,
    /// Of `on_cpu_ns`: in intervals of polling in which no byte moved.
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

impl CpuUse {
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

    fn merge(&mut self, other: &CpuUse) {
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
    pub threads: BTreeMap<(u32, u32), CpuUse>,
    /// By process and port (0: unix sockets).
    pub ports: BTreeMap<(u32, i32), CpuUse>,
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
}
