//! What the text says, sentence by sentence, for other views: so that all say the same.

use whywait_findings::{Confidence, Finding, SameWaits, Saving};
use whywait_model::calls::links::Range;
use whywait_model::path::Step;
use whywait_model::requests::{Percentile, Requests, Slow, Time};
use whywait_words::{capitalised, counted};

use super::by_calls::NamedTime;
use super::page::Page;
use super::stack::{FoldedLine, fold};
use super::{
    TextOptions, by_calls, coverage, finding, headline, is_problem, page, request, requests, step,
    tasks, words,
};
use crate::Report;

pub use super::run::rows as run;
pub use super::stack::telling_kernel;

/// Lines do not wrap.
const WIDE: usize = 1 << 20;

/// What may be said of the recording as a whole: the first sentence, and remarks on it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Headline {
    /// What it does to requests, where something is wrong: the first line of the text then.
    pub impact: Option<String>,
    /// What is the answer: the first line otherwise.
    pub title: String,
    /// Remarks, without the word `note: ` before them.
    pub notes: Vec<String>,
}

/// The first line of the text, and the remarks below it that belong to no finding.
pub fn headline(report: &Report) -> Headline {
    let mut page = wide();
    let problem = ranked(&report.findings).next().filter(|f| is_problem(f));
    if problem.is_none() {
        headline::nothing_wrong(&mut page, report);
    } else {
        coverage::short(&mut page, report);
        headline::besides(&mut page, report);
    }
    let mut lines = lines(page);
    let impact = problem.map(|finding| {
        let mut page = wide();
        headline::impact(&mut page, report, finding);
        page.into_text().trim_end().to_owned()
    });
    let title = match problem {
        Some(finding) => finding.title.clone(),
        None if lines.is_empty() => String::new(),
        None => lines.remove(0),
    };
    let notes = lines
        .into_iter()
        .map(|line| line.strip_prefix("note: ").unwrap_or(&line).to_owned())
        .collect();
    Headline {
        impact,
        title,
        notes,
    }
}

/// How the headline of a report without a problem begins: the verdict, without what was seen.
pub fn answer(report: &Report) -> String {
    let mut page = wide();
    headline::answer(&mut page, report);
    page.into_text().trim_end().to_owned()
}

/// The findings in the order of the text.
pub fn ranked(findings: &[Finding]) -> impl Iterator<Item = &Finding> {
    super::ranked(findings).into_iter()
}

/// What a finding is about: the process, and where in it.
pub fn place(report: &Report, finding: &Finding) -> String {
    finding::place(&wide(), report, finding)
}

/// The target: `redis-server (pid 1234)`.
pub fn target(report: &Report) -> String {
    headline::target(&wide(), report)
}

/// The target, and the host that it ran on: `redis-server (pid 1234) on db-1`.
pub fn target_on_host(report: &Report) -> String {
    headline::target_on_host(&wide(), report)
}

/// What a fix saves; `None` when the recording sets no bound.
pub fn saving(saving: &Saving) -> Option<String> {
    finding::saving(saving, None)
}

/// How requests come to wait: who waits, for what, who has it, what that one does. Empty where that
/// is not known.
pub fn chain(finding: &Finding) -> Vec<String> {
    finding::chain(finding)
}

/// What else was found of a finding's waits.
pub fn same_waits(same: &SameWaits) -> String {
    finding::same_waits(same)
}

/// How sure a finding is.
pub const fn confidence(confidence: Confidence) -> &'static str {
    finding::confidence(confidence)
}

/// The parts of a time under the names that a reader sees, in a fixed order; `None`: not known.
pub fn parts(time: &Time) -> [(&'static str, Option<u64>); 13] {
    requests::parts(time)
}

/// All of a time, nanoseconds.
pub fn total_ns(time: &Time) -> u64 {
    requests::total_ns(time)
}

/// What is said of the requests besides where their time went: a name (`latency`, `held back`, …)
/// and a sentence each.
pub fn facts(report: &Report) -> Vec<(String, String)> {
    let mut page = wide();
    requests::facts(&mut page, &report.requests);
    let mut facts: Vec<(String, String)> = Vec::new();
    for line in page.into_text().lines() {
        match facts.last_mut() {
            _ if line.trim().is_empty() => {}
            // It goes on with what was said last.
            Some((_, text)) if line.starts_with(' ') => {
                text.push_str(&format!("; {}", line.trim()))
            }
            _ => facts.push(named(line.trim())),
        }
    }
    facts
}

/// Where all requests were by their calls: what, and between which bounds. Empty where the text
/// does not say it either.
pub fn by_calls(report: &Report) -> Vec<(String, Range)> {
    let (rows, _) = known(report);
    rows
}

/// Of which parts by calls it is not known how much they were.
pub fn not_known(report: &Report) -> Option<String> {
    let (_, unknown) = known(report);
    by_calls::not_known(&unknown).map(|text| capitalised(&text))
}

/// The parts by calls: those of which something is known, and the others.
fn known(report: &Report) -> (Vec<NamedTime>, Vec<NamedTime>) {
    let total_ns = report.requests.tasks.as_ref().map_or(0, |t| t.total_ns);
    let rows = tasks::of_all(&wide(), &report.requests).into_iter();
    rows.partition(|(_, ns)| !by_calls::says_nothing(*ns, total_ns))
}

/// Whether that is the better table of the requests' time: threads do not show where they were.
pub fn better_by_calls(report: &Report) -> bool {
    let requests = &report.requests;
    by_calls::totals(requests, total_ns(&requests.time)).is_some()
}

/// Where the time by threads is the table of the requests' time, what it is called. Where their
/// tasks were looked at it says what it is by: a task may wait for a lock while its thread waits
/// for the next timer.
pub fn time_is_called(requests: &Requests) -> &'static str {
    match &requests.task_waits {
        Some(waits) if waits.looks > 0 => "where the time went, by what threads did",
        _ => "where the time went",
    }
}

/// Which part of the time by threads a part of the time by calls is like, for pictures.
pub fn part_like(what: &str) -> &str {
    match what {
        unread if unread.starts_with(words::UNREAD) => unread,
        words::REPLY_UNREAD => words::WAKING_UP,
        words::QUEUED => "lock",
        words::AT_WORK => "on CPU",
        _ => "network",
    }
}

/// Why responses went out late after they were written, and how much later, nanoseconds. Empty
/// where none did.
pub fn late(report: &Report) -> Vec<(&'static str, u64)> {
    let wire = report.requests.wire.as_ref();
    let wire = wire.filter(|wire| wire.latency_ns.is_some());
    wire.map_or_else(Vec::new, requests::late)
}

/// What is said of a slow request besides its path: what became of its response, and its time by
/// its calls; a name and a sentence each.
pub fn besides(slow: &Slow) -> Vec<(String, String)> {
    let mut page = wide();
    request::besides(&mut page, slow);
    lines(page).iter().map(|line| named(line)).collect()
}

/// A percentile, which may be a lower bound; `None` when latencies are not known.
pub fn percentile(report: &Report, which: Percentile) -> Option<String> {
    let requests = &report.requests;
    let latency = requests.latency_ns.as_ref()?;
    Some(requests::percentile(requests, latency, which))
}

/// What the report rests on: a sentence.
pub fn coverage(report: &Report) -> String {
    let mut page = wide();
    coverage::facts(&mut page, report);
    named(&lines(page).concat()).1
}

/// What the recording lacks: a sentence for each thing, with what may rest on it, and what to do.
/// Empty where it lacks nothing.
pub fn lacks(report: &Report) -> Vec<String> {
    coverage::lacks(report)
}

/// When a request began: `510 ms into the recording`, `from before the recording`.
pub fn began(slow: &Slow) -> String {
    requests::began(slow.at_ns)
}

/// `3.999 s on port 8080, 510 ms into the recording`.
pub fn when(slow: &Slow) -> String {
    requests::when(slow)
}

/// The names of a path's threads, to describe its steps.
pub struct Steps<'a>(step::Names<'a>);

impl<'a> Steps<'a> {
    /// Those of a path.
    pub fn of(path: &'a [Step]) -> Self {
        Self(step::Names::of(path))
    }

    /// What happened in a step, without its thread: `in app::save: fsync (journal commit), woken by
    /// saver (1240)`.
    pub fn what(&self, step: &Step) -> String {
        let page = wide();
        let place = step::place(&page, step);
        let text = format!("{place}{}", step::woken_by(&page, step, &self.0));
        text.trim_start_matches([',', ':', ' ']).to_owned()
    }

    /// A thread of the path: `saver (1240)`.
    pub fn who(&self, tid: u32) -> String {
        self.0.who(&wide(), tid)
    }
}

/// Who held the lock for which a step waited, and what it did meanwhile; `None` for other steps.
pub fn held_by(step: &Step) -> Option<String> {
    step::held_by(&wide(), step)
}

/// A line of a stack as the text shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// A function of the application.
    Own(String),
    /// A function of a runtime.
    Runtime(String),
    /// Frames that were left out, in words.
    Folded(String),
}

/// A stack, innermost function first, folded to what its reader can act on. `own` says for each
/// function whether it is the application's; without an entry its name decides.
pub fn folded(stack: &[String], own: &[bool]) -> Vec<Frame> {
    fold(stack, own)
        .into_iter()
        .map(|row| match row {
            FoldedLine::Own(name) => Frame::Own(name.to_owned()),
            FoldedLine::Runtime("") => Frame::Runtime("??".to_owned()),
            FoldedLine::Runtime(name) => Frame::Runtime(name.to_owned()),
            FoldedLine::Folded(frames, owners) if owners.is_empty() => {
                Frame::Folded(format!("… {}", counted(frames, "more frame")))
            }
            FoldedLine::Folded(frames, owners) => Frame::Folded(format!(
                "… {} of {}",
                counted(frames, "frame"),
                owners.join(", ")
            )),
        })
        .collect()
}

fn wide() -> Page {
    page(TextOptions {
        width: WIDE,
        verbose: true,
        ..TextOptions::default()
    })
}

/// What is on a page, without its gutter and indents.
fn lines(page: Page) -> Vec<String> {
    let text = page.into_text();
    let lines = text.lines().map(|line| {
        let line = line.trim();
        line.strip_prefix("= ").unwrap_or(line).to_owned()
    });
    lines
        .filter(|line| !line.is_empty() && line != "|")
        .collect()
}

/// `latency: p50 1 ms` in two.
fn named(line: &str) -> (String, String) {
    let (name, text) = line.split_once(": ").unwrap_or(("", line));
    (name.to_owned(), text.to_owned())
}
