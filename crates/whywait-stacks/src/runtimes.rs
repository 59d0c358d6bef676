//! Language runtimes that keep the task for which a thread works where it can be read.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;

use crate::elf::{Elf, ReadAt, Segment};
use crate::go::GoTable;
use crate::maps;

/// So many programs are remembered.
const MAX_PROGRAMS: usize = 4096;

/// Knows programs by their files, each of which is looked at once.
#[derive(Debug, Default)]
pub struct Runtimes {
    /// By device and inode; `None`: not Go.
    go: HashMap<(u64, u64), Option<GoCode>>,
}

/// Where a Go program's code is, as its file states addresses.
#[derive(Debug, Clone)]
struct GoCode {
    code: Range<u64>,
    segments: Vec<Segment>,
}

impl Runtimes {
    /// Whether a process's program is an interpreter of which functions can be copied with stacks
    /// (Python, PHP), by its name.
    pub fn is_interpreter(tgid: u32) -> bool {
        std::fs::read_link(format!("/proc/{tgid}/exe")).is_ok_and(|program| {
            let name = program.file_name().unwrap_or_default();
            let name = name.as_encoded_bytes();
            name.starts_with(b"python") || name.starts_with(b"php")
        })
    }

    /// Where the Go code of a process is; `None`: its program is not Go's, or of a version before
    /// 1.18, which kept no goroutine in a register everywhere.
    pub fn go_code(&mut self, tgid: u32) -> Option<Range<u64>> {
        let file = File::open(format!("/proc/{tgid}/exe")).ok()?;
        let metadata = file.metadata().ok()?;
        let key = (metadata.dev(), metadata.ino());
        if !self.go.contains_key(&key) {
            if self.go.len() >= MAX_PROGRAMS {
                self.go.clear();
            }
            self.go.insert(key, GoCode::of(&file));
        }
        let go = self.go.get(&key)?.as_ref()?;
        let mapped = maps::read(tgid).ok()?;
        // The file's executable mapping: the one that has the code, where it was moved to.
        mapped
            .found
            .iter()
            .filter(|mapping| mapping.inode == metadata.ino())
            .find_map(|mapping| {
                let bias = Elf::<File>::bias(&go.segments, mapping.range.start, mapping.offset)?;
                let code = go.code.start.wrapping_add(bias)..go.code.end.wrapping_add(bias);
                mapping.range.contains(&code.start).then_some(code)
            })
    }
}

impl GoCode {
    fn of<R: ReadAt + ?Sized>(file: &R) -> Option<Self> {
        let elf = Elf::read(file)?;
        let code = GoTable::code_of(&elf)?;
        Some(Self {
            code,
            segments: elf.segments,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_go_program_has_no_goroutines() {
        let mut runtimes = Runtimes::default();
        assert_eq!(runtimes.go_code(std::process::id()), None);
        assert_eq!(runtimes.go.len(), 1, "it is not looked at again");
        assert_eq!(runtimes.go_code(std::process::id()), None);
        assert_eq!(runtimes.go_code(u32::MAX), None);
    }
}
