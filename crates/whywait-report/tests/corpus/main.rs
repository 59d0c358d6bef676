//! What holds of the reports of all recordings that are kept of the labs (`tests/corpus`).

use whywait_events::recording::Recording;
use whywait_model::{Input, Model};
use whywait_report::{BRIEF_BYTES, Report, brief_to_json};
use whywait_testkit::{Kept, in_parallel, kept_recordings};

#[test]
fn reports_of_the_kept_recordings() {
    let kept = kept_recordings();
    let wrong: Vec<String> = in_parallel(&kept, wrong_with)
        .into_iter()
        .flatten()
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn wrong_with(kept: &Kept) -> Vec<String> {
    let scratch = kept.unpack();
    let recording = Recording::open(&scratch.path().join("recording"));
    let input = recording.and_then(|recording| Input::read(&recording));
    let model = Model::new(input.unwrap_or_else(|error| panic!("{}: {error}", kept.name())));
    let report = Report::of(&model);
    let mut wrong = Vec::new();
    let brief = brief_to_json(&report).expect("a brief is always JSON");
    if brief.len() >= BRIEF_BYTES {
        wrong.push(format!("a brief of {} bytes", brief.len()));
    }
    let name = kept.name();
    wrong
        .into_iter()
        .map(|text| format!("{name}: {text}"))
        .collect()
}
