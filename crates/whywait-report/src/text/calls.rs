//! Calls: what the target asked of others, by peer.

use whywait_model::calls::PeerRow;
use whywait_model::requests::Requests;
use whywait_words::{count, counted, duration, figure, percent, rate};

use super::page::{Page, Style};
use super::requests::total_ns;

/// So many peers are shown in the view, and in a report.
const MAX_PEERS: usize = 20;
const MAX_SHORT: usize = 3;
/// More of a peer's name is not shown.
const MAX_NAME: usize = 60;
/// In a report, peers to which calls took less than this share of the requests' time are left out.
const WORTH_PERMILLE: u128 = 10;

/// The view.
pub(super) fn render(page: &mut Page, rows: &[PeerRow]) {
    if rows.is_empty() {
        let text = "no calls to show: the recording has no connection that the target made";
        page.paragraph("", "  ", &[(Style::Strong, text)]);
        return;
    }
    page.paragraph(
        "",
        "  ",
        &[
            (Style::Strong, "what was asked of others"),
            (
                Style::Plain,
                &format!(
                    " ({}, those first that took most time)",
                    counted(rows.len() as u64, "peer")
                ),
            ),
        ],
    );
    let text = "A call is what the target sent on a connection that it had made, until the last \
                byte of the reply was read. On a connection with several calls at a time they are \
                one.";
    page.paragraph("  ", "  ", &[(Style::Plain, text)]);
    for row in rows.iter().take(MAX_PEERS) {
        page.gap();
        peer(page, row);
    }
    if rows.len() > MAX_PEERS {
        let more = counted(rows.len() - MAX_PEERS, "more peer");
        let text = format!("… and {more}: all are in --format json");
        page.paragraph("", "  ", &[(Style::Dim, &text)]);
    }
}

fn peer(page: &mut Page, row: &PeerRow) {
    let mut of = page.cut(&row.name(), MAX_NAME);
    if let Some(pid) = row.pid {
        of.push_str(&format!("  process {pid}"));
    }
    page.paragraph("", "    ", &[(Style::Strong, &of)]);
    let mut calls = vec![format!(
        "{}, {}/s",
        counted(row.calls, "call"),
        rate(row.rate)
    )];
    if row.unanswered > 0 {
        calls.push(format!("{} without a reply", count(row.unanswered)));
    }
    calls.push(format!(
        "{} bytes sent; {} bytes read",
        count(row.bytes_out),
        count(row.bytes_in)
    ));
    line(page, "calls", &calls.join("; "));
    if let Some(latency) = latency(row) {
        line(page, "latency", &format!("{latency}; {}", spread(row)));
    }
    line(page, "in flight", &in_flight(row));
    line(page, "conns", &connections(row));
}

/// `p50 200 ms; p99 210 ms; max 220 ms`.
fn latency(row: &PeerRow) -> Option<String> {
    let (p50_ns, p99_ns, max_ns) = (row.p50_ns?, row.p99_ns?, row.max_ns?);
    Some(format!(
        "p50 {}; p99 {}; max {}",
        duration(p50_ns),
        duration(p99_ns),
        duration(max_ns)
    ))
}

/// What the time of calls was.
fn spread(row: &PeerRow) -> String {
    let mut parts = vec![format!("{} in all", duration(row.total_ns))];
    for (ns, what) in [
        (row.sending_ns, "until all was sent"),
        (row.network_ns.unwrap_or(0), "the network's round trips"),
        (row.unread_ns, "replies lay unread"),
        (row.reading_ns, "replies were read"),
    ] {
        if u128::from(ns) * 100 >= u128::from(row.total_ns) && ns > 0 {
            parts.push(format!("{what} {}", percent(ns, row.total_ns)));
        }
    }
    parts.join("; ")
}

fn in_flight(row: &PeerRow) -> String {
    let mean = format!("{} on average", figure(row.in_flight));
    match row.most_in_flight {
        Some(most) => format!("{mean}; {} at most", count(most)),
        None => mean,
    }
}

fn connections(row: &PeerRow) -> String {
    let mut parts = vec![format!(
        "{} used, {} calls each",
        count(row.connections),
        figure(row.calls_per_connection())
    )];
    if let Some(most) = row.most_open {
        parts.push(format!("{} open at most", count(most)));
    }
    if let Some(ns) = row.connect_ns {
        parts.push(format!(
            "{} made, {} each",
            count(row.connects),
            duration(ns)
        ));
    }
    for (n, what) in [
        (row.failed, "failed"),
        (row.retried, "made at the second try or later"),
        (row.retransmits, "retransmits"),
    ] {
        if n > 0 {
            parts.push(format!("{} {what}", count(n)));
        }
    }
    parts.join("; ")
}

fn line(page: &mut Page, what: &str, text: &str) {
    page.paragraph(
        "  ",
        "            ",
        &[(Style::Dim, &format!("{what:<10}")), (Style::Plain, text)],
    );
}

/// In a report: the peers whose replies took a good deal of time.
pub(super) fn short(page: &mut Page, rows: &[PeerRow], requests: &Requests) {
    let of_requests = u128::from(total_ns(&requests.time));
    let is_worth = |row: &&PeerRow| {
        row.slow > 0 && u128::from(row.total_ns) * 1000 >= of_requests * WORTH_PERMILLE
    };
    let worth: Vec<&PeerRow> = rows.iter().filter(is_worth).collect();
    if worth.is_empty() {
        return;
    }
    page.gap();
    let peers = counted(rows.len() as u64, "peer");
    let more = format!(" ({peers}; more by report --calls)");
    page.paragraph("", "  ", &[(Style::Strong, "calls"), (Style::Plain, &more)]);
    for row in worth.into_iter().take(MAX_SHORT) {
        let text = format!(
            "  {}, {}/s; {}; {}",
            counted(row.calls, "call"),
            rate(row.rate),
            latency(row).unwrap_or_default(),
            in_flight_short(row),
        );
        let name = page.cut(&row.name(), MAX_NAME);
        page.paragraph(
            "  ",
            "      ",
            &[(Style::Plain, &name), (Style::Plain, &text)],
        );
    }
}

/// `3.2 in flight (8 at most)`.
fn in_flight_short(row: &PeerRow) -> String {
    let mean = format!("{} in flight", figure(row.in_flight));
    match row.most_in_flight {
        Some(most) => format!("{mean} ({} at most)", count(most)),
        None => mean,
    }
}
