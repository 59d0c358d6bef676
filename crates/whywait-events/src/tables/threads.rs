//! The table `threads`.

use crate::Ns;
use crate::names::names;
use crate::recording::table;

names! {
    /// What happened to a thread.
    pub enum ThreadChange, default Found {
        /// It was there when the recording began.
        Found = 0 "found",
        /// It was created.
        Fork = 1 "fork",
        /// It became another program.
        Exec = 2 "exec",
        /// It changed its name.
        Rename = 3 "rename",
        /// It ended.
        Exit = 4 "exit",
    }
}

table! {
    /// A thread of the target appeared, changed its name or program, or ended. A flight recorder
    /// begins each segment with a `found` row for each living thread.
    #[span(at_ns)]
    #[process(tgid)]
    pub struct ThreadEvent {
        /// When.
        at_ns: Ns = DeltaBounds,
        /// Thread id, in the initial pid namespace.
        tid: u32 = Dictionary,
        /// Process id (thread group id).
        tgid: u32 = Dictionary,
        /// For `fork`: the thread that created it; otherwise 0.
        parent_tid: u32 = Dictionary,
        /// What happened.
        change: ThreadChange = Dictionary,
        /// The thread's name after the change, as the kernel has it. Hostile: it may hold any byte
        /// but NUL; what is not UTF-8 was replaced.
        comm: String = Dictionary,
        /// For `exec`: the new program's command line, its first 4,096 bytes, with what looks like
        /// a secret masked; empty when the process had ended before it could be read. Hostile.
        command: String = Dictionary or (String::new()),
    }
}
