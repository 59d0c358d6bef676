//! A finding, laid out like a compiler's diagnostic.

use serde_json::Value;
use whywait_findings::{
    Cause, Confidence, Finding, SameWaits, Saving, SavingKind, Severity, Spells,
};
use whywait_model::file_of_address;
use whywait_model::requests::{AtBest, Requests};
use whywait_words::{count, counted, duration, percent};

use super::headline;
use super::page::{Page, Style};
use super::stack::{self, FoldedLine};
use crate::Report;

/// So many pieces of evidence are shown of a finding in full, and of a shortened one.
const EVIDENCE: (usize, usize) = (6, 1);
/// So many of one in full, where only what most readers need is shown.
const FEW_EVIDENCE: usize = 2;

/// How much of a finding is shown. Ordered from most to least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FindingDetail {
    /// All there is room for.
    Full,
    /// What happened, where, its main evidence, the fix and the bound.
    Short,
    /// What happened, and the main evidence for it: what notes get.
    Remark,
    /// What happened.
    Title,
}

/// What happened.
pub(super) fn title(page: &mut Page, finding: &Finding) {
    let (style, severity) = match finding.severity {
        Severity::Error => (Style::Error, "error"),
        Severity::Warning => (Style::Warning, "warning"),
        Severity::Note => (Style::Note, "note"),
    };
    let head = format!("{severity}[{}]", finding.code.name());
    page.paragraph(
        "",
        "    ",
        &[
            (style, &head),
            (Style::Strong, ": "),
            (Style::Strong, &finding.title),
        ],
    );
}

/// The rest of it. `first`: what a fix does to all requests is in the line before the title.
pub(super) fn details(
    page: &mut Page,
    report: &Report,
    finding: &Finding,
    (detail, first): (FindingDetail, bool),
) {
    if detail == FindingDetail::Title {
        return;
    }
    if detail == FindingDetail::Remark {
        if let Some(evidence) = finding.evidence.first() {
            item(page, &[(Style::Plain, &evidence.text)]);
        }
        return;
    }
    let full = detail == FindingDetail::Full;
    let place = place(page, report, finding);
    page.paragraph("  --> ", "      ", &[(Style::Plain, &place)]);
    let verbose = page.verbose();
    page.gutter();
    let shown = match full {
        true if verbose => EVIDENCE.0,
        true => FEW_EVIDENCE,
        false => EVIDENCE.1,
    };
    let each = finding.evidence.iter().enumerate();
    for (_, evidence) in each.filter(|(at, one)| *at < shown || full && one.of_fix) {
        item(page, &[(Style::Plain, &evidence.text)]);
    }
    for same in finding.same_waits.iter().filter(|_| verbose) {
        item(page, &[(Style::Plain, &same_waits(same))]);
    }
    if full {
        let more = finding.evidence.iter().skip(shown);
        let more = more.filter(|one| !one.of_fix).count();
        if verbose && more > 0 {
            let more = counted(more, "more piece");
            item(
                page,
                &[(
                    Style::Dim,
                    &format!("… {more} of evidence in --format json"),
                )],
            );
        }
        let chain = chain(finding);
        let cause = finding.cause.as_ref();
        let cause = cause.filter(|_| verbose || chain.is_empty());
        if !chain.is_empty() {
            page.gutter();
            render_chain(page, &chain);
        }
        if let Some(cause) = cause {
            page.gutter();
            render_cause(page, cause);
        }
        if !chain.is_empty() || cause.is_some() {
            page.gutter();
        }
    }
    item(
        page,
        &[(Style::Help, "help: "), (Style::Plain, &finding.fix)],
    );
    let confidence = confidence(finding.confidence);
    let saves = match first {
        true => bound(&finding.saving, Some(&report.requests)),
        false => saving(&finding.saving, Some(&report.requests)),
    };
    let saving = match saves {
        Some(saving) => format!("{saving}; confidence: {confidence}"),
        None => format!("confidence: {confidence}"),
    };
    item(page, &[(Style::Strong, "note: "), (Style::Plain, &saving)]);
    if full && verbose {
        let command = format!("whywait explain {}", finding.code.name());
        item(
            page,
            &[
                (Style::Strong, "note: "),
                (Style::Plain, "how this is measured: "),
                (Style::Plain, &command),
            ],
        );
    }
}

/// What else was found of a finding's waits.
pub(super) fn same_waits(same: &SameWaits) -> String {
    format!("the same waits, as {}: {}", same.code.name(), same.title)
}

fn item(page: &mut Page, spans: &[(Style, &str)]) {
    page.paragraph("   = ", "     ", spans);
}

/// Where: the target, then what the finding is about.
pub(super) fn place(page: &Page, report: &Report, finding: &Finding) -> String {
    let mut place = headline::target(page, report);
    // Of a target of several processes, which.
    let pids = finding.subject.get("pids").and_then(Value::as_array);
    let pid = finding.subject.get("pid").and_then(Value::as_u64);
    match (pids, pid) {
        (Some(pids), _) if pids.len() > 1 => {
            place.push_str(&format!(", {} processes", pids.len()));
        }
        (_, Some(pid)) if pid != u64::from(report.target.pid) => {
            place.push_str(&format!(", process {pid}"));
        }
        _ => {}
    }
    let keys = finding
        .subject
        .keys()
        .map(String::as_str)
        .filter(|key| is_place(key, &finding.subject[*key]));
    // Readers know their service by its port; the rest follows in its own stable order.
    let (mut first, rest): (Vec<&str>, Vec<&str>) =
        keys.partition(|key| matches!(*key, "port" | "ports"));
    first.extend(rest);
    for key in first {
        match value(page, &finding.subject[key]) {
            value if value.is_empty() => {}
            value => place.push_str(&format!(
                ", {} {value}",
                page.cut(&key.replace('_', " "), 30)
            )),
        }
    }
    place
}

/// Whether a key of a subject says where, rather than what the title and the evidence say in words.
fn is_place(key: &str, value: &Value) -> bool {
    const IN_WORDS: &[&str] = &[
        "pid",
        "pids",
        "tid",
        "holder_tid",
        "waiters",
        "kernel",
        "kind",
        "class",
        "lock",
        "cycle",
        "why",
        "events",
        "turns",
        "turns_per_second",
        "wasted_per_second",
        "calls_per_cycle",
        "cpu_permille",
        "fd_kind",
        "replay",
    ];
    !IN_WORDS.contains(&key)
        && !key.ends_with("_ns")
        && !matches!(value, Value::Object(_) | Value::Bool(_))
}

/// A value of a finding's subject in words; empty when there is nothing to say.
fn value(page: &Page, value: &Value) -> String {
    const MAX_WIDTH: usize = 40;
    const MAX_ITEMS: usize = 6;
    match value {
        Value::Null => String::new(),
        Value::String(text) => page.cut(text, MAX_WIDTH),
        Value::Array(items) => {
            let mut texts: Vec<String> = items
                .iter()
                .take(MAX_ITEMS)
                .map(|item| self::value(page, item))
                .collect();
            if items.len() > MAX_ITEMS {
                texts.push(format!("… {} more", items.len() - MAX_ITEMS));
            }
            texts.join(" ")
        }
        other => page.cut(&other.to_string(), MAX_WIDTH),
    }
}

/// Who waits, for what, who has it, what that one does and in which function; empty where that is
/// not known.
pub(super) fn chain(finding: &Finding) -> Vec<String> {
    let Some(mut chain) = finding.chain() else {
        return Vec::new();
    };
    let cause = finding.cause.iter().filter(|_| !chain.does.is_empty());
    let mut rows = cause.flat_map(|cause| stack::fold(&cause.stack, &cause.own));
    let spells = finding.cause.as_ref().and_then(|cause| cause.spells);
    let function = rows.find_map(|row| match row {
        FoldedLine::Own(function) => Some(function),
        _ => None,
    });
    // An address says nothing that the title does not.
    if let Some(function) = function.filter(|name| file_of_address(name).is_none()) {
        chain.does.push_str(&format!(", in {function}"));
    }
    if let Some(spells) = spells.filter(|_| !chain.does.is_empty()) {
        how_often(spells, &mut chain.does);
    }
    chain.what.insert_str(0, "wait ");
    chain.links().collect()
}

/// What a holder does begins so, with how long it took the time that counts.
const HELD_IT_FOR: &str = "held it for ";

/// Adds `: up to 120 ms, 44 times, 3.10 s in all` to what somebody does.
fn how_often(spells: Spells, does: &mut String) {
    let longest = duration(spells.longest_ns);
    let is_said = does.contains(&longest);
    let at_most = match spells.times {
        _ if is_said => None,
        1 => Some(longest),
        _ => Some(format!("up to {longest}")),
    };
    let times = || format!("{} times", count(spells.times));
    let times = (spells.times > 1).then(times);
    let all = || format!("{} in all", duration(spells.total_ns));
    let all = (spells.times > 1).then(all);
    // How long another one took is said already.
    let of_several = does.starts_with(HELD_IT_FOR) && at_most.is_some();
    let figures: Vec<String> = match times {
        Some(times) if of_several => [Some(format!("one of {times}")), at_most, all]
            .into_iter()
            .flatten()
            .collect(),
        times => [at_most, times, all].into_iter().flatten().collect(),
    };
    if !figures.is_empty() {
        does.push_str(&format!(": {}", figures.join(", ")));
    }
}

/// The links of a chain: a line each, one below the other.
fn render_chain(page: &mut Page, chain: &[String]) {
    const MAX_LINK: usize = 200;
    let arrow = if page.unicode() { "└─ " } else { "`- " };
    for (depth, link) in chain.iter().enumerate() {
        let link = page.cut(link, MAX_LINK);
        match depth {
            0 => item(page, &[(Style::Strong, &link)]),
            _ => {
                let indent = format!("   | {}", "    ".repeat(depth - 1));
                let hang = format!("{indent}    ");
                let spans = [(Style::Dim, arrow), (Style::Plain, &link)];
                page.paragraph(&indent, &hang, &spans);
            }
        }
    }
}

fn render_cause(page: &mut Page, cause: &Cause) {
    const MAX_NAME: usize = 40;
    let who = format!(
        "thread {} ({})",
        page.cut(&cause.thread, MAX_NAME),
        cause.tid
    );
    item(
        page,
        &[
            (Style::Strong, "cause: "),
            (Style::Strong, &who),
            (Style::Plain, " "),
            (Style::Plain, &cause.doing),
        ],
    );
    stack::render(page, "   |       ", &cause.stack, &cause.own);
}

/// What a fix saves, what that does to all requests first; `None` when the recording sets no bound,
/// as for a wait that never ended.
pub(super) fn saving(saving: &Saving, of: Option<&Requests>) -> Option<String> {
    let bound = bound(saving, of)?;
    Some(match effect(saving) {
        Some(effect) => format!("{effect}; {bound}"),
        None => bound,
    })
}

/// What a fix saves of those that the finding is about.
fn bound(saving: &Saving, of: Option<&Requests>) -> Option<String> {
    if saving.at_most_ns == 0 {
        return None;
    }
    let total = duration(saving.at_most_ns);
    Some(match saving.kind {
        SavingKind::Latency if saving.requests == 1 && of.is_none() => {
            format!("a fix saves at most {total}, on 1 request")
        }
        SavingKind::Latency => {
            let requests = concerned(saving, of);
            match each(saving) {
                Some(each) if saving.requests > 1 => {
                    format!("a fix saves at most {each} on each of {requests}, {total} in all")
                }
                _ => format!("a fix saves at most {total}, over {requests}"),
            }
        }
        SavingKind::Cpu => format!("a fix saves at most {total} of CPU time"),
        SavingKind::Throughput => {
            format!("a fix gives back at most {total} in which work can be done")
        }
    })
}

/// `176 requests`, `176 requests (84 %)`.
fn concerned(saving: &Saving, of: Option<&Requests>) -> String {
    let requests = counted(saving.requests, "request");
    match of.map(all) {
        Some(all) if saving.requests <= all => {
            format!("{requests} ({} of all)", percent(saving.requests, all))
        }
        _ => requests,
    }
}

/// How many requests are in the figures of latency.
pub(super) fn all(requests: &Requests) -> u64 {
    let late = requests.open.as_ref().map_or(0, |open| open.late);
    requests.count.saturating_add(late)
}

/// `p99 288 ms, with a fix at best 60 ms; p50 40 ms, with a fix at best 5 ms`.
pub(super) fn effect(saving: &Saving) -> Option<String> {
    let effect = saving.effect?;
    let figures = [("p99", effect.p99), ("p50", effect.p50)];
    let texts: Vec<String> = figures
        .into_iter()
        .filter_map(|(name, figure)| Some(format!("{name} {}", at_best(figure?)?)))
        .collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

/// `288 ms, with a fix at best 60 ms`; `None` where it may be anything.
fn at_best(figure: AtBest) -> Option<String> {
    let now = duration(figure.now_ns);
    let best_ns = figure.at_best_ns?;
    Some(match best_ns >= figure.now_ns {
        true => format!("{now}, with a fix as well"),
        false => format!("{now}, with a fix at best {}", duration(best_ns)),
    })
}

/// The bound for each request, where they are alike; `None` where not, and when it is not known for
/// all.
fn each(saving: &Saving) -> Option<String> {
    let (max, min) = (
        saving.each_at_most_ns.iter().max()?,
        saving.each_at_most_ns.iter().min()?,
    );
    if (saving.each_at_most_ns.len() as u64) < saving.requests {
        return None;
    }
    (max - min <= max / 20).then(|| duration(*max))
}

pub(super) const fn confidence(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::High => "high",
        Confidence::Medium => "medium",
        Confidence::Low => "low",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_counts_is_one_of_several_and_not_up_to_more() {
        let spells = Spells {
            times: 49,
            total_ns: 329_000_000,
            longest_ns: 23_800_000,
        };
        let with = |does: &str| {
            let mut text = does.to_owned();
            how_often(spells, &mut text);
            text
        };
        assert_eq!(
            with("held it for 6.81 ms"),
            "held it for 6.81 ms: one of 49 times, up to 23.8 ms, 329 ms in all"
        );
        assert_eq!(
            with("held it for 23.8 ms"),
            "held it for 23.8 ms: 49 times, 329 ms in all"
        );
        assert_eq!(
            with("asleep in fsync"),
            "asleep in fsync: up to 23.8 ms, 49 times, 329 ms in all"
        );
    }
}
