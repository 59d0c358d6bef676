//! What the tasks of slow requests did: where they waited, and who has the lock.

use whywait_model::requests::{Requests, TaskHolder, TaskWaitKind, TaskWaitRow, TaskWaits};
use whywait_words::{counted, percent};

use super::page::{Page, Style};
use super::requests::total_ns;
use super::tasks::{MAX_NAME, is_worth};

/// In a report: of the requests whose tasks were looked at.
pub(super) fn of_all(page: &mut Page, waits: Option<&TaskWaits>) {
    let Some(waits) = waits else { return };
    let what = format!(
        "what their tasks did ({} at {}): ",
        counted(waits.looks, "look"),
        counted(waits.requests, "request")
    );
    line(page, &what, waits);
}

/// Of one request.
pub(super) fn of_request(page: &mut Page, waits: Option<&TaskWaits>) {
    let Some(waits) = waits else { return };
    let what = format!("what its task did ({}): ", counted(waits.looks, "look"));
    page.gap();
    line(page, &what, waits);
}

fn line(page: &mut Page, what: &str, waits: &TaskWaits) {
    let rows = waits.rows.iter();
    let rows = rows.filter(|row| is_worth(row.ns, waits.total_ns));
    let parts: Vec<String> = rows
        .map(|row| format!("{} {}", percent(row.ns, waits.total_ns), part(page, row)))
        .collect();
    let text = parts.join("; ");
    page.paragraph("", "  ", &[(Style::Strong, what), (Style::Plain, &text)]);
}

/// Where most of all requests' time was, if in one wait of their tasks: `sync.Mutex.Lock in
/// main.handler (97 %)`.
pub(super) fn dominant(page: &Page, requests: &Requests) -> Option<String> {
    let waits = requests.task_waits.as_ref()?;
    let row = waits.rows.first().filter(|row| row.waits_in.is_some())?;
    let all_ns = total_ns(&requests.time);
    (row.ns.saturating_mul(2) >= all_ns)
        .then(|| format!("{} ({})", part(page, row), percent(row.ns, all_ns)))
}

/// `sync.Mutex.Lock in main.handler (held meanwhile: time.Sleep in main.work)`.
fn part(page: &Page, row: &TaskWaitRow) -> String {
    let does = doing(page, row.kind, row.waits_in, row.function.as_deref());
    match &row.holder {
        Some(holder) => format!("{does} (held meanwhile: {})", held(page, holder)),
        None => does,
    }
}

fn held(page: &Page, holder: &TaskHolder) -> String {
    let function = page.cut(&holder.function, MAX_NAME);
    format!("{} in {function}", holder.waits_in)
}

fn doing(
    page: &Page,
    kind: TaskWaitKind,
    waits_in: Option<&str>,
    function: Option<&str>,
) -> String {
    let does = waits_in.unwrap_or(match kind {
        TaskWaitKind::Runnable => "ready to run",
        TaskWaitKind::Running => "running",
        TaskWaitKind::SystemCall => "in a system call",
        _ => "waiting for something else",
    });
    match function {
        Some(function) if !function.is_empty() => {
            format!("{does} in {}", page.cut(function, MAX_NAME))
        }
        _ => does.to_owned(),
    }
}
