//! Names of just-in-time compiled code, from the map that many runtimes write for perf
//! (`tools/perf/Documentation/jit-interface.txt`: lines of `START SIZE name`, both in hex).

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::budget::{Budget, Charge};
use crate::modules::open_regular;

/// A process's map, read when a name is first asked for, and further when it has grown.
#[derive(Debug)]
pub(crate) struct PerfMap {
    tgid: u32,
    entries: Entries,
    charge: Charge,
    looked_at: Option<Instant>,
    /// The file, by its device and number, and how much of it was read: whole lines.
    read: ((u64, u64), u64),
}

const LOOK_AFTER: Duration = Duration::from_secs(1);
/// When a name is missing: it may have come since.
const LOOK_FOR_MISSING_AFTER: Duration = Duration::from_millis(100);
const MAX_BYTES: u64 = 64 << 20;
const MAX_NAME: usize = 512;
/// How much of the file is read at a time: no line that means anything is longer.
const CHUNK: usize = 1 << 20;

impl PerfMap {
    pub(crate) fn new(tgid: u32, budget: &Budget) -> Self {
        Self {
            tgid,
            entries: Entries::default(),
            charge: budget.nothing(),
            looked_at: None,
            read: ((0, 0), 0),
        }
    }

    /// The name of the code at an address of the process.
    pub(crate) fn name(&mut self, address: u64) -> Option<&str> {
        // Code is compiled and thrown away all the time: also a name that is there may have become
        // another.
        let after = match self.entries.find(address) {
            Some(_) => LOOK_AFTER,
            None => LOOK_FOR_MISSING_AFTER,
        };
        if self.looked_at.is_none_or(|at| at.elapsed() >= after) {
            self.looked_at = Some(Instant::now());
            self.read_on();
        }
        self.entries.find(address)
    }

    fn read_on(&mut self) -> Option<()> {
        let path = self.path()?;
        // The name can be foretold: another user may have put a file there, or a link to one that
        // we may read.
        if std::fs::symlink_metadata(&path).ok()?.is_symlink() {
            return None;
        }
        let file = open_regular(&path)?;
        let metadata = file.metadata().ok()?;
        let user = std::fs::metadata(format!("/proc/{}", self.tgid))
            .ok()?
            .uid();
        if metadata.uid() != user && metadata.uid() != 0 {
            return None;
        }
        let id = (metadata.dev(), metadata.ino());
        let length = metadata.len().min(MAX_BYTES);
        if self.read.0 != id || length < self.read.1 {
            self.read = (id, 0);
            self.entries = Entries::default();
            self.charge = self.charge.emptied();
        }
        if length == self.read.1 {
            return None;
        }
        let added = self.add(&file, length);
        self.entries.settle();
        added
    }

    /// Adds the file's lines up to `length`, as far as there is room for them.
    fn add(&mut self, file: &File, length: u64) -> Option<()> {
        let mut text = Vec::new();
        while self.read.1 < length {
            let size = (length - self.read.1).min(CHUNK as u64) as usize;
            text.resize(size, 0);
            file.read_exact_at(&mut text, self.read.1).ok()?;
            let lines = match text.iter().rposition(|&b| b == b'\n') {
                Some(end) => end + 1,
                // One that is written just now, or that is none.
                None if size < CHUNK => return None,
                None => size,
            };
            let before = self.entries.bytes();
            self.entries.parse(&text[..lines]);
            if !self.charge.grow(self.entries.bytes() - before) {
                // What more there is has no names: it is not read again and again.
                self.read.1 = length;
                return None;
            }
            self.read.1 += lines as u64;
        }
        Some(())
    }

    /// The map lies in the process's `/tmp`, named by its id in its own pid namespace.
    fn path(&self) -> Option<PathBuf> {
        let own = own_id(&format!("/proc/{}/status", self.tgid))?;
        Some(PathBuf::from(format!(
            "/proc/{}/root/tmp/perf-{own}.map",
            self.tgid
        )))
    }
}

/// Of a thread's `status` file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Status {
    /// Its id in its innermost pid namespace.
    pub(crate) own_id: u32,
    /// How often it went to sleep.
    pub(crate) sleeps: u64,
}

impl Status {
    pub(crate) fn read(tgid: u32, tid: u32) -> Option<Self> {
        let text = std::fs::read(format!("/proc/{tgid}/task/{tid}/status")).ok()?;
        let text = String::from_utf8_lossy(&text);
        let field = |name| text.lines().find_map(|line| line.strip_prefix(name));
        Some(Self {
            own_id: field("NSpid:")?
                .split_ascii_whitespace()
                .next_back()?
                .parse()
                .ok()?,
            sleeps: field("voluntary_ctxt_switches:")?.trim().parse().ok()?,
        })
    }
}

/// The id of a process or thread in its innermost pid namespace, from its `status` file.
pub(crate) fn own_id(status: &str) -> Option<u32> {
    let status = std::fs::read(status).ok()?;
    let status = String::from_utf8_lossy(&status);
    let ids = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    ids.split_ascii_whitespace().next_back()?.parse().ok()
}

/// The id of a thread in its process's own pid namespace.
pub fn thread_id(tgid: u32, tid: u32) -> Option<u32> {
    own_id(&format!("/proc/{tgid}/task/{tid}/status"))
}

/// Functions by address, and their names in one piece: a map may have a million lines.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    /// Sorted, up to those that were added last.
    functions: Vec<Function>,
    names: String,
}

#[derive(Debug, Clone, Copy)]
struct Function {
    start: u64,
    end: u64,
    /// Where its name begins, and how long it is.
    name: (u32, u16),
}

impl Entries {
    fn bytes(&self) -> usize {
        // A vector has up to twice the room that it uses.
        2 * (self.functions.len() * size_of::<Function>() + self.names.len())
    }

    pub(crate) fn parse(&mut self, text: &[u8]) {
        for line in text.split(|&b| b == b'\n') {
            let mut fields = line.splitn(3, |&b| b == b' ');
            let mut hex = || {
                u64::from_str_radix(
                    std::str::from_utf8(fields.next()?)
                        .ok()?
                        .trim_start_matches("0x"),
                    16,
                )
                .ok()
            };
            let (Some(start), Some(size)) = (hex(), hex()) else {
                continue;
            };
            let Some(name) = fields.next().filter(|name| !name.is_empty()) else {
                continue;
            };
            let name = String::from_utf8_lossy(&name[..name.len().min(MAX_NAME)]);
            // Of at most 64 MiB of text.
            let at = self.names.len() as u32;
            self.names.push_str(&name);
            self.functions.push(Function {
                start,
                end: start.saturating_add(size),
                name: (at, name.len() as u16),
            });
        }
    }

    /// Puts those that were added in their places.
    pub(crate) fn settle(&mut self) {
        // Later lines replace earlier ones for the same code. The sort is stable.
        self.functions.sort_by_key(|function| function.start);
        self.functions.reverse();
        self.functions.dedup_by_key(|function| function.start);
        self.functions.reverse();
    }

    pub(crate) fn find(&self, address: u64) -> Option<&str> {
        let after = self
            .functions
            .partition_point(|function| function.start <= address);
        let function = self.functions.get(after.checked_sub(1)?)?;
        let (at, length) = (function.name.0 as usize, function.name.1 as usize);
        (address < function.end).then(|| self.names.get(at..at + length))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_line_wins() {
        let mut entries = Entries::default();
        entries.parse(b"1000 10 a b\nnonsense\n0x2000 20 c\n");
        entries.settle();
        assert_eq!(entries.find(0x1001), Some("a b"));
        entries.parse(b"1000 20 d\xff\nffffffffffffffff 9 e\n3000 1\n");
        entries.settle();
        assert_eq!(entries.find(0x1018), Some("d\u{fffd}"));
        assert_eq!(entries.find(0x2000), Some("c"));
        assert_eq!(entries.find(0x2020), None);
        assert_eq!(entries.find(0xfff), None);
    }

    #[test]
    fn own_id_of_this_process() {
        assert_eq!(own_id("/proc/self/status"), Some(std::process::id()));
    }
}
