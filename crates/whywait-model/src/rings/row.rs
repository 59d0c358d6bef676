//! Rings as reports show them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use whywait_events::uring::{self, Sum, error_name, opcode_name};

use super::{RingState, Stage};
use crate::model::Model;

/// Low and high bound, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
#[allow(missing_docs)]
pub struct Bounds {
    pub at_least: u64,
    pub at_most: u64,
}

/// A ring in the report.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct RingRow {
    /// Its number in the recording.
    pub ring: u32,
    /// The process.
    pub pid: u32,
    /// Its descriptor, `None`: not known.
    pub fd: Option<i32>,
    /// How it came to be known: `created`, `found`, `first-event`.
    pub origin: String,
    /// The thread that made it.
    pub creator: Option<u32>,
    /// The thread that uses it.
    pub user: Option<u32>,
    /// Its name, hostile.
    pub user_name: String,
    /// How often another thread used it than before.
    pub users_changed: u64,
    /// Entries of its submission queue.
    pub sq_entries: u32,
    /// Entries of its completion queue.
    pub cq_entries: u32,
    /// What it was set up with, in the kernel's words.
    pub flags: Vec<&'static str>,
    /// Registered files.
    pub registered_files: u32,
    /// Registered buffers.
    pub registered_buffers: u32,
    /// Operations submitted.
    pub submitted: u64,
    /// In so many batches.
    pub batches: u64,
    /// Operations a second.
    pub rate: f64,
    /// Completions with an error.
    pub failed: u64,
    /// Completions that found no room.
    pub overflows: u64,
    /// Mean life of an operation in the queue: published, not submitted. `None`: never seen, as
    /// with libraries that publish an entry only as they submit it.
    pub queued_ns: Option<Bounds>,
    /// Mean life with the kernel.
    pub kernel_ns: Option<u64>,
    /// Mean life as a completion that nobody has taken.
    pub unreaped_ns: Option<Bounds>,
    /// Sends that had to wait for room in their socket's buffer.
    pub blocked_sends: u64,
    /// Their mean time with the kernel.
    pub blocked_send_ns: Option<u64>,
    /// Sends that met a limit of the memory for sockets.
    pub memory_limits: u64,
    /// Which of these is longest for certain.
    pub dominant: Option<Stage>,
    /// Mean of slots taken.
    pub slots: f64,
    /// Most slots taken at once.
    pub max_slots: u32,
    /// Share of the time with at least 7/8 of those taken.
    pub at_max: f64,
    /// Share of the time with as many slots taken as the submission queue has entries.
    pub at_depth: f64,
    /// Operations a second that as many slots as the submission queue has entries allow at this
    /// life: at least, at most.
    pub allowed_rate: Option<[f64; 2]>,
    /// Operations that the kernel still had in the end, a second or longer after they were
    /// submitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<PendingRow>,
    /// By opcode, the most frequent first.
    pub opcodes: Vec<OpcodeRow>,
}

/// Operations that the kernel still had in the end.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct PendingRow {
    /// How many.
    pub operations: u64,
    /// For how long it had had the oldest of them.
    pub oldest_ns: u64,
    /// How many of each opcode.
    pub opcodes: BTreeMap<&'static str, u64>,
}

/// An opcode on a ring in the report.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct OpcodeRow {
    /// Its name.
    pub opcode: &'static str,
    /// On what kinds of files.
    pub files: Vec<&'static str>,
    /// Completions.
    pub completed: u64,
    /// With an error.
    pub failed: u64,
    /// With which, as far as they have rows of their own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub errors: BTreeMap<String, u64>,
    /// Handed to a worker thread.
    pub punted: u64,
    /// Waited for readiness.
    pub polled: u64,
    /// Mean time with the kernel.
    pub kernel_mean_ns: Option<u64>,
    /// Upper end of the bucket with the median.
    pub kernel_p50_ns: Option<u64>,
    /// Upper end of the bucket with the 99th percentile.
    pub kernel_p99_ns: Option<u64>,
    /// The longest.
    pub kernel_max_ns: u64,
    /// Mean time unreaped of those that were followed (the first of each batch that was taken).
    pub unreaped_mean_ns: Option<Bounds>,
}

impl RingState {
    /// For the report. `name`: that of the thread that uses it.
    pub(crate) fn row(&self, name: &str) -> RingRow {
        let ring = &self.ring;
        let observed = ring.observed_ns.max(1) as f64;
        let bounds = |(at_least, at_most): (u64, u64)| Bounds { at_least, at_most };
        let (queued, unreaped) = (self.queued_ns(), self.unreaped_ns());
        let blocked = self.blocked_sends();
        let allowed_rate = self.kernel_ns().map(|kernel| {
            let life = |of: fn((u64, u64)) -> u64| {
                let sum = [queued, unreaped]
                    .into_iter()
                    .flatten()
                    .map(of)
                    .fold(kernel, u64::saturating_add);
                f64::from(ring.sq_entries) * 1e9 / sum.max(1) as f64
            };
            [life(|(_, high)| high), life(|(low, _)| low)]
        });
        let row = |sum| opcode_row(sum, self.errors(sum));
        let mut opcodes: Vec<OpcodeRow> = self.sums.iter().map(row).collect();
        let slots = ring.slot_ns as f64 / observed;
        opcodes.sort_by_key(|row| (std::cmp::Reverse(row.completed), row.opcode));
        RingRow {
            ring: ring.id,
            pid: ring.tgid,
            fd: (ring.fd >= 0).then_some(ring.fd),
            origin: ring.origin.name().to_owned(),
            creator: (ring.creator_tid != 0).then_some(ring.creator_tid),
            user: (ring.user_tid != 0).then_some(ring.user_tid),
            user_name: name.to_owned(),
            users_changed: ring.users_changed,
            sq_entries: ring.sq_entries,
            cq_entries: ring.cq_entries,
            flags: flag_names(ring.flags),
            registered_files: ring.files,
            registered_buffers: ring.buffers,
            submitted: ring.submitted,
            batches: ring.batches,
            rate: ring.completed as f64 * 1e9 / observed,
            failed: ring.failed,
            overflows: ring.overflows,
            queued_ns: queued.map(bounds),
            kernel_ns: self.kernel_ns(),
            unreaped_ns: unreaped.map(bounds),
            blocked_sends: blocked.waited,
            blocked_send_ns: blocked.ns.checked_div(blocked.waited),
            memory_limits: ring.memory_limits,
            dominant: self.dominant(),
            slots,
            // Older versions missed those that were taken while nobody entered the kernel.
            max_slots: ring.max_slots.max(slots.ceil() as u32),
            at_max: ring.at_max_ns as f64 / observed,
            at_depth: ring.at_depth_ns as f64 / observed,
            allowed_rate,
            pending: self.pending.oldest_ns().map(|oldest_ns| PendingRow {
                operations: self.pending.count(),
                oldest_ns,
                opcodes: self.pending.by_opcode(),
            }),
            opcodes,
        }
    }

    /// The errors with which operations failed, as far as those count as failed and have rows.
    fn errors(&self, sum: &Sum) -> BTreeMap<String, u64> {
        const EAGAIN: i32 = 11;
        const ETIME: i32 = 62;
        const ECANCELED: i32 = 125;
        let of_opcode = (sum.opcode, i32::MIN)..=(sum.opcode, i32::MAX);
        self.failures
            .range(of_opcode)
            .filter(|((_, errno), _)| !matches!(*errno, EAGAIN | ETIME | ECANCELED))
            .map(|((_, errno), failures)| (error_name(*errno), failures.count))
            .collect()
    }
}

fn opcode_row(sum: &Sum, errors: BTreeMap<String, u64>) -> OpcodeRow {
    OpcodeRow {
        opcode: opcode_name(sum.opcode),
        files: file_kinds(sum.kinds),
        completed: sum.completed,
        failed: sum.failed,
        errors,
        punted: sum.punted,
        polled: sum.polled,
        kernel_mean_ns: sum.kernel_ns.checked_div(sum.timed),
        kernel_p50_ns: quantile(&sum.kernel, 50),
        kernel_p99_ns: quantile(&sum.kernel, 99),
        kernel_max_ns: sum.kernel_max_ns,
        unreaped_mean_ns: sum
            .mark_low_ns
            .checked_div(sum.marks)
            .map(|at_least| Bounds {
                at_least,
                at_most: sum.mark_high_ns / sum.marks,
            }),
    }
}

/// The upper end of the bucket in which a percentile lies.
fn quantile(buckets: &BTreeMap<u16, u64>, percent: u64) -> Option<u64> {
    let total = buckets.values().copied().fold(0u64, u64::saturating_add);
    if total == 0 {
        return None;
    }
    let wanted = u128::from(total) * u128::from(percent);
    let mut seen = 0u128;
    for (bucket, count) in buckets {
        seen += u128::from(*count) * 100;
        if seen >= wanted {
            let end = 1u64.checked_shl(u32::from(*bucket).saturating_add(1));
            return Some(end.map_or(u64::MAX, |end| end - 1));
        }
    }
    None
}

/// Kinds of files, from `S_IFMT >> 12`.
fn file_kinds(bits: u32) -> Vec<&'static str> {
    [
        (1, "pipe"),
        (2, "character device"),
        (4, "directory"),
        (6, "block device"),
        (8, "file"),
        (12, "socket"),
        (0, "anonymous"),
    ]
    .into_iter()
    .filter(|(bit, _)| bits >> bit & 1 == 1)
    .map(|(_, name)| name)
    .collect()
}

fn flag_names(flags: u32) -> Vec<&'static str> {
    [
        (uring::SETUP_IOPOLL, "IOPOLL"),
        (uring::SETUP_SQPOLL, "SQPOLL"),
        (1 << 8, "COOP_TASKRUN"),
        (uring::SETUP_SINGLE_ISSUER, "SINGLE_ISSUER"),
        (uring::SETUP_DEFER_TASKRUN, "DEFER_TASKRUN"),
        (1 << 16, "NO_SQARRAY"),
    ]
    .into_iter()
    .filter(|(bit, _)| flags & bit != 0)
    .map(|(_, name)| name)
    .collect()
}

impl Model {
    /// The rings that were used, the busiest first.
    pub fn rings(&self) -> Vec<RingRow> {
        let mut rows: Vec<RingRow> = self
            .rings
            .values()
            .map(|state| state.row(self.thread_name(state.thread())))
            .collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.submitted), row.ring));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_its_buckets_upper_end() {
        let buckets = BTreeMap::from([(3, 98), (10, 2)]);
        assert_eq!(quantile(&buckets, 50), Some(15));
        assert_eq!(quantile(&buckets, 99), Some(2047));
        assert_eq!(quantile(&BTreeMap::new(), 50), None);
        assert_eq!(
            quantile(&BTreeMap::from([(63, u64::MAX)]), 50),
            Some(u64::MAX)
        );
    }
}
