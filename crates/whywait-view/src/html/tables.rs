//! Tables: waits, calls, CPU, rings.

use maud::{Markup, html};
use whywait_model::calls::{PeerRow, StatementRow};
use whywait_model::cpu::CpuSummary;
use whywait_model::path::run::ProgramRun;
use whywait_model::requests::Routes;
use whywait_model::rings::RingRow;
use whywait_model::waits::WaitRow;
use whywait_report::text::sentences;
use whywait_words::{count, counted, duration, duration_range, figure, percent};

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

/// What a program that serves nobody had to wait for.
pub(super) fn run(run: &ProgramRun) -> Markup {
    let rows = sentences::run(run).into_iter().take(MAX_ROWS);
    let rows: Vec<Vec<String>> = rows.map(Vec::from).collect();
    let columns = [
        ("what", false),
        ("share", true),
        ("time", true),
        ("more", false),
    ];
    html! {
        section id="run" {
            h2 { "What it had to wait for" }
            p class="hint" {
                "The critical path from its start to its end, over its threads and children: what \
                 is not on it costs the run nothing."
            }
            (table(&columns, &rows, rows.len()))
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

/// The requests by what they are called.
pub(crate) fn routes(routes: &Routes) -> Markup {
    let columns = [
        ("route", false),
        ("requests", true),
        ("p50", true),
        ("p99", true),
        ("max", true),
        ("total", true),
        ("share", true),
    ];
    let cells: Vec<Vec<String>> = routes
        .rows
        .iter()
        .take(MAX_ROWS)
        .map(|row| {
            vec![
                name(&row.name, 120),
                count(row.requests),
                duration(row.p50_ns),
                duration(row.p99_ns),
                duration(row.max_ns),
                duration(row.total_ns),
                percent(row.total_ns, routes.total_ns),
            ]
        })
        .collect();
    section(
        "routes",
        "Where the time went, by route",
        "Requests that have a row: those that took the recording's threshold or longer.",
        table(&columns, &cells, routes.rows.len()),
    )
}

/// What was asked of others, by name.
pub(crate) fn statements(rows: &[StatementRow]) -> Markup {
    let columns = [
        ("asked", false),
        ("peer", false),
        ("calls, about", true),
        ("a request", true),
        ("p50", true),
        ("max", true),
    ];
    let cells: Vec<Vec<String>> = rows
        .iter()
        .take(MAX_ROWS)
        .map(|row| {
            vec![
                name(&row.name, 200),
                name(&row.peer, 80),
                count(row.calls),
                row.per_request.map_or_else(|| "-".to_owned(), figure),
                duration(row.p50_ns),
                duration(row.max_ns),
            ]
        })
        .collect();
    html! {
        @if !rows.is_empty() {
            (section(
                "statements",
                "What was asked of others",
                "How many calls there were follows from those that have a row: all slow ones, and \
                 some of the others.",
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
