//! What bursts of system-call tracing saw, put together for each thread.

use std::collections::BTreeMap;

use whywait_events::{Burst, BurstCall, StackId};

/// Rows that are kept.
const MAX_BURSTS: usize = 100_000;
/// Fewer turns without progress say nothing.
const MIN_TURNS: u64 = 20;
/// Steps of a cycle: captures record no more.
const MAX_STEPS: usize = 32;
const MAX_CALLS: usize = 1_000_000;

/// What was seen in bursts.
#[derive(Debug, Clone, Default)]
pub struct Bursts {
    rows: Vec<Burst>,
    calls: BTreeMap<(u32, u32), Vec<BurstCall>>,
    kept_calls: usize,
}

impl Bursts {
    /// Adds what a burst saw of a thread.
    pub fn add(&mut self, row: &Burst) {
        if self.rows.len() < MAX_BURSTS {
            self.rows.push(row.clone());
        }
    }

    /// Adds a step of a cycle.
    pub fn add_step(&mut self, call: &BurstCall) {
        if self.kept_calls < MAX_CALLS {
            self.kept_calls += 1;
            self.calls
                .entry((call.burst, call.tid))
                .or_default()
                .push(call.clone());
        }
    }

    /// What each thread was seen doing, by thread id.
    pub fn threads(&self) -> Vec<Spinner> {
        let overhead_ns = self.overhead_ns();
        let mut threads: BTreeMap<(u32, u32), Spinner> = BTreeMap::new();
        for row in &self.rows {
            let spinner = threads
                .entry((row.tgid, row.tid))
                .or_insert_with(|| Spinner {
                    tgid: row.tgid,
                    tid: row.tid,
                    ..Spinner::default()
                });
            let cycle = self
                .calls
                .get(&(row.burst, row.tid))
                .map_or(&[][..], Vec::as_slice);
            spinner.add(row, overhead_ns, cycle);
        }
        threads.into_values().collect()
    }

    /// What tracing adds to a call, nanoseconds: what the burst in the middle measured. It is the
    /// machine's, and one burst may measure it in a moment when others use its CPU.
    fn overhead_ns(&self) -> u64 {
        let rows = self.rows.iter();
        let of_bursts: BTreeMap<_, _> = rows.map(|row| (row.burst, row.overhead_ns)).collect();
        let mut measured: Vec<u64> = of_bursts.into_values().collect();
        measured.sort_unstable();
        measured.get(measured.len() / 2).copied().unwrap_or(0)
    }
}

/// What bursts saw of a thread, summed up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spinner {
    /// Process id.
    pub tgid: u32,
    /// Thread id.
    pub tid: u32,
    /// In how many bursts it was seen.
    pub bursts: u64,
    /// Turns that were looked at.
    pub turns: u64,
    /// Of these: the poll returned at once, and nothing came of it.
    pub spins: u64,
    /// Of these: woken for what another thread had taken.
    pub lost_races: u64,
    /// Of these: something moved on.
    pub progress: u64,
    /// While calls were only counted: nanoseconds in all, on a CPU, calls and polls.
    pub counted_ns: u64,
    /// See `counted_ns`.
    pub on_cpu_ns: u64,
    /// See `counted_ns`.
    pub calls: u64,
    /// See `counted_ns`.
    pub polls: u64,
    /// What a turn took in each of these bursts as if nobody had traced, nanoseconds, and how many
    /// polls tell it.
    pub turn_in_bursts: Vec<(u64, u64)>,
    /// The cycle that was seen most clearly, in order; it begins with a poll.
    pub cycle: Vec<BurstCall>,
    /// Its length in turns.
    pub cycle_length: u64,
    /// Turns without progress that are as the cycle says, and in that burst all of them.
    pub cycle_turns: u64,
    /// See `cycle_turns`.
    pub cycle_of: u64,
    /// The connection (local and peer port) that woke it in each burst that saw it go round; `(0,
    /// 0)`: not the same one, or none.
    pub connection: Option<(u16, u16)>,
    /// Where it polls.
    pub user_stack: StackId,
}

impl Spinner {
    fn add(&mut self, row: &Burst, overhead_ns: u64, cycle: &[BurstCall]) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.bursts, 1);
        add(&mut self.turns, row.turns);
        add(&mut self.spins, row.spins);
        add(&mut self.lost_races, row.lost_races);
        add(&mut self.progress, row.progress);
        let futile = row.spins.saturating_add(row.lost_races);
        // A burst that came when the thread did not spin says nothing of how long a turn takes.
        if futile > 0 && futile >= row.turns / 2 {
            add(&mut self.counted_ns, row.counted_ns);
            add(&mut self.on_cpu_ns, row.on_cpu_ns);
            add(&mut self.calls, row.calls);
            add(&mut self.polls, row.polls);
            let added_ns = row.calls.saturating_mul(overhead_ns);
            // What is measured is never all overhead: a bound keeps the rate finite.
            let own_ns = row
                .on_cpu_ns
                .saturating_sub(added_ns)
                .max(row.on_cpu_ns / 8);
            if let Some(turn_ns) = own_ns.checked_div(row.polls) {
                self.turn_in_bursts.push((turn_ns, row.polls));
            }
        }
        if let Some(ready) = cycle.iter().min_by_key(|call| call.step) {
            let ports = (ready.local_port, ready.peer_port);
            self.connection = match self.connection {
                Some(before) if before != ports => Some((0, 0)),
                _ => Some(ports),
            };
        }
        if !cycle.is_empty() && row.cycle_turns > self.cycle_turns {
            self.cycle = cycle.to_vec();
            self.cycle.sort_by_key(|call| call.step);
            self.cycle.truncate(MAX_STEPS);
            self.cycle_length = row.cycle_length;
            self.cycle_turns = row.cycle_turns;
            self.cycle_of = futile;
        }
        if row.user_stack != 0 {
            self.user_stack = row.user_stack;
        }
    }

    /// Whether enough was seen, and whether turns without progress are a large part of it.
    pub fn goes_round(&self) -> bool {
        let futile = self.spins.saturating_add(self.lost_races);
        futile >= MIN_TURNS && futile.saturating_mul(4) >= self.turns && !self.cycle.is_empty()
    }

    /// CPU time of a turn when nobody traces, nanoseconds; `None`: not known. It is the burst's in
    /// the middle, by turns: one that came amid other work or on a busy CPU says too much.
    pub fn turn_ns(&self) -> Option<u64> {
        let mut turns = self.turn_in_bursts.clone();
        turns.sort_unstable();
        let mut left = self.polls / 2;
        let middle = turns.into_iter().find(|(_, polls)| {
            let found = *polls >= left;
            left = left.saturating_sub(*polls);
            found
        });
        middle.map(|(ns, _)| ns).filter(|ns| *ns > 0)
    }

    /// Turns a second of wall time while it was looked at, as they would be without tracing: a loop
    /// that spins has as many as its CPU time allows, one that sleeps as many as it is woken.
    pub fn turns_per_second(&self) -> Option<f64> {
        if self.counted_ns == 0 {
            return None;
        }
        let seconds = self.counted_ns as f64 / 1e9;
        if self.spins >= self.lost_races {
            let turn_ns = self.turn_ns()?;
            Some(self.on_cpu_ns as f64 / turn_ns as f64 / seconds)
        } else {
            Some(self.polls as f64 / seconds)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tracing_adds_is_taken_off_a_turn() {
        let mut bursts = Bursts::default();
        bursts.add(&Burst {
            burst: 1,
            tid: 7,
            tgid: 7,
            counted_ns: 60_000_000,
            on_cpu_ns: 60_000_000,
            calls: 200_000,
            polls: 40_000,
            overhead_ns: 100,
            turns: 199,
            spins: 199,
            ..Burst::default()
        });
        let threads = bursts.threads();
        assert_eq!(threads[0].turn_ns(), Some(1000));
        assert_eq!(threads[0].turns_per_second(), Some(1_000_000.0));
    }

    #[test]
    fn one_burst_that_measured_while_others_ran_changes_nothing() {
        let mut bursts = Bursts::default();
        for (burst, overhead_ns) in [(1, 100), (2, 10), (3, 105)] {
            bursts.add(&Burst {
                burst,
                tid: 7,
                tgid: 7,
                counted_ns: 60_000_000,
                on_cpu_ns: 60_000_000,
                calls: 200_000,
                polls: 40_000,
                overhead_ns,
                turns: 199,
                spins: 199,
                ..Burst::default()
            });
        }
        assert_eq!(bursts.threads()[0].turn_ns(), Some(1000));
    }

    #[test]
    fn forged_bursts_overflow_nothing() {
        let mut bursts = Bursts::default();
        let row = Burst {
            turns: u64::MAX,
            spins: u64::MAX,
            lost_races: u64::MAX,
            counted_ns: u64::MAX,
            on_cpu_ns: u64::MAX,
            calls: u64::MAX,
            polls: u64::MAX,
            overhead_ns: u64::MAX,
            ..Burst::default()
        };
        bursts.add(&row);
        bursts.add(&row);
        let threads = bursts.threads();
        let _ = (threads[0].turn_ns(), threads[0].turns_per_second());
    }
}
