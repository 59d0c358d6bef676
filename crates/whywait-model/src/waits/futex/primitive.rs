//! What a thread slept at, by the functions between the system call and the application.

use crate::stacks::{FrameOrigin, StackText, origin};

/// What a thread that slept on a futex was at, by its user stack: a mutex, a condition variable, ….
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Primitive {
    Mutex,
    RwLock,
    Condvar,
    Semaphore,
    Park,
    Join,
    Barrier,
    Once,
    /// A lock of a database, on a row or a table, that a process for each connection waits for
    /// (PostgreSQL).
    Database,
    /// The lock that a thread of CPython needs to run Python code.
    Gil,
    /// A thread of Go's scheduler without a goroutine to run.
    GoIdle,
}

impl Primitive {
    /// For reports.
    pub const fn name(self) -> &'static str {
        match self {
            Primitive::Mutex => "mutex",
            Primitive::RwLock => "read-write lock",
            Primitive::Condvar => "condition variable",
            Primitive::Semaphore => "semaphore",
            Primitive::Park => "park",
            Primitive::Join => "join",
            Primitive::Barrier => "barrier",
            Primitive::Once => "once",
            Primitive::Database => "lock of the database",
            Primitive::Gil => "Python interpreter's lock (GIL)",
            Primitive::GoIdle => "idle in Go's scheduler",
        }
    }

    /// Whether it is held by one thread and released by it.
    pub const fn is_lock(self) -> bool {
        matches!(
            self,
            Primitive::Mutex
                | Primitive::RwLock
                | Primitive::Once
                | Primitive::Database
                | Primitive::Gil
        )
    }
}

/// Parts of function names, all of which a name must have, and what a thread in such a function
/// waits at. The first match from the innermost frame outwards counts, so that a mutex that is
/// taken again within a condition variable is a mutex.
const PRIMITIVES: &[(&[&str], Primitive)] = &[
    // Rust's standard library
    (&["mutex::futex::Mutex", "lock"], Primitive::Mutex),
    (&["rwlock::futex::RwLock"], Primitive::RwLock),
    (&["condvar::futex::Condvar"], Primitive::Condvar),
    (&["once::futex::Once"], Primitive::Once),
    (&["sync::reentrant_lock", "lock"], Primitive::Mutex),
    (&["sync::barrier::Barrier", "wait"], Primitive::Barrier),
    (&["Condvar", "wait"], Primitive::Condvar),
    (&["thread", "JoinInner", "join"], Primitive::Join),
    (&["thread", "JoinHandle", "join"], Primitive::Join),
    (&["parking::futex::Parker"], Primitive::Park),
    (&["std::thread", "park"], Primitive::Park),
    // parking_lot
    (&["raw_mutex::RawMutex", "lock_slow"], Primitive::Mutex),
    (&["raw_fair_mutex::RawFairMutex", "lock"], Primitive::Mutex),
    (&["raw_rwlock::RawRwLock", "slow"], Primitive::RwLock),
    (&["raw_rwlock::RawRwLock", "wait_for"], Primitive::RwLock),
    (&["parking_lot::condvar"], Primitive::Condvar),
    (&["parking_lot::once"], Primitive::Once),
    // the GNU C library and musl
    (&["lll_lock_wait"], Primitive::Mutex),
    (&["pthread_mutex_lock"], Primitive::Mutex),
    (&["pthread_mutex_timedlock"], Primitive::Mutex),
    (&["pthread_mutex_clocklock"], Primitive::Mutex),
    (&["pthread_mutex_cond_lock"], Primitive::Mutex),
    (&["pthread_rwlock_"], Primitive::RwLock),
    (&["pthread_cond_"], Primitive::Condvar),
    (&["pthread_barrier_wait"], Primitive::Barrier),
    (&["pthread_once"], Primitive::Once),
    (&["sem_wait"], Primitive::Semaphore),
    (&["sem_timedwait"], Primitive::Semaphore),
    (&["sem_clockwait"], Primitive::Semaphore),
    (&["pthread_join"], Primitive::Join),
    (&["pthread_clockjoin"], Primitive::Join),
    (&["pthread_timedjoin"], Primitive::Join),
    // Go
    (&["runtime.lock2"], Primitive::Mutex),
    (&["runtime.semasleep"], Primitive::Semaphore),
    (&["runtime.stopm"], Primitive::GoIdle),
    (&["runtime.mPark"], Primitive::GoIdle),
    (&["runtime.findRunnable"], Primitive::GoIdle),
    (&["runtime.stoplockedm"], Primitive::GoIdle),
    (&["runtime.templateThread"], Primitive::GoIdle),
    // interpreters and virtual machines
    (&["take_gil"], Primitive::Gil),
    (&["ObjectMonitor", "enter"], Primitive::Mutex),
    (&["ObjectMonitor", "wait"], Primitive::Condvar),
    (&["Monitor", "lock_without_safepoint"], Primitive::Mutex),
    (&["Parker::park"], Primitive::Park),
    (&["uv_cond_"], Primitive::Condvar),
    (&["uv_mutex_lock"], Primitive::Mutex),
    (&["uv_sem_wait"], Primitive::Semaphore),
];

/// What a thread waits at, by its stack: a function of the library that has it, between the
/// system call and the application.
pub(crate) fn primitive(stack: &StackText) -> Option<Primitive> {
    for label in &stack.labels {
        let found = PRIMITIVES
            .iter()
            .find(|(parts, _)| parts.iter().all(|part| label.name.contains(part)));
        // CPython waits for its lock in a loop of timed waits at a condition variable, and for the
        // mutex of that.
        if let Some((_, Primitive::Condvar | Primitive::Mutex)) = found
            && stack.labels.iter().any(|label| &*label.name == "take_gil")
        {
            return Some(Primitive::Gil);
        }
        if let Some((_, primitive)) = found {
            return Some(*primitive);
        }
        if label.named && origin(label) == FrameOrigin::App {
            return None;
        }
    }
    None
}

/// An address that stands for CPython's lock, from one of the three words at which threads wait for
/// it: two of a condition variable of the C library (its last 8 bytes, aligned to 8) and, behind
/// that, the one of its mutex (`_gil_runtime_state` in Include/internal/pycore_gil.h; `g_signals`
/// in sysdeps/nptl/bits/thread-shared-types.h).
pub(crate) fn gil_address(stack: &StackText, word: u64) -> u64 {
    let at_mutex = stack
        .labels
        .iter()
        .take_while(|label| &*label.name != "take_gil")
        .any(|label| label.name.contains("mutex_") || label.name.contains("lll_lock_wait"));
    let word = if at_mutex { word.wrapping_sub(8) } else { word };
    word & !7
}

/// The functions in which a program waits for a lock of its own without a futex, in a poll for a
/// signal or an event from the one that has it; what the lock is.
const POLLED_LOCKS: &[(&str, Primitive)] = &[
    // PostgreSQL's queue for its locks on rows, tables and transactions
    // (src/backend/storage/lmgr/proc.c)
    ("ProcSleep", Primitive::Database),
];
/// Such a function lies no more than so many calls above the system call.
const POLLED_LOCK_DEPTH: usize = 8;

/// The lock that a thread waits for that sleeps in a poll, by the functions.
pub(crate) fn polled_lock(stack: &StackText) -> Option<Primitive> {
    let labels = stack.labels.iter().take(POLLED_LOCK_DEPTH);
    labels
        .filter_map(|label| {
            POLLED_LOCKS
                .iter()
                .find(|(name, _)| *label.name == **name)
                .map(|(_, primitive)| *primitive)
        })
        .next()
}

/// A name in a stack that only `parking_lot` has: then the address beside the word is what the
/// thread queues for.
pub(crate) fn of_parking_lot(stack: &StackText) -> bool {
    stack
        .labels
        .iter()
        .any(|label| label.name.contains("parking_lot"))
}
