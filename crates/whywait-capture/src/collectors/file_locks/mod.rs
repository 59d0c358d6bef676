//! Files that the target has open, and that other processes have locked: what a process that tries
//! for such a lock now and then waits for shows nowhere else.
//!
//! The list: Documentation/filesystems/proc.rst (/proc/locks), `lock_get_status` in `fs/locks.c`.
//! It names the process by which a lock was taken, and none of locks of open files (`OFDLCK`).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use whywait_events::{Event, FileLock};

use crate::core::collector::{Asking, Collector, Keeper};
use crate::core::error::CaptureError;
use crate::core::kernel;
use crate::core::output::Output;
use crate::core::programs::Programs;
use crate::core::shared::{Shared, Stage};

pub(crate) const COLLECTOR: Collector = Collector {
    keeper: |_| Box::new(LockLooks::default()),
    ..Collector::NONE
};

/// From one look to the next one, at least.
const PAUSE: Duration = Duration::from_millis(100);
/// Of its thread's time, looks take at most one in so many, and searches for open files one in so
/// many.
const LOOKS_TAKE: u32 = 100;
const SEARCHES_TAKE: u32 = 1000;
/// From one search for open files to the next one, at least.
const BETWEEN_SEARCHES: Duration = Duration::from_millis(500);
/// Descriptors that one search looks at.
const MAX_DESCRIPTORS: usize = 20_000;
/// A longer list is not read, in bytes.
const MAX_LIST: usize = 1 << 20;
/// Locks that a look takes in.
const MAX_LOCKS: usize = 10_000;

/// A file: its device, major and minor number, and its inode.
type FileId = (u32, u32, u64);

/// A lock that one process has alone, and processes whose threads sleep until they have it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Lock {
    holder: u32,
    file: FileId,
    waiters: Vec<u32>,
}

/// What was so in one or several looks in a row.
#[derive(Debug)]
struct Stretch {
    holder: u32,
    /// The holder's name.
    name: String,
    file: FileId,
    from_ns: u64,
    to_ns: u64,
    looks: u32,
    waiters: u32,
}

/// Who has a file open, and by what path.
type Openers = BTreeMap<u32, String>;

#[derive(Debug)]
struct LockLooks {
    looks: u64,
    left_out: u64,
    next: Instant,
    next_search: Instant,
    /// Who of the target had files open that were locked.
    openers: HashMap<FileId, Openers>,
    /// What was so at the last look.
    seen: BTreeMap<(u32, FileId), Stretch>,
    /// What was so earlier. Whether it is about a file of the target, the next search says.
    ended: Vec<Stretch>,
}

impl Default for LockLooks {
    fn default() -> Self {
        Self {
            looks: 0,
            left_out: 0,
            next: Instant::now(),
            next_search: Instant::now(),
            openers: HashMap::new(),
            seen: BTreeMap::new(),
            ended: Vec::new(),
        }
    }
}

impl Keeper for LockLooks {
    fn ask(&mut self, _: &mut Programs, asking: &mut Asking<'_>) -> Result<bool, CaptureError> {
        let begun = Instant::now();
        if begun < self.next {
            return Ok(false);
        }
        let before = computed();
        let Ok(list) = read_list() else {
            // A kernel without them.
            self.next = begun + Duration::from_secs(60);
            return Ok(false);
        };
        let (locks, left_out) = held_alone(&list);
        self.left_out += left_out;
        let processes = asking.shared.processes.all();
        self.search_for_waiters(&locks, &processes);
        self.take_in(&locks, kernel::now_ns());
        self.looks += 1;
        let took = computed().saturating_sub(before);
        self.next = begun + (took * LOOKS_TAKE).max(PAUSE);
        if begun >= self.next_search && self.has_unknown() {
            self.search(&processes);
            self.write(&mut asking.shared.output)?;
        }
        Ok(false)
    }

    fn look(&mut self, _: &mut Programs, shared: &mut Shared) -> Result<(), CaptureError> {
        if shared.stage == Stage::Begins {
            return Ok(());
        }
        self.ended
            .extend(std::mem::take(&mut self.seen).into_values());
        if self.has_unknown() {
            self.search(&shared.processes.all());
        }
        self.write(&mut shared.output)
    }

    fn counters(&mut self, _: &Programs) -> Vec<(String, u64)> {
        vec![
            ("file-locks.looks".to_owned(), self.looks),
            ("file-locks.left-out".to_owned(), self.left_out),
        ]
    }
}

impl LockLooks {
    /// Looks for the files that threads of these processes sleep for.
    fn search_for_waiters(&mut self, locks: &[Lock], processes: &[u32]) {
        let mut descriptors = 0;
        for lock in locks {
            for waiter in &lock.waiters {
                let known = self.openers.get(&lock.file);
                let known = known.is_some_and(|openers| openers.contains_key(waiter));
                if !known && processes.contains(waiter) {
                    let wanted = BTreeSet::from([lock.file]);
                    self.search_in(*waiter, &wanted, &mut descriptors);
                }
            }
        }
    }

    /// Whether files were locked that nobody here was seen to have open.
    fn has_unknown(&self) -> bool {
        let mut all = self.seen.values().chain(&self.ended);
        all.any(|run| !self.openers.contains_key(&run.file))
    }

    /// Looks for the files that were locked among those that these processes have open.
    fn search(&mut self, processes: &[u32]) {
        let before = computed();
        // Who had it open once may open it again for each lock.
        if self.openers.len() > MAX_LOCKS {
            self.openers.clear();
        }
        let runs = self.seen.values().chain(&self.ended);
        let wanted = runs.map(|run| run.file).collect();
        let mut descriptors = 0;
        for tgid in processes {
            self.search_in(*tgid, &wanted, &mut descriptors);
        }
        self.left_out += u64::from(descriptors > MAX_DESCRIPTORS);
        let took = computed().saturating_sub(before);
        self.next_search = Instant::now() + (took * SEARCHES_TAKE).max(BETWEEN_SEARCHES);
    }

    fn search_in(&mut self, tgid: u32, wanted: &BTreeSet<FileId>, descriptors: &mut usize) {
        let open = fs::read_dir(format!("/proc/{tgid}/fd"));
        for entry in open.into_iter().flatten().flatten() {
            *descriptors += 1;
            if *descriptors > MAX_DESCRIPTORS {
                return;
            }
            // What the link leads to. Its path need not: the file may be gone from there.
            let Ok(found) = fs::metadata(entry.path()) else {
                continue;
            };
            let device = found.dev();
            let file = (
                rustix::fs::major(device),
                rustix::fs::minor(device),
                found.ino(),
            );
            if wanted.contains(&file) {
                let path = fs::read_link(entry.path()).unwrap_or_default();
                let path = path.to_string_lossy().into_owned();
                self.openers.entry(file).or_default().insert(tgid, path);
            }
        }
    }

    /// Takes in what is so now.
    fn take_in(&mut self, locks: &[Lock], at_ns: u64) {
        let mut before = std::mem::take(&mut self.seen);
        for lock in locks {
            let key = (lock.holder, lock.file);
            let waiters = lock.waiters.len() as u32;
            if let Some(again) = self.seen.get_mut(&key) {
                // Several ranges of one file.
                again.waiters = again.waiters.max(waiters);
                continue;
            }
            let mut run = before.remove(&key).unwrap_or_else(|| Stretch {
                holder: lock.holder,
                name: name_of(lock.holder),
                file: lock.file,
                from_ns: at_ns,
                to_ns: at_ns,
                looks: 0,
                waiters: 0,
            });
            run.to_ns = at_ns;
            run.looks += 1;
            run.waiters = run.waiters.max(waiters);
            self.seen.insert(key, run);
        }
        let room = MAX_LOCKS.saturating_sub(self.ended.len());
        self.left_out += before.len().saturating_sub(room) as u64;
        self.ended.extend(before.into_values().take(room));
    }

    /// Writes what is over and about files that processes of the target have open.
    fn write(&mut self, output: &mut Output) -> Result<(), CaptureError> {
        for run in self.ended.drain(..) {
            for (tgid, path) in self.openers.get(&run.file).into_iter().flatten() {
                if *tgid == run.holder {
                    continue;
                }
                output.write(&Event::FileLock(FileLock {
                    tgid: *tgid,
                    by_tgid: run.holder,
                    by_name: run.name.clone(),
                    from_ns: run.from_ns,
                    to_ns: run.to_ns,
                    looks: run.looks,
                    path: path.clone(),
                    waiters: run.waiters,
                }))?;
            }
        }
        Ok(())
    }
}

/// The kernel's list of locks. Each call that reads a part of it looks for its place anew: what was
/// locked or unlocked in between can hide others.
fn read_list() -> io::Result<String> {
    let mut file = fs::File::open("/proc/locks")?;
    let mut list = Vec::new();
    let mut part = [0; 1 << 16];
    loop {
        match file.read(&mut part)? {
            0 => return Ok(String::from_utf8_lossy(&list).into_owned()),
            bytes => list.extend_from_slice(&part[..bytes]),
        }
        if list.len() > MAX_LIST {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
    }
}

/// For how long this thread has had a CPU. A look may sleep for some 10 ms, until all CPUs know
/// that the list is read (`percpu_down_write`): nobody waits for it then, it costs no CPU time, and
/// the next ones do not.
fn computed() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

/// The name of a process; empty: it has ended.
fn name_of(tgid: u32) -> String {
    let name = fs::read(format!("/proc/{tgid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(name.trim_ascii_end()).into_owned()
}

/// The locks of the list that one process has alone, and how many more there are.
fn held_alone(list: &str) -> (Vec<Lock>, u64) {
    let mut locks: Vec<Lock> = Vec::new();
    let mut left_out = 0;
    // Those who wait stand below the lock that they wait for.
    let mut waited_for = false;
    for line in list.lines() {
        let mut words = line.split_ascii_whitespace().skip(1).peekable();
        let waits = words.next_if_eq(&"->").is_some();
        waited_for &= waits;
        if waits {
            let waiter = words.nth(3).and_then(|word| word.parse().ok());
            if let (Some(lock), Some(waiter)) = (locks.last_mut().filter(|_| waited_for), waiter) {
                lock.waiters.push(waiter);
            }
            continue;
        }
        let Some(lock) = lock_of(words) else {
            continue;
        };
        if locks.len() == MAX_LOCKS {
            left_out += 1;
            continue;
        }
        waited_for = true;
        locks.push(lock);
    }
    (locks, left_out)
}

/// `POSIX  ADVISORY  WRITE 4711 fd:00:131 0 EOF`, if that is a lock that excludes others.
fn lock_of<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Lock> {
    let excludes = matches!(words.next()?, "POSIX" | "FLOCK");
    let _ = words.next()?;
    if !excludes || words.next()? != "WRITE" {
        return None;
    }
    let holder = words.next()?.parse().ok().filter(|pid| *pid > 0)?;
    let mut file = words.next()?.splitn(3, ':');
    let device = [file.next()?, file.next()?].map(|number| u32::from_str_radix(number, 16).ok());
    let [Some(major), Some(minor)] = device else {
        return None;
    };
    Some(Lock {
        holder,
        file: (major, minor, file.next()?.parse().ok()?),
        waiters: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_tells_who_has_a_file_alone_and_how_many_wait() {
        let list = "1: POSIX  ADVISORY  WRITE 4711 fe:00:131 1073741824 1073742335\n\
                    1: -> POSIX  ADVISORY  WRITE 12 fe:00:131 1073741824 1073742335\n\
                    1: -> POSIX  ADVISORY  READ 13 fe:00:131 1073741824 1073742335\n\
                    2: POSIX  ADVISORY  READ 4712 fe:00:131 0 EOF\n\
                    2: -> POSIX  ADVISORY  WRITE 14 fe:00:131 0 EOF\n\
                    3: FLOCK  ADVISORY  WRITE 99 00:1a:7 0 EOF\n\
                    4: OFDLCK ADVISORY  WRITE -1 00:1a:8 0 EOF\n\
                    5: LEASE  ACTIVE    WRITE 99 00:1a:9 0 EOF\n\
                    6: FLOCK  ADVISORY  WRITE 0 00:1a:7 0 EOF\n";
        let lock = |holder, file, waiters| Lock {
            holder,
            file,
            waiters,
        };
        let (locks, left_out) = held_alone(list);
        let wanted = [
            lock(4711, (0xfe, 0, 131), vec![12, 13]),
            lock(99, (0, 0x1a, 7), vec![]),
        ];
        assert_eq!((locks.as_slice(), left_out), (&wanted[..], 0));
    }

    #[test]
    fn what_is_no_such_list_tells_nothing() {
        for line in [
            "",
            ":",
            "1:",
            "-> ->",
            "1: POSIX ADVISORY WRITE",
            "1: POSIX ADVISORY WRITE x fe:00:1",
            "1: POSIX ADVISORY WRITE 1 fe00:1",
            "1: POSIX ADVISORY WRITE 1 fe:00:x",
            "1: POSIX ADVISORY WRITE 1 :::",
        ] {
            assert_eq!(held_alone(line), (vec![], 0), "{line}");
        }
    }
}
