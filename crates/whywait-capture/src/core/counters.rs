//! The loss counters that the BPF programs keep for each CPU, added up under the recording's names.

use libbpf_rs::{Map, MapCore, MapFlags};

use super::records::{Plain, view};
use super::skel::types;

/// What a map with one value has on each CPU.
pub(crate) fn per_cpu<T: Plain>(map: &Map<'_>) -> Vec<T> {
    per_cpu_of(map, 0)
}

/// What an array has on each CPU at one of its places.
pub(crate) fn per_cpu_of<T: Plain>(map: &Map<'_>, place: u32) -> Vec<T> {
    match map.lookup_percpu(&place.to_ne_bytes(), MapFlags::ANY) {
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
        cpu_wait_budget => "cpu-waits.over-budget",
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
        uring_pending_budget => "rings.pending-over-budget",
        storm_waits => "waits.summed-up",
        unmatched_wakes => "unmatched-wakes",
        unseen_switches => "unseen-switches",
        lost_calls => "lost.calls",
        calls_counted_only => "bursts.calls-counted-only",
        lost_socket_cpu => "sockets.without-slot",
        closings => "requests.farewells",
        began_later => "requests.began-later",
        exchange_budget => "exchanges.over-budget",
        lost_peers => "exchanges.peers-not-apart",
        tail_budget => "tails.over-budget",
        push_budget => "pushes.over-budget",
        unknown_tails => "tails.unknown",
        abandoned_budget => "abandoned.over-budget",
        datagrams_answered => "datagrams.answered",
        datagrams_unanswered => "datagrams.unanswered",
        datagrams_retried => "datagrams.retried",
        datagrams_untimed => "datagrams.untimed",
        datagrams_by_thread => "datagrams.by-thread",
        datagrams_unasked => "datagrams.unasked",
        datagrams_dropped => "datagrams.dropped",
        datagrams_quic => "datagrams.quic",
        streams_connections => "streams.connections",
        streams_begun => "streams.begun",
        streams_answered => "streams.answered",
        streams_reset => "streams.reset",
        streams_open => "streams.open",
        streams_went_on => "streams.went-on",
        streams_went_on_ns => "streams.went-on-ns",
        streams_untimed => "streams.untimed",
        streams_unfollowed => "streams.unfollowed",
        lost_streams => "lost.streams",
        lost_stream_connections => "streams.connections-not-followed",
        streams_lost_place => "streams.connections-lost",
        calls_connections => "call-streams.connections",
        calls_begun => "call-streams.begun",
        calls_unfollowed => "call-streams.unfollowed",
        lost_call_streams => "lost.call-streams",
        calls_not_followed => "call-streams.connections-not-followed",
        calls_lost_place => "call-streams.connections-lost",
        tls_connections => "tls.connections",
        tls_http2 => "tls.http2",
        tls_early => "tls.reads-too-early",
        lost_tls_calls => "lost.tls-calls",
        lost_tls_connections => "tls.connections-not-followed",
        jobs_fetches => "jobs.fetches",
        jobs_waited_ns => "jobs.waited-ns",
        jobs_calls_behind => "jobs.calls-behind",
        jobs_given_up => "jobs.given-up",
        dns_queries => "dns.queries",
        dns_budget => "dns.over-budget",
        fields_budget => "names.fields-over-budget",
        stolen_ns => "cpu.stolen-ns",
    }
    .into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    /// What a page has in backticks in the first column of its tables. `.b` after `a.x` is `a.b`.
    fn documented(page: &str) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for line in page.lines().filter_map(|line| line.strip_prefix("| `")) {
            let (cell, _) = line.split_once(" | ").unwrap_or((line, ""));
            let mut of = "";
            for name in cell.split('`').step_by(2) {
                match name.strip_prefix('.') {
                    Some(last) => names.insert(format!("{of}.{last}")),
                    None => {
                        of = name.split_once('.').map_or("", |(of, _)| of);
                        names.insert(name.to_owned())
                    }
                };
            }
        }
        names
    }

    #[test]
    fn each_counter_has_its_line_in_the_documentation() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/recording.md");
        let documented = documented(&std::fs::read_to_string(page).expect("the page is there"));
        // Those of one loss each have a line for all.
        let is_loss = |name: &str| name.starts_with("lost.") || name.starts_with("stacks.");
        let source = include_str!("counters.rs").lines();
        let names: Vec<&str> = source
            .filter_map(|line| line.trim().split_once(" => \"")?.1.strip_suffix("\","))
            .filter(|name| !is_loss(name))
            .collect();
        assert!(names.len() > 40, "{names:?}");
        for name in names {
            assert!(
                documented.contains(name),
                "the list of counters at the end of docs/recording.md says nothing of `{name}`"
            );
        }
    }
}
