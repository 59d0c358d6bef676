//! `labs/run --check`: whether a report says of a lab what must be said, and nothing that must not.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

use crate::LAB_FAILED;
use crate::spec::{Lab, Labels, Severity, Variant};

/// The part of the report that the labels are about. The report has much more.
#[derive(Deserialize)]
struct Report {
    findings: Vec<Finding>,
}

#[derive(Deserialize)]
struct Finding {
    code: String,
    severity: Severity,
    #[serde(default)]
    title: String,
    /// What else was found of the same waits.
    #[serde(default)]
    same_waits: Vec<SameWaits>,
}

#[derive(Deserialize)]
struct SameWaits {
    code: String,
}

impl Finding {
    fn says(&self, code: &str) -> bool {
        self.code == code || self.same_waits.iter().any(|same| same.code == code)
    }
}

/// Returns the exit code: 0 when every label holds.
pub(crate) fn check(whywait: &Path, recording: &Path, lab: &Lab, variant: &Variant) -> Result<u8> {
    let output = Command::new(whywait)
        .arg("report")
        .arg(recording)
        .args(["--format", "json"])
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run whywait report")?;
    ensure!(
        output.status.success(),
        "whywait report failed: {}",
        output.status
    );
    let all: Value =
        serde_json::from_slice(&output.stdout).context("cannot read the JSON report")?;
    let report = Report::deserialize(&all).context("cannot read the JSON report")?;
    for finding in &report.findings {
        println!(
            "  {:?} {}: {}",
            finding.severity, finding.code, finding.title
        );
    }
    let mut wrong = violations(&variant.labels, &report.findings);
    let claims = &variant.labels.report;
    wrong.extend(claims.iter().filter_map(|claim| claim.violation(&all)));
    let verdict = if wrong.is_empty() {
        "ok".to_owned()
    } else {
        wrong.join("; ")
    };
    println!("{} {}: {verdict}", lab.name, variant.name);
    Ok(if wrong.is_empty() { 0 } else { LAB_FAILED })
}

fn violations(labels: &Labels, findings: &[Finding]) -> Vec<String> {
    let found = |code: &String| findings.iter().any(|finding| finding.says(code));
    let missing = labels
        .must
        .iter()
        .filter(|code| !found(code))
        .map(|code| format!("{code} is missing"));
    let wrong = labels
        .must_not
        .iter()
        .filter(|code| found(code))
        .map(|code| format!("{code} is wrong"));
    let unexpected = findings
        .iter()
        .filter(|finding| !labels.expect(&finding.code, finding.severity))
        .map(|finding| format!("{:?} {} is not expected", finding.severity, finding.code));
    let worst = labels.max_severity.into_iter().flat_map(|max| {
        findings
            .iter()
            .filter(move |finding| {
                finding.severity > max && !labels.justified.contains_key(&finding.code)
            })
            .map(move |finding| {
                format!(
                    "{} is {:?}, and nothing may be above {max:?}",
                    finding.code, finding.severity
                )
            })
    });
    missing
        .chain(wrong)
        .chain(unexpected)
        .chain(worst)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn every_kind_of_label_is_held_against_the_findings() {
        let labels = Labels {
            must: vec!["blocked-loop".to_owned()],
            must_not: vec!["slow-upstream".to_owned()],
            max_severity: Some(Severity::Note),
            justified: BTreeMap::from([("serial-work".to_owned(), "it is".to_owned())]),
            report: Vec::new(),
        };
        let finding = |code: &str, severity| Finding {
            code: code.to_owned(),
            severity,
            title: String::new(),
            same_waits: Vec::new(),
        };
        assert!(violations(&labels, &[finding("blocked-loop", Severity::Note)]).is_empty());
        assert_eq!(violations(&labels, &[]).len(), 1);
        let justified = [
            finding("blocked-loop", Severity::Note),
            finding("serial-work", Severity::Error),
        ];
        assert!(violations(&labels, &justified).is_empty());
        let others = |code, severity| {
            violations(
                &labels,
                &[
                    finding("blocked-loop", Severity::Note),
                    finding(code, severity),
                ],
            )
        };
        // Nobody said that it may be found; it is a note that says where time is; it must not be
        // found even so; and it is worse than a note.
        assert_eq!(others("stranded-readiness", Severity::Note).len(), 1);
        assert!(others("slow-path-wait", Severity::Note).is_empty());
        assert_eq!(others("slow-upstream", Severity::Note).len(), 1);
        assert_eq!(others("slow-path-wait", Severity::Error).len(), 2);
        let of_same_waits = Finding {
            same_waits: vec![SameWaits {
                code: "blocked-loop".to_owned(),
            }],
            ..finding("serial-work", Severity::Note)
        };
        assert!(violations(&labels, &[of_same_waits]).is_empty());
    }
}
