//! Calls: how many a request makes, and how long those to each peer take.

use whywait_model::calls::PeerRow;

use super::{Better, Group, Measure, MeasureSource, Run, Unit};

/// Peers that are measured one by one, those first that had most of the target's time.
const MAX_PEERS: usize = 20;

pub(super) fn collect(source: &MeasureSource<'_>, run: &mut Run) {
    let peers = source.model.calls();
    let calls = peers
        .iter()
        .fold(0_u64, |sum, row| sum.saturating_add(row.calls));
    if calls == 0 {
        return;
    }
    if source.requests > 0 {
        let each = calls as f64 / source.requests as f64;
        let measure = Measure::new(Group::Section, Unit::Count, Better::Less, each);
        run.add("calls.per-request".to_owned(), measure);
    }
    let rate = peers.iter().map(|row| row.rate).sum();
    let measure = Measure::new(Group::Section, Unit::PerSecond, Better::Neither, rate);
    run.add("calls.rate".to_owned(), measure);
    for row in peers.iter().filter(|row| row.calls > 0).take(MAX_PEERS) {
        of_peer(row, run);
    }
}

/// Its name in a budget is its address, which is the same in another run. Percentiles are for
/// budgets: the mean is what two sides are compared by.
fn of_peer(row: &PeerRow, run: &mut Run) {
    let mut add = |stat: &str, better, ns: f64| {
        let measure = Measure::new(Group::Section, Unit::Ns, better, ns);
        run.add(format!("upstream {}.{stat}", row.peer), measure);
    };
    add("mean", Better::Less, row.total_ns as f64 / row.calls as f64);
    for (stat, ns) in [
        ("p50", row.p50_ns),
        ("p99", row.p99_ns),
        ("max", row.max_ns),
    ] {
        if let Some(ns) = ns {
            add(stat, Better::Neither, ns as f64);
        }
    }
}
