use std::path::PathBuf;

use whywait_events::recording::WriteError;
use whywait_model::script::Script;

use super::*;

#[test]
fn a_whole_recording_is_not_mentioned() {
    assert_eq!(
        detect(&Facts::of(
            &Script::new().counter("lost.ring-full", 0).model()
        )),
        []
    );
}

#[test]
fn a_recording_that_was_cut_off_is_a_note() {
    let findings = detect(&Facts::of(&Script::new().cut_off().model()));
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].severity, Severity::Note);
}

#[test]
fn a_full_disk_is_called_that() {
    let mut model = Script::new().cut_off().model();
    let path = PathBuf::from("/recording/seg-000002");
    let error = WriteError::DiskFull { path };
    model.meta.notes = vec!["another".to_owned(), format!("{CUT_SHORT}{error}")];
    let finding = &detect(&Facts::of(&model))[0];
    assert!(finding.title.contains("the disk was full"), "{finding:?}");
    assert!(
        finding.evidence[0].text.contains("/recording/seg-000002"),
        "{finding:?}"
    );
}

#[test]
fn losses_that_may_matter_are_a_warning() {
    let findings = detect(&Facts::of(
        &Script::new()
            .counter("events", 1000)
            .counter("lost.ring-full", 10)
            .model(),
    ));
    assert_eq!(findings[0].severity, Severity::Warning);
    assert!(
        findings[0].evidence[0].text.contains("ring-full"),
        "{:?}",
        findings[0].evidence
    );
}
