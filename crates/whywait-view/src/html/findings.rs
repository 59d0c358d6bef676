//! The verdict: what is wrong, and what to do about it.

use maud::{Markup, html};
use whywait_findings::{Finding, Severity, Verdict};
use whywait_report::Report;
use whywait_report::text::sentences::{self, Headline};
use whywait_words::capitalised;

use super::path;
use super::svg::{name, whole};

/// Findings beyond these are listed by their titles alone.
const DETAILED: usize = 10;

/// The first thing on the page.
pub(crate) fn section(report: &Report, headline: &Headline) -> Markup {
    let findings: Vec<&Finding> = sentences::ranked(&report.findings).collect();
    html! {
        section id="verdict" class={ "verdict " (tone(report, &findings)) } {
            p class="kicker" {
                @match findings.first().filter(|_| report.verdict == Verdict::Findings) {
                    Some(finding) => (badge(finding)),
                    None => "verdict",
                }
            }
            h1 { (whole(&headline.title)) }
            @for note in &headline.notes {
                p class="note" { (name(note, 800)) }
            }
            @for (index, finding) in findings.iter().take(DETAILED).enumerate() {
                @let open = index == 0
                    && matches!(report.verdict, Verdict::Findings | Verdict::AsEver { .. });
                (details(report, finding, index + 1, open))
            }
            @if findings.len() > DETAILED {
                ul {
                    @for finding in &findings[DETAILED..] {
                        li { (badge(finding)) " " (whole(&finding.title)) }
                    }
                }
            }
        }
    }
}

/// How the page's head looks.
fn tone(report: &Report, findings: &[&Finding]) -> &'static str {
    match (report.verdict, findings.first()) {
        (Verdict::Findings, Some(finding)) => severity(finding.severity),
        (Verdict::NothingWrong | Verdict::Operations, _)
            if report.coverage.incomplete.is_none() =>
        {
            "good"
        }
        (Verdict::AsEver { .. }, _) => "info",
        _ => "warning",
    }
}

fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "info",
    }
}

fn badge(finding: &Finding) -> Markup {
    html! {
        span class={ "badge " (severity(finding.severity)) } {
            (finding.severity.name()) "[" (finding.code.name()) "]"
        }
    }
}

fn details(report: &Report, finding: &Finding, number: usize, open: bool) -> Markup {
    html! {
        details class="finding" open[open] {
            summary {
                span class="number" { (number) "." } " " (badge(finding)) " "
                @if !open { (whole(&finding.title)) } @else { "why, where, and what to do" }
            }
            p class="place" { (whole(&sentences::place(report, finding))) }
            @if !finding.evidence.is_empty() {
                ul {
                    @for evidence in &finding.evidence {
                        li { (name(&evidence.text, 800)) }
                    }
                }
            }
            @if !finding.same_waits.is_empty() {
                ul {
                    @for same in &finding.same_waits {
                        li { (name(&sentences::same_waits(same), 800)) }
                    }
                }
            }
            @if let Some(cause) = &finding.cause {
                p {
                    strong { "Cause: " }
                    "thread " (cause.tid) " (" (name(&cause.thread, 40)) ") " (whole(&cause.doing))
                }
                (path::frames(&sentences::folded(&cause.stack, &cause.own)))
            }
            p class="fix" { strong { "What to do: " } (name(&finding.fix, 800)) }
            p {
                @if let Some(saving) = sentences::saving(&finding.saving) {
                    strong { (capitalised(&saving)) } "; "
                }
                "confidence: " (sentences::confidence(finding.confidence)) "."
            }
            p class="hint" {
                "How this is measured: "
                code { "whywait explain " (finding.code.name()) }
            }
        }
    }
}
