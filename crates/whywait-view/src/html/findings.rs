//! The verdict: what is wrong, and what to do about it.

use maud::{Markup, html};
use whywait_findings::{Finding, Severity, Verdict};
use whywait_report::Report;
use whywait_report::text::sentences::{self, Headline};
use whywait_report::text::{self, TextOptions};
use whywait_words::capitalised;

use super::path;
use super::prose::prose;
use super::svg::{figures, name, whole, wrapping};

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
            // A finding's title may begin with a name, which stays as it is.
            h1 class=[(report.verdict != Verdict::Findings).then_some("plain")] {
                @let (answer, seen) = parted(report, &headline.title);
                (wrapping(&whole(answer)))
                @if !seen.is_empty() { " " span class="seen" { (wrapping(&whole(seen))) } }
            }
            @for note in &headline.notes {
                p class="note" { (figures(&name(note, 800))) }
            }
            @if let Some(finding) = findings.first().filter(|_| says_why(report)) {
                (picture(&sentences::chain(finding)))
            }
            @for (index, finding) in findings.iter().take(DETAILED).enumerate() {
                (details(report, finding, index + 1, index == 0 && says_why(report)))
            }
            @if findings.len() > DETAILED {
                ul {
                    @for finding in &findings[DETAILED..] {
                        li { (badge(finding)) " " (whole(&finding.title)) }
                    }
                }
            }
            (as_text(report))
        }
    }
}

/// A headline's verdict, and what was seen: of a finding's title all is the verdict.
fn parted<'a>(report: &Report, title: &'a str) -> (&'a str, &'a str) {
    let answer = sentences::answer(report);
    let seen = title
        .strip_prefix(&answer)
        .and_then(|rest| rest.strip_prefix(": "));
    match seen.filter(|_| report.verdict != Verdict::Findings) {
        // With the colon.
        Some(seen) => (&title[..=answer.len()], seen),
        None => (title, ""),
    }
}

/// How requests come to wait: one box for each link, which follow each other.
fn picture(chain: &[String]) -> Markup {
    // A link of more letters has more room.
    const LONG: usize = 32;
    let words = ["who waits", "for what", "who has it", "what that one does"];
    html! {
        @if !chain.is_empty() {
            ol class="chain" aria-label="How requests come to wait" {
                @for (link, word) in chain.iter().zip(words) {
                    li class=[(link.chars().count() > LONG).then_some("long")] {
                        span class="hint" { (word) } " " strong { (wrapping(&whole(link))) }
                    }
                }
            }
        }
    }
}

/// The report as text, to be copied.
fn as_text(report: &Report) -> Markup {
    html! {
        details class="text" {
            summary { "The same as text" }
            p class="tools" hidden { button type="button" class="copy" { "Copy" } }
            div class="scroll" { pre { (text::render(report, TextOptions::default())) } }
        }
    }
}

/// Whether the first finding says why requests are slow.
fn says_why(report: &Report) -> bool {
    report.verdict == Verdict::Findings || report.verdict.is_in_notes()
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
        (Verdict::AwaitsEvents { .. } | Verdict::AwaitsClients { .. } | Verdict::Run, _) => "info",
        (verdict, _) if verdict.is_in_notes() => "info",
        // It cannot tell, or not all was seen.
        _ => "unsure",
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
                // The headline is the first one's title where something is wrong.
                @if open && report.verdict == Verdict::Findings {
                    "why, where, and what to do"
                } @else {
                    (wrapping(&whole(&finding.title)))
                }
            }
            p class="place" { (whole(&sentences::place(report, finding))) }
            @if !finding.evidence.is_empty() {
                ul {
                    @for evidence in &finding.evidence {
                        li { (figures(&name(&evidence.text, 800))) }
                    }
                }
            }
            @if !finding.same_waits.is_empty() {
                ul {
                    @for same in &finding.same_waits {
                        li { (figures(&name(&sentences::same_waits(same), 800))) }
                    }
                }
            }
            @if let Some(cause) = &finding.cause {
                p {
                    strong { "Cause: " }
                    "thread " (name(&cause.thread, 40)) " (" (cause.tid) ") "
                    (figures(&whole(&cause.doing)))
                }
                (path::frames(&sentences::folded(&cause.stack, &cause.own)))
            }
            p class="fix" { strong { "What to do: " } (figures(&name(&finding.fix, 800))) }
            p {
                @if let Some(saving) = sentences::saving(&finding.saving) {
                    strong { (figures(&capitalised(&saving))) } "; "
                }
                span class="figure" {
                    "confidence: " (sentences::confidence(finding.confidence)) "."
                }
            }
            details class="explain" {
                summary {
                    "What " (finding.code.name()) " means, how it is measured, and how to fix it"
                }
                @let explained = finding.code.explain();
                // Its heading is what the summary says.
                (prose(explained.split_once('\n').map_or("", |(_, text)| text)))
            }
        }
    }
}
