//! io_uring: what each ring's operations went through, and what its threads did meanwhile.
//!
//! An operation's life has three parts: queued (the program has published its entry, and it is not
//! submitted), with the kernel (submitted, not completed), and unreaped (completed, and the program
//! has not taken the completion). The second is measured; the others lie between two bounds each,
//! because the program needs no kernel for either. Entries that a library publishes only as it
//! submits them (as liburing does) are never seen queued.

pub mod sends;

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;
use whywait_events::recording::{ReadError, Recording};
use whywait_events::uring::{
    self, Lag, LagKind, Op, Ring, RingOrigin, RingSample, Sum, opcode_name,
};
use whywait_events::{Ns, Sample, StackId, ThreadEvent, Wait};

/// x86-64's number.
const IO_URING_ENTER: u32 = 426;
/// The longest lags of each ring and kind that are kept.
const MAX_LAGS: usize = 64;
/// Samples of rings' threads that are kept for being joined with the rings' own.
const MAX_SAMPLES: usize = 1_000_000;
/// Told operations of each ring that are kept.
const MAX_OPS: usize = 256;

/// What a lag was spent with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LagWithWait {
    /// The lag.
    pub lag: Lag,
    /// The sleep of the ring's thread that covers most of it, with how much: nanoseconds.
    pub wait: Option<(Wait, u64)>,
    /// For how long of it the thread slept in other calls than `io_uring_enter`, nanoseconds.
    pub slept_ns: u64,
    /// Samples of the thread on a CPU within it, by kernel stack, each with its weight.
    pub samples: BTreeMap<StackId, u64>,
}

/// The lags of a ring of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lags {
    /// How many.
    pub count: u64,
    /// Their lower bounds, nanoseconds.
    pub low_ns: u64,
    /// Their upper bounds.
    pub high_ns: u64,
    /// Completions or entries that waited when they ended.
    pub waiting: u64,
    /// The longest, by their lower bound.
    pub longest: Vec<LagWithWait>,
}

/// Samples of a thread in a stack, and how it stood with its ring then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing {
    /// How many, each with its weight (as in all that follows).
    pub samples: u64,
    /// While completions waited to be taken.
    pub unreaped: u64,
    /// While entries waited to be submitted.
    pub pending: u64,
    /// While operations were with the kernel, and nothing waited for the program.
    pub with_kernel: u64,
    /// The completions that waited, added up.
    pub unreaped_sum: u64,
    /// The entries that waited, added up.
    pub pending_sum: u64,
}

impl Standing {
    fn add(&mut self, other: &Standing) {
        self.samples = self.samples.saturating_add(other.samples);
        self.unreaped = self.unreaped.saturating_add(other.unreaped);
        self.pending = self.pending.saturating_add(other.pending);
        self.with_kernel = self.with_kernel.saturating_add(other.with_kernel);
        self.unreaped_sum = self.unreaped_sum.saturating_add(other.unreaped_sum);
        self.pending_sum = self.pending_sum.saturating_add(other.pending_sum);
    }
}

/// A ring and all that is known of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RingState {
    /// The ring as it was in the end.
    pub ring: Ring,
    /// By opcode.
    pub sums: Vec<Sum>,
    /// Completions that waited to be taken for at least the threshold.
    pub unreaped: Lags,
    /// Entries that waited to be submitted for at least the threshold.
    pub unsubmitted: Lags,
    /// The thread that uses it on a CPU, by user stack and kernel stack.
    pub stacks: BTreeMap<(StackId, StackId), Standing>,
    /// Of each thread that was sampled: the first and the last sample.
    pub seen: BTreeMap<u32, (RingSample, RingSample)>,
    /// Samples of the kernel's poller, each with its weight.
    pub poller_samples: u64,
    /// Samples of the process's io_uring workers, each with its weight.
    pub worker_samples: u64,
    /// Operations that are told, the slowest first.
    pub ops: Vec<Op>,
}

impl RingState {
    /// Between the first and the last sample of a thread: how long it was on a CPU, how long it
    /// waited for one, and how much time passed, nanoseconds.
    pub fn cpu_of(&self, tid: u32) -> Option<(u64, u64, u64)> {
        let (first, last) = self.seen.get(&tid)?;
        Some((
            last.on_cpu_ns.saturating_sub(first.on_cpu_ns),
            last.runnable_ns.saturating_sub(first.runnable_ns),
            last.at_ns.saturating_sub(first.at_ns),
        ))
    }

    /// Samples of the thread that uses it.
    pub fn standing(&self) -> Standing {
        let mut all = Standing::default();
        for standing in self.stacks.values() {
            all.add(standing);
        }
        all
    }

    /// Mean time that the kernel took for an operation, nanoseconds; `None` without any. A server's
    /// standing order for its next connection, say, takes as long as nobody comes: such are left
    /// out.
    pub fn kernel_ns(&self) -> Option<u64> {
        let asked_for = self.sums.iter().filter(|sum| !is_standing_order(sum));
        let (ns, count) = asked_for.fold((0u64, 0u64), |(ns, count), sum| {
            (
                ns.saturating_add(sum.kernel_ns),
                count.saturating_add(sum.timed),
            )
        });
        ns.checked_div(count)
    }

    /// Mean time that a completion waited to be taken: at least, at most.
    pub fn unreaped_ns(&self) -> Option<(u64, u64)> {
        let ring = &self.ring;
        Some((
            ring.unreaped_low_ns.checked_div(ring.completed)?,
            ring.unreaped_high_ns.checked_div(ring.completed)?,
        ))
    }

    /// Mean time that an entry waited to be submitted: at least, at most; `None` when none was ever
    /// seen waiting.
    pub fn queued_ns(&self) -> Option<(u64, u64)> {
        let ring = &self.ring;
        if ring.queued_low_ns == 0 && self.standing().pending == 0 {
            return None;
        }
        Some((
            ring.queued_low_ns.checked_div(ring.submitted)?,
            ring.queued_high_ns.checked_div(ring.submitted)?,
        ))
    }

    /// The part of the operations' life that is longest for certain.
    pub fn dominant(&self) -> Option<Stage> {
        let kernel = self.kernel_ns()?;
        let mut bounds = vec![(Stage::Kernel, kernel, kernel)];
        if let Some((low, high)) = self.unreaped_ns() {
            bounds.push((Stage::Unreaped, low, high));
        }
        if let Some((low, high)) = self.queued_ns() {
            bounds.push((Stage::Queued, low, high));
        }
        bounds
            .iter()
            .find(|(stage, low, _)| {
                *low > 0
                    && bounds
                        .iter()
                        .all(|(other, _, high)| other == stage || low >= high)
            })
            .map(|(stage, ..)| match stage {
                Stage::Kernel if self.held_by_sockets() => Stage::Socket,
                stage => *stage,
            })
    }
}

/// When a completion that the thread was given at `at` was taken from its ring at the earliest, if
/// that took long: what it brought waited until then, whoever else was served meanwhile.
pub(crate) fn reaped_ns(rings: &BTreeMap<u32, RingState>, tid: u32, at: Ns) -> Option<Ns> {
    rings
        .values()
        .flat_map(|state| &state.unreaped.longest)
        .filter(|longest| longest.lag.tid == tid)
        .map(|longest| {
            let from_ns = longest.lag.from_ns;
            (from_ns, from_ns.saturating_add(longest.lag.low_ns))
        })
        .filter(|(from_ns, to_ns)| (*from_ns..*to_ns).contains(&at))
        .map(|(_, to_ns)| to_ns)
        .max()
}

/// Whether operations wait for an event by nature, for however long it does not come: accepting,
/// polling, timers, and reading from nothing but eventfds and their kin.
pub(crate) fn is_standing_order(sum: &Sum) -> bool {
    const READ: u32 = 22;
    const ANONYMOUS: u32 = 1;
    // POLL_ADD, TIMEOUT, ACCEPT, LINK_TIMEOUT.
    matches!(sum.opcode, 6 | 11 | 13 | 15) || (sum.opcode == READ && sum.kinds == ANONYMOUS)
}

/// A part of an operation's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Prepared, not submitted.
    Queued,
    /// Submitted, not completed.
    Kernel,
    /// The same, and most of it sends that waited for room in their socket's buffer.
    Socket,
    /// Completed, not taken.
    Unreaped,
}

/// What a recording says of rings, before it is put together.
#[derive(Debug, Clone, Default)]
pub struct RingInput {
    /// By id.
    pub states: BTreeMap<u32, RingState>,
}

impl RingInput {
    /// Reads it. Costs nothing where there are no rings.
    ///
    /// # Errors
    /// When the recording went away while it was read.
    pub fn read(recording: &Recording, threads: &[ThreadEvent]) -> Result<Self, ReadError> {
        let (rings, sums) = recording.rings()?;
        let mut input = RingInput::default();
        if rings.is_empty() {
            return Ok(input);
        }
        for (id, ring) in rings {
            input.states.insert(
                id,
                RingState {
                    ring,
                    ..RingState::default()
                },
            );
        }
        for ((ring, _), sum) in sums {
            if let Some(state) = input.states.get_mut(&ring) {
                state.sums.push(sum);
            }
        }
        recording.ring_lags(None, &mut |lag| input.add_lag(lag))?;
        recording.ring_ops(None, &mut |op| input.add_op(op))?;
        for state in input.states.values_mut() {
            for lags in [&mut state.unreaped, &mut state.unsubmitted] {
                lags.keep_longest();
            }
            state
                .ops
                .sort_by_key(|op| std::cmp::Reverse(op.complete_ns.saturating_sub(op.submit_ns)));
        }
        let mut at: HashMap<(u32, Ns), RingSample> = HashMap::new();
        recording.ring_samples(None, &mut |sample| {
            if at.len() < MAX_SAMPLES {
                at.insert((sample.tid, sample.at_ns), sample.clone());
            }
        })?;
        let pollers: HashMap<u32, Vec<u32>> = input.by_tid(|ring| ring.sqpoll_tid);
        let workers = workers(threads);
        recording.samples(None, &mut |sample| {
            input.add_sample(sample, at.get(&(sample.tid, sample.at_ns)));
            for id in pollers.get(&sample.tid).into_iter().flatten() {
                if let Some(state) = input.states.get_mut(id) {
                    state.poller_samples += sample.weight();
                }
            }
            if workers.contains(&sample.tid) {
                for state in input.states.values_mut() {
                    if state.ring.tgid == sample.tgid {
                        state.worker_samples += sample.weight();
                    }
                }
            }
        })?;
        recording.waits(None, &mut |wait| input.add_wait(wait))?;
        Ok(input)
    }

    fn by_tid(&self, tid: fn(&Ring) -> u32) -> HashMap<u32, Vec<u32>> {
        let mut found: HashMap<u32, Vec<u32>> = HashMap::new();
        for (id, state) in &self.states {
            let tid = tid(&state.ring);
            if tid != 0 {
                found.entry(tid).or_default().push(*id);
            }
        }
        found
    }

    /// Adds a lag; for scripts of events.
    pub(crate) fn add_lag(&mut self, lag: &Lag) {
        let Some(state) = self.states.get_mut(&lag.ring) else {
            return;
        };
        let lags = match lag.kind {
            LagKind::Unreaped => &mut state.unreaped,
            LagKind::Unsubmitted => &mut state.unsubmitted,
        };
        lags.count += 1;
        lags.low_ns = lags.low_ns.saturating_add(lag.low_ns);
        lags.high_ns = lags.high_ns.saturating_add(lag.high_ns);
        lags.waiting = lags.waiting.saturating_add(u64::from(lag.count));
        lags.longest.push(LagWithWait {
            lag: lag.clone(),
            wait: None,
            slept_ns: 0,
            samples: BTreeMap::new(),
        });
        if lags.longest.len() >= 4 * MAX_LAGS {
            lags.keep_longest();
        }
    }

    fn add_op(&mut self, op: &Op) {
        if let Some(state) = self.states.get_mut(&op.ring)
            && state.ops.len() < MAX_OPS
        {
            state.ops.push(op.clone());
        }
    }

    /// Adds a sample of a thread, with how it stood with its ring; for scripts of events.
    pub(crate) fn add_sample(&mut self, sample: &Sample, standing: Option<&RingSample>) {
        let Some(standing) = standing else { return };
        let Some(state) = self.states.get_mut(&standing.ring) else {
            return;
        };
        state
            .seen
            .entry(standing.tid)
            .and_modify(|(first, last)| {
                if standing.at_ns < first.at_ns {
                    *first = standing.clone();
                } else if standing.at_ns > last.at_ns {
                    *last = standing.clone();
                }
            })
            .or_insert_with(|| (standing.clone(), standing.clone()));
        // The kernel's poller uses the ring too; what it does is no work of the program's.
        if standing.tid == state.ring.sqpoll_tid {
            return;
        }
        for longest in &mut state.unreaped.longest {
            let lag = &longest.lag;
            let end_ns = lag.from_ns.saturating_add(lag.low_ns);
            if lag.tid == standing.tid && (lag.from_ns..=end_ns).contains(&standing.at_ns) {
                *longest.samples.entry(sample.kernel_stack).or_default() += sample.weight();
            }
        }
        state
            .stacks
            .entry((sample.user_stack, sample.kernel_stack))
            .or_default()
            .add(&Standing {
                samples: sample.weight(),
                unreaped: u64::from(standing.unreaped > 0) * sample.weight(),
                pending: u64::from(standing.pending > 0) * sample.weight(),
                with_kernel: u64::from(
                    standing.unreaped == 0 && standing.pending == 0 && standing.in_flight > 0,
                ) * sample.weight(),
                unreaped_sum: u64::from(standing.unreaped) * sample.weight(),
                pending_sum: u64::from(standing.pending) * sample.weight(),
            });
    }

    /// Notes a sleep of a ring's thread while something waited for it; for scripts of events.
    pub(crate) fn add_wait(&mut self, wait: &Wait) {
        // The row of a sleep that has not ended is followed by one that tells its end, but for the
        // last.
        let Some(end_ns) = wait.wake_ns.or(wait.in_ns) else {
            return;
        };
        for state in self.states.values_mut() {
            for lags in [&mut state.unreaped, &mut state.unsubmitted] {
                for longest in &mut lags.longest {
                    longest.add_wait(wait, end_ns);
                }
            }
        }
    }
}

impl LagWithWait {
    fn add_wait(&mut self, wait: &Wait, end_ns: Ns) {
        if self.lag.tid != wait.tid {
            return;
        }
        let lag_end_ns = self.lag.from_ns.saturating_add(self.lag.high_ns);
        let common_ns = end_ns
            .min(lag_end_ns)
            .saturating_sub(wait.out_ns.max(self.lag.from_ns));
        if common_ns == 0 {
            return;
        }
        if wait.syscall != Some(IO_URING_ENTER) {
            self.slept_ns = self.slept_ns.saturating_add(common_ns);
        }
        if self.wait.as_ref().is_none_or(|(_, ns)| common_ns > *ns) {
            self.wait = Some((wait.clone(), common_ns));
        }
    }
}

impl Lags {
    fn keep_longest(&mut self) {
        self.longest
            .sort_by_key(|longest| std::cmp::Reverse((longest.lag.low_ns, longest.lag.from_ns)));
        self.longest.truncate(MAX_LAGS);
    }
}

/// io_uring's workers, by the names that the kernel gives them.
fn workers(threads: &[ThreadEvent]) -> HashSet<u32> {
    threads
        .iter()
        .filter(|thread| thread.comm.starts_with("iou-wrk-"))
        .map(|thread| thread.tid)
        .collect()
}

/// Low and high bound, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[allow(missing_docs)]
pub struct Bounds {
    pub at_least: u64,
    pub at_most: u64,
}

/// A ring in the report.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
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
    /// By opcode, the most frequent first.
    pub opcodes: Vec<OpcodeRow>,
}

/// An opcode on a ring in the report.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct OpcodeRow {
    /// Its name.
    pub opcode: &'static str,
    /// On what kinds of files.
    pub files: Vec<&'static str>,
    /// Completions.
    pub completed: u64,
    /// With an error.
    pub failed: u64,
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
        let mut opcodes: Vec<OpcodeRow> = self.sums.iter().map(opcode_row).collect();
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
            slots: ring.slot_ns as f64 / observed,
            max_slots: ring.max_slots,
            at_max: ring.at_max_ns as f64 / observed,
            at_depth: ring.at_depth_ns as f64 / observed,
            allowed_rate,
            opcodes,
        }
    }

    /// The thread to which the ring belongs: the one that uses it, or else made it.
    pub fn thread(&self) -> u32 {
        if self.ring.user_tid != 0 {
            self.ring.user_tid
        } else {
            self.ring.creator_tid
        }
    }

    /// Whether it was there before the recording.
    pub fn since_before(&self) -> bool {
        self.ring.origin != RingOrigin::Created
    }
}

fn opcode_row(sum: &Sum) -> OpcodeRow {
    OpcodeRow {
        opcode: opcode_name(sum.opcode),
        files: file_kinds(sum.kinds),
        completed: sum.completed,
        failed: sum.failed,
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

    #[test]
    fn a_part_dominates_only_when_that_is_certain() {
        let mut state = RingState {
            ring: Ring {
                completed: 10,
                submitted: 10,
                unreaped_low_ns: 100,
                unreaped_high_ns: 5000,
                ..Ring::default()
            },
            sums: vec![Sum {
                timed: 10,
                kernel_ns: 1000,
                ..Sum::default()
            }],
            ..RingState::default()
        };
        assert_eq!(state.dominant(), None);
        state.ring.unreaped_high_ns = 900;
        assert_eq!(state.dominant(), Some(Stage::Kernel));
        state.ring.unreaped_low_ns = 2000;
        state.ring.unreaped_high_ns = 5000;
        assert_eq!(state.dominant(), Some(Stage::Unreaped));
        // That nobody connects for long is not the kernel's part of anything.
        state.sums.push(Sum {
            opcode: 13,
            timed: 10,
            kernel_ns: 1_000_000,
            ..Sum::default()
        });
        assert_eq!(state.dominant(), Some(Stage::Unreaped));
    }
}
