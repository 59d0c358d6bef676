//! Names of just-in-time compiled code, from the map that many runtimes write for perf
//! (`tools/perf/Documentation/jit-interface.txt`: lines of `START SIZE name`, both in hex).

use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::modules::open_regular;

/// A process's map, read when a name is first asked for, and further when it has grown.
#[derive(Debug)]
pub(crate) struct PerfMap {
    tgid: u32,
    entries: Vec<(u64, u64, String)>,
    looked_at: Option<Instant>,
    /// The file, by its device and number, and how much of it was read: whole lines.
    read: ((u64, u64), u64),
}

const LOOK_AFTER: Duration = Duration::from_secs(1);
/// When a name is missing: it may have come since.
const LOOK_FOR_MISSING_AFTER: Duration = Duration::from_millis(100);
const MAX_BYTES: u64 = 64 << 20;
const MAX_NAME: usize = 512;

impl PerfMap {
    pub(crate) fn new(tgid: u32) -> Self {
        Self {
            tgid,
            entries: vec![],
            looked_at: None,
            read: ((0, 0), 0),
        }
    }

    /// The name of the code at an address of the process.
    pub(crate) fn name(&mut self, address: u64) -> Option<&str> {
        // Code is compiled and thrown away all the time: also a name that is there may have become
        // another.
        let after = match find(&self.entries, address) {
            Some(_) => LOOK_AFTER,
            None => LOOK_FOR_MISSING_AFTER,
        };
        if self.looked_at.is_none_or(|at| at.elapsed() >= after) {
            self.looked_at = Some(Instant::now());
            self.read_on();
        }
        find(&self.entries, address)
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
            self.entries.clear();
        }
        if length == self.read.1 {
            return None;
        }
        let mut text = vec![0; (length - self.read.1) as usize];
        file.read_exact_at(&mut text, self.read.1).ok()?;
        // A line may be written just now.
        let lines = text.iter().rposition(|&b| b == b'\n')? + 1;
        self.read.1 += lines as u64;
        let entries = std::mem::take(&mut self.entries);
        self.entries = join(entries, parse(&text[..lines]));
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

type Entries = Vec<(u64, u64, String)>;

fn parse(text: &[u8]) -> Entries {
    let mut entries = Vec::new();
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
        let name = String::from_utf8_lossy(&name[..name.len().min(MAX_NAME)]).into_owned();
        entries.push((start, start.saturating_add(size), name));
    }
    entries
}

/// Entries by address, with later ones added.
fn join(mut entries: Entries, later: Entries) -> Entries {
    entries.extend(later);
    // Later lines replace earlier ones for the same code. The sort is stable.
    entries.sort_by_key(|&(start, ..)| start);
    entries.reverse();
    entries.dedup_by_key(|&mut (start, ..)| start);
    entries.reverse();
    entries
}

fn find(entries: &[(u64, u64, String)], address: u64) -> Option<&str> {
    let after = entries.partition_point(|&(start, ..)| start <= address);
    let (_, end, name) = entries.get(after.checked_sub(1)?)?;
    (address < *end).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_line_wins() {
        let entries = parse(b"1000 10 a b\nnonsense\n0x2000 20 c\n");
        let later = parse(b"1000 20 d\xff\nffffffffffffffff 9 e\n3000 1\n");
        let entries = join(join(vec![], entries), later);
        assert_eq!(find(&entries, 0x1018), Some("d\u{fffd}"));
        assert_eq!(find(&entries, 0x2000), Some("c"));
        assert_eq!(find(&entries, 0x2020), None);
        assert_eq!(find(&entries, 0xfff), None);
    }

    #[test]
    fn own_id_of_this_process() {
        assert_eq!(own_id("/proc/self/status"), Some(std::process::id()));
    }
}
