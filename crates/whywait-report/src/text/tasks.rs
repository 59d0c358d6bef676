//! How the time of requests splits by their calls, and the list of slow requests.

use whywait_model::calls::links::{LinkCounts, TaskTime, TaskTotals};
use whywait_model::requests::{RequestRow, Requests};
use whywait_words::{count, counted, duration, percent_range};

use super::by_calls::{self, NamedTime, exactly};
use super::page::{Page, Style};
use super::requests::began;
use super::words;

/// So many requests are shown in the list.
const MAX_REQUESTS: usize = 40;
/// So many peers are named.
pub(super) const MAX_PEERS: usize = 3;
pub(super) const MAX_NAME: usize = 60;
/// Below this share of the time calls are not worth a line in a report, and a part none in it.
const WORTH_PERMILLE: u64 = 10;

/// In a report: where requests were, if threads do not show it.
pub(super) fn short(page: &mut Page, totals: Option<&TaskTotals>) {
    let Some(totals) = totals.filter(|totals| !totals.threads_wait) else {
        return;
    };
    if !is_worth(totals.time.upstream_ns.at_most, totals.total_ns) {
        return;
    }
    let text = parts(page, &totals.time, totals.total_ns).join("; ");
    page.paragraph(
        "",
        "  ",
        &[(Style::Strong, "by calls: "), (Style::Plain, &text)],
    );
    sure(page, totals);
}

/// How sure the time by calls is.
pub(super) fn sure(page: &mut Page, totals: &TaskTotals) {
    let text = links(&totals.time.calls, totals.time.one_call_at_a_time);
    page.paragraph("  ", "  ", &[(Style::Dim, &text)]);
}

/// Of one request.
pub(super) fn of_request(page: &mut Page, time: &TaskTime, latency_ns: u64) {
    if time.upstream_ns.at_most == 0 {
        return;
    }
    let text = parts(page, time, latency_ns).join("; ");
    page.gap();
    page.paragraph(
        "",
        "  ",
        &[
            (Style::Strong, "its time by its calls: "),
            (Style::Plain, &text),
        ],
    );
}

pub(super) fn is_worth(ns: u64, total_ns: u64) -> bool {
    u128::from(ns) * 1000 >= u128::from(total_ns) * u128::from(WORTH_PERMILLE)
}

/// `96.0 % with 127.0.0.1:7001 (python3)`, `0.5 to 2.0 % queued inside`.
fn parts(page: &Page, time: &TaskTime, total_ns: u64) -> Vec<String> {
    let pieces = pieces(page, time, total_ns).into_iter();
    let (unknown, known): (Vec<NamedTime>, Vec<NamedTime>) =
        pieces.partition(|(_, ns)| by_calls::says_nothing(*ns, total_ns));
    known
        .into_iter()
        .map(|(what, ns)| {
            format!(
                "{} {what}",
                percent_range(ns.at_least, ns.at_most, total_ns)
            )
        })
        .chain(by_calls::not_known(&unknown))
        .collect()
}

/// What that time was, of all requests; nothing where the text does not split it by calls either.
pub(super) fn of_all(page: &Page, requests: &Requests) -> Vec<NamedTime> {
    let totals = requests.tasks.as_ref().filter(|totals| {
        !totals.threads_wait && is_worth(totals.time.upstream_ns.at_most, totals.total_ns)
    });
    totals.map_or_else(Vec::new, |totals| by_calls::rows(page, requests, totals))
}

/// What the time was, and how much of it: `with 127.0.0.1:7001 (python3)`.
fn pieces(page: &Page, time: &TaskTime, total_ns: u64) -> Vec<NamedTime> {
    let mut pieces = by_calls::once_read(page, time);
    pieces.push((words::UNREAD.to_owned(), exactly(time.unserved_ns)));
    pieces.retain(|(_, ns)| is_worth(ns.at_most, total_ns));
    pieces
}

/// How sure that is.
fn links(calls: &LinkCounts, one_at_a_time: bool) -> String {
    let all = calls.certain.saturating_add(calls.undecided);
    let mut text = format!(
        "of {} {} certainly of a request that is known",
        counted(all, "slow call"),
        if calls.certain == all {
            "all are".to_owned()
        } else {
            format!("{} are", count(calls.certain))
        }
    );
    if one_at_a_time && calls.undecided > 0 {
        text.push_str(
            "; of the others: if a request has one at a time, as none was seen to have \
                       two",
        );
    }
    text
}

/// The list of slow requests.
pub(super) fn list(page: &mut Page, rows: &[RequestRow]) {
    if rows.is_empty() {
        let text = "no slow requests to show: only those that took the recording's threshold have \
                    a row";
        page.paragraph("", "  ", &[(Style::Strong, text)]);
        return;
    }
    page.paragraph(
        "",
        "  ",
        &[
            (Style::Strong, "slow requests"),
            (
                Style::Plain,
                &format!(" ({}, the slowest first)", count(rows.len() as u64)),
            ),
        ],
    );
    for row in rows.iter().take(MAX_REQUESTS) {
        let open = if row.open { ", still open" } else { "" };
        let mut text = format!(
            "{:>9}{open}, {}",
            duration(row.latency_ns),
            began(row.at_ns)
        );
        if let Some(time) = row
            .tasks
            .as_ref()
            .filter(|time| time.upstream_ns.at_most > 0)
        {
            let parts = parts(page, time, row.latency_ns).join("; ");
            text.push_str(&format!(": {parts}"));
        }
        if let Some(name) = &row.name {
            text.push_str(&format!("; {}", page.cut(name, MAX_NAME)));
        }
        let id = format!("  [{}]", page.cut(&row.id, 40));
        page.paragraph(
            "",
            "            ",
            &[(Style::Plain, &text), (Style::Dim, &id)],
        );
    }
    if rows.len() > MAX_REQUESTS {
        let more = counted(rows.len() - MAX_REQUESTS, "more request");
        let text = format!("… and {more}: all are in --format json");
        page.paragraph("", "  ", &[(Style::Dim, &text)]);
    }
}
