//! The sums and the loss counters that the BPF programs keep for each CPU, added up under the
//! recording's names.

use std::collections::BTreeMap;

use libbpf_rs::{Map, MapCore, MapFlags};
use whywait_events::{FutexSum, Part};

use crate::records::{Plain, view};
use crate::skel::types;
use crate::thread_table::ThreadTable;

fn per_cpu<T: Plain>(map: &Map<'_>) -> Vec<T> {
    match map.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY) {
        Ok(Some(values)) => values.iter().filter_map(|bytes| view(bytes)).collect(),
        _ => Vec::new(),
    }
}

/// The sums of counters under their names. A counter without a name does not compile.
macro_rules! named {
    ($cpus:ident: $($field:ident => $name:literal,)*) => {{
        let types::counters { $($field: _),* } = types::counters::default();
        [$(($name.to_owned(), $cpus.iter().map(|cpu| cpu.$field).sum())),*]
    }};
}

/// Loss and event counters.
pub(crate) fn losses(map: &Map<'_>) -> Vec<(String, u64)> {
    let cpus: Vec<types::counters> = per_cpu(map);
    named! { cpus:
        events => "events",
        lost_ring_full => "lost.ring-full",
        lost_stack_ring_full => "lost.stack-ring-full",
        lost_thread_storage => "lost.thread-storage",
        lost_socket_storage => "lost.socket-storage",
        lost_wait_budget => "lost.wait-budget",
        preempted_budget => "preempted.over-budget",
        lost_request_budget => "requests.over-budget",
        sleeper_no_stack => "stacks.sleeper-unreadable",
        sleeper_moved => "stacks.sleeper-moved",
        sample_no_stack => "stacks.sample-unreadable",
        lost_futexes => "lost.futexes",
        user_stack_unread => "stacks.wait-unreadable",
        user_stack_budget => "stacks.wait-over-budget",
        waker_stack_budget => "stacks.waker-over-budget",
        lost_rings => "lost.rings",
        uring_op_budget => "rings.ops-over-budget",
        uring_lag_budget => "rings.lags-over-budget",
        storm_waits => "waits.summed-up",
        unmatched_wakes => "unmatched-wakes",
        unseen_switches => "unseen-switches",
        lost_calls => "lost.calls",
        calls_counted_only => "bursts.calls-counted-only",
        lost_socket_cpu => "sockets.without-slot",
        farewells => "requests.farewells",
        began_later => "requests.began-later",
        stolen_ns => "cpu.stolen-ns",
    }
    .into()
}

/// The short sleeps on each futex word: what is summed up in `futexes`, and what threads have
/// summed up by themselves since.
pub(crate) fn futexes(
    futexes: &Map<'_>,
    threads: &ThreadTable,
    more_threads: &Map<'_>,
) -> Vec<FutexSum> {
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

/// How many threads connections woke, by port.
pub(crate) fn herds(map: &Map<'_>) -> Vec<(String, u64)> {
    map.keys()
        .filter_map(|key| {
            let value = map.lookup(&key, MapFlags::ANY).ok()??;
            Some((view::<u32>(&key)?, view::<types::herd_sum>(&value)?))
        })
        .flat_map(|(port, sum)| {
            [
                ("connections", sum.events),
                ("extra-wakes", sum.extra_wakes),
                ("most-woken", sum.most_woken),
                ("dry-wakes", sum.dry_wakes),
                ("dry-cpu-ns", sum.dry_cpu_ns),
                ("reuseport", sum.reuseport),
            ]
            .map(|(name, value)| (format!("herd.{port}.{name}"), value))
        })
        .collect()
}

/// The sums over the requests that are not in the table of requests.
pub(crate) fn requests(map: &Map<'_>) -> Vec<(String, u64)> {
    let cpus: Vec<types::request_totals> = per_cpu(map);
    let sum = |field: fn(&types::request_totals) -> u64| cpus.iter().map(field).sum::<u64>();
    let mut found = vec![
        ("requests.count".to_owned(), sum(|t| t.count)),
        ("requests.slow".to_owned(), sum(|t| t.slow)),
        ("requests.total-ns".to_owned(), sum(|t| t.total_ns)),
        (
            "requests.max-ns".to_owned(),
            cpus.iter().map(|t| t.max_ns).max().unwrap_or(0),
        ),
        ("requests.unserved-ns".to_owned(), sum(|t| t.unserved_ns)),
        (
            "requests.unserved-wakeup-ns".to_owned(),
            sum(|t| t.unserved_wakeup_ns),
        ),
    ];
    for part in Part::ALL {
        let ns = cpus
            .iter()
            .map(|totals| totals.service[part as usize])
            .sum();
        found.push((format!("requests.service.{}", part.name()), ns));
    }
    let buckets = cpus.first().map_or(0, |totals| totals.latency.len());
    for bucket in 0..buckets {
        let count: u64 = cpus.iter().map(|totals| totals.latency[bucket]).sum();
        if count > 0 {
            found.push((format!("latency.bucket.{bucket}"), count));
        }
    }
    found
}
