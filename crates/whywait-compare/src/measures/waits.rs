//! What threads waited for: per class and object, the time that lies on slow requests' critical
//! paths. How long threads wait altogether says nothing: one that idles waits for longest.

use whywait_model::stable_name;

use super::names::role;
use super::{Better, Group, MAX_FRAMES, Measure, MeasureSource, Run, Subject, Unit};

pub(super) fn collect(source: &MeasureSource<'_>, run: &mut Run) {
    if source.requests == 0 {
        return;
    }
    for row in source.model.waits() {
        if row.critical_ns == 0 {
            continue;
        }
        let class = row.class.map(|class| class.name()).unwrap_or_default();
        // An epoll instance's number is given in the order in which they were seen.
        let what = if row.what.starts_with("epoll ") {
            "epoll"
        } else {
            row.what.as_str()
        };
        let subject = Subject {
            part: class.to_owned(),
            thread: row
                .threads
                .first()
                .map(|thread| role(source.model, thread.tid))
                .unwrap_or_default(),
            function: row.function.as_deref().map(stable_name).unwrap_or_default(),
            what: what.to_owned(),
        };
        let name = format!(
            "wait/{}|{}|{}|{}",
            subject.what, subject.part, subject.thread, subject.function
        );
        let ns = row.critical_ns as f64 / source.requests as f64;
        let mut measure = Measure::new(Group::Wait, Unit::Ns, Better::Less, ns).about(subject);
        measure.stack = row.stack.into_iter().take(MAX_FRAMES).collect();
        run.add(name, measure);
    }
}
