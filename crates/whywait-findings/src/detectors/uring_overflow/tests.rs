use whywait_events::uring::Ring;

use crate::Severity;
use crate::shared::rings::script::*;

#[test]
fn completions_that_found_no_room() {
    let with = |overflows: u64| {
        let overflown = Ring {
            overflows,
            ..ring()
        };
        let findings = found(&script(overflown, sum(READ)));
        assert_eq!(findings.len(), 1, "{findings:#?}");
        assert_eq!(findings[0].code.name(), "uring-overflow");
        findings[0].severity
    };
    assert_eq!(with(500), Severity::Warning);
    assert_eq!(with(9), Severity::Note);
}
