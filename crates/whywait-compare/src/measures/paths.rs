//! Slow requests' critical paths: each part of their time by the role of the thread that spent it,
//! and the function it was in.

use std::collections::BTreeMap;

use super::names::{function, role};
use super::{Better, Group, MAX_FRAMES, Measure, MeasureSource, Run, Subject, Unit};

/// Of one place on the paths: its time, and the longest step with its stack.
#[derive(Default)]
struct PathPlace {
    total_ns: u64,
    longest_ns: u64,
    stack: u32,
}

pub(super) fn collect(source: &MeasureSource<'_>, run: &mut Run) {
    if source.requests == 0 {
        return;
    }
    let model = source.model;
    let mut places: BTreeMap<Subject, PathPlace> = BTreeMap::new();
    for request in model.requests() {
        for step in request.path().steps {
            let subject = Subject {
                part: step.state.to_owned(),
                thread: role(model, step.tid),
                function: function(&model.stacks, step.stack),
                what: step
                    .kind
                    .map(|kind| kind.name.to_owned())
                    .unwrap_or_default(),
            };
            let place = places.entry(subject).or_default();
            place.total_ns = place.total_ns.saturating_add(step.ns());
            if step.ns() >= place.longest_ns && (step.stack != 0 || place.stack == 0) {
                (place.longest_ns, place.stack) = (step.ns(), step.stack);
            }
        }
    }
    for (subject, place) in places {
        let name = format!(
            "path/{}|{}|{}|{}",
            subject.part, subject.thread, subject.function, subject.what
        );
        let ns = place.total_ns as f64 / source.requests as f64;
        let mut measure = Measure::new(Group::Path, Unit::Ns, Better::Less, ns).about(subject);
        measure.stack = model.stacks.names(place.stack);
        measure.stack.truncate(MAX_FRAMES);
        run.add(name, measure);
    }
}
