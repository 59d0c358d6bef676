//! What CPU time was for: listeners side by side, then threads.

use whywait_model::cpu::{CpuSummary, ListenerCpu, ThreadCpu};
use whywait_words::{count, counted, duration, mean_duration, percent};

use super::page::{Page, Style};
use super::sockets;

/// So many listeners and threads are shown.
const MAX_ROWS: usize = 20;
/// From this width on the table has a column for bytes.
const WITH_BYTES: usize = 84;

pub(super) fn render(page: &mut Page, summary: Option<&CpuSummary>) {
    let Some(cpu) = summary else {
        let text = "the recording does not say what CPU time was for";
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
            "A thread's CPU time counts for the listener whose connection it read last, and for \
             the connection that it read or wrote last, until it sleeps in a poll: what a loop did \
             for other tasks after its answers is in it. Answering is the time before these. A TLS \
             handshake counts as a request. Futile is the time of polling in which no byte moved.",
        )],
    );
    page.gap();
    if !cpu.listeners.is_empty() {
        let wide = page.width() >= WITH_BYTES;
        head(page, wide, "listener");
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
    sockets::render(
        page,
        &cpu.sockets,
        cpu.more_sockets,
        page.width() >= WITH_BYTES,
    );
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

/// The head of a table of `what`: listeners, or connections after a column of their own.
pub(super) fn head(page: &mut Page, wide: bool, what: &str) {
    let mut text = format!(
        "  {:>8}  {:>6}  {:>8}  {:>9}  {:>9}",
        "CPU", "user", "futile", "requests", "each"
    );
    if wide {
        text.push_str(&format!("  {:>9}", "a byte"));
    }
    text.push_str(&format!("  {what}"));
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
        let byte = row.per_byte_ns.map_or("-".to_owned(), mean_duration);
        after.push_str(&format!("  {byte:>9}"));
    }
    let mut name = match row.port {
        Some(port) => format!("  port {port}"),
        None => "  unix sockets".to_owned(),
    };
    if row.processes > 1 {
        name.push_str(&format!(", {}", counted(row.processes, "process")));
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

pub(super) fn user(user_ns: Option<u64>, cpu_ns: u64) -> String {
    user_ns.map_or("-".to_owned(), |ns| percent(ns, cpu_ns))
}

/// What was futile stands out where it is a tenth or more.
pub(super) fn futile(futile_ns: u64, cpu_ns: u64) -> (Style, String) {
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

#[cfg(test)]
mod tests {
    use whywait_model::cpu::SocketUse;

    use super::super::{TextOptions, cpu};
    use super::*;

    #[test]
    fn listeners_stand_side_by_side() {
        let listener = |port, cpu_ns, futile_ns| ListenerCpu {
            port,
            processes: 1,
            requests: 275,
            cpu_ns,
            user_ns: Some(cpu_ns / 4),
            futile_ns,
            per_request_ns: Some(cpu_ns / 275),
            per_byte_ns: Some(1.5),
            ..ListenerCpu::default()
        };
        let summary = CpuSummary {
            total_ns: 23_000_000_000,
            user_ns: Some(5_750_000_000),
            system_ns: Some(17_250_000_000),
            not_for_requests_ns: 700_000_000,
            answering_ns: Some(9_000_000),
            futile_ns: 17_000_000_000,
            listeners: vec![
                listener(Some(70), 18_030_000_000, 17_010_000_000),
                listener(Some(1965), 4_270_000_000, 0),
            ],
            threads: vec![ThreadCpu {
                pid: 7,
                tid: 7,
                thread: "lua\x1b[2J".to_owned(),
                cpu_ns: 23_000_000_000,
                ..ThreadCpu::default()
            }],
            more_threads: 0,
            sockets: vec![SocketUse {
                pid: 7,
                socket: Some(3),
                local_port: Some(70),
                peer: Some("192.0.2.1\x1b[2J".to_owned()),
                peer_port: Some(40_000),
                requests: Some(2),
                cpu_ns: Some(130_000_000),
                answering_ns: Some(9_000_000),
                futile_ns: 120_000_000,
                kept_awake_ns: 121_000_000,
                per_request_ns: Some(65_000_000),
                per_byte_ns: Some(1.5),
                ..SocketUse::default()
            }],
            more_sockets: 3,
        };
        let text = cpu(Some(&summary), TextOptions::default());
        assert!(
            text.contains(
                "   18.0 s    25 %    17.0 s        275    65.6 ms     1.5 ns  port 70\n"
            ),
            "{text}"
        );
        assert!(
            text.contains(
                "   4.27 s    25 %         -        275    15.5 ms     1.5 ns  port 1965\n"
            ),
            "{text}"
        );
        assert!(text.contains("not for a request"), "{text}");
        assert!(
            text.contains("65 ms     1.5 ns       9 ms  port 70, peer\n    192.0.2.1"),
            "{text}"
        );
        assert!(text.contains("kept a loop awake for 121 ms"), "{text}");
        assert!(text.contains("3 more connections"), "{text}");
        assert!(!text.contains('\x1b'), "hostile names are escaped: {text}");
        for width in [20, 60, 84] {
            let options = TextOptions {
                width,
                ..TextOptions::default()
            };
            assert!(!cpu(Some(&summary), options).is_empty());
        }
    }

    #[test]
    fn an_older_recording_says_that_it_has_no_cpu_times() {
        let text = cpu(None, TextOptions::default());
        assert_eq!(text, "the recording does not say what CPU time was for\n");
    }
}
