//! The table `request_parts`.

use serde_json::Value;
use whywait_events::recording::ReadError;
use whywait_model::Account;

use crate::Source;
use crate::table::{WallClock, published};

published! {
    /// A part of a request's time, or of many requests' time together.
    ///
    /// A request that has a row in `requests` has a row here for each part that is not 0: they sum
    /// to its latency. All others together have a row a part, without `request`: `weight` says how
    /// many they are, and `ns` is the sum over all of them. So `sum(ns)` by part is the report's
    /// table of time.
    "request_parts": struct PartRow {
        /// When the kernel had the request's first byte; of many, when the recording began.
        ts: WallClock,
        /// Names it within the recording; NULL: many.
        request: Option<String>,
        /// How many requests the row stands for.
        weight: u64,
        /// The part, as in the report's JSON: `on-cpu`, `lock`, `ready-unserved.pool-busy`, …
        part: String,
        /// Nanoseconds.
        ns: u64,
    }
}

pub(super) fn rows(source: &Source<'_>) -> Result<Vec<PartRow>, ReadError> {
    let summed_up = source.model.summed_up();
    let mut rows = Vec::new();
    let at = source.identity.started();
    add(&mut rows, at, None, summed_up.count, &summed_up.account);
    for request in source.model.requests().filter(|request| request.counts()) {
        let at = source.identity.at(request.ready_ns);
        add(&mut rows, at, Some(request.id()), 1, request.account());
    }
    rows.sort_by_key(|row| (source.identity.hour(row.ts), row.request.is_some(), row.ts));
    Ok(rows)
}

fn add(
    rows: &mut Vec<PartRow>,
    ts: WallClock,
    request: Option<String>,
    weight: u64,
    account: &Account,
) {
    let time = serde_json::to_value(account.time()).unwrap_or_default();
    each_part("", &time, &mut |part, ns| {
        if ns > 0 {
            rows.push(PartRow {
                ts,
                request: request.clone(),
                weight,
                part: part.to_owned(),
                ns,
            });
        }
    });
}

/// The figures of the report's table of time, by name: what is within another has that one's name
/// and a dot before its own.
fn each_part(name: &str, time: &Value, visit: &mut dyn FnMut(&str, u64)) {
    match time {
        Value::Object(parts) => {
            for (part, time) in parts {
                match name {
                    "" => each_part(part, time, visit),
                    name => each_part(&format!("{name}.{part}"), time, visit),
                }
            }
        }
        time => {
            if let Some(ns) = time.as_u64() {
                visit(name, ns);
            }
        }
    }
}
