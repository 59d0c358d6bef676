//! What the tasks of slow requests did: where they waited, and who has the lock.

use whywait_model::requests::{
    Requests, TaskHolder, TaskWaitKind, TaskWaitRow, TaskWaits, TasksPast,
};
use whywait_words::{counted, percent};

use super::page::{Page, Style};
use super::tasks::{MAX_NAME, is_worth};

/// Fewer looks may all have come at the same moment of a request.
const ENOUGH_LOOKS: u64 = 20;

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

/// Where most of slow requests' time was, if in one wait of their tasks: `sync.Mutex.Lock in
/// main.handler (97 % of 212 looks)`.
pub(super) fn dominant(page: &Page, requests: &Requests) -> Option<String> {
    let waits = requests.task_waits.as_ref()?;
    let row = waits.rows.first().filter(|row| row.waits_in.is_some())?;
    // Looks come at any time while requests are slow: a part of them is a part of that time.
    let most = waits.looks >= ENOUGH_LOOKS && row.looks.saturating_mul(2) >= waits.looks;
    most.then(|| {
        let share = percent(row.looks, waits.looks);
        format!(
            "{} ({share} of {})",
            part(page, row),
            counted(waits.looks, "look")
        )
    })
}

/// `sync.Mutex.Lock in main.handler (held meanwhile: time.Sleep in main.work)`.
fn part(page: &Page, row: &TaskWaitRow) -> String {
    let mut does = doing(page, row.kind, row.waits_in, row.function.as_deref());
    if let Some(place) = &row.place {
        does.push_str(&format!(" ({})", page.cut(place, MAX_NAME)));
    }
    match (&row.holder, &row.past) {
        (Some(holder), _) => format!("{does} (held meanwhile: {})", held(page, holder)),
        (None, Some(past)) => format!("{does} ({})", past_it(page, past)),
        (None, None) => does,
    }
}

/// `meanwhile 2 that were past this wait: time.Sleep in main.work`.
fn past_it(page: &Page, past: &TasksPast) -> String {
    let kind = TaskWaitKind::Unknown;
    let does = doing(page, kind, past.waits_in, past.function.as_deref());
    format!(
        "meanwhile {} that were past this wait: {does}",
        past.at_a_time
    )
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
