//! What requests are spared without the work.

use std::collections::{BTreeMap, BTreeSet};

use whywait_events::Part;
use whywait_model::{Model, PathStep};
use whywait_words::duration;

use super::{Episode, counted_ns};
use crate::finding::Evidence;
use crate::numbers::{NOTABLE, Share};
use crate::shared::intervals::{Interval, merged, sum};
use crate::shared::replay::{Gone, Spared, name};
use crate::shared::slow_paths::{self, SlowRequest, SlowRequests};

/// What the requests are spared.
pub(super) struct AllSpared<'a> {
    pub(super) requests: Vec<Spared<'a>>,
    /// Of that waits for a CPU that the work had.
    without_cpu_ns: u64,
}

/// What each slow request is spared: the work itself, and its waits for a CPU while the work had
/// one, or while its own work had none.
pub(super) fn spared<'a>(
    model: &Model,
    episodes: &[Episode<'a>],
    slow: &'a SlowRequests<'a>,
) -> AllSpared<'a> {
    let steps = episodes.iter().flat_map(|(_, on_path)| &on_path.steps);
    let working = merged(steps.map(|(step, _)| (step.from_ns, step.to_ns)).collect());
    let mut all = AllSpared {
        requests: Vec::new(),
        without_cpu_ns: 0,
    };
    let by_name: BTreeMap<_, _> = episodes
        .iter()
        .map(|(request, on_path)| (name(request.request), on_path))
        .collect();
    for request in &slow.requests {
        let work = by_name.get(&name(request.request));
        let own: BTreeSet<u32> = work
            .iter()
            .flat_map(|on_path| &on_path.steps)
            .map(|(step, _)| step.tid)
            .collect();
        let waited: Vec<Gone> = slow_paths::steps(request)
            .filter(|(part, _)| *part == Part::Runnable)
            .filter(|(_, step)| own.contains(&step.tid) || overlaps(&working, step))
            .map(|(_, step)| gone(step, step.ns()))
            .collect();
        let steps = work.iter().flat_map(|on_path| &on_path.steps);
        // Waits for a CPU that are too short for rows of their own are in the same steps.
        let short = |(step, ns): &(&PathStep, u64)| {
            let thread = model.threads.get(&step.tid);
            let runnable_ns =
                thread.map_or(0, |thread| counted_ns(thread, (step.from_ns, step.to_ns)).1);
            runnable_ns.min(step.ns().saturating_sub(*ns))
        };
        let short_ns = sum(steps.clone().map(short));
        let mut spared: Vec<Gone> = steps
            .map(|one| gone(one.0, one.1.saturating_add(short(one))))
            .collect();
        let read_ns = before_reading_ns(model, request, &working);
        let waited_ns = sum(waited.iter().map(|gone| gone.ns));
        let without_cpu_ns = sum([waited_ns, short_ns, read_ns]);
        all.without_cpu_ns = all.without_cpu_ns.saturating_add(without_cpu_ns);
        spared.extend(waited);
        let ns = work.map_or(0, |on_path| on_path.ns);
        all.requests.push(Spared {
            request: request.request,
            ns: ns.saturating_add(without_cpu_ns),
            gone: spared,
        });
    }
    all
}

fn gone(step: &PathStep, ns: u64) -> Gone {
    Gone {
        tid: step.tid,
        from_ns: step.from_ns,
        to_ns: step.to_ns,
        ns: ns.min(step.ns()),
    }
}

/// How long the reader of a request could have read it and had no CPU, while the work had one.
fn before_reading_ns(model: &Model, slow: &SlowRequest<'_>, working: &[Interval]) -> u64 {
    let (from_ns, to_ns) = (slow.request.ready_ns, slow.request.served_ns());
    let first = working.partition_point(|(_, until_ns)| *until_ns <= from_ns);
    let reader = model.threads.get(&slow.request.recv_tid);
    let meanwhile = working[first..]
        .iter()
        .take_while(|(begun_ns, _)| *begun_ns < to_ns)
        .map(|(begun_ns, until_ns)| ((*begun_ns).max(from_ns), (*until_ns).min(to_ns)));
    reader.map_or(0, |thread| {
        sum(meanwhile.map(|(from_ns, to_ns)| thread.without_cpu_ns(from_ns, to_ns)))
    })
}

fn overlaps(working: &[Interval], step: &PathStep) -> bool {
    let first = working.partition_point(|(_, to_ns)| *to_ns <= step.from_ns);
    working
        .get(first)
        .is_some_and(|(from_ns, _)| *from_ns < step.to_ns)
}

impl AllSpared<'_> {
    /// That the work took a CPU from requests, where that is worth a word.
    pub(super) fn without_cpu(&self, work_ns: u64) -> Option<Evidence> {
        let text = format!(
            "besides, slow requests waited {} for a CPU while it had one, or for its own: the \
             bound has that, too",
            duration(self.without_cpu_ns)
        );
        (self.without_cpu_ns > 0 && Share::new(self.without_cpu_ns, work_ns).is_at_least(*NOTABLE))
            .then(|| Evidence::of_ns(self.without_cpu_ns, text))
    }
}
