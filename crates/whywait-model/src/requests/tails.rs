//! Responses that were at the peer long after they were written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use whywait_events::{Tail, TailReason};

use crate::maps::HashMap;
use crate::rows::Rows;

/// The counter of all of them, and of how long they were held back together.
const COUNT: &str = "requests.tails";
const TOTAL_NS: &str = "requests.tails-ns";

/// What was held back, over a recording.
#[derive(Debug, Clone, Default)]
pub struct Tails {
    rows: Rows<Tail, 100_000>,
    /// Where in `rows`, by socket and number.
    by_request: HashMap<(u64, u32), usize>,
}

/// Responses of which the end was held back: their clients waited for longer than the latency here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Held {
    /// How many.
    pub count: u64,
    /// For how long, together.
    pub total_ns: u64,
    /// For how long most of them, the median; 0: not known.
    pub median_ns: u64,
}

impl Tails {
    /// The rows of which the end was late.
    pub fn late(&self) -> impl Iterator<Item = &Tail> {
        self.rows.iter().filter(|row| held_ns(row) > 0)
    }

    /// The row of a request, if it has one.
    pub fn of(&self, socket: u64, seq: u32) -> Option<&Tail> {
        let index = self.by_request.get(&(socket, seq))?;
        self.rows.get(*index)
    }

    /// Takes a row of the recording.
    pub fn add(&mut self, row: &Tail) {
        let at = self.rows.len();
        if self.rows.push(row.clone()) {
            self.by_request.insert((row.socket, row.seq), at);
        }
    }

    /// The rows.
    pub fn rows(&self) -> &Rows<Tail, 100_000> {
        &self.rows
    }

    /// All of them, those without a row too; `None`: there are none.
    pub(crate) fn held(&self, counters: &BTreeMap<String, u64>) -> Option<Held> {
        let of = |name: &str| counters.get(name).copied().unwrap_or(0);
        let mut each: Vec<u64> = self.late().map(held_ns).collect();
        let median = each.len() / 2;
        let sum = each.iter().fold(0, |sum: u64, ns| sum.saturating_add(*ns));
        let median_ns = match each.len() {
            0 => 0,
            _ => *each.select_nth_unstable(median).1,
        };
        let count = of(COUNT).max(each.len() as u64);
        (count > 0).then(|| Held {
            count,
            total_ns: of(TOTAL_NS).max(sum),
            median_ns,
        })
    }
}

/// How long after it was written its end went out.
pub fn held_ns(tail: &Tail) -> u64 {
    match tail.reason {
        TailReason::None => 0,
        _ => tail.sent_ns.saturating_sub(tail.written_ns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_without_a_row_count() {
        let mut tails = Tails::default();
        let none = BTreeMap::new();
        assert_eq!(tails.held(&none), None);
        for ns in [30, 50, 40] {
            tails.add(&Tail {
                written_ns: 7,
                sent_ns: 7 + ns,
                ..Tail::default()
            });
        }
        let held = |count, total_ns| {
            Some(Held {
                count,
                total_ns,
                median_ns: 40,
            })
        };
        assert_eq!(tails.held(&none), held(3, 120));
        let counters = [(COUNT, 10), (TOTAL_NS, 400)].map(|(name, n)| (name.to_owned(), n));
        assert_eq!(tails.held(&counters.into()), held(10, 400));
    }
}
