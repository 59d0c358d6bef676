//! The verdict and its tables for a pull request, a ticket or a job's summary: GitHub's Markdown.

use whywait_findings::{Finding, Severity, Verdict};
use whywait_model::Model;
use whywait_report::Report;
use whywait_report::text::sentences;
use whywait_words::{
    count, counted, duration, duration_range, markdown::text, percent, percent_range,
};

/// GitHub takes no longer comments, in characters. Job summaries may be longer.
pub const MAX_CHARACTERS: usize = 65_536;

/// Findings in full, and rows of the tables.
const MAX_FINDINGS: usize = 8;
const MAX_ROWS: usize = 12;

/// The report: verdict, where the time went, what was waited for, whom was called.
pub fn markdown(model: &Model, report: &Report) -> String {
    let headline = sentences::headline(report);
    let mut page = MarkdownPage::default();
    let complete = report.coverage.incomplete.is_none();
    let mark = match report.verdict {
        Verdict::Findings => match sentences::ranked(&report.findings).next() {
            Some(first) if first.severity == Severity::Error => "❌",
            _ => "⚠️",
        },
        Verdict::NothingWrong | Verdict::Operations if complete => "✅",
        Verdict::AwaitsEvents { .. } | Verdict::AwaitsClients { .. } | Verdict::Run => "ℹ️",
        verdict if verdict.is_in_notes() => "ℹ️",
        _ => "⚠️",
    };
    page.line(&format!("### {mark} {}", text(&headline.title)));
    page.line("");
    for note in &headline.notes {
        page.line(&format!("> {}", text(note)));
        page.line("");
    }
    match &headline.impact {
        Some(impact) => page.line(&text(impact)),
        None => {
            let target = sentences::target_on_host(report);
            let watched = duration(report.target.duration_ns);
            page.line(&format!("{}, watched for {watched}", text(&target)));
        }
    }
    page.line("");
    for (index, finding) in sentences::ranked(&report.findings).enumerate() {
        match index {
            // A note explains nothing at first sight, unless it is why they are slow.
            0..MAX_FINDINGS => page.finding(report, finding, index == 0 && says_why(report)),
            MAX_FINDINGS => {
                let more = report.findings.len() - MAX_FINDINGS;
                page.line(&counted(more, "more finding"));
            }
            _ => break,
        }
    }
    page.run(report);
    page.time(report);
    page.waits(model);
    page.calls(report);
    page.line("<details><summary>What this rests on</summary>");
    page.line("");
    page.line(&text(&sentences::coverage(report)));
    page.line("");
    for lack in sentences::lacks(report) {
        page.line(&format!("- {}", text(&lack)));
    }
    page.line("");
    page.line("</details>");
    page.into_text()
}

/// Whether the first finding says why requests are slow.
fn says_why(report: &Report) -> bool {
    matches!(report.verdict, Verdict::Findings | Verdict::AsEver { .. })
}

#[derive(Debug, Default)]
struct MarkdownPage {
    text: String,
    characters: usize,
    full: bool,
}

impl MarkdownPage {
    /// A line, unless there is no room for it. What begins after that is left out, too.
    fn line(&mut self, line: &str) {
        // For what says that something was left out.
        const RESERVE: usize = 200;
        let characters = line.chars().count() + 1;
        if self.full || self.characters + characters > MAX_CHARACTERS - RESERVE {
            self.full = true;
            return;
        }
        self.characters += characters;
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn into_text(mut self) -> String {
        if self.full {
            self.text
                .push_str("\nThe rest does not fit here: `whywait report` shows it.\n");
        }
        self.text
    }

    fn finding(&mut self, report: &Report, finding: &Finding, open: bool) {
        let mark = match finding.severity {
            Severity::Error => "🔴",
            Severity::Warning => "🟠",
            Severity::Note => "🔵",
        };
        self.line(&format!(
            "<details{}><summary>{mark} <code>{}[{}]</code> {}</summary>",
            if open { " open" } else { "" },
            finding.severity.name(),
            finding.code.name(),
            text(&finding.title)
        ));
        self.line("");
        self.line(&text(&sentences::place(report, finding)));
        self.line("");
        let chain = sentences::chain(finding);
        if !chain.is_empty() {
            let links: Vec<String> = chain.iter().map(|link| text(link)).collect();
            self.line(&links.join(" → "));
            self.line("");
        }
        for evidence in &finding.evidence {
            self.line(&format!("- {}", text(&evidence.text)));
        }
        for same in &finding.same_waits {
            self.line(&format!("- {}", text(&sentences::same_waits(same))));
        }
        if let Some(cause) = &finding.cause {
            self.line("");
            self.line(&format!(
                "**Cause:** thread {} ({}) {}",
                text(&cause.thread),
                cause.tid,
                text(&cause.doing)
            ));
            self.line("");
            for frame in sentences::folded(&cause.stack, &cause.own) {
                self.line(&match frame {
                    sentences::Frame::Own(name) => format!("- **{}**", text(&name)),
                    sentences::Frame::Runtime(name) | sentences::Frame::Folded(name) => {
                        format!("- {}", text(&name))
                    }
                });
            }
        }
        self.line("");
        self.line(&format!("**What to do:** {}", text(&finding.fix)));
        if let Some(saving) = sentences::saving(&finding.saving) {
            let confidence = sentences::confidence(finding.confidence);
            self.line("");
            self.line(&format!("{}; confidence: {confidence}", text(&saving)));
        }
        self.line("");
        self.line("</details>");
        self.line("");
    }

    fn run(&mut self, report: &Report) {
        let rows = report.run.as_ref().map(sentences::run).unwrap_or_default();
        let rows: Vec<Vec<String>> = rows.into_iter().map(Vec::from).collect();
        self.table(&["what it had to wait for", "share>", "time>", ""], &rows);
    }

    fn time(&mut self, report: &Report) {
        let total_ns = sentences::total_ns(&report.requests.time);
        if total_ns == 0 {
            return;
        }
        let mut parts: Vec<(&str, u64)> = sentences::parts(&report.requests.time)
            .into_iter()
            .filter_map(|(part, ns)| Some((part, ns.filter(|ns| *ns > 0)?)))
            .collect();
        parts.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        let rows: Vec<Vec<String>> = parts
            .into_iter()
            .map(|(part, ns)| vec![part.to_owned(), percent(ns, total_ns), duration(ns)])
            .collect();
        // As in the text.
        if sentences::better_by_calls(report) {
            self.by_calls(report);
            self.table(&["by what threads did", "share>", "time>"], &rows);
        } else {
            let called = sentences::time_is_called(&report.requests);
            self.table(&[called, "share>", "time>"], &rows);
            self.by_calls(report);
        }
        for (name, fact) in sentences::facts(report) {
            self.line(&format!("**{}:** {}", text(&name), text(&fact)));
            self.line("");
        }
    }

    /// The same by calls: what is not certain is between two bounds.
    fn by_calls(&mut self, report: &Report) {
        let tasks = report.requests.tasks.as_ref();
        let total_ns = tasks.map_or(0, |totals| totals.total_ns);
        let rows: Vec<Vec<String>> = sentences::by_calls(report)
            .into_iter()
            .map(|(what, ns)| {
                let share = percent_range(ns.at_least, ns.at_most, total_ns);
                vec![what, share, duration_range(ns.at_least, ns.at_most)]
            })
            .collect();
        self.table(&["where the time went, by calls", "share>", "time>"], &rows);
    }

    fn waits(&mut self, model: &Model) {
        let mut rows = model.waits();
        rows.retain(|row| row.critical_ns > 0);
        rows.sort_by_key(|row| std::cmp::Reverse((row.critical_ns, row.total_ns)));
        let rows: Vec<Vec<String>> = rows
            .iter()
            .take(MAX_ROWS)
            .map(|row| {
                vec![
                    row.what.clone(),
                    row.function.clone().unwrap_or_default(),
                    duration(row.critical_ns),
                    duration(row.total_ns),
                    count(row.count),
                ]
            })
            .collect();
        let columns = [
            "slow requests waited for",
            "in",
            "on critical paths>",
            "total>",
            "count>",
        ];
        self.table(&columns, &rows);
    }

    fn calls(&mut self, report: &Report) {
        let time = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), duration);
        let rows: Vec<Vec<String>> = report
            .calls
            .iter()
            .take(MAX_ROWS)
            .map(|row| {
                vec![
                    row.name(),
                    count(row.calls),
                    time(row.p50_ns),
                    time(row.p99_ns),
                    time(row.max_ns),
                ]
            })
            .collect();
        self.table(&["calls to", "count>", "p50>", "p99>", "max>"], &rows);
    }

    /// A table, unless it is empty. Columns whose name ends in `>` have figures.
    fn table(&mut self, columns: &[&str], rows: &[Vec<String>]) {
        if rows.is_empty() {
            return;
        }
        let names: Vec<&str> = columns
            .iter()
            .map(|name| name.trim_end_matches('>'))
            .collect();
        self.line(&format!("| {} |", names.join(" | ")));
        let rules = columns.iter().map(|name| match name.ends_with('>') {
            true => "---:",
            false => "---",
        });
        self.line(&format!("| {} |", rules.collect::<Vec<_>>().join(" | ")));
        for row in rows {
            let cells: Vec<String> = row.iter().map(|cell| text(cell)).collect();
            self.line(&format!("| {} |", cells.join(" | ")));
        }
        self.line("");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_room_for_so_many_characters() {
        let mut page = MarkdownPage::default();
        for _ in 0..10_000 {
            page.line(&"ä".repeat(100));
        }
        let text = page.into_text();
        assert!(text.chars().count() <= MAX_CHARACTERS);
        assert!(text.ends_with("`whywait report` shows it.\n"));
    }
}
