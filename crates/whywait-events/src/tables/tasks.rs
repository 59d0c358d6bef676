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
    /// A look at a task while requests were slow: at a goroutine of Go's that had read one, or
    /// worked for a stream of HTTP/2, and had not begun to answer, or at a task of Python's
    /// asyncio, of a process that had slow requests.
    #[table(later)]
    #[span(at_ns)]
    #[stacks(stack)]
    #[process(tgid)]
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
        /// The task, as `requests` has it: `recv_task` of Go, `send_task` of Python.
        task: u32 = Dictionary,
        /// The connection, as in `requests`; 0 for Python: which request a task is for shows as it
        /// answers.
        socket: u64 = Dictionary,
        /// The request on it, as in `requests`; 0 for Python.
        seq: u32 = Delta,
        /// What it did.
        state: TaskState = Dictionary,
        /// Its stack, of Python the coroutines that wait for each other; 0 while it was on a
        /// thread.
        stack: StackId = Dictionary,
        /// Of Python: the lock or semaphore that it waited for, an address in its process; 0: none,
        /// or not known.
        lock: u64 = Dictionary or 0,
        /// Of Python: of those that it had, the one that it had taken last; 0: none, or not known.
        held: u64 = Dictionary or 0,
    }
}
