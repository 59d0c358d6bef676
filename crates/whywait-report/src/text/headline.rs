//! The first line when nothing is wrong. (When something is, the first line is the finding's.)

use whywait_findings::Code;
use whywait_model::requests::Time;

use super::page::{Page, Style};
use super::requests::total_ns;
use super::units::{count, counted, duration};
use crate::Report;

/// When a virtual machine's host took at least this part of the time (one in so many) from threads,
/// the reader should look there first: requests queue behind it.
const MUCH_STOLEN: u64 = 20;

pub(super) fn nothing_wrong(page: &mut Page, report: &Report) {
    let requests = &report.requests;
    let incomplete = !report.coverage.complete
        || report
            .findings
            .iter()
            .any(|f| f.code == Code::RECORDING_INCOMPLETE);
    let (style, verdict) = match (requests.count, incomplete) {
        (0, false) => (Style::Warning, "no requests seen"),
        (0, true) => (
            Style::Warning,
            "no requests seen, and the recording is incomplete",
        ),
        (_, false) => (Style::Good, "nothing wrong found"),
        (_, true) => (
            Style::Warning,
            "nothing wrong found in what was recorded, but the recording is incomplete",
        ),
    };
    let target = target(page, report);
    let watched = duration(report.target.duration_ns);
    let mut text = match requests.latency_ns {
        _ if requests.count == 0 => {
            let threads = counted(report.target.threads.into(), "thread");
            let events = counted(report.coverage.events, "kernel event");
            format!(": {target} was watched for {watched}: {threads}, {events}")
        }
        Some(latency) => {
            let (count, p99, max) = (
                counted(requests.count, "request"),
                duration(latency.p99),
                duration(latency.max),
            );
            format!(": {count} to {target} in {watched}, p99 {p99}, max {max}")
        }
        None => format!(
            ": {} to {target} in {watched}",
            counted(requests.count, "request")
        ),
    };
    if !report.looked_at.is_empty() {
        text.push_str("; looked at ");
        text.push_str(&report.looked_at.join(", "));
    }
    page.paragraph("", "  ", &[(style, verdict), (Style::Strong, &text)]);
    if requests.count == 0 {
        let hint = "a request starts when data arrives on a stream socket, and ends when the \
                    target has read it and written an answer. Check that there was load while \
                    whywait watched, and that this process served it";
        page.gutter();
        page.paragraph(
            "   = ",
            "     ",
            &[(Style::Help, "help: "), (Style::Plain, hint)],
        );
    } else if requests.slow > 0 {
        let (slow, threshold) = (count(requests.slow), duration(requests.slow_threshold_ns));
        let mut text = format!("{slow} took {threshold} or longer, and no finding explains them: ");
        match mostly_without_cpu(&requests.time) {
            Some(percent) => {
                let host = if report.coverage.stolen_ns >= report.target.duration_ns / MUCH_STOLEN {
                    "the virtual machine's host took CPUs away. Check what else runs on that host, "
                } else {
                    "check "
                };
                text.push_str(&format!(
                    "for {percent} % of the requests' time threads were runnable and had no CPU; \
                     {host}what else runs on this machine, and how many threads are busy at once"
                ));
            }
            None => text.push_str("see below where their time went"),
        }
        page.gutter();
        page.paragraph(
            "   = ",
            "     ",
            &[(Style::Strong, "note: "), (Style::Plain, &text)],
        );
    }
}

/// How many percent of the requests' time the threads that worked for them had no CPU, if that is
/// most of it.
fn mostly_without_cpu(time: &Time) -> Option<u64> {
    let without = [time.runnable, time.ready_unserved.wakeup];
    let without_ns = without.into_iter().flatten().fold(0, u64::saturating_add);
    let total_ns = total_ns(time);
    (total_ns > 0 && without_ns.saturating_mul(2) >= total_ns)
        .then(|| (u128::from(without_ns) * 100 / u128::from(total_ns)) as u64)
}

/// `redis-server (pid 1234)`.
pub(super) fn target(page: &Page, report: &Report) -> String {
    const MAX_WIDTH: usize = 40;
    let command = report.target.command.trim();
    // The program alone: its arguments can be long, and can hold secrets. JSON has all of it.
    let program = command.split_whitespace().next().unwrap_or_default();
    let name = program
        .rsplit('/')
        .find(|part| !part.is_empty())
        .unwrap_or("the target");
    format!("{} (pid {})", page.cut(name, MAX_WIDTH), report.target.pid)
}
