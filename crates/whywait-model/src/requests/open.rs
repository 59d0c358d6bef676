//! The requests that are open when the recording ends, for reports: see `rests`.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::requests::lives::Lives;
use crate::requests::rests::OpenState;

/// Requests that are open when the recording ends, of those that have been for the recording's
/// threshold.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct OpenRequests {
    /// How many.
    pub count: u64,
    /// Of which nobody has read.
    pub unread: u64,
    /// Of the unread: those on connections that nobody has accepted.
    pub unaccepted: u64,
    /// Of which the thread that read it has not rested since.
    pub in_work: u64,
    /// Of which the thread that read it has rested since: they may wait for an event.
    pub set_aside: u64,
    /// Of which are late: unread or in work, and older than what 99 of 100 answered requests took.
    pub late: u64,
    /// Of the late ones: which nobody has read.
    pub late_unread: u64,
    /// Of the late ones that nobody has read: those on connections that nobody has accepted.
    pub late_unaccepted: u64,
    /// Some were there before the recording began: their age is at least as given.
    pub since_before: bool,
    /// The age of the oldest one.
    pub oldest_ns: u64,
    /// The age of the oldest one that is late.
    pub oldest_late_ns: u64,
    /// The age of the oldest one that was set aside.
    pub oldest_set_aside_ns: u64,
    /// Who has those in work, the oldest first.
    pub in_work_by: Vec<OpenReader>,
    /// The same of those that are late.
    pub late_in_work_by: Vec<OpenReader>,
}

/// A thread that has requests in work.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct OpenReader {
    /// Thread id.
    pub tid: u32,
    /// Its name. Hostile.
    pub thread: String,
    /// How many it has.
    pub count: u64,
    /// The age of the oldest.
    pub oldest_ns: u64,
}

impl Lives {
    /// The requests that are open when the recording ends; `None` when there are none.
    pub fn open_requests(&self) -> Option<OpenRequests> {
        let mut sums = OpenRequests::default();
        let (mut readers, mut of_late) = (Readers::default(), Readers::default());
        for request in self.lives() {
            let Some(state) = request.open_state() else {
                continue;
            };
            let age_ns = request.age_ns();
            sums.count += 1;
            sums.oldest_ns = sums.oldest_ns.max(age_ns);
            sums.since_before |= request.since_before;
            let is_late = request.is_late();
            if is_late {
                sums.late += 1;
                sums.oldest_late_ns = sums.oldest_late_ns.max(age_ns);
            }
            match state {
                OpenState::Unread => {
                    sums.unread += 1;
                    sums.unaccepted += u64::from(request.unaccepted);
                    sums.late_unread += u64::from(is_late);
                    sums.late_unaccepted += u64::from(is_late && request.unaccepted);
                }
                OpenState::InWork => {
                    sums.in_work += 1;
                    let tid = request.recv_tid;
                    readers.add(tid, self.thread_name(tid), age_ns);
                    if is_late {
                        of_late.add(tid, self.thread_name(tid), age_ns);
                    }
                }
                OpenState::SetAside => {
                    sums.set_aside += 1;
                    sums.oldest_set_aside_ns = sums.oldest_set_aside_ns.max(age_ns);
                }
            }
        }
        sums.in_work_by = readers.oldest_first();
        sums.late_in_work_by = of_late.oldest_first();
        (sums.count > 0).then_some(sums)
    }
}

/// Who has requests in work, by thread.
#[derive(Default)]
struct Readers(BTreeMap<u32, OpenReader>);

impl Readers {
    fn add(&mut self, tid: u32, thread: &str, age_ns: u64) {
        let reader = self.0.entry(tid).or_insert_with(|| OpenReader {
            tid,
            thread: thread.to_owned(),
            ..OpenReader::default()
        });
        reader.count += 1;
        reader.oldest_ns = reader.oldest_ns.max(age_ns);
    }

    fn oldest_first(self) -> Vec<OpenReader> {
        let mut readers: Vec<OpenReader> = self.0.into_values().collect();
        readers.sort_by_key(|reader| (Reverse(reader.oldest_ns), reader.tid));
        readers
    }
}
