//! The calls by what they ask for.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use whywait_events::Exchange;

use crate::model::Model;

/// What was asked of a peer under one name. The field names are those of the JSON report
/// (schema 1).
///
/// All slow calls have a name, and of the short ones those that have a row. How many calls of a
/// name there were follows from how many there are of both.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct StatementRow {
    /// The name: `SELECT … FROM items WHERE order_id = ?`; `all others` for those that are not kept
    /// apart. Hostile.
    pub name: String,
    /// Whom it was asked. Hostile.
    pub peer: String,
    /// About so many calls there were.
    pub calls: u64,
    /// … for each request, on average; `None`: there were no requests.
    pub per_request: Option<f64>,
    /// So many have a name.
    pub named: u64,
    /// Of these: that took at least the recording's threshold.
    pub slow: u64,
    /// Of those that have a name the one in the middle took so long.
    pub p50_ns: u64,
    /// The slowest of them.
    pub max_ns: u64,
    /// All of them together.
    pub total_ns: u64,
}

/// The named calls of one name.
#[derive(Default)]
struct NamedCalls {
    slow: u64,
    took_ns: Vec<u64>,
}

impl Model {
    /// What a call asks for; `None`: no names were asked for, or it is not known.
    pub(crate) fn name_of_call(&self, call: &Exchange) -> Option<&str> {
        self.given_names.of(call.socket, call.seq)
    }

    /// What was asked of peers, by name: the most calls first.
    pub fn statements(&self) -> Vec<StatementRow> {
        if self.given_names.are_none() {
            return Vec::new();
        }
        let mut named: BTreeMap<(u32, &str), NamedCalls> = BTreeMap::new();
        // Of each peer, how many of the short calls have a row.
        let mut short: BTreeMap<u32, u64> = BTreeMap::new();
        for (calls, is_slow) in [(&*self.calls.exchanges, true), (&*self.calls.short, false)] {
            for call in calls {
                if !is_slow {
                    *short.entry(call.peer).or_default() += 1;
                }
                let Some((name, read_ns)) = self.name_of_call(call).zip(call.last_read_ns) else {
                    continue;
                };
                let sums = named.entry((call.peer, name)).or_default();
                sums.slow += u64::from(is_slow);
                sums.took_ns
                    .push(read_ns.saturating_sub(call.first_send_ns));
            }
        }
        let requests = self.requests_that_count();
        let rows = named.into_iter().map(|((peer, name), mut sums)| {
            sums.took_ns.sort_unstable();
            let all = sums.took_ns.len() as u64;
            let of_peer = self.calls.sums.get(&peer);
            let short_calls = of_peer.map_or(0, |sums| sums.count.saturating_sub(sums.slow));
            let short_rows = short.get(&peer).copied().unwrap_or(0).max(1);
            let share = u128::from(all - sums.slow) * u128::from(short_calls.max(short_rows));
            let calls = sums.slow + (share / u128::from(short_rows)) as u64;
            StatementRow {
                name: name.to_owned(),
                peer: self.name_of_peer(peer),
                calls,
                per_request: (requests > 0).then(|| calls as f64 / requests as f64),
                named: all,
                slow: sums.slow,
                p50_ns: sums.took_ns[(sums.took_ns.len() - 1) / 2],
                max_ns: sums.took_ns.last().copied().unwrap_or(0),
                total_ns: sums.took_ns.iter().copied().fold(0, u64::saturating_add),
            }
        });
        let mut rows: Vec<StatementRow> = rows.collect();
        rows.sort_by_key(|row| std::cmp::Reverse((row.total_ns, row.calls)));
        rows
    }
}
