//! io_uring: operations a second, where their life goes, and how many are in flight. Of all rings
//! together, each operation counting the same.

use whywait_model::rings::RingRow;

use super::{Better, Group, Measure, MeasureSource, Run, Unit};

pub(super) fn collect(source: &MeasureSource<'_>, run: &mut Run) {
    let rings = source.model.rings();
    let submitted: u64 = rings
        .iter()
        .fold(0, |sum, ring| sum.saturating_add(ring.submitted));
    if submitted == 0 {
        return;
    }
    let mut add = |name: &str, unit, better, value: f64, at_most: Option<f64>| {
        if value.is_finite() {
            let measure = Measure::new(Group::Section, unit, better, value);
            run.add(name.to_owned(), Measure { at_most, ..measure });
        }
    };
    let rate = rings.iter().map(|ring| ring.rate).sum();
    add("operations.rate", Unit::PerSecond, Better::More, rate, None);
    let slots = rings.iter().map(|ring| ring.slots).sum();
    add("in-flight.mean", Unit::Count, Better::Neither, slots, None);
    let most = rings
        .iter()
        .map(|ring| f64::from(ring.max_slots))
        .fold(0.0, f64::max);
    add("in-flight.max", Unit::Count, Better::Neither, most, None);
    // Means over operations: a ring that is hardly used says little.
    let mean = |of: &dyn Fn(&RingRow) -> Option<u64>| -> Option<f64> {
        let known = || {
            rings
                .iter()
                .filter_map(|ring| Some((of(ring)?, ring.submitted)))
        };
        let count: f64 = known().map(|(_, count)| count as f64).sum();
        let total: f64 = known().map(|(ns, count)| ns as f64 * count as f64).sum();
        (count > 0.0).then(|| total / count)
    };
    if let Some(ns) = mean(&|ring| ring.kernel_ns) {
        add("operations.kernel", Unit::Ns, Better::Less, ns, None);
    }
    if let Some(ns) = mean(&|ring| ring.unreaped_ns.map(|bounds| bounds.at_least)) {
        let most = mean(&|ring| ring.unreaped_ns.map(|bounds| bounds.at_most));
        add("operations.unreaped", Unit::Ns, Better::Less, ns, most);
    }
    if let Some(ns) = mean(&|ring| ring.queued_ns.map(|bounds| bounds.at_least)) {
        let most = mean(&|ring| ring.queued_ns.map(|bounds| bounds.at_most));
        add("operations.queued", Unit::Ns, Better::Less, ns, most);
    }
}

/// How many operations were submitted.
pub(super) fn operations(source: &MeasureSource<'_>) -> u64 {
    let rings = source.model.rings();
    rings
        .iter()
        .fold(0, |sum, ring| sum.saturating_add(ring.submitted))
}
