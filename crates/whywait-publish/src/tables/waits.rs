//! The table `waits`.

use whywait_events::recording::ReadError;
use whywait_model::waits::WaitRow;

use crate::Source;
use crate::table::{WallClock, published};
use crate::text::{folded, name};

published! {
    /// What threads waited for over the whole recording: a row of `whywait report --waits`.
    "waits": struct WaitedRow {
        /// When the recording began.
        ts: WallClock,
        /// What the waiting was in: the innermost function of the application's own, or else the
        /// innermost one; NULL: not known.
        function: Option<String>,
        /// What kind of wait: `lock`, `fsync`, `epoll 1`, …
        what: String,
        /// What a futex wait was for: `lock`, `idle`, `result`, `timer`, `unknown`; NULL: no futex.
        class: Option<String>,
        /// What is mapped at the futex's address; NULL: not known.
        mapping: Option<String>,
        /// The descriptor; NULL: none.
        fd: Option<i64>,
        /// The thread that waited longest, each number in its name as `N`; NULL: none.
        thread: Option<String>,
        /// How many threads waited.
        threads: u64,
        /// In how many processes.
        processes: u64,
        /// How many waits.
        times: u64,
        /// Of these: of which only sums are known.
        summed_up: u64,
        /// Asleep.
        total_ns: u64,
        /// The longest.
        longest_ns: u64,
        /// Of `total_ns`: on the critical paths of slow requests.
        critical_ns: u64,
        /// Waits that had not ended when the recording did.
        unfinished: u64,
        /// Who ended the waits, as a rule; NULL: not known.
        waker: Option<String>,
        /// The stack in which most of the waiting was, folded, outermost first.
        stack: String,
    }
}

pub(super) fn rows(source: &Source<'_>) -> Result<Vec<WaitedRow>, ReadError> {
    let mut rows: Vec<WaitedRow> = source.waits.iter().map(|row| waited(source, row)).collect();
    // Stable: among equals the longest stays first.
    rows.sort_by(|a, b| (&a.function, &a.what).cmp(&(&b.function, &b.what)));
    Ok(rows)
}

fn waited(source: &Source<'_>, row: &WaitRow) -> WaitedRow {
    let class = row.class.and_then(|class| serde_json::to_value(class).ok());
    let role = |tid: Option<u32>| tid.map(|tid| source.model.role_name(tid));
    let waker = row.waker.as_ref();
    WaitedRow {
        ts: source.identity.started(),
        function: row.function.as_deref().map(name),
        what: row.what.clone(),
        class: class.and_then(|class| Some(class.as_str()?.to_owned())),
        mapping: row.mapping.clone(),
        fd: row.fd.map(i64::from),
        thread: role(row.threads.first().map(|thread| thread.tid)),
        threads: row.threads.len() as u64,
        processes: row.pids.len() as u64,
        times: row.count,
        summed_up: row.short,
        total_ns: row.total_ns,
        longest_ns: row.longest_ns,
        critical_ns: row.critical_ns,
        unfinished: row.unfinished,
        waker: role(waker.and_then(|waker| waker.tid)).or(waker.map(|waker| waker.who.clone())),
        stack: folded(row.stack.iter().map(String::as_str)),
    }
}
