//! Whether a report fails a run.

use whywait_findings::Severity;

use crate::Report;

/// The worst severity that counts against the target; `None` when there is nothing to hold against
/// it.
///
/// What the recording lacks never counts: it is about whywait's own fidelity, and a build must not
/// break because the machine that watched it was busy.
pub fn worst(report: &Report) -> Option<Severity> {
    let findings = report.findings.iter();
    findings.map(|finding| finding.severity).max()
}

/// Whether a report has a finding at or above `fail_on`.
pub fn fails(report: &Report, fail_on: Severity) -> bool {
    worst(report).is_some_and(|worst| worst >= fail_on)
}

#[cfg(test)]
mod tests {
    use super::*;
    use whywait_findings::{Code, Confidence, Finding, Saving, SavingKind};
    use whywait_model::{Coverage, Incomplete, Target, requests};

    fn report(findings: &[(Code, Severity)]) -> Report {
        let finding = |&(code, severity)| Finding {
            code,
            severity,
            confidence: Confidence::High,
            title: String::new(),
            subject: Default::default(),
            saving: Saving {
                kind: SavingKind::Latency,
                at_most_ns: 0,
                requests: 0,
                each_at_most_ns: vec![],
                effect: None,
            },
            evidence: vec![],
            cause: None,
            fix: String::new(),
            same_waits: Vec::new(),
            explains: Vec::new(),
            not_by_all_fixes_ns: 0,
            as_ever: None,
            requests: Default::default(),
        };
        Report::new(
            Target::default(),
            requests::Requests::default(),
            findings.iter().map(finding).collect(),
            Coverage::default(),
        )
    }

    fn code(name: &str) -> Code {
        Code::from_name(name).unwrap()
    }

    #[test]
    fn fails_at_or_above_the_severity() {
        let warning = report(&[
            (code("blocked-loop"), Severity::Note),
            (code("stranded-readiness"), Severity::Warning),
        ]);
        assert!(fails(&warning, Severity::Note));
        assert!(fails(&warning, Severity::Warning));
        assert!(!fails(&warning, Severity::Error));
    }

    #[test]
    fn no_finding_never_fails() {
        assert!(!fails(&report(&[]), Severity::Note));
    }

    #[test]
    fn an_incomplete_recording_never_fails() {
        let mut incomplete = report(&[]);
        incomplete.coverage.incomplete = Some(Incomplete {
            matters: true,
            ..Incomplete::default()
        });
        assert_eq!(worst(&incomplete), None);
        assert!(!fails(&incomplete, Severity::Note));
    }
}
