//! Sleeps on futexes: the sums of the short ones.

use std::collections::BTreeMap;

use libbpf_rs::{MapCore, MapFlags};
use whywait_events::{Event, FutexSum};

use crate::core::collector::{Collector, Keeper};
use crate::core::error::CaptureError;
use crate::core::programs::Programs;
use crate::core::records::view;
use crate::core::shared::Shared;
use crate::core::skel::types;
use crate::core::thread_table::ThreadTable;

pub(crate) const COLLECTOR: Collector = Collector {
    keeper: |_| Box::new(Futexes),
    ..Collector::NONE
};

struct Futexes;

impl Keeper for Futexes {
    /// Writes the futex words that were seen, with what is known of the short sleeps on them.
    fn finish(
        &mut self,
        programs: &mut Programs,
        threads: &ThreadTable,
        shared: &mut Shared,
    ) -> Result<(), CaptureError> {
        for sum in shared.sleeps.words.take(short(programs, threads)) {
            shared.output.write(&Event::Futex(sum))?;
        }
        Ok(())
    }
}

/// The short sleeps on each futex word: what is summed up in `futexes`, and what threads have
/// summed up by themselves since.
fn short(programs: &Programs, threads: &ThreadTable) -> Vec<FutexSum> {
    let futexes = &programs.skel.maps.futexes;
    let mut sums: BTreeMap<(u32, u64), types::futex_sum> = futexes
        .keys()
        .filter_map(|key| {
            let value = futexes.lookup(&key, MapFlags::ANY).ok()??;
            let key: types::futex_key = view(&key)?;
            let state: types::futex_state = view(&value)?;
            Some(((key.tgid, key.address), state.sum))
        })
        .collect();
    let mut add = |thread: &types::thread| {
        let recent = thread.recent_futexes.iter().zip(&thread.futexes);
        for (address, recent) in recent.filter(|(_, recent)| recent.count > 0) {
            let sum = sums.entry((thread.tgid, *address)).or_default();
            sum.count = sum.count.saturating_add(recent.count);
            sum.total_ns = sum.total_ns.saturating_add(recent.total_ns);
            sum.longest_ns = sum.longest_ns.max(recent.longest_ns);
        }
    };
    // A thread that has ended has nothing.
    threads.states().for_each(|thread| add(&thread));
    let more_threads = &programs.skel.maps.more_threads;
    for tid in more_threads.keys() {
        if let Ok(Some(thread)) = more_threads.lookup(&tid, MapFlags::ANY)
            && let Some(thread) = view(&thread)
        {
            add(&thread);
        }
    }
    sums.into_iter()
        .filter(|(_, sum)| sum.count > 0)
        .map(|((tgid, address), sum)| FutexSum {
            tgid,
            address,
            count: sum.count,
            total_ns: sum.total_ns,
            longest_ns: sum.longest_ns,
            mapping: String::new(),
        })
        .collect()
}
