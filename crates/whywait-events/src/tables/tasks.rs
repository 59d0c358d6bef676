//! The table `tasks`.

use crate::names::names;
use crate::recording::table;
use crate::{Ns, StackId};

names! {
    /// What a task did when it was looked at.
    pub enum TaskState, default Waiting {
        /// It waited, on no thread.
        Waiting = 0 "waiting",
        /// It could run, and no thread ran it.
        Runnable = 1 "runnable",
        /// A thread ran it.
        Running = 2 "running",
        /// A thread was in a system call for it.
        SystemCall = 3 "system-call",
    }
}

table! {
    /// A look at the task of a slow request that was under way: a goroutine of Go's that had read
    /// it and had not begun to answer.
    #[table(later)]
    #[span(at_ns)]
    #[stacks(stack)]
    pub struct TaskLook {
        /// When the look began: it was at all of a process's at that time, or some of them.
        at_ns: Ns = DeltaBounds,
        /// When this one had been read.
        read_ns: Ns = Delta {
            /// From `at_ns` until this one had been read.
            read_after_ns since |row| row.at_ns
        },
        /// Its process.
        tgid: u32 = Dictionary,
        /// The task, as `requests` has it.
        task: u32 = Dictionary,
        /// The connection, as in `requests`.
        socket: u64 = Dictionary,
        /// The request on it, as in `requests`.
        seq: u32 = Delta,
        /// What it did.
        state: TaskState = Dictionary,
        /// Its stack; 0 while it was on a thread.
        stack: StackId = Dictionary,
    }
}
