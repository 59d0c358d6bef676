//! Two sides in one file: what got worse or better, run by run, and why.

use maud::{Markup, html};
use whywait_compare::diff::{FindingChange, FindingStatus, Overall, SideAbout};
use whywait_compare::explain::{Explanation, Shift};
use whywait_compare::measures::Group;
use whywait_compare::{Change, Diff, Trend, text};
use whywait_report::text::words;
use whywait_words::{counted, mean_duration, percent_change};

use super::svg::{apart, grid, label, name, picture, px, swatch, tick, whole, wide};
use super::{document, footer, visible};
use crate::palette::{self, Paint};

const BASE: Paint = palette::BEFORE;
const HEAD: Paint = palette::COUNT;
/// Measures, findings and places that are shown.
const MAX_MEASURES: usize = 24;
const MAX_FINDINGS: usize = 12;
const MAX_PARTS: usize = 14;

/// The comparison as a page: one file.
pub fn diff(diff: &Diff) -> String {
    let first = text::first_line(diff);
    visible(document(&name(&first, 200), body(diff, &first)).into_string())
}

fn body(diff: &Diff, first: &str) -> Markup {
    let tone = match diff.verdict {
        Overall::Worse => "error",
        Overall::Mixed => "warning",
        Overall::Better | Overall::NotToldApart => "good",
        Overall::TooFewRuns => "info",
    };
    html! {
        header { p class="brand" { strong { "whywait" } " diff" } }
        main {
            section id="verdict" class={ "verdict " (tone) } {
                p class="kicker" { "what changed from base to head" }
                h1 { (whole(first)) }
                p { (swatch(BASE)) strong { "base " } (side(&diff.base)) }
                p { (swatch(HEAD)) strong { "head " } (side(&diff.head)) }
                @for note in &diff.notes { p class="note" { (name(note, 800)) } }
            }
            (measures(diff))
            (findings(diff))
            @if let Some(explanation) = &diff.explanation {
                (explained(explanation, diff.verdict != Overall::TooFewRuns))
            }
            section id="test" {
                h2 { "How this was tested" }
                p { (text::how(diff)) }
            }
        }
        (footer())
    }
}

fn side(side: &SideAbout) -> String {
    let requests = side.runs.iter().map(|run| run.requests);
    let requests = requests.fold(0, u64::saturating_add);
    format!(
        "{}: {}, {}",
        name(&side.name, 300),
        counted(side.runs.len(), "run"),
        counted(requests, "request")
    )
}

/// Each run of both sides, as a share of the base's median.
fn measures(diff: &Diff) -> Markup {
    let rows: Vec<&Change> = diff
        .changes
        .iter()
        .filter(|change| {
            change.group == Group::Headline
                || (change.group == Group::Section && change.is_called())
        })
        .take(MAX_MEASURES)
        .collect();
    html! {
        @if !rows.is_empty() {
            section id="measures" {
                h2 { "What changed" }
                (dots(&rows))
                (table(&rows, diff.verdict == Overall::TooFewRuns))
            }
        }
    }
}

/// A dot for each run.
fn dots(rows: &[&Change]) -> Markup {
    const ROW: f64 = 34.0;
    const NARROW_ROW: f64 = 50.0;
    const LEFT: f64 = 170.0;
    const RIGHT: f64 = 40.0;
    // Beyond tenfold all are at the picture's end.
    const MOST: f64 = 10.0;
    let share = |change: &Change, value: f64| match change.base_median {
        base if base > 0.0 => (value / base).clamp(1.0 / MOST, MOST).log2(),
        _ => 0.0,
    };
    let all = rows.iter().flat_map(|change| {
        let values = change.base.iter().chain(&change.head);
        values.map(|value| share(change, *value).abs())
    });
    let most = all.fold(0.1, f64::max) * 1.08;
    let ticks = [0.1, 0.2, 0.5, 0.8, 0.9, 1.0, 1.1, 1.25, 2.0, 5.0, 10.0];
    let ticks = ticks.into_iter().filter(|tick: &f64| {
        let at = tick.log2();
        at.abs() <= most && (at == 0.0 || at.abs() > most / 6.0)
    });
    picture(
        "dots",
        "Each run as a share of the base's median",
        |canvas| {
            let (left, right) = (canvas.pick(LEFT, RIGHT), canvas.width - RIGHT);
            let row = canvas.pick(ROW, NARROW_ROW);
            let x = |at: f64| (left + right) / 2.0 + at / most * (right - left) / 2.0;
            let bottom = row * rows.len() as f64;
            let ticks = ticks.clone().map(|tick| {
                let text = format!("{:.0} %", tick * 100.0);
                (x(tick.log2()), wide(&text), text)
            });
            let drawn = html! {
                @for (at, text) in apart(ticks) {
                    (grid(at, 0.0, at, bottom))
                    (tick(at, bottom + 15.0, canvas.width, &text))
                }
                @for (index, change) in rows.iter().enumerate() {
                    @let top = row * index as f64;
                    @let y = top + row - ROW;
                    @let called = name(&text::title(&change.name), 26);
                    @if canvas.narrow {
                        (label(0.0, top + 14.0, "start", &called))
                    } @else {
                        (label(left - 10.0, y + 20.0, "end", &called))
                    }
                    (grid(canvas.pick(left, 0.0), top + row, canvas.width, top + row))
                    (side_dots(&change.base, BASE, y + 11.0, change, &|v| x(share(change, v))))
                    (side_dots(&change.head, HEAD, y + 23.0, change, &|v| x(share(change, v))))
                }
            };
            (bottom + 22.0, drawn)
        },
    )
}

fn side_dots(
    values: &[f64],
    paint: Paint,
    y: f64,
    change: &Change,
    x: &dyn Fn(f64) -> f64,
) -> Markup {
    html! {
        @for value in values {
            circle cx=(px(x(*value))) cy=(px(y)) r="4.5" fill=(paint.fill) fill-opacity="0.8" {
                title { (text::value(change.unit, *value)) }
            }
        }
    }
}

/// `untested`: nothing could be held against chance, and no column says so again and again.
fn table(rows: &[&Change], untested: bool) -> Markup {
    html! {
        div class="scroll" {
            table {
                thead {
                    tr {
                        th scope="col" { "measure" }
                        th scope="col" class="n" { "base" }
                        th scope="col" class="n" { "head" }
                        th scope="col" class="n" { "change" }
                        @if !untested {
                            th scope="col" class="n" { "95 % interval" }
                            th scope="col" class="n" { "p" }
                        }
                        th scope="col" { "" }
                    }
                }
                tbody {
                    @for change in rows {
                        tr {
                            th scope="row" { (whole(&text::title(&change.name))) }
                            td class="n" { (text::value(change.unit, change.base_median)) }
                            td class="n" { (text::value(change.unit, change.head_median)) }
                            td class="n" { (percent_change(change.relative)) }
                            @if untested {
                                td { @if text::is_large(change) { "large" } }
                            } @else {
                                td class="n" { (text::interval_of(change)) }
                                td class="n" {
                                    (change.adjusted_p.map_or("-".to_owned(), text::p_value))
                                }
                                td { span class=(outcome(change)) { (text::outcome(change)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

const fn outcome(change: &Change) -> &'static str {
    match change.verdict {
        Trend::Worse => "badge error",
        Trend::Better => "badge good",
        Trend::Changed => "badge",
        _ => "hint",
    }
}

fn findings(diff: &Diff) -> Markup {
    let is_note = |finding: &FindingChange| {
        let severities = [&finding.base_severity, &finding.head_severity];
        severities
            .into_iter()
            .flatten()
            .all(|severity| severity == "note")
    };
    let shown: Vec<&FindingChange> = diff
        .findings
        .iter()
        .filter(|finding| {
            finding.called || (finding.status != FindingStatus::Same && !is_note(finding))
        })
        .take(MAX_FINDINGS)
        .collect();
    let (n, m) = (diff.base.runs.len(), diff.head.runs.len());
    html! {
        @if !shown.is_empty() {
            section id="findings" {
                h2 { "Findings" }
                @for finding in shown {
                    @let class = match (finding.called, finding.status) {
                        (false, _) => "badge",
                        (true, FindingStatus::New | FindingStatus::Worse) => "badge error",
                        _ => "badge good",
                    };
                    p {
                        span class=(class) { (text::status(finding.status)) " " (finding.code) }
                        " " (text::severity(finding))
                        @if !finding.thread.is_empty() { " (" (name(&finding.thread, 40)) ")" }
                        ": in " (finding.base_runs) " of " (n) " runs before, "
                        (finding.head_runs) " of " (m) " after"
                        @if !finding.called && diff.verdict != Overall::TooFewRuns {
                            ", not significant"
                        }
                    }
                    p class="place" { (whole(&finding.title)) }
                    @if let Some(saved) = text::saved(diff, finding) {
                        p class="place" { (saved) }
                    }
                }
            }
        }
    }
}

fn explained(explanation: &Explanation, mark: bool) -> Markup {
    html! {
        @if let (Some(base_ns), Some(head_ns), false) =
            (explanation.base_ns, explanation.head_ns, explanation.parts.is_empty()) {
            section id="explanation" {
                h2 { "Where the requests' time changed" }
                p class="hint" {
                    "A request, on average: " (mean_duration(base_ns)) " before, "
                    (mean_duration(head_ns)) " after"
                }
                (pairs("parts", &explanation.parts, |part| {
                    words::name_of(&part.part).to_owned()
                }))
                (places(&explanation.parts))
            }
        }
        @if !explanation.routes.is_empty() {
            section id="routes" {
                h2 { "The same by route" }
                p class="hint" { "Of slow requests, for each request of all" }
                ul {
                    @for route in &explanation.routes {
                        li {
                            (whole(&route.name)) " " strong { (signed(route.ns())) } ": "
                            (text::route_said(route))
                            @if mark && !route.told_apart { " (not significant)" }
                        }
                    }
                }
            }
        }
        @if !explanation.functions.is_empty() {
            section id="functions" {
                h2 { "Where the CPU time changed" }
                p class="hint" { (explanation.functions[0].what) ", from samples" }
                (pairs("cpu", &explanation.functions, text::place_name))
            }
        }
    }
}

/// Two bars for each: before and after.
fn pairs(id: &str, shifts: &[Shift], called: impl Fn(&Shift) -> String) -> Markup {
    const ROW: f64 = 40.0;
    const NARROW_ROW: f64 = 58.0;
    const LEFT: f64 = 290.0;
    const RIGHT: f64 = 160.0;
    let shifts = &shifts[..shifts.len().min(MAX_PARTS)];
    let most = shifts.iter().map(|shift| shift.base_ns.max(shift.head_ns));
    let most = most.fold(1.0, f64::max);
    picture(id, "Time of a request before and after", |canvas| {
        let left = canvas.pick(LEFT, 0.0);
        let row = canvas.pick(ROW, NARROW_ROW);
        let width = |ns: f64| (ns.max(0.0) / most * (canvas.width - left - RIGHT)).max(0.5);
        let drawn = html! {
            @for (index, shift) in shifts.iter().enumerate() {
                @let top = row * index as f64 + 4.0;
                @let y = top + row - ROW;
                @let called = name(&called(shift), 44);
                @if canvas.narrow {
                    (label(0.0, top + 12.0, "start", &called))
                } @else {
                    (label(left - 10.0, y + 20.0, "end", &called))
                }
                @let after = format!("{} ({})", mean_duration(shift.head_ns), signed(shift.ns()));
                @for (ns, paint, y, said) in [
                    (shift.base_ns, BASE, y, mean_duration(shift.base_ns)),
                    (shift.head_ns, HEAD, y + 16.0, after),
                ] {
                    rect x=(px(left)) y=(px(y)) width=(px(width(ns))) height="14"
                        fill=(paint.fill) {
                        title { (mean_duration(ns)) }
                    }
                    (label(left + width(ns) + 6.0, y + 11.0, "start", &said))
                }
            }
        };
        (row * shifts.len() as f64 + 4.0, drawn)
    })
}

/// By how much it changed: `+28.4 ms`.
fn signed(ns: f64) -> String {
    let sign = if ns < 0.0 { "-" } else { "+" };
    format!("{sign}{}", mean_duration(ns.abs()))
}

fn places(parts: &[Shift]) -> Markup {
    html! {
        ul {
            @for part in parts {
                @for place in &part.places {
                    li {
                        (words::name_of(&part.part)) " " strong { (signed(place.ns())) } ": "
                        (whole(&text::place_name(place))) ", " (mean_duration(place.base_ns))
                        " before, " (mean_duration(place.head_ns)) " after"
                    }
                }
            }
        }
    }
}
