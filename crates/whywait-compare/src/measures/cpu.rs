//! CPU time, from the samples of the whole recording: per request, or per operation of io_uring
//! where there are no requests, or else per second of recording.
//!
//! A sample stands for as many periods of the sampling clock as it says. The estimate is unbiased;
//! how much it scatters shows in the runs.

use super::names::{function, role};
use super::{Better, Group, MAX_FRAMES, Measure, MeasureSource, Run, Subject, Unit};

pub(super) fn collect(source: &MeasureSource<'_>, run: &mut Run) {
    let model = source.model;
    let hz = model.meta.options.sample_hz;
    let samples: u64 = source.samples.values().sum();
    if hz == 0 || samples == 0 || run.about.duration_ns == 0 {
        return;
    }
    let tick_ns = 1e9 / f64::from(hz);
    let total_ns = samples as f64 * tick_ns;
    let cores = total_ns / run.about.duration_ns as f64;
    let cores = Measure::new(Group::Section, Unit::Count, Better::Neither, cores);
    run.add("cpu.cores".to_owned(), cores);
    let operations = super::rings::operations(source);
    let (per, divisor) = if source.requests > 0 {
        let ns = total_ns / source.requests as f64;
        let per_request = Measure::new(Group::Headline, Unit::Ns, Better::Less, ns);
        run.add("cpu.per-request".to_owned(), per_request);
        ("request", source.requests as f64)
    } else if operations > 0 {
        let ns = total_ns / operations as f64;
        let per_operation = Measure::new(Group::Headline, Unit::Ns, Better::Less, ns);
        run.add("cpu.per-operation".to_owned(), per_operation);
        ("operation", operations as f64)
    } else {
        ("second", run.about.duration_ns as f64 / 1e9)
    };
    // The most frequent place of a function comes first: its stack stays.
    let mut places: Vec<_> = source.samples.iter().collect();
    places.sort_by_key(|(place, count)| (std::cmp::Reverse(**count), **place));
    for ((stack, tid), count) in places {
        let subject = Subject {
            part: String::new(),
            thread: role(model, *tid),
            function: function(&model.stacks, *stack),
            what: format!("per {per}"),
        };
        let name = format!("function/{per}|{}|{}", subject.thread, subject.function);
        if let Some(known) = run.measures.get_mut(&name) {
            known.value += *count as f64 * tick_ns / divisor;
            continue;
        }
        let ns = *count as f64 * tick_ns / divisor;
        let mut measure = Measure::new(Group::Function, Unit::Ns, Better::Less, ns).about(subject);
        measure.stack = model.stacks.names(*stack);
        measure.stack.truncate(MAX_FRAMES);
        run.measures.insert(name, measure);
    }
}
