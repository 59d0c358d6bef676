//! What one schedule for everything says of kept recordings.

use whywait_events::recording::Recording;
use whywait_model::{Input, Model};
use whywait_testkit::{in_parallel, kept_recordings};

use super::Judgement;
use crate::facts::Facts;

/// Recordings, and how the suspect begins that saves most.
const FIRST: &[(&str, &str)] = &[
    ("asyncio-blocked broken", "timer render_thumbnail"),
    ("asyncio-blocked broken-cpu", "cpu render_thumbnail_on_cpu"),
    ("convoy broken", "lock mutex"),
    ("convoy broken-glibc", "lock mutex"),
    ("convoy broken-parking-lot", "lock mutex"),
    ("file-lock broken-fcntl", "lock advisory file lock"),
    ("java-locks monitor", "lock Java monitor"),
    ("java-locks reentrant", "lock lock of java.util.concurrent"),
    ("loop-saturated asyncio-started", "timer look_up_rate"),
    ("node-blocked broken", "cpu code compiled at run time"),
    ("ruby-gvl broken", "lock Ruby interpreter's lock"),
    (
        "snapshot cpu-growing",
        "cpu snapshot::memory::compact_index",
    ),
    ("snapshot mutex", "lock mutex"),
];

#[test]
fn of_these_recordings_the_fault_is_the_suspect_that_saves_most() {
    let kept = kept_recordings();
    let judged: Vec<_> = FIRST
        .iter()
        .map(|(name, first)| {
            let one = kept.iter().find(|one| one.name() == *name);
            (one.unwrap_or_else(|| panic!("{name} is kept")), *first)
        })
        .collect();
    let wrong: Vec<String> = in_parallel(&judged, |(one, first)| {
        let scratch = one.unpack();
        let recording = Recording::open(&scratch.path().join("recording")).expect("a recording");
        let model = Model::new(Input::read(&recording).expect("rows"));
        let judgement = Judgement::of(&Facts::of(&model));
        let is_first = judgement
            .suspects
            .first()
            .is_some_and(|suspect| suspect.resource.to_string().starts_with(first));
        let as_recorded = judgement.off_percent <= 10;
        (!is_first || !as_recorded).then(|| format!("{}: {judgement:#?}", one.name()))
    })
    .into_iter()
    .flatten()
    .collect();
    assert!(
        wrong.is_empty(),
        "another suspect, or a replay that is off:\n{}",
        wrong.join("\n")
    );
}
