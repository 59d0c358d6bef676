//! What a program that serves nobody spent its time on.

use whywait_model::path::run::{ProgramRun, RunPart, RunStage};
use whywait_words::{columns, counted, duration, figure, percent};

use super::page::{Page, Style};
use super::requests::bar;
use super::{headline, words};
use crate::Report;

/// So many parts and stages are shown, …
const FEW: usize = 6;
/// … or, where all is asked for, so many.
const MANY: usize = 20;
/// Parts and stages of a smaller share of the time are summed up.
const SMALL_PERMILLE: u64 = 10;
/// Columns of a program's name.
const NAME: usize = 24;
/// Columns of what a program was called with.
const COMMAND: usize = 60;
/// Columns of a function's name.
const FUNCTION: usize = 48;

/// `make (pid 12) ran for 18.0 s: 94 % of that in cc1, on CPU`.
pub(super) fn headline(page: &Page, report: &Report, run: &ProgramRun) -> String {
    let goes_on = if run.ended { "ran" } else { "has run" };
    let mut text = format!(
        "{} {goes_on} for {}",
        headline::target(page, report),
        duration(run.ns)
    );
    if let Some(status) = run.exit_status.filter(|status| *status != 0) {
        text.push_str(&format!(", exit status {status}"));
    }
    if let Some(first) = run.parts.first() {
        text.push_str(&format!(
            ": {} of that in {}",
            percent(first.ns, run.ns),
            doing(page, first)
        ));
    }
    text
}

/// `; 108 processes, which had 1.4 of 2 CPUs on average`.
pub(super) fn besides(run: &ProgramRun) -> String {
    let mut text = format!("; {}", counted_processes(run.processes));
    if let Some(on_cpu_ns) = run.on_cpu_ns {
        let cpus = on_cpu_ns as f64 / run.ns.max(1) as f64;
        text.push_str(&format!(
            ", which had {} of {} on average",
            figure(cpus),
            counted(run.cpus, "CPU")
        ));
    }
    text
}

pub(super) fn render(page: &mut Page, run: &ProgramRun) {
    page.paragraph(
        "",
        "  ",
        &[
            (Style::Strong, "what it had to wait for"),
            (
                Style::Plain,
                &format!(" (the critical path, {})", duration(run.ns)),
            ),
        ],
    );
    let most = if page.verbose() { MANY } else { FEW };
    parts(page, run, most);
    if run.stages.len() > 1 {
        stages(page, run, most);
    }
    if let Some(text) = advice(page, run) {
        page.paragraph("", "  ", &[(Style::Help, "help: "), (Style::Plain, &text)]);
    }
}

fn is_large(ns: u64, run: &ProgramRun) -> bool {
    u128::from(ns) * 1_000 >= u128::from(run.ns) * u128::from(SMALL_PERMILLE)
}

fn parts(page: &mut Page, run: &ProgramRun, most: usize) {
    let large = run.parts.iter().filter(|part| is_large(part.ns, run));
    let large: Vec<&RunPart> = large.take(most).collect();
    let names: Vec<String> = large.iter().map(|part| doing(page, part)).collect();
    let name_width = names.iter().map(|name| columns(name)).max().unwrap_or(0);
    let bar_width = page.width().saturating_sub(name_width + 24).clamp(1, 24);
    let largest = large.first().map_or(1, |part| part.ns);
    for (part, name) in large.iter().zip(&names) {
        let bar = bar(part.ns, largest, bar_width, page.unicode());
        let filler = " ".repeat((name_width + 1).saturating_sub(columns(name)));
        let after = " ".repeat(bar_width.saturating_sub(columns(&bar)));
        let figures = format!("{:>7}  {:>8}", percent(part.ns, run.ns), duration(part.ns));
        page.row(&[
            (Style::Plain, &format!("  {name}{filler}")),
            (Style::Bar, &bar),
            (Style::Plain, &format!("{after} {figures}")),
        ]);
        let more = more_of(page, part, run);
        if !more.is_empty() {
            page.paragraph("      ", "      ", &[(Style::Dim, &more.join("; "))]);
        }
    }
    let shown: u64 = large
        .iter()
        .map(|part| part.ns)
        .fold(0, u64::saturating_add);
    let rest_ns = run.ns.saturating_sub(shown);
    if rest_ns > 0 && run.parts.len() > large.len() {
        let rest = counted(run.parts.len() - large.len(), "other part");
        let text = format!("{} in {rest}", duration(rest_ns));
        page.paragraph("  ", "    ", &[(Style::Dim, &text)]);
    }
}

fn more_of(page: &Page, part: &RunPart, run: &ProgramRun) -> Vec<String> {
    let mut more = Vec::new();
    if part.processes > 1 {
        more.push(format!("in {}", counted_processes(part.processes)));
    }
    let function = part
        .function
        .as_deref()
        .map(|name| page.cut(name, FUNCTION));
    let kind = part.kind.as_deref().map(|name| page.cut(name, FUNCTION));
    match (function, kind) {
        (Some(function), Some(kind)) => more.push(format!("mostly in {function}: {kind}")),
        (Some(what), None) | (None, Some(what)) => more.push(format!("mostly in {what}")),
        (None, None) => {}
    }
    if part.short_sleeps_ns > part.ns / 10 {
        more.push(format!(
            "up to {} of it in sleeps too short to be recorded",
            percent(part.short_sleeps_ns, part.ns)
        ));
    }
    if run.cpus > 1 && run.processes > 1 && is_large(part.alone_ns, run) {
        more.push(format!("for {} nothing else ran", duration(part.alone_ns)));
    }
    more
}

fn stages(page: &mut Page, run: &ProgramRun, most: usize) {
    let mut by_size: Vec<&RunStage> = run.stages.iter().collect();
    by_size.sort_by_key(|stage| std::cmp::Reverse(stage.ns));
    let least = by_size.get(most - 1).map_or(0, |stage| stage.ns);
    let shown = run.stages.iter();
    let shown = shown.filter(|stage| stage.ns >= least && is_large(stage.ns, run));
    page.paragraph(
        "",
        "  ",
        &[(
            Style::Strong,
            "in order, what took longest, and what it was called with:",
        )],
    );
    for stage in shown {
        let text = format!(
            "{:>8}  {} (pid {}), {}, from {} on{}",
            duration(stage.ns),
            page.cut(&stage.program, NAME),
            stage.pid,
            words::name_of(stage.mostly),
            duration(stage.at_ns),
            on_what(page, stage),
        );
        page.paragraph("  ", "            ", &[(Style::Plain, &text)]);
    }
}

/// `: thumbnails.py 120`: what it was called with, but for options.
fn on_what(page: &Page, stage: &RunStage) -> String {
    let words = stage.command.split(' ').skip(1);
    let words: Vec<&str> = words.filter(|word| !word.starts_with('-')).collect();
    match words.is_empty() {
        true => String::new(),
        false => format!(": {}", page.cut(&words.join(" "), COMMAND)),
    }
}

/// What to shorten, and what to run beside.
fn advice(page: &Page, run: &ProgramRun) -> Option<String> {
    let first = run.parts.first()?;
    let mut text = format!(
        "without the time in {} it would have taken {} at best; what is not on the path costs it \
         nothing",
        doing(page, first),
        duration(run.ns.saturating_sub(first.ns)),
    );
    let stages = run.stages.iter();
    let alone = stages.max_by_key(|stage| stage.alone_ns)?;
    if run.cpus > 1 && run.processes > 1 && is_large(alone.alone_ns, run) {
        text.push_str(&format!(
            ". {} (pid {}) ran alone for {}: what does not need its result could run beside it",
            page.cut(&alone.program, NAME),
            alone.pid,
            duration(alone.alone_ns),
        ));
    }
    Some(text)
}

/// What a run had to wait for, in words: what, its share of the time, how long, and what else is
/// known of it.
pub fn rows(run: &ProgramRun) -> Vec<[String; 4]> {
    let page = Page::new(super::TextOptions::default());
    let rows = run.parts.iter().filter(|part| is_large(part.ns, run));
    rows.map(|part| {
        [
            doing(&page, part),
            percent(part.ns, run.ns),
            duration(part.ns),
            more_of(&page, part, run).join("; "),
        ]
    })
    .collect()
}

/// `cc1, on CPU`.
fn doing(page: &Page, part: &RunPart) -> String {
    let program = page.cut(&part.program, NAME);
    format!("{program}, {}", words::name_of(part.part))
}

fn counted_processes(count: u64) -> String {
    whywait_words::counted_as(count, "process", "processes")
}
