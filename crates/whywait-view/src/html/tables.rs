//! Tables: waits, calls, CPU, rings.

use maud::{Markup, html};
use whywait_model::calls::PeerRow;
use whywait_model::cpu::CpuSummary;
use whywait_model::rings::RingRow;
use whywait_model::waits::WaitRow;
use whywait_words::{count, counted, duration, duration_range};

use super::svg::{name, whole};

/// Rows of a table; all of them are in JSON.
const MAX_ROWS: usize = 25;

/// A table of columns (name, and whether it has figures) and rows.
fn table(columns: &[(&str, bool)], rows: &[Vec<String>], all: usize) -> Markup {
    html! {
        div class="scroll" {
            table {
                thead {
                    tr {
                        @for (name, figures) in columns {
                            th scope="col" class=[figures.then_some("n")] { (name) }
                        }
                    }
                }
                tbody {
                    @for row in rows {
                        tr {
                            @for (cell, (_, figures)) in row.iter().zip(columns) {
                                td class=(if *figures { "n" } else { "code" }) { (cell) }
                            }
                        }
                    }
                }
            }
        }
        @if all > rows.len() {
            p class="hint" {
                "and " (counted(all - rows.len(), "more row"))
                ": all are in JSON"
            }
        }
    }
}

fn section(id: &str, title: &str, hint: &str, content: Markup) -> Markup {
    html! {
        details id=(id) class="table" {
            summary { strong { (title) } }
            p class="hint" { (hint) }
            (content)
        }
    }
}

/// An optional time.
fn time(ns: Option<u64>) -> String {
    ns.map_or_else(|| "-".to_owned(), duration)
}

/// What threads waited for: those that slow requests waited for most come first.
pub(crate) fn waits(rows: &[WaitRow]) -> Markup {
    let mut order: Vec<&WaitRow> = rows.iter().collect();
    order.sort_by_key(|row| std::cmp::Reverse((row.critical_ns, row.total_ns)));
    let columns = [
        ("on critical paths", true),
        ("total", true),
        ("longest", true),
        ("count", true),
        ("waited for", false),
        ("class", false),
        ("in", false),
        ("usually woken by", false),
    ];
    let cells: Vec<Vec<String>> = order
        .iter()
        .take(MAX_ROWS)
        .map(|row| {
            vec![
                duration(row.critical_ns),
                duration(row.total_ns),
                duration(row.longest_ns),
                count(row.count),
                name(&row.what, 60),
                row.class.map_or("", |class| class.name()).to_owned(),
                name(row.function.as_deref().unwrap_or(""), 80),
                row.waker
                    .as_ref()
                    .map_or(String::new(), |by| name(&by.who, 40)),
            ]
        })
        .collect();
    html! {
        @if !rows.is_empty() {
            (section(
                "waits",
                "What threads waited for",
                "A large total alone proves nothing: an idle thread has the largest. What lies on \
                 critical paths of slow requests comes first; it can be more than the total, as \
                 several requests may wait for the same.",
                table(&columns, &cells, rows.len()),
            ))
        }
    }
}

/// Whom the target asked.
pub(crate) fn calls(rows: &[PeerRow]) -> Markup {
    let columns = [
        ("peer", false),
        ("calls", true),
        ("slow", true),
        ("p50", true),
        ("p99", true),
        ("max", true),
        ("total", true),
        ("unanswered", true),
        ("connections", true),
    ];
    let cells: Vec<Vec<String>> = rows
        .iter()
        .take(MAX_ROWS)
        .map(|row| {
            vec![
                name(&row.name(), 80),
                count(row.calls),
                count(row.slow),
                time(row.p50_ns),
                time(row.p99_ns),
                time(row.max_ns),
                duration(row.total_ns),
                count(row.unanswered),
                count(row.connections),
            ]
        })
        .collect();
    html! {
        @if !rows.is_empty() {
            (section(
                "calls",
                "Calls to others",
                "From the first byte sent to the last byte of the reply read.",
                table(&columns, &cells, rows.len()),
            ))
        }
    }
}

/// What CPU time was for.
pub(crate) fn cpu(summary: &CpuSummary) -> Markup {
    let listeners: Vec<Vec<String>> = summary
        .listeners
        .iter()
        .take(MAX_ROWS)
        .map(|row| {
            vec![
                row.port
                    .map_or_else(|| "unix sockets".to_owned(), |port| format!("port {port}")),
                duration(row.cpu_ns),
                time(row.user_ns),
                time(row.system_ns),
                count(row.requests),
                time(row.per_request_ns),
            ]
        })
        .collect();
    let threads: Vec<Vec<String>> = summary
        .threads
        .iter()
        .take(MAX_ROWS)
        .map(|row| {
            vec![
                format!("{} ({})", name(&row.thread, 40), row.tid),
                duration(row.cpu_ns),
                time(row.user_ns),
                time(row.system_ns),
                duration(row.futile_ns),
            ]
        })
        .collect();
    let of_listener = [
        ("listener", false),
        ("CPU", true),
        ("user", true),
        ("kernel", true),
        ("requests", true),
        ("a request", true),
    ];
    let of_thread = [
        ("thread", false),
        ("CPU", true),
        ("user", true),
        ("kernel", true),
        ("polling in vain", true),
    ];
    let all_threads = summary.threads.len() as u64 + summary.more_threads;
    section(
        "cpu",
        "CPU time",
        "Of all threads over the whole recording; user and kernel by samples.",
        html! {
            p {
                (duration(summary.total_ns)) " in all, of which "
                (duration(summary.not_for_requests_ns)) " for no request"
            }
            @if !listeners.is_empty() {
                (table(&of_listener, &listeners, summary.listeners.len()))
            }
            (table(&of_thread, &threads, all_threads as usize))
        },
    )
}

/// io_uring rings.
pub(crate) fn rings(rows: &[RingRow]) -> Markup {
    let columns = [
        ("ring", true),
        ("used by", false),
        ("operations", true),
        ("batches", true),
        ("in the kernel", true),
        ("unreaped", true),
        ("failed", true),
        ("most slots", true),
        ("entries", true),
    ];
    let cells: Vec<Vec<String>> = rows
        .iter()
        .take(MAX_ROWS)
        .map(|row| {
            let unreaped = row.unreaped_ns.map_or_else(
                || "-".to_owned(),
                |bounds| duration_range(bounds.at_least, bounds.at_most),
            );
            vec![
                row.ring.to_string(),
                whole(&row.user_name),
                count(row.submitted),
                count(row.batches),
                time(row.kernel_ns),
                unreaped,
                count(row.failed),
                count(row.max_slots),
                count(row.sq_entries),
            ]
        })
        .collect();
    html! {
        @if !rows.is_empty() {
            (section(
                "rings",
                "io_uring rings",
                "Mean times of an operation: with the kernel, and completed but not taken.",
                table(&columns, &cells, rows.len()),
            ))
        }
    }
}
