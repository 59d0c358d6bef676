//! The table `file_locks`.

use crate::Ns;
use crate::recording::table;

table! {
    /// A file that a process of the target had open, and that another process had locked so that
    /// nobody else could lock it (flock(2), fcntl(2)), in one or several looks in a row at the
    /// kernel's list of locks (/proc/locks). Between two looks it may have been free for a while.
    /// How often was looked is the counter `file-locks.looks`.
    #[table(later)]
    #[span(from_ns, [duration_ns], |row| row.to_ns)]
    #[process(tgid)]
    pub struct FileLock {
        /// A process of the target that had the file open, then or at times, and not the lock.
        tgid: u32 = Dictionary,
        /// The process that has the lock.
        by_tgid: u32 = Dictionary,
        /// Its name. Hostile.
        by_name: String = Dictionary,
        /// When it was first seen so.
        from_ns: Ns = DeltaBounds,
        /// When it was last seen so.
        to_ns: Ns = DeltaBounds {
            /// Until it was last seen so.
            duration_ns since |row| row.from_ns
        },
        /// In how many looks.
        looks: u32 = Dictionary,
        /// The path of the file, as the target's process has it open. Hostile.
        path: String = Dictionary,
        /// How many threads slept until they get the lock, at most.
        waiters: u32 = Dictionary,
    }
}
