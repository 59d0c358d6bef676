//! The table `samples`.

use std::collections::HashMap;

use whywait_events::Sample;
use whywait_events::recording::ReadError;

use crate::Source;
use crate::identity::Hour;
use crate::table::{WallClock, published};
use crate::text::{folded_stacks, name};

/// Distinct stacks of a recording that are kept apart: the rest is one row an hour.
const MAX_STACKS: usize = 65_536;

published! {
    /// Where threads were on a CPU: the samples of an hour, summed up by thread and stack.
    ///
    /// The sampling clock ticks less often while nothing is slow. `samples` counts its full
    /// periods, so that rows compare: of `sample_hz` a second and CPU.
    "samples": struct SampleRow {
        /// The hour's first sample in this stack.
        ts: WallClock,
        /// The thread, each number in its name as `N`.
        thread: String,
        /// The innermost function of the application's own, or else the innermost one; NULL: not
        /// known.
        function: Option<String>,
        /// Whether it was in the kernel.
        in_kernel: bool,
        /// Periods of the sampling clock.
        samples: u64,
        /// The same as time on a CPU.
        cpu_ns: u64,
        /// The stack, folded, outermost first, the kernel's functions with `_[k]`; empty: not
        /// known.
        stack: String,
    }
}

/// Samples that are taken together: hour, thread, user stack and kernel stack. Without a thread:
/// those of stacks that are too many.
type SampleKey = (Hour, u32, u32, u32);

/// What they are taken together by in the end: hour, thread, function, stack, and whether they are
/// in the kernel.
type Named = (Hour, String, Option<String>, String, bool);

pub(super) fn rows(source: &Source<'_>) -> Result<Vec<SampleRow>, ReadError> {
    let mut sums: HashMap<SampleKey, (WallClock, u64)> = HashMap::new();
    source.recording.read::<Sample>(None, &mut |sample| {
        let at = source.identity.at(sample.at_ns);
        let hour = source.identity.hour(at);
        let mut key = (hour, sample.tid, sample.user_stack, sample.kernel_stack);
        if sums.len() >= MAX_STACKS && !sums.contains_key(&key) {
            key = (hour, 0, 0, 0);
        }
        let sum = sums.entry(key).or_insert((at, 0));
        sum.0 = sum.0.min(at);
        sum.1 = sum.1.saturating_add(sample.weight());
    })?;
    // Threads of one role are one, and so are stacks whose functions are the same.
    let mut named: HashMap<Named, SampleRow> = HashMap::new();
    let hz = u64::from(source.model.meta.options.sample_hz).max(1);
    for ((hour, tid, user, kernel), (at, samples)) in sums {
        let thread = source.model.role_name(tid);
        let stack = folded_stacks(source.model, user, kernel);
        let stacks = &source.model.stacks;
        let function = stacks.telling(user).or_else(|| stacks.telling(kernel));
        let function = function.map(|function| name(&function));
        let key = (
            hour,
            thread.clone(),
            function.clone(),
            stack.clone(),
            kernel != 0,
        );
        let row = named.entry(key).or_insert(SampleRow {
            ts: at,
            thread,
            function,
            in_kernel: kernel != 0,
            samples: 0,
            cpu_ns: 0,
            stack,
        });
        row.ts = row.ts.min(at);
        row.samples = row.samples.saturating_add(samples);
        let ns = u128::from(row.samples) * 1_000_000_000 / u128::from(hz);
        row.cpu_ns = u64::try_from(ns).unwrap_or(u64::MAX);
    }
    let mut rows: Vec<SampleRow> = named.into_values().collect();
    rows.sort_by(|a, b| {
        let key = |row: &SampleRow| source.identity.hour(row.ts);
        (key(a), &a.function, &a.thread, &a.stack, a.in_kernel).cmp(&(
            key(b),
            &b.function,
            &b.thread,
            &b.stack,
            b.in_kernel,
        ))
    });
    Ok(rows)
}
