//! The views of a finished analysis: text for people, JSON for machines, and the decision whether a
//! run fails.
//!
//! Nothing here measures, ranks or judges: a [`Report`] is complete when it gets here. Nothing here
//! prints either: the views return strings. That keeps every view testable by comparing it with a
//! file.

mod brief;
mod gate;
mod json;
pub mod text;

use schemars::JsonSchema;
use serde::Serialize;
use whywait_findings::{Facts, Finding, Verdict};
use whywait_model::calls::{PeerRow, StatementRow};
use whywait_model::cpu::CpuSummary;
use whywait_model::path::run::ProgramRun;
use whywait_model::rings::RingRow;
use whywait_model::{Coverage, Model, Target, requests};

pub use brief::{BRIEF_BYTES, Brief, brief_schema, brief_to_json};
pub use gate::{fails, worst};
pub use json::{
    calls_to_json, cpu_to_json, json_schema, request_list_to_json, request_to_json, rings_to_json,
    route_to_json, to_json, waits_to_json,
};

/// Everything that whywait has to say of one recording. The order of the fields is the order of the
/// keys in JSON.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Report {
    /// The version of the JSON's shape: [`Report::SCHEMA`].
    pub schema: u32,
    /// What was watched.
    pub target: Target,
    /// The requests and where their time went.
    pub requests: requests::Requests,
    /// What a program that serves nobody spent its time on; absent: it serves somebody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<ProgramRun>,
    /// What CPU time was for; absent when the recording does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuSummary>,
    /// What may be said of the recording as a whole.
    pub verdict: Verdict,
    /// What is wrong, the most worthwhile first. The views keep this order.
    pub findings: Vec<Finding>,
    /// The peers that were asked for something, and how long that took.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<PeerRow>,
    /// What was asked of peers, by name; empty: no names were asked for, or none is known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub statements: Vec<StatementRow>,
    /// The io_uring rings, and where their operations' time went.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub uring: Vec<RingRow>,
    /// What all this rests on.
    pub coverage: Coverage,
    /// Remarks that are not findings: approximations that were made, features that this kernel
    /// lacks.
    pub notes: Vec<String>,
    /// What was looked at, in words ("readiness of 2 epoll instances"). It is what makes "nothing
    /// wrong found" mean something.
    pub looked_at: Vec<String>,
}

impl Report {
    /// The schema that this version writes. Keys may be added within a schema; a change of meaning
    /// or a removal makes a new one.
    pub const SCHEMA: u32 = 1;

    /// Everything that there is to say of a recording as a whole.
    pub fn of(model: &Model) -> Self {
        let facts = Facts::of(model);
        let findings = whywait_findings::find(&facts);
        let verdict = whywait_findings::verdict(&facts, &findings);
        let (target, requests) = (model.target(), model.requests_summary());
        Report {
            verdict,
            calls: model.calls(),
            statements: model.statements(),
            uring: model.rings(),
            run: facts.run().cloned(),
            cpu: model.cpu_summary(),
            notes: model.meta.notes.clone(),
            looked_at: whywait_findings::looked_at(model),
            ..Report::new(target, requests, findings, model.coverage())
        }
    }

    /// A report without remarks.
    pub fn new(
        target: Target,
        requests: requests::Requests,
        findings: Vec<Finding>,
        coverage: Coverage,
    ) -> Self {
        Report {
            schema: Self::SCHEMA,
            target,
            requests,
            run: None,
            cpu: None,
            verdict: Verdict::of_findings(&findings).unwrap_or_default(),
            findings,
            calls: Vec::new(),
            statements: Vec::new(),
            uring: Vec::new(),
            coverage,
            notes: Vec::new(),
            looked_at: Vec::new(),
        }
    }
}
