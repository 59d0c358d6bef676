//! Routes: how long the requests of each take, where the recording has names.

use super::catalogue::ROUTE;
use super::{Better, Group, Measure, MeasureSource, Run, Subject, Unit};

pub(super) fn collect(source: &MeasureSource<'_>, run: &mut Run) {
    // Where requests cannot be told apart, neither can those of a route.
    if source.requests == 0 || !source.model.asked_for_names() {
        return;
    }
    let routes = source.model.routes().unwrap_or_default();
    // Slow requests of which none has a name: only those of calls were asked for.
    run.has_routes = routes.requests == 0 || !routes.rows.is_empty();
    for row in routes.rows {
        let mut add = |stat: &str, at_least_ns: u64, at_most_ns: u64| {
            let value = at_least_ns as f64;
            let mut measure = Measure::new(Group::Section, Unit::Ns, Better::Neither, value);
            measure.at_most = (at_most_ns > at_least_ns).then_some(at_most_ns as f64);
            run.add(statistic(&row.name, stat), measure);
        };
        add("p99", row.p99_at_least_ns, row.p99_ns);
        add("max", row.max_ns, row.max_ns);
        let ns = row.total_ns as f64 / source.requests as f64;
        let subject = Subject {
            what: row.name.clone(),
            ..Subject::default()
        };
        let measure = Measure::new(Group::Route, Unit::Ns, Better::Less, ns).about(subject);
        run.add(format!("{ROUTE}/{}", row.name), measure);
    }
}

/// What a statistic of a route is called, as in a budget.
pub(crate) fn statistic(route: &str, stat: &str) -> String {
    format!("{ROUTE} {route}.{stat}")
}
