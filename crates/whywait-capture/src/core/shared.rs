//! What collectors share while a recording lasts: the recording that is written, the target's
//! processes, and what is known of sleeps, whose parts come in records of several collectors.

use whywait_events::recording::Writer;
use whywait_stacks::Unwinder;

use super::output::Output;
use super::processes::Processes;
use super::sleeps::Sleeps;
use super::so_far::Rows;
use super::suspects::Suspects;

pub(crate) struct Shared {
    pub(crate) output: Output,
    pub(crate) processes: Processes,
    pub(crate) sleeps: Sleeps,
    pub(crate) suspects: Suspects,
    /// What the requests with rows came to.
    pub(crate) rows: Rows,
    pub(crate) stage: Stage,
    undecodable: u64,
}

/// How far the recording is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The target was just taken in.
    Begins,
    Lasts,
    /// What sleeps now, sleeps on.
    Ends,
}

impl Shared {
    pub(crate) fn new(writer: Box<Writer>, unwinder: Box<Unwinder>) -> Self {
        Self {
            output: Output::new(writer, unwinder),
            processes: Processes::default(),
            sleeps: Sleeps::default(),
            suspects: Suspects::default(),
            rows: Rows::default(),
            stage: Stage::Begins,
            undecodable: 0,
        }
    }

    /// Counts a record that could not be decoded, or came from where it does not belong.
    pub(crate) fn refuse(&mut self) {
        self.undecodable += 1;
    }

    /// Forgets processes that ended without a record: their last record was lost. Looks at
    /// some of them, the others are for the next call. `alive` costs a look into /proc.
    pub(crate) fn forget_ended(&mut self, alive: impl Fn(u32) -> bool) {
        for (tgid, threads) in self.processes.forget_ended(alive) {
            for tid in threads {
                self.forget_thread(tid);
            }
            self.output.unwinder.forget(tgid);
        }
    }

    pub(crate) fn forget_thread(&mut self, tid: u32) {
        self.sleeps.forget(tid);
        self.suspects.forget(tid);
    }

    /// Whether stacks are to be taken soon after they were copied.
    pub(crate) fn reads_memory(&self) -> bool {
        self.output.unwinder.reads_memory()
    }

    /// The counters of what is shared.
    pub(crate) fn counters(&self) -> Vec<(String, u64)> {
        let mut counters = self.sleeps.counters();
        counters.push(("lost.undecodable".to_owned(), self.undecodable));
        counters
    }
}
