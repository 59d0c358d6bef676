//! Where the requests' time went, by what they are called.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::model::Model;
use crate::requests::RequestRef;
use crate::requests::account::{Account, Time};

/// The requests by what they are called. Only those are named that have a row: of the others the
/// sums are known. The field names are those of the JSON report (schema 1).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Routes {
    /// How many requests have a row and count.
    pub requests: u64,
    /// Their time.
    pub total_ns: u64,
    /// Of these: that have no name.
    pub unnamed: u64,
    /// Requests and calls whose path client and server agreed on before the recording: HTTP/2 has
    /// a number for it then, and no name.
    pub said_before: u64,
    /// Those of each name, the most time first.
    pub rows: Vec<RouteRow>,
}

/// The requests of one name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct RouteRow {
    /// The name: `GET /orders/{id}`; `all others` for those that are not kept apart. Hostile.
    pub name: String,
    /// How many.
    pub requests: u64,
    /// Of these requests the one in the middle took so long.
    pub p50_ns: u64,
    /// The slowest in a hundred of them took longer.
    pub p99_ns: u64,
    /// Of all requests of this name at least this is so, whether they have a row or not: if none
    /// that has no row is of another one.
    pub p99_at_least_ns: u64,
    /// The slowest of them.
    pub max_ns: u64,
    /// All of them together.
    pub total_ns: u64,
    /// Where that time went.
    pub time: Time,
    /// The slowest, by their ids.
    pub slowest: Vec<String>,
}

/// Counts the requests and calls with a row of which no name is known.
const NOT_KNOWN: &str = "names.not-known";
/// … and of these the ones that refer to what was said before.
const SAID_BEFORE: &str = "names.said-before";
/// So many of the slowest of a name are listed, to be asked for one by one.
const MAX_SLOWEST: usize = 5;

impl<'m> RequestRef<'m> {
    /// What it is called; `None`: no names were asked for, or its is not known.
    pub fn name(self) -> Option<&'m str> {
        self.model().given_names.of(self.socket, self.seq)
    }
}

impl Model {
    /// Whether names were asked for when it was recorded.
    pub fn asked_for_names(&self) -> bool {
        // The counter is there where they were.
        !self.given_names.are_none() || self.counters.contains_key(NOT_KNOWN)
    }

    /// The requests by what they are called; `None`: no names were asked for, or there are none.
    pub fn routes(&self) -> Option<Routes> {
        if !self.asked_for_names() {
            return None;
        }
        let mut routes = Routes {
            said_before: self.counters.get(SAID_BEFORE).copied().unwrap_or(0),
            ..Routes::default()
        };
        let others = usize::try_from(self.sums.count).unwrap_or(usize::MAX);
        let mut named: BTreeMap<&str, Vec<RequestRef<'_>>> = BTreeMap::new();
        for request in self.requests().filter(|request| request.counts()) {
            routes.requests += 1;
            routes.total_ns = routes.total_ns.saturating_add(request.age_ns());
            match request.name() {
                Some(name) => named.entry(name).or_default().push(request),
                None => routes.unnamed += 1,
            }
        }
        routes.rows = named
            .into_iter()
            .map(|(name, requests)| route(name, requests, others))
            .collect();
        let order = |row: &RouteRow| std::cmp::Reverse(row.total_ns);
        routes.rows.sort_by_key(order);
        (routes.requests > 0).then_some(routes)
    }
}

/// `others`: so many requests have no row. They may be of this name, and are quicker.
fn route(name: &str, mut requests: Vec<RequestRef<'_>>, others: usize) -> RouteRow {
    requests.sort_by_key(|request| request.age_ns());
    let mut account = Account::default();
    let mut total_ns = 0_u64;
    for request in &requests {
        account += *request.account();
        total_ns = total_ns.saturating_add(request.age_ns());
    }
    // The one with the smallest rank that so many of a hundred do not exceed.
    let at = |hundredths: usize, others: usize| {
        let all = requests.len().saturating_add(others);
        let rank = all.saturating_mul(hundredths).div_ceil(100).max(1);
        let place = rank.checked_sub(others + 1);
        let request = place.and_then(|place| requests.get(place));
        request.map_or(0, |request| request.age_ns())
    };
    let slowest = requests.iter().rev().take(MAX_SLOWEST);
    RouteRow {
        name: name.to_owned(),
        requests: requests.len() as u64,
        p50_ns: at(50, 0),
        p99_ns: at(99, 0),
        p99_at_least_ns: at(99, others),
        max_ns: at(100, 0),
        total_ns,
        time: account.time(),
        slowest: slowest.map(|request| request.id()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use whywait_events::NameKind::Route;
    use whywait_events::Part;

    use crate::script::Script;

    /// Requests of which each but one has a name, with a later row for one of them.
    fn script() -> Script {
        let mut script = Script::new();
        for (socket, ms) in [(1, 10), (2, 20), (3, 30), (4, 40)] {
            script
                .request(socket)
                .ready(100)
                .read(100, 1)
                .spent(Part::OnCpu, ms)
                .answered(100 + ms, 1);
        }
        script
            .name((1, 1), Route, "GET /a")
            .name((2, 1), Route, "GET /b")
            .name((3, 1), Route, "GET /b")
            .name((2, 1), Route, "GET /a")
            .name((9, 1), Route, "GET /none")
            .ends(1000);
        script
    }

    #[test]
    fn routes_are_sums_of_their_requests() {
        let routes = script().model().routes().expect("they have names");
        assert_eq!((routes.requests, routes.unnamed), (4, 1));
        assert_eq!(routes.total_ns, 100_000_000);
        let rows: Vec<(&str, u64, u64, u64)> = routes
            .rows
            .iter()
            .map(|row| (&*row.name, row.requests, row.p50_ns, row.total_ns))
            .collect();
        assert_eq!(
            rows,
            [
                ("GET /a", 2, 10_000_000, 30_000_000),
                ("GET /b", 1, 30_000_000, 30_000_000)
            ]
        );
        assert_eq!(routes.rows[0].slowest, ["2:1", "1:1"]);
        assert_eq!(routes.rows[0].p99_ns, 20_000_000);
        assert_eq!(routes.rows[0].p99_at_least_ns, 20_000_000);
        let mut others = script();
        others.counter("requests.count", 98);
        let routes = others.model().routes().expect("they have names");
        // One of a hundred may be slower, …
        assert_eq!(routes.rows[0].p99_at_least_ns, 10_000_000);
        // … which is the only one that a route has, …
        assert_eq!(routes.rows[1].p99_at_least_ns, 30_000_000);
        // … unless two may be.
        others.counter("requests.count", 100);
        let routes = others.model().routes().expect("they have names");
        assert_eq!(routes.rows[1].p99_at_least_ns, 0);
        // Whatever it was, it is all of it.
        for row in &routes.rows {
            let time = &row.time;
            let parts = [
                time.on_cpu,
                time.disk,
                time.network,
                time.timer,
                time.unknown,
            ];
            assert_eq!(
                parts.into_iter().flatten().sum::<u64>(),
                row.total_ns,
                "{row:?}"
            );
        }
    }

    #[test]
    fn without_names_there_are_no_routes() {
        let mut script = Script::new();
        script.request(1).ready(1).read(1, 1).answered(9, 1);
        assert_eq!(script.ends(20).model().routes(), None);
        script.counter("names.not-known", 1);
        let routes = script.model().routes().expect("they were asked for");
        assert_eq!(
            (routes.requests, routes.unnamed, routes.rows.len()),
            (1, 1, 0)
        );
        script.counter("names.said-before", 1);
        assert_eq!(script.model().routes().map(|it| it.said_before), Some(1));
    }
}
