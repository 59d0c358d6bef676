//! What a fix saves, and what is left of it when it takes away only a part of the fault.

use maud::{Markup, html};
use whywait_findings::{Finding, SavingKind, is_of_requests};
use whywait_report::Report;
use whywait_report::text::sentences;
use whywait_words::percent;

use super::svg::{figures, inside, name, picture_of, px};
use crate::palette::{COUNT, RUNTIME};

/// Findings that are shown.
const MAX_FINDINGS: usize = 5;

/// The section: for each finding that costs latency, how much of all requests' time it is.
pub(crate) fn section(report: &Report) -> Markup {
    let total_ns = sentences::total_ns(&report.requests.time);
    let findings: Vec<&Finding> = sentences::ranked(&report.findings)
        .filter(|finding| finding.saving.kind == SavingKind::Latency)
        .filter(|finding| finding.saving.at_most_ns > 0)
        .take(MAX_FINDINGS)
        .collect();
    html! {
        @if total_ns > 0 && !findings.is_empty() {
            section id="savings" {
                h2 { "What a fix saves at most" }
                p class="hint" {
                    "Bounds from what was recorded, each finding for itself: savings of several do \
                     not add up."
                }
                @for (index, finding) in findings.iter().enumerate() {
                    (one(finding, total_ns, index + 1))
                }
            }
        }
    }
}

fn one(finding: &Finding, total_ns: u64, number: usize) -> Markup {
    let saving = &finding.saving;
    let saved_ns = saving.at_most_ns.min(total_ns);
    let id = format!("saving-{number}");
    let share = percent(saved_ns, total_ns);
    let most = saving.each_at_most_ns.first().copied();
    if !is_of_requests(finding) {
        return html! {
            p {
                strong { (finding.code.name()) } ": "
                (figures(&sentences::saving(saving).unwrap_or_default()))
                ". It is no part of the requests' time above."
            }
        };
    }
    html! {
        div class="saving" data-saved=(saved_ns) data-total=(total_ns)
            data-each=[most] data-requests=(saving.requests) {
            p {
                strong { (finding.code.name()) } ": "
                span class="says" {
                    (figures(&format!(
                        "{}, {share} of all requests' time",
                        sentences::saving(saving).unwrap_or_default()
                    )))
                }
            }
            (picture_of("bar", &id, &format!("{} of the time", name(&share, 20)), |canvas| {
                let width = saved_ns as f64 / total_ns as f64 * canvas.width;
                (26.0, html! {
                    rect class="kept" x="0" y="0" width=(px(canvas.width)) height="26"
                        fill=(RUNTIME.fill) {}
                    rect class="saved" x="0" y="0" width=(px(width)) height="26"
                        fill=(COUNT.fill) {}
                    (inside(0.0, 17.0, width, COUNT, format!("saved {share}")))
                })
            }))
            p class="slider" hidden {
                label {
                    "If a fix takes away this much of it: "
                    input type="range" min="0" max="100" value="100" step="5";
                    " " output { "100 %" }
                }
            }
        }
    }
}
