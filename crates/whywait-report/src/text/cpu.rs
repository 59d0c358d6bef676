//! What CPU time was for: listeners side by side, then threads.

use whywait_model::cpu::{CpuSummary, ListenerCpu, ThreadCpu};

use super::page::{Page, Style};
use super::units::{count, counted, duration, percent};

/// So many listeners and threads are shown.
const MAX_ROWS: usize = 20;
/// From this width on the table has a column for bytes.
const WITH_BYTES: usize = 84;

pub(super) fn render(page: &mut Page, summary: Option<&CpuSummary>) {
    let Some(cpu) = summary else {
        let text = "the recording does not tell what CPU time was for";
        page.paragraph("", "  ", &[(Style::Strong, text)]);
        return;
    };
    let mut text = format!(" ({}", duration(cpu.total_ns));
    if let Some(user_ns) = cpu.user_ns {
        text.push_str(&format!(
            ": {} user, {} system",
            percent(user_ns, cpu.total_ns),
            percent(cpu.system_ns.unwrap_or(0), cpu.total_ns)
        ));
    }
    text.push(')');
    page.paragraph(
        "",
        "  ",
        &[
            (Style::Strong, "what CPU time was for"),
            (Style::Plain, &text),
        ],
    );
    page.paragraph(
        "  ",
        "  ",
        &[(
            Style::Plain,
            "A thread's time goes to the listener whose connection it read last, until it sleeps in a poll. A TLS \
             handshake counts as a request. Futile is polling in which no byte moved for 1 ms or longer.",
        )],
    );
    page.gap();
    if !cpu.listeners.is_empty() {
        let wide = page.width() >= WITH_BYTES;
        head(page, wide);
        for row in cpu.listeners.iter().take(MAX_ROWS) {
            listener(page, row, wide);
        }
        more(page, cpu.listeners.len() as u64, 0);
    }
    page.paragraph(
        "  ",
        "    ",
        &[
            (
                Style::Plain,
                &format!("{:>8}", duration(cpu.not_for_requests_ns)),
            ),
            (Style::Plain, "  not for a request"),
        ],
    );
    page.gap();
    let text = format!("  {:>8}  {:>6}  {:>8}  thread", "CPU", "user", "futile");
    page.paragraph("", "", &[(Style::Dim, &text)]);
    for row in cpu.threads.iter().take(MAX_ROWS) {
        thread(page, row);
    }
    more(page, cpu.threads.len() as u64, cpu.more_threads);
}

fn more(page: &mut Page, rows: u64, beyond: u64) {
    let left = rows.saturating_sub(MAX_ROWS as u64).saturating_add(beyond);
    if left > 0 {
        let text = format!("… and {}: in --format json", counted(left, "more row"));
        page.paragraph("", "  ", &[(Style::Dim, &text)]);
    }
}

fn head(page: &mut Page, wide: bool) {
    let mut text = format!(
        "  {:>8}  {:>6}  {:>8}  {:>9}  {:>9}",
        "CPU", "user", "futile", "requests", "each"
    );
    if wide {
        text.push_str(&format!("  {:>9}", "a byte"));
    }
    text.push_str("  listener");
    page.paragraph("", "", &[(Style::Dim, &text)]);
}

fn listener(page: &mut Page, row: &ListenerCpu, wide: bool) {
    let each = row.per_request_ns.map_or("-".to_owned(), duration);
    let before = format!(
        "  {:>8}  {:>6}  ",
        duration(row.cpu_ns),
        user(row.user_ns, row.cpu_ns)
    );
    let (style, futile) = futile(row.futile_ns, row.cpu_ns);
    let mut after = format!("  {:>9}  {each:>9}", count(row.requests));
    if wide {
        let byte = row
            .per_byte_ns
            .map_or("-".to_owned(), |ns| format!("{ns:.1} ns"));
        after.push_str(&format!("  {byte:>9}"));
    }
    let mut name = match row.port {
        Some(port) => format!("  port {port}"),
        None => "  unix sockets".to_owned(),
    };
    if row.processes > 1 {
        name.push_str(&format!(", {}", processes(row.processes)));
    }
    page.paragraph(
        "",
        "    ",
        &[
            (Style::Plain, &before),
            (style, &futile),
            (Style::Plain, &after),
            (Style::Strong, &name),
        ],
    );
}

fn processes(n: u64) -> String {
    format!("{} processes", count(n))
}

fn thread(page: &mut Page, row: &ThreadCpu) {
    let before = format!(
        "  {:>8}  {:>6}  ",
        duration(row.cpu_ns),
        user(row.user_ns, row.cpu_ns)
    );
    let (style, futile) = futile(row.futile_ns, row.cpu_ns);
    let name = format!("  {} ({})", page.cut(&row.thread, 24), row.tid);
    page.paragraph(
        "",
        "    ",
        &[
            (Style::Plain, &before),
            (style, &futile),
            (Style::Strong, &name),
        ],
    );
}

fn user(user_ns: Option<u64>, cpu_ns: u64) -> String {
    user_ns.map_or("-".to_owned(), |ns| percent(ns, cpu_ns))
}

/// What was futile stands out where it is a tenth or more.
fn futile(futile_ns: u64, cpu_ns: u64) -> (Style, String) {
    let style = if futile_ns > 0 && futile_ns >= cpu_ns / 10 {
        Style::Bad
    } else {
        Style::Plain
    };
    let text = if futile_ns == 0 {
        "-".to_owned()
    } else {
        duration(futile_ns)
    };
    (style, format!("{text:>8}"))
}
