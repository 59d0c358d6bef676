//! The report in brief, for programs that read little: JSON of less than 4 kB, whatever was found.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use whywait_findings::{Code, Confidence, Finding, SavingKind, Severity, Verdict};
use whywait_model::requests::{Latency, Requests, SavingEffect};
use whywait_words::{Charset, escape};

use crate::Report;
use crate::json::{pretty, rounded};
use crate::text::sentences;

/// It has fewer bytes than this.
pub const BRIEF_BYTES: usize = 4_096;

/// So many suspects are named.
const SUSPECTS: usize = 3;
/// So many parts of the requests' time are named.
const PARTS: usize = 4;
/// Columns of a text, the most that fits being taken.
const WIDTHS: [usize; 5] = [320, 240, 160, 100, 40];
/// Columns of a name.
const NAME: usize = 60;

/// What a report comes to. The order of the fields is the order of the keys in JSON.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Brief {
    /// The version of the JSON's shape: that of the whole report.
    pub schema: u32,
    /// What was watched: its program and process. Hostile names are escaped, here and below.
    pub target: String,
    /// How long it was watched.
    pub duration_ns: u64,
    /// What may be said of the recording as a whole.
    pub verdict: Verdict,
    /// What the first finding does to requests; absent: nothing is wrong, as far as known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub impact: Option<String>,
    /// The verdict in words: what happened, or what was seen.
    pub headline: String,
    /// What the recording lacks that matters; absent: nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<String>,
    /// The requests in figures.
    pub requests: BriefRequests,
    /// What is wrong or may be, the most worthwhile first: at most three.
    pub suspects: Vec<BriefFinding>,
    /// How many findings there are besides.
    pub more_findings: usize,
    /// What to ask next: arguments after `whywait`, and what they show. DIR is the recording.
    pub ask_next: Vec<NextCall>,
}

/// The requests in figures.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct BriefRequests {
    /// How many were answered.
    pub count: u64,
    /// How many took `slow_threshold_ns` or longer.
    pub slow: u64,
    /// From when on a request is slow.
    pub slow_threshold_ns: u64,
    /// How many are open and late.
    pub open_late: u64,
    /// How long they took; `null`: not known.
    pub latency_ns: Option<Latency>,
    /// Where the time of all of them went, the largest parts first.
    pub time: Vec<PartShare>,
}

/// A part of the requests' time.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct PartShare {
    /// Its name in the text report.
    pub part: &'static str,
    /// 0 to 1.
    pub share: f64,
}

/// A finding in brief.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct BriefFinding {
    /// Which kind it is.
    pub code: Code,
    /// How bad.
    pub severity: Severity,
    /// How sure.
    pub confidence: Confidence,
    /// What happened.
    pub title: String,
    /// Which thread caused it, and what it was doing; absent: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// What to do.
    pub fix: String,
    /// What a fix saves at most.
    pub saving: BriefSaving,
}

/// What a fix saves at most, in brief.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct BriefSaving {
    /// What is saved.
    pub kind: SavingKind,
    /// At most this much, summed over those requests. 0: no bound is known.
    pub at_most_ns: u64,
    /// How many requests it concerns.
    pub requests: u64,
    /// What that does to percentiles of all requests; absent: it is not known, or nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<SavingEffect>,
}

/// What to ask next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NextCall {
    /// Arguments after `whywait`.
    pub args: Vec<String>,
    /// What they show.
    pub shows: &'static str,
}

/// The report in brief as indented JSON with a newline at its end, of less than [`BRIEF_BYTES`].
///
/// # Errors
/// Fails only if a value cannot be written as JSON, which no field of it allows.
pub fn brief_to_json(report: &Report) -> serde_json::Result<String> {
    let mut text = String::new();
    for width in WIDTHS {
        text = pretty(&brief(report, width))?;
        if text.len() < BRIEF_BYTES {
            break;
        }
    }
    Ok(text)
}

/// The schema of what [`brief_to_json`] writes, as JSON Schema (draft 2020-12).
///
/// # Errors
/// Fails only if a value cannot be written as JSON, which no schema allows.
pub fn brief_schema() -> serde_json::Result<String> {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    pretty(&settings.into_generator().into_root_schema_for::<Brief>())
}

fn brief(report: &Report, width: usize) -> Brief {
    let cut = |text: &str| escape(text, Charset::Unicode, width);
    let findings: Vec<&Finding> = sentences::ranked(&report.findings).collect();
    let incomplete = report.coverage.incomplete.as_ref();
    let headline = sentences::headline(report);
    Brief {
        schema: report.schema,
        target: sentences::target(report),
        duration_ns: report.target.duration_ns,
        verdict: report.verdict,
        impact: headline.impact.as_deref().map(cut),
        headline: cut(&headline.title),
        incomplete: incomplete
            .filter(|incomplete| incomplete.matters)
            .map(|incomplete| cut(&incomplete.what)),
        requests: requests(&report.requests),
        suspects: findings
            .iter()
            .take(SUSPECTS)
            .map(|finding| suspect(finding, &cut))
            .collect(),
        more_findings: findings.len().saturating_sub(SUSPECTS),
        ask_next: ask_next(report, findings.first().copied()),
    }
}

fn requests(requests: &Requests) -> BriefRequests {
    let total_ns = sentences::total_ns(&requests.time);
    let parts = sentences::parts(&requests.time).into_iter();
    let mut parts: Vec<(&'static str, u64)> = parts
        .filter_map(|(part, ns)| Some((part, ns.filter(|ns| *ns > 0)?)))
        .collect();
    parts.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    let share = |(part, ns): (&'static str, u64)| PartShare {
        part,
        share: rounded(ns as f64 / total_ns as f64),
    };
    BriefRequests {
        count: requests.count,
        slow: requests.slow,
        slow_threshold_ns: requests.slow_threshold_ns,
        open_late: requests.open.as_ref().map_or(0, |open| open.late),
        latency_ns: requests.latency_ns,
        time: parts.into_iter().take(PARTS).map(share).collect(),
    }
}

fn suspect(finding: &Finding, cut: &impl Fn(&str) -> String) -> BriefFinding {
    let saving = &finding.saving;
    BriefFinding {
        code: finding.code,
        severity: finding.severity,
        confidence: finding.confidence,
        title: cut(&finding.title),
        cause: finding.cause.as_ref().map(|cause| {
            let thread = escape(&cause.thread, Charset::Unicode, NAME);
            cut(&format!("thread {thread} ({}) {}", cause.tid, cause.doing))
        }),
        fix: cut(&finding.fix),
        saving: BriefSaving {
            kind: saving.kind,
            at_most_ns: saving.at_most_ns,
            requests: saving.requests,
            effect: saving.effect,
        },
    }
}

/// What says more of this report than its brief does.
fn ask_next(report: &Report, first: Option<&Finding>) -> Vec<NextCall> {
    let ask = |args: &[&str], shows| NextCall {
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        shows,
    };
    let on = |args: &[&str], shows| {
        let all: Vec<&str> = ["report", "DIR"].iter().chain(args).copied().collect();
        ask(&all, shows)
    };
    let mut questions = Vec::new();
    if let Some(first) = first {
        let shows = "what the first suspect means, how it is measured, and how to fix it";
        questions.push(ask(&["explain", first.code.name()], shows));
    }
    if let Some(slowest) = report.requests.slowest.first() {
        let id = escape(&slowest.id, Charset::Unicode, NAME);
        let shows = "the slowest request, step by step";
        questions.push(on(&["--request", &id], shows));
    }
    if !report.calls.is_empty() {
        questions.push(on(
            &["--calls"],
            "what was asked of other services, by peer",
        ));
    }
    if !report.uring.is_empty() {
        questions.push(on(&["--uring"], "io_uring rings"));
    }
    if report.requests.slow > 0 {
        let shows = "what threads waited for, and what of it delayed slow requests";
        questions.push(on(&["--waits"], shows));
    }
    questions.push(on(&["--format", "json"], "everything"));
    questions
}
