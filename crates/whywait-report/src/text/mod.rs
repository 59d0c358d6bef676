//! The view for people: at most about a screen of text, the answer in its first line.

mod by_calls;
mod calls;
mod coverage;
mod cpu;
mod finding;
mod headline;
mod page;
mod request;
mod requests;
mod rings;
mod routes;
mod run;
pub mod sentences;
mod slowest;
mod sockets;
mod stack;
mod step;
mod task_waits;
mod tasks;
mod waits;
pub mod words;

use whywait_findings::{Finding, Severity};

pub use page::{Page, Style};

use whywait_model::calls::PeerRow;
use whywait_model::cpu::CpuSummary;
use whywait_model::requests::{RequestRow, RouteRow, Slow};
use whywait_model::rings::RingRow;
use whywait_model::waits::WaitRow;
use whywait_words::{Charset, counted};

use crate::Report;
use finding::FindingDetail;

/// How the text is to look. Whether the reader sees a terminal is the caller's to find out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextOptions {
    /// Columns. Lines wrap at words; widths below [`TextOptions::MIN_WIDTH`] count as that.
    pub width: usize,
    /// Whether to use the terminal's colours.
    pub colour: bool,
    /// What the terminal can show.
    pub charset: Charset,
    /// Whether all is shown, and not only what most readers need.
    pub verbose: bool,
    /// Whether the end is what the reader sees first, as on a terminal: it repeats the answer.
    pub ends_with_answer: bool,
}

impl TextOptions {
    /// The width when nobody knows better.
    pub const DEFAULT_WIDTH: usize = 100;
    /// Below this a table does not hold together.
    pub const MIN_WIDTH: usize = 40;
}

impl Default for TextOptions {
    fn default() -> Self {
        TextOptions {
            width: Self::DEFAULT_WIDTH,
            colour: false,
            charset: Charset::Unicode,
            verbose: false,
            ends_with_answer: false,
        }
    }
}

/// How much is shown of each finding, by rank; of those beyond, only how many there are.
const DETAILS: [FindingDetail; 5] = [
    FindingDetail::Full,
    FindingDetail::Short,
    FindingDetail::Title,
    FindingDetail::Title,
    FindingDetail::Title,
];
/// The same, where only what most readers need is shown.
const FEW_DETAILS: [FindingDetail; 3] = [
    FindingDetail::Full,
    FindingDetail::Title,
    FindingDetail::Title,
];

/// The finding that says that large waits cost nothing.
const HARMLESS: &str = "idle-waiters";

/// The report as text.
pub fn render(report: &Report, options: TextOptions) -> String {
    let mut page = page(options);
    if !report.findings.iter().any(is_problem) {
        headline::nothing_wrong(&mut page, report);
    }
    let details: &[FindingDetail] = match options.verbose {
        true => &DETAILS,
        false => &FEW_DETAILS,
    };
    let findings = shown(report, options);
    let mut before = None;
    for (finding, detail) in findings.iter().copied().zip(details.iter().copied()) {
        // A note is a remark, however much room there is: it is not what the reader came for.
        let detail = match finding.severity {
            // Unless it is why they are slow.
            Severity::Note if before.is_none() && report.verdict.is_in_notes() => {
                FindingDetail::Short
            }
            Severity::Note if options.verbose => detail.max(FindingDetail::Remark),
            Severity::Note => FindingDetail::Title,
            _ => detail,
        };
        let first = before.is_none() && is_problem(finding);
        if first {
            headline::impact(&mut page, report, finding);
        }
        // Titles stand together.
        let follows_title = before == Some(FindingDetail::Title) && detail == FindingDetail::Title;
        if !page.is_empty() && !follows_title && !first {
            page.gap();
        }
        finding::title(&mut page, finding);
        if first {
            coverage::short(&mut page, report);
        }
        finding::details(&mut page, report, finding, (detail, first));
        if first {
            headline::besides(&mut page, report);
        }
        before = Some(detail);
    }
    if let Some(more @ 1..) = findings.len().checked_sub(details.len()) {
        let more = counted(more, "more finding");
        let all = match options.verbose {
            true => "all are in --format json",
            false => "-v shows more, --format json all",
        };
        let text = format!("… and {more}: {all}");
        page.paragraph("", "  ", &[(Style::Dim, &text)]);
    }
    page.gap();
    match &report.run {
        Some(run) => run::render(&mut page, run),
        None => requests::render(&mut page, &report.requests, &report.uring),
    }
    routes::short(&mut page, report.requests.routes.as_ref());
    routes::statements(&mut page, &report.statements);
    if options.verbose {
        calls::short(&mut page, &report.calls, &report.requests);
    }
    for note in &report.notes {
        page.paragraph("", "  ", &[(Style::Strong, "note: "), (Style::Plain, note)]);
    }
    coverage::render(&mut page, report);
    if options.ends_with_answer {
        page.gap();
        match findings.first().filter(|finding| is_problem(finding)) {
            Some(finding) => finding::title(&mut page, finding),
            None => headline::answer(&mut page, report),
        }
    }
    page.into_text()
}

/// The findings of which something is said. That large waits are harmless is for those who look at
/// waits.
fn shown(report: &Report, options: TextOptions) -> Vec<&Finding> {
    let mut findings = ranked(&report.findings);
    findings.retain(|finding| options.verbose || finding.code.name() != HARMLESS);
    findings
}

/// What the report comes to, without the reasons: the verdict, or what was found.
pub fn verdict(report: &Report, options: TextOptions) -> String {
    let mut page = page(options);
    let findings = ranked(&report.findings);
    let problems: Vec<_> = findings.into_iter().filter(|it| is_problem(it)).collect();
    if problems.is_empty() {
        headline::verdict(&mut page, report);
    }
    for finding in &problems {
        finding::title(&mut page, finding);
    }
    page.into_text()
}

/// The table of waits, as text.
pub fn waits(rows: &[WaitRow], options: TextOptions) -> String {
    let mut page = page(options);
    waits::render(&mut page, rows);
    page.into_text()
}

/// The table of io_uring rings, as text.
pub fn rings(rows: &[RingRow], options: TextOptions) -> String {
    let mut page = page(options);
    rings::render(&mut page, rows);
    page.into_text()
}

/// The table of calls, as text.
pub fn calls(rows: &[PeerRow], options: TextOptions) -> String {
    let mut page = page(options);
    calls::render(&mut page, rows);
    page.into_text()
}

/// What CPU time was for, as text.
pub fn cpu(summary: Option<&CpuSummary>, options: TextOptions) -> String {
    let mut page = page(options);
    cpu::render(&mut page, summary);
    page.into_text()
}

/// The list of slow requests, as text.
pub fn request_list(rows: &[RequestRow], options: TextOptions) -> String {
    let mut page = page(options);
    tasks::list(&mut page, rows);
    page.into_text()
}

/// The requests of one name, as text.
pub fn route(row: &RouteRow, options: TextOptions) -> String {
    let mut page = page(options);
    routes::render(&mut page, row);
    page.into_text()
}

/// One slow request's critical path, step by step, as text.
pub fn request(slow: &Slow, options: TextOptions) -> String {
    let mut page = page(options);
    request::render(&mut page, slow);
    page.into_text()
}

/// An empty page of that look, at least [`TextOptions::MIN_WIDTH`] wide.
pub fn page(options: TextOptions) -> Page {
    let width = options.width.max(TextOptions::MIN_WIDTH);
    Page::new(TextOptions { width, ..options })
}

/// The findings in the order in which they are shown: what is wrong, because the first line is the
/// answer; then the notes. Within each group the ranking stays.
fn ranked(findings: &[Finding]) -> Vec<&Finding> {
    let mut ranked: Vec<&Finding> = findings.iter().collect();
    ranked.sort_by_key(|finding| !is_problem(finding));
    ranked
}

/// Plain text of whywait's own, such as that of `whywait explain`: paragraphs apart by empty lines,
/// `# headings`, `- lists` and indented code. Everything else is as it stands.
pub fn prose(text: &str, options: TextOptions) -> String {
    let width = options
        .width
        .clamp(TextOptions::MIN_WIDTH, TextOptions::DEFAULT_WIDTH);
    let mut page = Page::new(TextOptions { width, ..options });
    let mut paragraph = String::new();
    let mut hang = "";
    let flush = |page: &mut Page, paragraph: &mut String, hang: &str| {
        if !paragraph.is_empty() {
            page.paragraph("", hang, &[(Style::Plain, paragraph)]);
            paragraph.clear();
        }
    };
    for line in text.trim().lines() {
        let list = ["- ", "* "].iter().any(|mark| line.starts_with(mark));
        let verbatim = line.starts_with("    ");
        let heading = line.starts_with('#');
        if list || verbatim || heading || line.trim().is_empty() {
            flush(&mut page, &mut paragraph, hang);
            hang = "";
        }
        if line.trim().is_empty() {
            page.gap();
        } else if heading {
            page.paragraph(
                "",
                "",
                &[(Style::Strong, line.trim_start_matches('#').trim())],
            );
        } else if verbatim {
            page.paragraph("", "", &[(Style::Help, line)]);
        } else {
            if list {
                hang = "  ";
            }
            if !paragraph.is_empty() {
                paragraph.push(' ');
            }
            paragraph.push_str(line.trim());
        }
    }
    flush(&mut page, &mut paragraph, hang);
    page.into_text()
}

/// Whether it is something wrong, and not a remark.
fn is_problem(finding: &Finding) -> bool {
    finding.severity > Severity::Note
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_keeps_headings_lists_and_code() {
        let text = "# A heading\n\n\
                    A paragraph that\ngoes on and on and on, for longer than a line.\n\n\
                    - one\n- two, which is long enough to need a second line\n\n    code  stays\n";
        let options = TextOptions {
            width: 40,
            ..TextOptions::default()
        };
        assert_eq!(
            prose(text, options),
            "A heading\n\nA paragraph that goes on and on and on,\nfor longer than a line.\n\n\
             - one\n- two, which is long enough to need a\n  second line\n\n    code  stays\n"
        );
    }

    #[test]
    fn prose_is_escaped_too() {
        assert_eq!(
            prose("a\x1b[2J\tb", TextOptions::default()),
            "a\\x1b[2J\\tb\n"
        );
    }
}
