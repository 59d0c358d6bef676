//! What a thread slept at, by the functions between the system call and the application; and which
//! functions let go of a lock.

use std::sync::Arc;

use whywait_events::ModuleKind;

use crate::maps::HashSet;
use crate::stacks::{FrameOrigin, Label, StackText, origin};

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
    /// A lock of a database, on a row or a transaction, that a process for each connection waits
    /// for (PostgreSQL).
    Database,
    /// A lock of a database on a whole table.
    Table,
    /// The lock that a thread of CPython needs to run Python code.
    Gil,
    /// A lock of Python's `threading`, taken by the program's own code.
    PythonLock,
    /// A thread of Go's scheduler without a goroutine to run.
    GoIdle,
    /// The lock that a thread of Ruby needs to run Ruby code.
    Gvl,
    /// What `synchronized` takes in a JVM.
    Monitor,
    /// A thread of a JVM that is parked: it idles, or waits for a result or for a lock of
    /// `java.util.concurrent`.
    JavaPark,
    /// A lock of `java.util.concurrent`, as those who hand it on to each other show.
    JavaLock,
    /// A lock that a program builds of condition variables, semaphores or parks, as those who hand
    /// it on to each other show.
    OwnLock,
    /// A condition variable in the storage engine of MariaDB or MySQL, whatever for.
    Engine,
    /// A lock on a row of InnoDB.
    Row,
    /// A lock on a table's metadata in MariaDB or MySQL.
    Metadata,
    /// A lock on a whole table in MariaDB or MySQL, of a storage engine that has none on rows.
    WholeTable,
    /// A lock of MariaDB or MySQL that stands for nothing in it: an application asked for it by a
    /// name.
    Named,
    /// A lock on a file that a program asked for, by `flock` or `fcntl`.
    File,
    /// The kernel's lock of a process's memory map: who maps and unmaps has it alone, and page
    /// faults take it together.
    MemoryMap,
    /// The kernel's lock of a file (its inode): who writes has it alone.
    Inode,
    /// A lock of a database that stands for nothing in it: an application asked for it by a number.
    Advisory,
    /// A time to pass, in a function that sleeps on a condition variable.
    Sleep,
    /// A message, or room for one, in a channel.
    Channel,
    /// A thread of a virtual machine's own that has nothing to do.
    Housekeeping,
}

impl Primitive {
    /// For reports.
    pub const fn name(self) -> &'static str {
        match self {
            Primitive::Mutex => "mutex",
            Primitive::RwLock => "read-write lock",
            Primitive::Condvar => "condition variable",
            Primitive::Semaphore => "semaphore",
            Primitive::Park | Primitive::JavaPark => "park",
            Primitive::Join => "join",
            Primitive::Barrier => "barrier",
            Primitive::Once => "once",
            Primitive::Database => "lock of the database",
            Primitive::Table => "table lock of the database",
            Primitive::Gil => "Python interpreter's lock (GIL)",
            Primitive::PythonLock => "Python lock (threading.Lock)",
            Primitive::GoIdle => "idle in Go's scheduler",
            Primitive::Gvl => "Ruby interpreter's lock (GVL)",
            Primitive::Monitor => "Java monitor",
            Primitive::JavaLock => "lock of java.util.concurrent",
            Primitive::OwnLock => "lock of the program's own",
            Primitive::Engine => "condition variable of the storage engine",
            Primitive::Row => "row lock (InnoDB)",
            Primitive::Metadata => "metadata lock (MDL)",
            Primitive::WholeTable => "table lock (MyISAM, Aria, MEMORY)",
            Primitive::Named => "named lock (GET_LOCK)",
            Primitive::File => "advisory file lock",
            Primitive::MemoryMap => "lock of the process's memory map (mmap_lock)",
            Primitive::Inode => "kernel's lock of a file (inode)",
            Primitive::Advisory => "advisory lock of the database",
            Primitive::Sleep => "sleep",
            Primitive::Channel => "channel",
            Primitive::Housekeeping => "idle in its runtime",
        }
    }

    /// For sentences: `a mutex`, `an advisory file lock`, `the Ruby interpreter's lock (GVL)`.
    pub fn with_article(self) -> String {
        let name = self.name();
        let article = match name.chars().next() {
            _ if self.is_single() || self == Primitive::Inode => "the",
            Some('a' | 'e' | 'i' | 'o' | 'u') => "an",
            _ => "a",
        };
        format!("{article} {name}")
    }

    /// Whether it is held by one thread and released by it.
    pub const fn is_lock(self) -> bool {
        matches!(
            self,
            Primitive::Mutex
                | Primitive::RwLock
                | Primitive::Once
                | Primitive::Database
                | Primitive::Table
                | Primitive::Gil
                | Primitive::PythonLock
                | Primitive::Gvl
                | Primitive::Monitor
                | Primitive::JavaLock
                | Primitive::OwnLock
                | Primitive::Row
                | Primitive::Metadata
                | Primitive::WholeTable
                | Primitive::Named
                | Primitive::File
                | Primitive::MemoryMap
                | Primitive::Inode
                | Primitive::Advisory
        )
    }

    /// Whether nobody ever waits at it for a lock. Of condition variables, semaphores and parks a
    /// program may build one.
    pub const fn is_never_lock(self) -> bool {
        matches!(
            self,
            Primitive::Join
                | Primitive::Barrier
                | Primitive::GoIdle
                | Primitive::Sleep
                | Primitive::Channel
                | Primitive::Housekeeping
        )
    }

    /// Whether who waits for it sleeps with a timeout and, when that has passed, goes on waiting:
    /// the timeout is no end of the wait.
    pub const fn tries_again(self) -> bool {
        matches!(
            self,
            Primitive::Gil
                | Primitive::Gvl
                | Primitive::Monitor
                | Primitive::Row
                | Primitive::Metadata
        )
    }

    /// Whether a process has only one of them.
    pub const fn is_single(self) -> bool {
        self.is_interpreters() || matches!(self, Primitive::MemoryMap)
    }

    /// Whether who runs code of an interpreted language has it.
    pub const fn is_interpreters(self) -> bool {
        matches!(self, Primitive::Gil | Primitive::Gvl)
    }

    /// Whether it is held from one request to the next: a transaction is open for several.
    pub const fn outlasts_requests(self) -> bool {
        matches!(
            self,
            Primitive::Database
                | Primitive::Table
                | Primitive::Row
                | Primitive::Metadata
                | Primitive::WholeTable
                | Primitive::Named
                | Primitive::Advisory
        )
    }

    /// Whether those who wait for each other are processes of their own.
    pub(crate) const fn is_between_processes(self) -> bool {
        matches!(
            self,
            Primitive::Database | Primitive::Table | Primitive::File | Primitive::Advisory
        )
    }

    /// A lock whose words belong to the waiters: which lock it is, the word does not say.
    pub(crate) const fn has_words_of_waiters(self) -> bool {
        matches!(
            self,
            Primitive::Gvl
                | Primitive::Monitor
                | Primitive::Row
                | Primitive::Metadata
                | Primitive::WholeTable
                | Primitive::Named
        )
    }

    /// The lock that waits at such a thing are for, if those who wait hand something on.
    pub(crate) const fn handed_on(self) -> Option<Primitive> {
        match self {
            Primitive::JavaPark => Some(Primitive::JavaLock),
            Primitive::Engine => Some(Primitive::Row),
            Primitive::Park | Primitive::Condvar | Primitive::Semaphore => Some(Primitive::OwnLock),
            _ => None,
        }
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
    (&["ObjectMonitor", "enter"], Primitive::Monitor),
    (&["ObjectMonitor", "wait"], Primitive::Condvar),
    (&["Monitor", "lock_without_safepoint"], Primitive::Mutex),
    (&["Parker::park(bool"], Primitive::JavaPark),
    (&["Parker::park"], Primitive::Park),
    (&["uv_cond_"], Primitive::Condvar),
    (&["uv_mutex_lock"], Primitive::Mutex),
    (&["uv_sem_wait"], Primitive::Semaphore),
];

/// Functions of runtimes and servers that sleep on a condition variable, a semaphore, a park or a
/// mutex, and what a thread that sleeps so within them really waits for. Parts of names, as
/// above; the first match from the innermost frame outwards counts, up to [`WITHIN_DEPTH`].
///
/// None of the locks among them is ever wanted by a thread that has nothing to do: an idle thread
/// of a JVM sleeps in `ObjectMonitor::wait`, `Monitor::wait` or `Parker::park`, an idle connection
/// of a database in a poll.
const WITHIN: &[(&[&str], Primitive)] = &[
    (&["take_gil"], Primitive::Gil),
    // HotSpot (src/hotspot/share/runtime/objectMonitor.cpp): to enter, and to enter again after a
    // `wait`; up to JDK 24 and since.
    (&["ObjectMonitor::enter"], Primitive::Monitor),
    (&["ObjectMonitor::EnterI"], Primitive::Monitor),
    (&["ObjectMonitor::ReenterI"], Primitive::Monitor),
    (&["ObjectMonitor::reenter_internal"], Primitive::Monitor),
    (&["ObjectMonitor::wait"], Primitive::Condvar),
    (&["JavaThread::sleep"], Primitive::Sleep),
    (&["JVM_Sleep"], Primitive::Sleep),
    (&["Parker::park"], Primitive::JavaPark),
    (&["VMThread::wait_for_operation"], Primitive::Housekeeping),
    (&["VMThread::loop"], Primitive::Housekeeping),
    (&["CompileQueue::get"], Primitive::Housekeeping),
    (
        &["ServiceThread::service_thread_entry"],
        Primitive::Housekeeping,
    ),
    (
        &["NotificationThread::notification_thread"],
        Primitive::Housekeeping,
    ),
    (
        &["MonitorDeflationThread::monitor_deflation"],
        Primitive::Housekeeping,
    ),
    (&["NMethodSweeper::sweeper_loop"], Primitive::Housekeeping),
    (&["WatcherThread::"], Primitive::Housekeeping),
    (
        &["JVM_WaitForReferencePendingList"],
        Primitive::Housekeeping,
    ),
    (&["os::signal_wait"], Primitive::Housekeeping),
    (&["signal_thread_entry"], Primitive::Housekeeping),
    // Rust's channels
    (&["sync::mpsc", "recv"], Primitive::Channel),
    (&["sync::mpmc", "recv"], Primitive::Channel),
    (&["sync::mpmc", "send"], Primitive::Channel),
    (&["crossbeam_channel", "recv"], Primitive::Channel),
    (&["crossbeam_channel", "send"], Primitive::Channel),
    // MariaDB and MySQL (sql/mdl.cc, mysys/thr_lock.c, storage/innobase/lock/)
    (&["MDL_wait::timed_wait"], Primitive::Metadata),
    (&["thr_multi_lock"], Primitive::WholeTable),
    (&["lock_wait_suspend_thread"], Primitive::Row),
    (&["lock_wait(que_thr_t"], Primitive::Row),
    // Ruby (thread_pthread.c)
    (&["gvl_acquire"], Primitive::Gvl),
    (&["thread_sched_wait_running_turn"], Primitive::Gvl),
    (&["thread_sched_to_running"], Primitive::Gvl),
];
/// From Ruby 3.3 on a thread that sleeps until another one wakes it sleeps in the same function as
/// one that wants to run; within this one.
const RUBY_WAITS: &[&str] = &["thread_sched_to_waiting"];
/// The function of MariaDB and MySQL by which an application asks for a lock by a name
/// (sql/item_func.cc).
const NAMED_LOCK: &str = "Item_func_get_lock::";
/// Such a function lies no more than so many calls above the one that sleeps.
const WITHIN_DEPTH: usize = 16;

/// What a thread waits at, by its stack: a function of the library that has it, between the
/// system call and the application. `gvl`: see [`gvl_frame`].
pub(crate) fn primitive(stack: &StackText, gvl: &HashSet<Arc<str>>) -> Option<Primitive> {
    for (at, label) in stack.labels.iter().enumerate() {
        let found = PRIMITIVES.iter().find(|(parts, _)| has(label, parts));
        if let Some((_, primitive)) = found {
            let outer = stack.labels.get(at + 1..).unwrap_or_default();
            let sleeps_within = matches!(
                primitive,
                Primitive::Condvar | Primitive::Mutex | Primitive::Semaphore | Primitive::Park
            );
            return sleeps_within
                .then(|| within(*primitive, outer, gvl))
                .flatten()
                .or(Some(*primitive));
        }
        if label.named && origin(label) == FrameOrigin::App {
            return None;
        }
    }
    None
}

fn has(label: &Label, parts: &[&str]) -> bool {
    parts.iter().all(|part| label.name.contains(part))
}

/// What a thread that sleeps on a condition variable or the like really waits for.
fn within(sleeps_at: Primitive, outer: &[Label], gvl: &HashSet<Arc<str>>) -> Option<Primitive> {
    // CPython waits for its lock in a loop of timed waits at a condition variable, and for the
    // mutex of that.
    if outer.iter().any(|label| &*label.name == "take_gil") {
        return Some(Primitive::Gil);
    }
    let near = &outer[..outer.len().min(WITHIN_DEPTH)];
    if sleeps_at != Primitive::Park && takes_python_lock(near) {
        return Some(Primitive::PythonLock);
    }
    if near.iter().any(|label| has(label, RUBY_WAITS)) {
        return None;
    }
    let named = near
        .iter()
        .find_map(|label| WITHIN.iter().find(|(parts, _)| has(label, parts)));
    if let Some((_, primitive)) = named {
        let by_name = |label: &Label| label.name.starts_with(NAMED_LOCK);
        if *primitive == Primitive::Metadata && near.iter().any(by_name) {
            return Some(Primitive::Named);
        }
        // What a JVM does with its own mutexes on the way is over at once.
        return (sleeps_at != Primitive::Mutex || primitive.is_interpreters())
            .then_some(*primitive);
    }
    if sleeps_at != Primitive::Condvar {
        return None;
    }
    if near.iter().any(|label| gvl.contains(&label.name)) {
        return Some(Primitive::Gvl);
    }
    in_engine(near).then_some(Primitive::Engine)
}

/// CPython's functions behind `Lock.acquire` and `RLock.acquire` (Modules/_threadmodule.c).
const PYTHON_ACQUIRE: &[&str] = &["lock_PyThread_acquire_lock", "rlock_acquire"];
/// The library's modules whose functions take such a lock to wait for somebody else: conditions,
/// queues, the end of a thread.
const PYTHON_WAITS: &[&str] = &["threading.py", "queue.py"];

/// What such a function is called elsewhere: other libraries (gevent's, say) build conditions of
/// locks, too.
const PYTHON_WAIT: &str = "wait";

/// Whether Python code takes a lock, and not for a wait for somebody else, as the library builds
/// them of locks that others let go.
fn takes_python_lock(outer: &[Label]) -> bool {
    let labels = outer
        .iter()
        .skip_while(|label| !PYTHON_ACQUIRE.contains(&&*label.name));
    let mut callers = labels
        .filter(|label| label.kind == ModuleKind::Python)
        .peekable();
    let Some(file) = callers.peek().map(|label| label.file.clone()) else {
        return false;
    };
    let name = file.rsplit('/').next().unwrap_or_default();
    let waits = |label: &Label| label.name.rsplit('.').next() == Some(PYTHON_WAIT);
    !name.is_empty()
        && !PYTHON_WAITS.contains(&name)
        && !callers.take_while(|label| label.file == file).any(waits)
}

/// Whether a thread sleeps in the storage engine of a server of MariaDB or MySQL whose own
/// functions have no names: between the condition variable and the server's call of its engine
/// there is no other function.
fn in_engine(outer: &[Label]) -> bool {
    let mut unnamed = 0usize;
    for label in outer {
        if label.name.starts_with("handler::ha_") {
            return unnamed > 0;
        }
        if label.named && origin(label) != FrameOrigin::System {
            return false;
        }
        unnamed += usize::from(!label.named);
    }
    false
}

/// Functions that Ruby exports and in which it lets go of its lock for a system call, and takes it
/// again.
const GVL_REGIONS: &[&str] = &[
    "rb_thread_io_blocking_",
    "rb_io_blocking_region",
    "rb_nogvl",
];
/// A call within the same function is no further away.
const SAME_FUNCTION: u64 = 0x400;

/// Frames within the function of a stripped Ruby that takes its lock: the only thing without a name
/// that a thread which sleeps on a condition variable has between that and a function which lets go
/// of the lock for a system call ([`GVL_REGIONS`]). Each with whether it sleeps for a time slice.
///
/// Ruby's threads wait for other things on condition variables too (queues, sleeps); they do so
/// through other functions, at least up to Ruby 3.2. There the first one in the queue sleeps for a
/// time slice, in the same function: without that being seen nothing is concluded
/// ([`gvl_frames`]). From 3.3 on a thread that waits for a queue sleeps in the same function as one
/// that wants to run, and no timeout is there.
fn gvl_frame(stack: &StackText) -> Option<(&Label, bool)> {
    let condvar = stack
        .labels
        .iter()
        .position(|label| label.name.contains("pthread_cond_"))?;
    let timed = stack
        .labels
        .iter()
        .any(|label| label.name.contains("pthread_cond_timedwait"));
    let mut last = None;
    for label in &stack.labels[condvar..] {
        if GVL_REGIONS.iter().any(|name| label.name.starts_with(name)) {
            return last.map(|label| (label, timed));
        }
        let of_ruby = label.module.contains("ruby");
        let passes = label.name.contains("pthread_cond_") || label.name.starts_with("rb_native_");
        match (label.named, of_ruby) {
            (false, true) => last = Some(label),
            _ if passes => {}
            _ => return None,
        }
    }
    None
}

/// The frames of all stacks within which a stripped Ruby takes its lock, by name.
pub(crate) fn gvl_frames<'a>(stacks: impl Iterator<Item = &'a StackText>) -> HashSet<Arc<str>> {
    let frames: Vec<(&Label, bool)> = stacks.filter_map(gvl_frame).collect();
    let address = |label: &Label| {
        let (_, address) = label.name.rsplit_once("+0x")?;
        u64::from_str_radix(address, 16).ok()
    };
    let slices: Vec<(&str, u64)> = frames
        .iter()
        .filter(|(_, timed)| *timed)
        .filter_map(|(label, _)| Some((&*label.module, address(label)?)))
        .collect();
    frames
        .iter()
        .filter(|(label, _)| {
            address(label).is_some_and(|at| {
                slices.iter().any(|(module, slice)| {
                    *module == &*label.module && slice.abs_diff(at) < SAME_FUNCTION
                })
            })
        })
        .map(|(label, _)| label.name.clone())
        .collect()
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
/// PostgreSQL's functions by which an application asks for an advisory lock
/// (src/backend/utils/adt/lockfuncs.c).
const ADVISORY: &str = "pg_advisory_";
/// Its functions that lock a table by its name or number, for a statement on it or for `LOCK TABLE`
/// (src/backend/storage/lmgr/lmgr.c).
const OF_TABLE: &[&str] = &["LockRelation", "LockRelationOid"];

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
        .map(|lock| {
            let any = |is: &dyn Fn(&str) -> bool| stack.labels.iter().any(|label| is(&label.name));
            if any(&|name| name.starts_with(ADVISORY)) {
                Primitive::Advisory
            } else if any(&|name| OF_TABLE.contains(&name)) {
                Primitive::Table
            } else {
                lock
            }
        })
}

/// A name in a stack that only `parking_lot` has: then the address beside the word is what the
/// thread queues for.
pub(crate) fn of_parking_lot(stack: &StackText) -> bool {
    stack
        .labels
        .iter()
        .any(|label| label.name.contains("parking_lot"))
}

/// Functions that let go of a lock, and whether their name alone says that who slept waited for
/// one. A mutex of the C library also ends waits for a condition variable: musl and old versions of
/// the GNU C library move those who are to be woken to the mutex.
const RELEASES: &[(&str, bool)] = &[
    ("pthread_mutex_unlock", false),
    ("pthread_rwlock_unlock", false),
    ("lll_unlock_wake", false),
    ("ObjectMonitor::ExitEpilog", true),
    ("InterpreterRuntime::monitorexit", true),
    ("SharedRuntime::complete_monitor_unlocking", true),
    ("MDL_lock::remove_ticket", true),
];
/// Such a function lies no more than so many calls above the one that wakes.
const RELEASE_DEPTH: usize = 5;

/// Whether a thread that woke another one was letting go of a lock, as its stack tells; and if so,
/// whether it can have been nothing else. Not if it was signalling a condition variable.
pub(crate) fn release(waker: &StackText) -> Option<bool> {
    let near = waker.labels.iter().take(RELEASE_DEPTH);
    let found = near
        .filter_map(|label| {
            let signals = label.name.contains("pthread_cond_");
            let release = RELEASES
                .iter()
                .find(|(name, _)| label.name.contains(name))
                .map(|(_, alone)| *alone);
            (signals || release.is_some()).then_some(release)
        })
        .collect::<Vec<_>>();
    match found.as_slice() {
        [] => None,
        found if found.contains(&Some(true)) => Some(true),
        [first, ..] => *first,
    }
}
