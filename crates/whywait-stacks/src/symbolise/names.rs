//! Names of addresses in one file, which the observed program may have made for the purpose.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use blazesym::symbolize::source::{Elf as ElfSource, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolizer};
use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};
use whywait_events::{Frame, Symbol};

use super::demangle::demangled;
use crate::elf::Elf;
use crate::go::GoTable;

/// Bytes of a function's or a source file's name.
pub(super) const MAX_NAME: usize = 4096;
pub(super) const MAX_DEPTH: usize = 256;
/// Bytes of all names of a file.
const MAX_NAMES: usize = 16 << 20;
/// A file that only its descriptor gives access to is copied; larger ones are not.
const MAX_COPY: u64 = 128 << 20;

/// What is asked of a file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Question<'a> {
    /// In ascending order, as the file states them.
    pub(super) addresses: Cow<'a, [u64]>,
    pub(super) debug: Debug,
    /// Where separate debug files are.
    pub(super) installed: Vec<PathBuf>,
}

/// Which debug data may be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Debug {
    /// None: symbols only.
    None,
    /// The file's own. Of one that refers to other files, which it could choose, none.
    Own,
    /// The file is one of the debug files, as what it refers to is.
    Installed,
}

/// What a file gives.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Answer {
    /// By address and depth.
    pub(super) named: Vec<Named>,
    /// Names that were cut short or left out, tables that could not be read, and debug files that
    /// the file wanted read and may not choose.
    pub(super) lost: u32,
}

/// A function at an address.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Named {
    /// Which of the addresses.
    pub(super) at: u32,
    pub(super) depth: u16,
    pub(super) name: String,
    pub(super) file: String,
    pub(super) line: u32,
}

impl Named {
    pub(super) fn symbol(self, module: u32, addresses: &[u64]) -> Symbol {
        Symbol {
            frame: Frame {
                module,
                address: addresses[self.at as usize],
            },
            depth: self.depth,
            name: self.name,
            file: self.file,
            line: self.line,
        }
    }

    /// About how much memory it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.name.len() + self.file.len()
    }
}

impl Question<'_> {
    /// The names that the file gives.
    pub(super) fn names(&self, file: &File) -> Answer {
        let mut answer = match self.of_symbols(file) {
            Some(answer) => answer,
            None => Answer {
                lost: u32::from(!is_of_another_kind(file)),
                ..Answer::default()
            },
        };
        if self.debug == Debug::Own && names_a_path(file) {
            answer.lose();
        }
        let mut missing = vec![true; self.addresses.len()];
        for it in &answer.named {
            missing[it.at as usize] = false;
        }
        let missing = (0u32..)
            .zip(self.addresses.iter().copied())
            .filter(|(at, _)| missing[*at as usize]);
        answer.add_of_go(file, &missing.collect::<Vec<_>>());
        answer.named.sort_by_key(|it| (it.at, it.depth));
        let mut room = MAX_NAMES;
        let fit = answer.named.iter().position(|it| {
            let left = room.checked_sub(it.bytes());
            room = left.unwrap_or(room);
            left.is_none()
        });
        if let Some(fit) = fit {
            answer.named.truncate(fit);
            answer.lose();
        }
        answer
    }

    /// `None`: the file's tables cannot be read.
    fn of_symbols(&self, file: &File) -> Option<Answer> {
        let own = Path::new("/proc/self/fd");
        let path = own.join(file.as_raw_fd().to_string());
        if File::open(&path).is_ok() {
            return self.of_path(&path, file);
        }
        // Whoever reads it may not open it.
        let copy = copy_of(file).ok()?;
        self.of_path(&own.join(copy.as_raw_fd().to_string()), file)
    }

    fn of_path(&self, path: &Path, file: &File) -> Option<Answer> {
        let with_debug = match self.debug {
            Debug::None => false,
            Debug::Own => !refers_to_others(file),
            Debug::Installed => true,
        };
        let of = |debug_syms| {
            // Debug data may hold anything.
            let named = || self.by_blazesym(path, debug_syms);
            catch_unwind(AssertUnwindSafe(named)).unwrap_or_default()
        };
        if with_debug && let Some(answer) = of(true) {
            return Some(answer);
        }
        of(false)
    }

    fn by_blazesym(&self, path: &Path, debug_syms: bool) -> Option<Answer> {
        let symbolizer = Symbolizer::builder()
            .enable_auto_reload(false)
            .set_debug_dirs(Some(&self.installed))
            .build();
        let mut source = ElfSource::new(path);
        source.debug_syms = debug_syms;
        let found = symbolizer
            .symbolize(&Source::Elf(source), Input::VirtOffset(&self.addresses))
            .ok()?;
        let mut answer = Answer::default();
        for (at, symbol) in (0..self.addresses.len() as u32).zip(found) {
            if let Some(symbol) = symbol.into_sym() {
                answer.add(at, &symbol);
            }
        }
        Some(answer)
    }
}

impl Answer {
    /// The function and those inlined into it at an address, innermost first.
    fn add(&mut self, at: u32, found: &Sym<'_>) {
        let inlined = found
            .inlined
            .iter()
            .rev()
            .map(|f| (&f.name, f.code_info.as_ref()));
        let all = inlined.chain([(&found.name, found.code_info.as_deref())]);
        for (depth, (name, code)) in all.take(MAX_DEPTH).enumerate() {
            let (file, line) = code.map_or_else(Default::default, place_in_source);
            let named = Named {
                at,
                depth: depth as u16,
                name: self.cut(demangled(name)),
                file: self.cut(file),
                line,
            };
            self.named.push(named);
        }
    }

    /// A stripped Go program still has its own table.
    fn add_of_go(&mut self, file: &File, missing: &[(u32, u64)]) {
        if missing.is_empty() {
            return;
        }
        let table = || GoTable::read(&Elf::<File>::read(file)?, None);
        let Some(table) = table() else { return };
        for &(at, address) in missing {
            let Some(name) = table.name(address) else {
                continue;
            };
            let named = Named {
                at,
                depth: 0,
                name: self.cut(name),
                file: String::new(),
                line: 0,
            };
            self.named.push(named);
        }
    }

    fn cut(&mut self, mut text: String) -> String {
        if text.len() > MAX_NAME {
            let mut end = MAX_NAME;
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            text.truncate(end);
            self.lose();
        }
        text
    }

    fn lose(&mut self) {
        self.lost = self.lost.saturating_add(1);
    }
}

/// How the JVM's archives of classes begin, in which it runs code (`cds.h`: static, dynamic), and
/// the files of .NET and Windows.
const OTHER_KINDS: [&[u8]; 3] = [b"\xa2\xab\x0b\xf0", b"\xa8\xab\x0b\xf0", b"MZ"];

/// Whether it is known to be no ELF file, and so has no names that could be lost.
fn is_of_another_kind(file: &File) -> bool {
    let mut begins = [0; 4];
    let read = file.read_exact_at(&mut begins, 0).is_ok();
    read && OTHER_KINDS.iter().any(|kind| begins.starts_with(kind))
}

/// Whether a file names a place for its debug file, where linkers write a name alone: such a file
/// is not opened, as the target could choose any.
fn names_a_path(file: &File) -> bool {
    let link = || {
        let elf = Elf::<File>::read(file)?;
        elf.data(elf.section(".gnu_debuglink")?, MAX_NAME as u64)
    };
    // Behind the name are zeros and a checksum of any bytes.
    let name = |link: &[u8]| link.split(|byte| *byte == 0).next().map(<[u8]>::to_vec);
    link().is_some_and(|link| name(&link).is_some_and(|name| name.contains(&b'/')))
}

/// Whether a file refers to others for its debug data; or may, for its sections cannot be read.
fn refers_to_others(file: &File) -> bool {
    let Some(elf) = Elf::<File>::read(file) else {
        return true;
    };
    // The first one is none.
    let nameless = elf.sections.iter().skip(1).any(|it| it.name.is_empty());
    let links = [".gnu_debuglink", ".gnu_debugaltlink", ".debug_sup"];
    elf.sections.is_empty() || nameless || links.iter().any(|link| elf.section(link).is_some())
}

fn copy_of(file: &File) -> io::Result<File> {
    let mut copy = File::from(memfd_create("names", MemfdFlags::CLOEXEC)?);
    if file.metadata()?.len() > MAX_COPY {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    io::copy(&mut file.take(MAX_COPY), &mut copy)?;
    Ok(copy)
}

fn place_in_source(code: &CodeInfo<'_>) -> (String, u32) {
    (
        code.to_path().to_string_lossy().into_owned(),
        code.line.unwrap_or(0),
    )
}
