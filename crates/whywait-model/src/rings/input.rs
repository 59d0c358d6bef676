//! What a recording says of rings, read.

use std::collections::BTreeMap;

use whywait_events::recording::{ReadError, Recording};
use whywait_events::uring::{Lag, LagKind, Op, Pending, Ring, RingSample};
use whywait_events::{Ns, Sample, ThreadChange, ThreadEvent, Wait};

use super::workers::is_worker;
use super::{LagWithWait, Lags, RingState, Standing};
use crate::maps::{HashMap, HashSet};

/// x86-64's number.
const IO_URING_ENTER: u32 = 426;
/// The longest lags of each ring and kind that are kept.
const MAX_LAGS: usize = 64;
/// Samples of rings' threads that are kept for being joined with the rings' own.
const MAX_SAMPLES: usize = 1_000_000;
/// Operations that are younger are never seen pending.
const PENDING_NS: u64 = 1_000_000_000;
/// Operations that ended so late that they may have been seen pending before: so many are kept.
const MAX_ENDED: usize = 100_000;
/// What is cancelled so shortly before a process ends is so because it ends.
const EXIT_NS: u64 = 1_000_000_000;
const ECANCELED: i32 = 125;
/// Operations of each ring that are kept one by one.
const MAX_OPS: usize = 256;

/// What a recording says of rings, before it is put together.
#[derive(Debug, Clone, Default)]
pub struct RingInput {
    /// By id.
    pub states: BTreeMap<u32, RingState>,
    /// When each process ended.
    exits: HashMap<u32, Ns>,
    /// Operations that took long and ended, as far as they are kept: by ring, time of submission,
    /// opcode and descriptor.
    ended: HashSet<(u32, Ns, u32, i32)>,
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
        let exits = threads
            .iter()
            .filter(|event| event.change == ThreadChange::Exit);
        input.exits = exits
            .filter(|event| event.tid == event.tgid)
            .map(|event| (event.tgid, event.at_ns))
            .collect();
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
        recording.read::<Lag>(None, &mut |lag| input.add_lag(lag))?;
        recording.read::<Op>(None, &mut |op| input.add_op(op))?;
        recording.read::<Pending>(None, &mut |pending| input.add_pending(pending))?;
        for state in input.states.values_mut() {
            for lags in [&mut state.unreaped, &mut state.unsubmitted] {
                lags.keep_longest();
            }
            state
                .ops
                .sort_by_key(|op| std::cmp::Reverse(op.complete_ns.saturating_sub(op.submit_ns)));
        }
        let mut at: HashMap<(u32, Ns), RingSample> = HashMap::default();
        recording.read::<RingSample>(None, &mut |sample| {
            if at.len() < MAX_SAMPLES {
                at.insert((sample.tid, sample.at_ns), sample.clone());
            }
        })?;
        let pollers: HashMap<u32, Vec<u32>> = input.by_tid(|ring| ring.sqpoll_tid);
        let workers = workers(threads);
        recording.read::<Sample>(None, &mut |sample| {
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
        recording.read::<Wait>(None, &mut |wait| input.add_wait(wait))?;
        Ok(input)
    }

    fn by_tid(&self, tid: fn(&Ring) -> u32) -> HashMap<u32, Vec<u32>> {
        let mut found: HashMap<u32, Vec<u32>> = HashMap::default();
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

    /// Adds an operation; for scripts of events.
    pub(crate) fn add_op(&mut self, op: &Op) {
        let Some(state) = self.states.get_mut(&op.ring) else {
            return;
        };
        state.add_result(op);
        let exit_ns = self.exits.get(&state.ring.tgid);
        let by_exit = op.result == -ECANCELED
            && exit_ns.is_some_and(|exit_ns| op.complete_ns.saturating_add(EXIT_NS) >= *exit_ns);
        let long = op.complete_ns.saturating_sub(op.submit_ns) >= PENDING_NS;
        if long && !by_exit && self.ended.len() < MAX_ENDED {
            self.ended.insert((op.ring, op.submit_ns, op.opcode, op.fd));
        }
        if state.ops.len() < MAX_OPS {
            state.ops.push(op.clone());
        }
    }

    /// Adds an operation that the kernel still had; for scripts of events.
    pub(crate) fn add_pending(&mut self, pending: &Pending) {
        let operation = (pending.ring, pending.submit_ns, pending.opcode, pending.fd);
        if let Some(state) = self.states.get_mut(&pending.ring)
            && !self.ended.contains(&operation)
        {
            state.pending.add(pending);
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
        // The row of a sleep that has not ended is followed by one that has its end, but for the
        // last.
        let Some(end_ns) = wait.over_ns() else {
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
        .filter(|thread| is_worker(&thread.comm))
        .map(|thread| thread.tid)
        .collect()
}
