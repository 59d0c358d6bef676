//! The table of waits.

use whywait_model::waits::{WaitRow, WaitThread};
use whywait_words::{columns, count, counted, duration, percent, ratio_percent};

use super::page::{Page, Style};

/// So many rows are shown.
const MAX_ROWS: usize = 20;
/// So many of them are kept for what slow requests waited for longest, however small its total.
const CRITICAL_ROWS: usize = 5;
/// Of so many rows the reasons for their class are shown, and so many reasons.
const REASONED_ROWS: usize = 5;
const MAX_REASONS: usize = 3;
/// So many of the threads that waited are named.
const MAX_THREADS: usize = 3;
/// A share of slow requests' time worth a reader's eye.
const LARGE_SHARE: f64 = 0.1;
/// A row with less than this of all that is on critical paths is of no consequence.
const COUNTING_PERMILLE: u64 = 10;

pub(super) fn render(page: &mut Page, rows: &[WaitRow]) {
    if rows.is_empty() {
        let text = "no waits to show: the recording has no sleep of the target's threads";
        page.paragraph("", "  ", &[(Style::Strong, text)]);
        return;
    }
    legend(page, rows);
    page.gap();
    let layout = WaitColumns::of(page, rows);
    layout.head(page);
    let shown = shown(rows);
    let mut reasoned = 0;
    for row in shown.iter().map(|index| &rows[*index]) {
        layout.row(page, row);
        if !row.reasons.is_empty() && reasoned < REASONED_ROWS {
            reasoned += 1;
            reasons(page, row);
        }
    }
    if shown.len() < rows.len() {
        let more = counted(rows.len() - shown.len(), "more row");
        let text = format!("… and {more}: all are in --format json");
        page.paragraph("", "  ", &[(Style::Dim, &text)]);
    }
}

/// How to read the table: its largest figures mean the least.
fn legend(page: &mut Page, rows: &[WaitRow]) {
    let objects = counted(rows.len() as u64, "row");
    page.paragraph(
        "",
        "  ",
        &[
            (Style::Strong, "what the threads waited for"),
            (Style::Plain, &format!(" ({objects}, longest first)")),
        ],
    );
    let mut text = "A large sum alone proves nothing: an idle thread has the largest. Look at the \
                    class (a wait for a lock or a result delays something; an idle wait delays \
                    nothing) and at the share on the critical paths of slow requests."
        .to_owned();
    if rows.iter().all(|row| row.critical_ns == 0) {
        text.push_str(" None of these waits is on the critical path of a slow request.");
    }
    page.paragraph("  ", "  ", &[(Style::Plain, &text)]);
}

/// The rows to show, by index: the longest, and among them those that slow requests waited for
/// most.
fn shown(rows: &[WaitRow]) -> Vec<usize> {
    if rows.len() <= MAX_ROWS {
        return (0..rows.len()).collect();
    }
    let all_ns = critical_ns(rows);
    let mut critical: Vec<usize> = (0..rows.len())
        .filter(|index| counts(&rows[*index], all_ns))
        .collect();
    critical.sort_by_key(|index| std::cmp::Reverse(rows[*index].critical_ns));
    critical.truncate(CRITICAL_ROWS);
    let mut shown = critical;
    for index in 0..rows.len() {
        if shown.len() >= MAX_ROWS {
            break;
        }
        if !shown.contains(&index) {
            shown.push(index);
        }
    }
    shown.sort_unstable();
    shown
}

/// What of the rows is on critical paths, altogether.
fn critical_ns(rows: &[WaitRow]) -> u64 {
    rows.iter()
        .map(|row| row.critical_ns)
        .fold(0, u64::saturating_add)
}

/// Whether a row is a part worth a look of what slow requests waited for: a share of nearly nothing
/// may be large too.
fn counts(row: &WaitRow, all_ns: u64) -> bool {
    row.critical_ns > 0
        && u128::from(row.critical_ns) * 1_000 >= u128::from(all_ns) * u128::from(COUNTING_PERMILLE)
}

/// The figures' columns: their width never changes, but for figures that no machine makes.
const FIGURES: usize = 2 + 8 + 2 + 8 + 2 + 9 + 2 + 8 + 2;
/// From this width on the kind of wait has a column, and from this on the waker too.
const WITH_WHAT: usize = 60;
const WITH_WAKER: usize = 84;
/// What belongs to a row stands under it, so far in.
const UNDER: &str = "      ";

/// Which columns there is room for. What has no column stands under its row.
struct WaitColumns {
    what: Option<usize>,
    waker: Option<usize>,
    /// What of all rows is on critical paths.
    critical_ns: u64,
}

impl WaitColumns {
    fn of(page: &Page, rows: &[WaitRow]) -> Self {
        let widest = rows
            .iter()
            .map(|row| columns(&what(page, row)))
            .max()
            .unwrap_or(0);
        let room = page.width().saturating_sub(FIGURES);
        let waker = page.width() >= WITH_WAKER;
        let what = if waker {
            widest.clamp("waited for".len(), room / 2)
        } else {
            room
        };
        WaitColumns {
            what: (page.width() >= WITH_WHAT).then_some(what),
            waker: waker.then(|| room - what - 2),
            critical_ns: critical_ns(rows),
        }
    }

    fn head(&self, page: &mut Page) {
        let mut text = figures("total", "longest", "count", "critical");
        if let Some(width) = self.what {
            text.push_str(&pad("waited for", width));
        }
        if self.waker.is_some() {
            text.push_str("  usually woken by");
        }
        page.paragraph("", "", &[(Style::Dim, text.trim_end())]);
    }

    fn row(&self, page: &mut Page, row: &WaitRow) {
        let longest = match row.longest_ns {
            // Of short waits only the sums are known.
            0 if row.total_ns > 0 => "-".to_owned(),
            ns => duration(ns),
        };
        let critical = row.critical_share.map_or("-".to_owned(), ratio_percent);
        let large = row.critical_share.is_some_and(|share| share >= LARGE_SHARE);
        let style = if large && counts(row, self.critical_ns) {
            Style::Bad
        } else {
            Style::Plain
        };
        let before = format!(
            "  {:>8}  {:>8}  {:>9}  ",
            duration(row.total_ns),
            longest,
            count(row.count)
        );
        let critical = format!("{critical:>8}");
        let mut under = Vec::new();
        let what = what(page, row);
        let what_text = match self.what {
            Some(width) => format!("  {}", pad(&page.cut(&what, width), width)),
            None => {
                under.push((Style::Strong, what));
                String::new()
            }
        };
        under.extend(object(page, row));
        let waker = waker(page, row);
        let waker_text = match (self.waker, waker) {
            (Some(width), waker) => {
                format!("  {}", page.cut(waker.as_deref().unwrap_or("-"), width))
            }
            (None, Some(waker)) => {
                under.push((Style::Plain, format!("woken by {waker}")));
                String::new()
            }
            (None, None) => String::new(),
        };
        let last = if waker_text.is_empty() {
            what_text.trim_end().to_owned()
        } else {
            what_text
        };
        page.paragraph(
            "",
            UNDER,
            &[
                (Style::Plain, &before),
                (style, &critical),
                (Style::Strong, &last),
                (Style::Plain, &waker_text),
            ],
        );
        under.extend(threads(page, &row.threads).map(|threads| (Style::Plain, threads)));
        if row.unfinished > 0 {
            let unfinished = count(row.unfinished);
            let text = format!("{unfinished} of them still waiting when the recording ended");
            under.push((Style::Bad, text));
        }
        list(page, &under);
    }
}

/// The parts under a row, apart by semicolons.
fn list(page: &mut Page, parts: &[(Style, String)]) {
    let mut spans: Vec<(Style, &str)> = Vec::new();
    for (style, text) in parts {
        if !spans.is_empty() {
            spans.push((Style::Plain, "; "));
        }
        spans.push((*style, text));
    }
    if !spans.is_empty() {
        page.paragraph(UNDER, UNDER, &spans);
    }
}

fn reasons(page: &mut Page, row: &WaitRow) {
    let class = row.class.map_or("this", |class| class.name());
    let reasons: Vec<String> = row
        .reasons
        .iter()
        .take(MAX_REASONS)
        .map(|reason| page.cut(reason, 200))
        .collect();
    let text = format!("{class}, because {}", reasons.join("; "));
    page.paragraph(UNDER, UNDER, &[(Style::Dim, &text)]);
}

/// `condition variable: idle`; a class that is in the kind's own name is not repeated.
fn what(page: &Page, row: &WaitRow) -> String {
    let what = match row.what.as_str() {
        "" => "unknown".to_owned(),
        what => page.cut(what, 40),
    };
    match row.class.map(|class| class.name()) {
        Some(class) if class != what => format!("{what}: {class}"),
        _ => what,
    }
}

/// What was waited on: the function that did it, the descriptor, the address and what is mapped
/// there, and in how many processes.
fn object(page: &Page, row: &WaitRow) -> Vec<(Style, String)> {
    let mut parts = Vec::new();
    if let Some(function) = &row.function {
        parts.push((Style::Strong, format!("in {}", page.cut(function, 80))));
    }
    if let Some(fd) = row.fd {
        parts.push((Style::Plain, format!("fd {fd}")));
    }
    let mapping = row
        .mapping
        .as_deref()
        .filter(|mapping| !mapping.is_empty())
        .map(|mapping| page.cut(mapping, 40));
    match (row.address, mapping) {
        (Some(address), Some(mapping)) => {
            parts.push((Style::Plain, format!("{address:#x} in {mapping}")));
        }
        (Some(address), None) => parts.push((Style::Plain, format!("{address:#x}"))),
        (None, Some(mapping)) => parts.push((Style::Plain, mapping)),
        (None, None) => {}
    }
    if row.pids.len() > 1 {
        parts.push((Style::Plain, format!("in {} processes", row.pids.len())));
    }
    parts
}

/// `worker (12), worker (13) and 2 more threads`; `None` without any.
fn threads(page: &Page, threads: &[WaitThread]) -> Option<String> {
    let mut names: Vec<String> = threads
        .iter()
        .take(MAX_THREADS)
        .map(|thread| format!("{} ({})", page.cut(&thread.thread, 24), thread.tid))
        .collect();
    let last = match threads.len().checked_sub(MAX_THREADS) {
        Some(more @ 1..) => counted(more, "more thread"),
        _ => names.pop()?,
    };
    Some(if names.is_empty() {
        format!("thread {last}")
    } else {
        format!("threads {} and {last}", names.join(", "))
    })
}

/// Who ended the waits, and how many of them if not nearly all.
fn waker(page: &Page, row: &WaitRow) -> Option<String> {
    let waker = row.waker.as_ref()?;
    let mut text = page.cut(&waker.who, 24);
    if let Some(tid) = waker.tid {
        text.push_str(&format!(" ({tid})"));
    }
    let nearly_all = u128::from(waker.count) * 10 >= u128::from(row.count) * 9;
    if !nearly_all {
        text.push_str(&format!(", {}", percent(waker.count, row.count)));
    }
    Some(text)
}

fn figures(total: &str, longest: &str, count: &str, critical: &str) -> String {
    format!("  {total:>8}  {longest:>8}  {count:>9}  {critical:>8}  ")
}

fn pad(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(columns(text))))
}
