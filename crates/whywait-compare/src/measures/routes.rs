//! Routes: how long the requests of each take, where the recording has names.

use super::catalogue::ROUTE;
use super::{Better, Group, Measure, MeasureSource, Run, Unit};

pub(super) fn collect(source: &MeasureSource<'_>, run: &mut Run) {
    let routes = source.model.routes().unwrap_or_default();
    // Where requests cannot be told apart, neither can those of a route.
    for row in routes.rows.iter().filter(|_| source.requests > 0) {
        let mut add = |stat: &str, at_least_ns: u64, at_most_ns: u64| {
            let value = at_least_ns as f64;
            let mut measure = Measure::new(Group::Section, Unit::Ns, Better::Neither, value);
            measure.at_most = (at_most_ns > at_least_ns).then_some(at_most_ns as f64);
            run.add(format!("{ROUTE} {}.{stat}", row.name), measure);
        };
        add("p99", row.p99_at_least_ns, row.p99_ns);
        add("max", row.max_ns, row.max_ns);
    }
}
