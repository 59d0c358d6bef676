//! Findings, by their code and the role of the thread that is at fault.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use whywait_findings::{Finding, Severity};
use whywait_model::stable_name;

use super::names::role;
use super::{Better, Group, Measure, MeasureSource, Run, Subject, Unit};

/// A finding of a run, as far as it can be compared.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Found {
    /// The finding's code.
    pub code: String,
    /// `note`, `warning` or `error`.
    pub severity: String,
    /// The role of the thread at fault; empty when it is not known. Hostile.
    pub thread: String,
    /// The function at fault; empty when it is not known. Hostile.
    pub function: String,
    /// The local port it concerns.
    pub port: Option<u16>,
    /// One line that says what happened. Hostile.
    pub title: String,
    /// What a fix saves at most, summed over the requests it concerns, nanoseconds.
    pub at_most_ns: u64,
    /// What kind of saving that is: `latency`, `cpu`, `throughput`.
    pub saving: String,
    /// What to do about it.
    pub fix: String,
}

impl Found {
    /// How bad: 1 note, 2 warning, 3 error; 0 for a word that is none of these.
    pub fn rank(&self) -> u32 {
        match self.severity.as_str() {
            "note" => 1,
            "warning" => 2,
            "error" => 3,
            _ => 0,
        }
    }

    /// The measure of that finding.
    pub fn key(&self) -> String {
        format!("finding/{}|{}", self.code, self.thread)
    }
}

/// A severity's name.
pub(crate) fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Note => "note",
        Severity::Warning => "warning",
        Severity::Error => "error",
    }
}

pub(super) fn collect(source: &MeasureSource<'_>, run: &mut Run) {
    for finding in source.findings {
        let found = found(source, finding);
        let rank = f64::from(found.rank());
        let measure = run.measures.entry(found.key()).or_insert_with(|| {
            Measure::new(Group::Finding, Unit::Severity, Better::Less, rank).about(Subject {
                part: found.code.clone(),
                thread: found.thread.clone(),
                ..Subject::default()
            })
        });
        measure.value = measure.value.max(rank);
        run.findings.push(found);
    }
}

fn found(source: &MeasureSource<'_>, finding: &Finding) -> Found {
    let text = |key: &str| finding.subject.get(key).and_then(Value::as_str);
    let thread_of = |key: &str| {
        let tid = finding.subject.get(key)?.as_u64()?;
        u32::try_from(tid).ok()
    };
    let tid = finding
        .cause
        .as_ref()
        .map(|cause| cause.tid)
        .or_else(|| thread_of("tid"));
    let function = text("function").map(stable_name).unwrap_or_default();
    Found {
        code: finding.code.name().to_owned(),
        severity: severity_name(finding.severity).to_owned(),
        thread: tid.map(|tid| role(source.model, tid)).unwrap_or_default(),
        function,
        port: finding
            .subject
            .get("port")
            .and_then(Value::as_u64)
            .and_then(|port| u16::try_from(port).ok()),
        title: finding.title.clone(),
        at_most_ns: finding.saving.at_most_ns,
        saving: serde_json::to_value(finding.saving.kind)
            .ok()
            .and_then(|kind| kind.as_str().map(str::to_owned))
            .unwrap_or_default(),
        fix: finding.fix.clone(),
    }
}
