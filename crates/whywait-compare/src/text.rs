//! The view of a diff for people: the answer in its first line, then the figures it rests on, then
//! why.

use whywait_report::text::{self, Page, Style, TextOptions, words};
use whywait_words::{count, counted, figure, mean_duration, percent_change, rate, ratio_percent};

use crate::changes::{Change, Trend};
use crate::diff::{Diff, FindingChange, FindingStatus, Overall, SideAbout};
use crate::explain::{Explanation, RouteShift, Shift};
use crate::measures::{Group, Unit};

/// So many findings are shown.
const FINDINGS: usize = 8;
/// So many frames of a stack are shown.
const FRAMES: usize = 5;
/// More of a route's name is not shown.
const MAX_NAME: usize = 70;

/// A diff as text.
pub fn render(diff: &Diff, options: TextOptions) -> String {
    let mut page = text::page(options);
    headline(&mut page, diff);
    page.gap();
    side(&mut page, "base", &diff.base);
    side(&mut page, "head", &diff.head);
    for note in &diff.notes {
        page.paragraph("", "  ", &[(Style::Strong, "note: "), (Style::Plain, note)]);
    }
    table(&mut page, diff);
    findings(&mut page, diff);
    if let Some(explanation) = &diff.explanation {
        // With too few runs nothing is significant, and the first line says so.
        let mark = diff.verdict != Overall::TooFewRuns;
        explained(&mut page, explanation, mark);
    }
    test(&mut page, diff);
    page.into_text()
}

/// The first line: what got worse and what better.
pub fn first_line(diff: &Diff) -> String {
    const WIDE: usize = 1 << 20;
    let mut page = text::page(TextOptions {
        width: WIDE,
        ..TextOptions::default()
    });
    headline(&mut page, diff);
    page.into_text().trim().to_owned()
}

fn headline(page: &mut Page, diff: &Diff) {
    let list = |verdict: Trend| {
        let changes = diff.changes.iter();
        let names: Vec<String> = changes
            .filter(|change| change.verdict == verdict && change.counts())
            .map(|change| match change.group {
                Group::Finding => finding_in_short(diff, change),
                _ => format!(
                    "{} {}",
                    title(&change.name),
                    percent_change(change.relative)
                ),
            })
            .collect();
        names.join(", ")
    };
    let (worse, better) = (list(Trend::Worse), list(Trend::Better));
    let spans: Vec<(Style, String)> = match diff.verdict {
        Overall::TooFewRuns => {
            const FEW: usize = 3;
            let large = headlines(diff)
                .into_iter()
                .filter(|change| is_large(change));
            let large: Vec<String> = large
                .take(FEW)
                .map(|change| format!("{} {}", title(&change.name), from_to(change)))
                .collect();
            let large = match large.is_empty() {
                true => "; no difference is large".to_owned(),
                false => format!("; large: {}", large.join(", ")),
            };
            vec![(Style::Strong, format!("no verdict: too few runs{large}"))]
        }
        Overall::NotToldApart => vec![(Style::Good, "no difference".to_owned())],
        Overall::Worse => vec![(Style::Error, format!("worse: {worse}"))],
        Overall::Better => vec![(Style::Good, format!("better: {better}"))],
        Overall::Mixed => vec![
            (Style::Error, format!("worse: {worse}")),
            (Style::Plain, "; ".to_owned()),
            (Style::Good, format!("better: {better}")),
        ],
    };
    let spans: Vec<(Style, &str)> = spans
        .iter()
        .map(|(style, text)| (*style, text.as_str()))
        .collect();
    page.paragraph("", "  ", &spans);
}

/// The figures that users feel, latency first.
fn headlines(diff: &Diff) -> Vec<&Change> {
    let changes = diff.changes.iter();
    let mut changes: Vec<&Change> = changes
        .filter(|change| change.group == Group::Headline)
        .collect();
    let first = ["latency.p99", "latency.p50", "latency."];
    changes.sort_by_key(|change| {
        let name = change.name.as_str();
        let at = first.iter().position(|first| name.starts_with(first));
        at.unwrap_or(first.len())
    });
    changes
}

/// Whether it changed by half or more in every pair of runs. That proves nothing where runs are
/// few, but whoever compares wants to know.
pub fn is_large(change: &Change) -> bool {
    const LARGE: f64 = 1.5;
    let least = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let up = least(&change.head) >= LARGE * most(&change.base);
    let down = least(&change.base) >= LARGE * most(&change.head);
    (up || down) && most(&change.base) + most(&change.head) > 0.0
}

/// `1.20 s → 10.0 ms`.
fn from_to(change: &Change) -> String {
    let [base, head] =
        [change.base_median, change.head_median].map(|median| value(change.unit, median));
    format!("{base} → {head}")
}

/// How bad a finding is, by side if that differs: `warning → error`.
pub fn severity(finding: &FindingChange) -> String {
    match (&finding.base_severity, &finding.head_severity) {
        (Some(base), Some(head)) if base != head => format!("{base} → {head}"),
        (base, head) => head.as_ref().or(base.as_ref()).cloned().unwrap_or_default(),
    }
}

fn finding_in_short(diff: &Diff, change: &Change) -> String {
    let code = &change.subject.part;
    let of = diff
        .findings
        .iter()
        .find(|finding| finding.code == *code && finding.thread == change.subject.thread);
    match of {
        Some(finding) => format!("{code} is {}", status(finding.status)),
        None => code.clone(),
    }
}

fn side(page: &mut Page, name: &str, side: &SideAbout) {
    let requests: u64 = side
        .runs
        .iter()
        .fold(0, |sum, run| sum.saturating_add(run.requests));
    let text = format!(
        ": {}, {} requests",
        counted(side.runs.len(), "run"),
        count(requests)
    );
    page.paragraph(
        "",
        "  ",
        &[
            (Style::Strong, &format!("{name} ")),
            (Style::Plain, &side.name),
            (Style::Plain, &text),
        ],
    );
}

/// The headlines' table. On a narrow page intervals are left out.
fn table(page: &mut Page, diff: &Diff) {
    let rows: Vec<&Change> = diff
        .changes
        .iter()
        .filter(|change| {
            change.group == Group::Headline
                || (change.group == Group::Section && change.is_called())
        })
        .collect();
    if rows.is_empty() {
        return;
    }
    page.gap();
    if diff.verdict == Overall::TooFewRuns {
        untested(page, &rows);
        return;
    }
    let wide = page.width() >= 88;
    let interval = if wide { "95 % interval" } else { "" };
    page.row(&[(
        Style::Dim,
        &line(wide, "", "base", "head", "change", interval, "p", ""),
    )]);
    for change in rows {
        let interval = if wide {
            interval_of(change)
        } else {
            String::new()
        };
        let p = change.adjusted_p.map_or("-".to_owned(), p_value);
        let (style, word) = verdict(change);
        let text = line(
            wide,
            title(&change.name).as_str(),
            &value(change.unit, change.base_median),
            &value(change.unit, change.head_median),
            &percent_change(change.relative),
            &interval,
            &p,
            "",
        );
        page.row(&[(Style::Plain, &text), (Style::Plain, " "), (style, word)]);
    }
}

/// The same where nothing could be held against chance: no column says so again and again.
fn untested(page: &mut Page, rows: &[&Change]) {
    let line = |name: &str, base: &str, head: &str, change: &str| {
        format!("{name:<18.18}{base:>12}{head:>12}{change:>10}")
    };
    page.row(&[(Style::Dim, &line("", "base", "head", "change"))]);
    for change in rows {
        let text = line(
            &title(&change.name),
            &value(change.unit, change.base_median),
            &value(change.unit, change.head_median),
            &percent_change(change.relative),
        );
        let large = if is_large(change) { "  large" } else { "" };
        page.row(&[(Style::Plain, &text), (Style::Strong, large)]);
    }
}

#[allow(clippy::too_many_arguments)]
fn line(
    wide: bool,
    name: &str,
    base: &str,
    head: &str,
    change: &str,
    interval: &str,
    p: &str,
    word: &str,
) -> String {
    let text = if wide {
        format!("{name:<18}{base:>12}{head:>12}{change:>10}  {interval:^20}{p:>7} {word}")
    } else {
        format!("{name:<16.16}{base:>9}{head:>9}{change:>9}{p:>7} {word}")
    };
    text.trim_end().to_owned()
}

/// The interval of a change as a share, or `-`.
pub fn interval_of(change: &Change) -> String {
    let effect = change.ratio.unwrap_or(change.shift);
    match (change.ratio, effect.interval) {
        (Some(_), Some((low, high))) => {
            format!(
                "{} to {}",
                percent_change(low - 1.0),
                percent_change(high - 1.0)
            )
        }
        _ => "-".to_owned(),
    }
}

/// What became of a measure, in words.
pub fn outcome(change: &Change) -> &'static str {
    verdict(change).1
}

fn verdict(change: &Change) -> (Style, &'static str) {
    match change.verdict {
        Trend::Worse => (Style::Error, "worse"),
        Trend::Better => (Style::Good, "better"),
        Trend::Changed => (Style::Strong, "changed"),
        Trend::Small => (Style::Dim, "too small to matter"),
        Trend::Unclear => (Style::Dim, "perhaps too small"),
        Trend::NotToldApart => (Style::Dim, "not significant"),
        Trend::TooFewRuns => (Style::Dim, "no verdict"),
    }
}

fn findings(page: &mut Page, diff: &Diff) {
    let shown: Vec<&FindingChange> = diff
        .findings
        .iter()
        .filter(|finding| {
            finding.called || (finding.status != FindingStatus::Same && !is_note(finding))
        })
        .collect();
    if shown.is_empty() {
        return;
    }
    page.gap();
    page.paragraph("", "", &[(Style::Strong, "findings")]);
    for finding in shown.iter().take(FINDINGS) {
        let style = match (finding.called, finding.status) {
            (false, _) => Style::Dim,
            (true, FindingStatus::New | FindingStatus::Worse) => Style::Error,
            _ => Style::Good,
        };
        let (n, m) = (diff.base.runs.len(), diff.head.runs.len());
        let mut text = format!(
            " {} {}{}: in {} of {n} before, {} of {m} after",
            severity(finding),
            finding.code,
            if finding.thread.is_empty() {
                String::new()
            } else {
                format!(" ({})", finding.thread)
            },
            finding.base_runs,
            finding.head_runs,
        );
        if !finding.called && diff.verdict != Overall::TooFewRuns {
            text.push_str(", not significant");
        }
        page.paragraph(
            "  ",
            "      ",
            &[(style, status(finding.status)), (Style::Plain, &text)],
        );
        page.paragraph("      ", "      ", &[(Style::Dim, &finding.title)]);
        if let Some(text) = saved(diff, finding) {
            page.paragraph("      ", "      ", &[(Style::Plain, &text)]);
        }
    }
    if shown.len() > FINDINGS {
        let more = format!(
            "… and {} more: all are in --format json",
            shown.len() - FINDINGS
        );
        page.paragraph("  ", "  ", &[(Style::Dim, &more)]);
    }
}

/// Whether it is a remark on both sides.
fn is_note(finding: &FindingChange) -> bool {
    let severities = [&finding.base_severity, &finding.head_severity];
    severities
        .into_iter()
        .flatten()
        .all(|severity| severity == "note")
}

/// What a fix of it saves at most by the report, and by how much the requests really changed.
pub fn saved(diff: &Diff, finding: &FindingChange) -> Option<String> {
    let latency = diff.change("latency.mean")?;
    let at_most = match finding.status {
        FindingStatus::Gone | FindingStatus::Better => finding.base_at_most_ns?,
        FindingStatus::New | FindingStatus::Worse => finding.head_at_most_ns?,
        FindingStatus::Same => return None,
    };
    if finding.saving != "latency" || at_most <= 0.0 {
        return None;
    }
    let shift = latency.shift.estimate;
    let direction = if shift > 0.0 { "more" } else { "less" };
    let bound = match finding.status {
        FindingStatus::Gone | FindingStatus::Better => "the report said that a fix saves at most",
        _ => "it costs at most",
    };
    Some(format!(
        "{bound} {} per request, on average over all requests; a request takes {} {direction}{}",
        mean_duration(at_most),
        mean_duration(shift.abs()),
        if latency.is_called() || diff.verdict == Overall::TooFewRuns {
            ""
        } else {
            " (not significant, or too small)"
        }
    ))
}

/// What became of a finding, in a word.
pub fn status(status: FindingStatus) -> &'static str {
    match status {
        FindingStatus::New => "new",
        FindingStatus::Worse => "worse",
        FindingStatus::Gone => "gone",
        FindingStatus::Better => "better",
        FindingStatus::Same => "same",
    }
}

fn explained(page: &mut Page, explanation: &Explanation, mark: bool) {
    if let (Some(base_ns), Some(head_ns), false) = (
        explanation.base_ns,
        explanation.head_ns,
        explanation.parts.is_empty(),
    ) {
        page.gap();
        let head = format!(
            " (a request, on average: {} before, {} after)",
            mean_duration(base_ns),
            mean_duration(head_ns)
        );
        page.paragraph(
            "",
            "  ",
            &[
                (Style::Strong, "where the requests' time changed"),
                (Style::Dim, &head),
            ],
        );
        for part in &explanation.parts {
            shift(page, "  ", words::name_of(&part.part), part, mark);
            for place in &part.places {
                shift(page, "      ", &place_name(place), place, mark);
                if place.told_apart {
                    stack(page, place);
                }
            }
        }
    }
    if !explanation.routes.is_empty() {
        page.gap();
        let strong = (Style::Strong, "the same by route");
        let what = (Style::Dim, " (of slow requests, for each request of all)");
        page.paragraph("", "  ", &[strong, what]);
        for route in &explanation.routes {
            let name = page.cut(&route.name, MAX_NAME);
            let said = format!("  {name}: {}", route_said(route));
            let (ns, told_apart) = (route.ns(), route.told_apart);
            changed(page, "  ", ns, &said, told_apart, mark);
        }
    }
    if !explanation.functions.is_empty() {
        page.gap();
        page.paragraph(
            "",
            "  ",
            &[
                (Style::Strong, "where the CPU time changed"),
                (
                    Style::Dim,
                    &format!(" ({}, from samples)", explanation.functions[0].what),
                ),
            ],
        );
        for function in &explanation.functions {
            shift(page, "  ", &place_name(function), function, mark);
            if function.told_apart {
                stack(page, function);
            }
        }
    }
}

/// `fsync (writeback) in app::save on worker-N`.
pub fn place_name(place: &Shift) -> String {
    let function = if place.function.is_empty() {
        "an unknown function"
    } else {
        &place.function
    };
    let mut name = function.to_owned();
    if !place.what.is_empty() && !place.part.is_empty() {
        name = format!("{} in {name}", place.what);
    }
    if place.thread.is_empty() {
        name
    } else {
        format!("{name} on {}", place.thread)
    }
}

/// `1.20 ms before, 13 ms after (their p99 20 ms → 300 ms)`.
pub fn route_said(route: &RouteShift) -> String {
    let [base, head] = [route.base_ns, route.head_ns].map(|ns| match ns > 0.0 {
        true => mean_duration(ns),
        false => "no slow one".to_owned(),
    });
    let p99 = match (route.base_p99_ns, route.head_p99_ns) {
        (Some(base), Some(head)) => {
            format!("{} → {}", mean_duration(base), mean_duration(head))
        }
        (Some(p99), None) | (None, Some(p99)) => mean_duration(p99),
        (None, None) => return format!("{base} before, {head} after"),
    };
    format!("{base} before, {head} after (their p99 {p99})")
}

fn shift(page: &mut Page, indent: &str, name: &str, shift: &Shift, mark: bool) {
    let said = format!(
        "  {name}: {} before, {} after",
        mean_duration(shift.base_ns),
        mean_duration(shift.head_ns)
    );
    changed(page, indent, shift.ns(), &said, shift.told_apart, mark);
}

/// By how much something changed, and what is said of it. `mark`: whether to say of what chance
/// would make that it is.
fn changed(page: &mut Page, indent: &str, ns: f64, said: &str, told_apart: bool, mark: bool) {
    let sign = if ns < 0.0 { "-" } else { "+" };
    let change = format!("{sign}{}", mean_duration(ns.abs()));
    let style = match (told_apart, ns > 0.0) {
        (false, _) => Style::Plain,
        (true, true) => Style::Bad,
        (true, false) => Style::Good,
    };
    let mark = match told_apart || !mark {
        true => "",
        false => " (not significant)",
    };
    let rest = format!("{said}{mark}");
    page.paragraph(
        indent,
        &format!("{indent}    "),
        &[(style, &change), (Style::Plain, &rest)],
    );
}

fn stack(page: &mut Page, shift: &Shift) {
    if shift.stack.len() < 2 {
        return;
    }
    let frames: Vec<&str> = shift
        .stack
        .iter()
        .take(FRAMES)
        .map(String::as_str)
        .collect();
    let more = if shift.stack.len() > FRAMES {
        " < …"
    } else {
        ""
    };
    let text = format!("{}{more}", frames.join(" < "));
    page.paragraph("          ", "          ", &[(Style::Dim, &text)]);
}

fn test(page: &mut Page, diff: &Diff) {
    page.gap();
    let text = how(diff);
    page.paragraph("", "  ", &[(Style::Strong, "test: "), (Style::Dim, &text)]);
}

/// How differences were held against chance: a sentence.
pub fn how(diff: &Diff) -> String {
    let test = &diff.test;
    format!(
        "{}; {} measures; {}{} permutations; alpha {}; changes below {} do not count. Each \
         interval is a Hodges-Lehmann interval of one measure.",
        test.name,
        test.measures,
        if test.exact { "all " } else { "" },
        count(test.ways),
        test.options.alpha,
        percent_change(test.options.min_effect).trim_start_matches('+')
    )
}

/// A measure's name, for people.
pub fn title(name: &str) -> String {
    match name {
        "latency.mean" => "mean latency".to_owned(),
        "latency.p50" => "median latency".to_owned(),
        "latency.p90" => "p90 latency".to_owned(),
        "latency.p99" => "p99 latency".to_owned(),
        "requests.rate" => "throughput".to_owned(),
        "cpu.per-request" => "CPU per request".to_owned(),
        "cpu.per-operation" => "CPU per operation".to_owned(),
        "operations.rate" => "operations".to_owned(),
        "cpu.serving" => "CPU in serving".to_owned(),
        other => other.replacen('.', " ", 1),
    }
}

/// A value with its unit.
pub fn value(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Ns => mean_duration(value),
        Unit::PerSecond => format!("{}/s", rate(value)),
        Unit::Count => figure(value),
        Unit::Share => ratio_percent(value),
        Unit::Severity => match value.round() as u64 {
            0 => "none",
            1 => "note",
            2 => "warning",
            _ => "error",
        }
        .to_owned(),
    }
}

/// A p-value. It is never shown as 0.
pub fn p_value(p: f64) -> String {
    if p < 0.001 {
        "<0.001".to_owned()
    } else {
        format!("{p:.3}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_unit() {
        assert_eq!(value(Unit::PerSecond, 12_345.6), "12,300/s");
        assert_eq!(value(Unit::Ns, 1_234_000.0), "1.23 ms");
    }
}
