//! Futile wake-ups a second: turns of loops that poll, are woken, and get nothing done, as bursts
//! of system-call tracing saw them. 0 where nothing looked like it; not measured in recordings
//! that could not have seen it.

use super::{Better, Group, Measure, MeasureSource, Run, Unit};

pub(super) fn collect(source: &MeasureSource<'_>, run: &mut Run) {
    // Where CPU time is accounted for, loops are watched.
    if source.model.cpu.threads.is_empty() {
        return;
    }
    let rates: Option<Vec<f64>> = source
        .model
        .bursts
        .threads()
        .iter()
        .filter(|spinner| spinner.goes_round())
        .map(|spinner| spinner.turns_per_second().filter(|rate| rate.is_finite()))
        .collect();
    // A loop that goes round at a rate that is not known makes the sum unknown, too.
    if let Some(rates) = rates {
        // An empty sum of floats is negative zero.
        let rate = rates.iter().fold(0.0, |sum, rate| sum + rate);
        let measure = Measure::new(Group::Section, Unit::PerSecond, Better::Less, rate);
        run.add("futile-wakeups.rate".to_owned(), measure);
    }
}
