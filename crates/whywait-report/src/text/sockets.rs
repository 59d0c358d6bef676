//! What CPU time was for: the connections that used most.

use whywait_model::cpu::SocketUse;
use whywait_words::{count, counted, duration, mean_duration};

use super::cpu::{futile, head, user};
use super::page::{Page, Style};

/// So many connections are shown.
const MAX_ROWS: usize = 10;

pub(super) fn render(page: &mut Page, sockets: &[SocketUse], beyond: u64, wide: bool) {
    if sockets.is_empty() {
        return;
    }
    head(page, wide, &format!("{:>9}  connection", "answering"));
    for row in sockets.iter().take(MAX_ROWS) {
        socket(page, row, wide);
    }
    let left = (sockets.len() as u64)
        .saturating_sub(MAX_ROWS as u64)
        .saturating_add(beyond);
    if left > 0 {
        let text = format!(
            "… and {}: in --format json",
            counted(left, "more connection")
        );
        page.paragraph("", "  ", &[(Style::Dim, &text)]);
    }
    page.gap();
}

fn socket(page: &mut Page, row: &SocketUse, wide: bool) {
    let none = || "-".to_owned();
    let before = format!(
        "  {:>8}  {:>6}  ",
        row.cpu_ns.map_or_else(none, duration),
        user(row.user_ns, row.cpu_ns.unwrap_or(0))
    );
    let (style, futile) = futile(row.futile_ns, row.cpu_ns.unwrap_or(0));
    let mut after = format!(
        "  {:>9}  {:>9}",
        row.requests.map_or_else(none, count),
        row.per_request_ns.map_or_else(none, duration)
    );
    if wide {
        let byte = row.per_byte_ns.map_or_else(none, mean_duration);
        after.push_str(&format!("  {byte:>9}"));
    }
    let answering = row.answering_ns.map_or_else(none, duration);
    after.push_str(&format!("  {answering:>9}"));
    let name = match (row.local_port, &row.peer, row.peer_port) {
        (Some(port), Some(peer), Some(peer_port)) => {
            format!(
                "  port {port}, peer {} port {peer_port}",
                page.cut(peer, 45)
            )
        }
        (Some(port), None, Some(peer_port)) => format!("  port {port}, peer's port {peer_port}"),
        (Some(port), ..) => format!("  port {port}"),
        (None, ..) => "  unix socket".to_owned(),
    };
    let awake = if row.kept_awake_ns > 0 {
        format!(": kept a loop awake for {}", duration(row.kept_awake_ns))
    } else {
        String::new()
    };
    page.paragraph(
        "",
        "    ",
        &[
            (Style::Plain, &before),
            (style, &futile),
            (Style::Plain, &after),
            (Style::Strong, &name),
            (Style::Bad, &awake),
        ],
    );
}
