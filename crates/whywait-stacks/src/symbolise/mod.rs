//! Names for frames of ELF files, after the recording.

mod demangle;
mod helper;
mod names;

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use whywait_events::{Frame, Module, ModuleKind, Symbol};

use crate::elf::{Elf, ReadAt};
use crate::modules::{open_if_regular, open_regular};
#[cfg(any(test, fuzzing))]
pub(crate) use demangle::demangled;
pub use helper::{Job, next_job};
use names::{Debug, Named, Question};

/// Gives names to frames of ELF files: function, inlined functions, source file and line as far as
/// the file, or a separate debug file, tells.
///
/// Which file is asked: the debug file of the module's build-id, below the folders that the user
/// named ([`look_below`](Self::look_below)) or `/usr/lib/debug`. Then, for what has no name yet,
/// the very file that was mapped, where it was kept open
/// ([`Unwinder::file`](crate::Unwinder::file)), else the one at the module's path, if its build-id
/// is the module's; a module without a build-id takes a file without one (Go's linker writes none
/// by default) and no other, for nothing better can be checked. Else the frames get no names: a
/// wrong name is worse than none. What these files refer to is not looked for: they are the
/// observed program's.
#[derive(Debug)]
pub struct Symboliser {
    debug: Vec<DebugFolder>,
    /// Reads the files; `None`: this process does.
    helper: Option<UnixStream>,
    /// Time that is left for all files.
    left: Duration,
    /// Bytes that are left for all names.
    room: usize,
    unnamed: Vec<Unnamed>,
    failures: u64,
}

/// Frames of a module that got no names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unnamed {
    /// The module's id.
    pub module: u32,
    /// How many frames.
    pub frames: usize,
    /// Why.
    pub why: WhyUnnamed,
}

/// Why frames of an ELF file got no names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhyUnnamed {
    /// The file was deleted or replaced, and there is no debug file.
    Gone,
    /// The file has no names for them: it is stripped, and there is no debug file.
    Stripped,
    /// Its symbols are no functions' there: GHC says of Haskell's that they are data.
    NoFunctions,
    /// Reading them failed: see [`Symboliser::failures`].
    Failed,
}

const DEBUG: &str = "/usr/lib/debug";
/// For all files: a quick machine names the frames of the largest programs in a second.
const TIME: Duration = Duration::from_secs(8);
/// For all names: some 500,000.
const ROOM: usize = 64 << 20;
/// A file of which less than this part is on the disk is one of holes: reading it costs memory and
/// time that it did not cost its maker. Compressing file systems save less.
const LEAST_ON_DISK: u64 = 16;

impl Default for Symboliser {
    fn default() -> Self {
        Self {
            debug: DebugFolder::open(DEBUG.into()).into_iter().collect(),
            helper: None,
            left: TIME,
            room: ROOM,
            unnamed: Vec::new(),
            failures: 0,
        }
    }
}

impl Symboliser {
    /// Makes a symboliser that reads the files itself, and looks for separate debug files below
    /// `/usr/lib/debug`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Looks for separate debug files below this folder, too, and there first. They are at
    /// `FOLDER/.build-id/ab/cdef….debug`, or a link there leads to them within the folder.
    ///
    /// # Errors
    /// Fails when there is no such folder.
    pub fn look_below(&mut self, folder: &Path) -> io::Result<()> {
        self.debug
            .insert(0, DebugFolder::open(folder.canonicalize()?)?);
        Ok(())
    }

    /// Has the files read by another process, at the other end of this socket, which takes them
    /// with [`next_job`].
    pub fn with_helper(helper: UnixStream) -> Self {
        Self {
            helper: Some(helper),
            ..Self::default()
        }
    }

    /// Names of those `frames` that are in the ELF files among `modules`; frames without a name are
    /// left out, and counted by [`unnamed`](Self::unnamed). A frame need be given once only.
    /// `mapped` may give the very file that was mapped.
    ///
    /// Each file is asked for all its addresses and closed, the one with most of them first, so
    /// that memory holds one file's debug data at a time.
    pub fn symbolise(
        &mut self,
        modules: &[Module],
        frames: &[Frame],
        mapped: Option<&dyn Fn(u32) -> Option<File>>,
    ) -> Vec<Symbol> {
        let mut addresses: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for frame in frames {
            addresses
                .entry(frame.module)
                .or_default()
                .push(frame.address);
        }
        let of_files = modules.iter().filter(|m| m.kind == ModuleKind::Elf);
        let mut asked: Vec<(&Module, Vec<u64>)> = of_files
            .filter_map(|module| Some((module, addresses.remove(&module.id)?)))
            .collect();
        for (_, addresses) in &mut asked {
            addresses.sort_unstable();
            addresses.dedup();
        }
        asked.sort_by_key(|(_, addresses)| std::cmp::Reverse(addresses.len()));
        let mut symbols = Vec::new();
        for (module, addresses) in asked {
            let mapped = mapped.and_then(|mapped| mapped(module.id));
            self.name(module, addresses, mapped, &mut symbols);
        }
        symbols
    }

    /// Which frames got no names, by module, in the order in which that was found out.
    pub fn unnamed(&self) -> &[Unnamed] {
        &self.unnamed
    }

    /// How often reading a file's names failed: it took too much time or memory, whoever read it
    /// died of it, names were cut short, or a debug file was not opened.
    pub fn failures(&self) -> u64 {
        self.failures
    }

    fn name(
        &mut self,
        module: &Module,
        mut addresses: Vec<u64>,
        mapped: Option<File>,
        symbols: &mut Vec<Symbol>,
    ) {
        let before = self.failures;
        let mut why = WhyUnnamed::Gone;
        for (file, debug) in self.files_of(module, mapped) {
            if addresses.is_empty() {
                return;
            }
            why = match Elf::read(&file).is_some_and(|elf| elf.section(".symtab").is_some()) {
                true => WhyUnnamed::NoFunctions,
                false => WhyUnnamed::Stripped,
            };
            let named = self.ask(&file, debug, &addresses);
            let found: HashSet<u64> = named.iter().map(|it| addresses[it.at as usize]).collect();
            symbols.extend(named.into_iter().map(|it| it.symbol(module.id, &addresses)));
            addresses.retain(|address| !found.contains(address));
        }
        if self.failures > before {
            why = WhyUnnamed::Failed;
        }
        if !addresses.is_empty() {
            self.unnamed.push(Unnamed {
                module: module.id,
                frames: addresses.len(),
                why,
            });
        }
    }

    /// The files to ask, and what of them may be read.
    fn files_of(&self, module: &Module, mapped: Option<File>) -> Vec<(File, Debug)> {
        let path = Path::new(&module.path);
        let own = mapped.or_else(|| {
            let at_path = path.is_absolute().then(|| open_regular(path))??;
            has_build_id(&at_path, &module.build_id).then_some(at_path)
        });
        let debug = self.debug_file(module).map(|file| (file, Debug::Installed));
        debug
            .into_iter()
            .chain(own.map(|file| (file, Debug::Own)))
            .collect()
    }

    /// The debug file of the module's build-id.
    fn debug_file(&self, module: &Module) -> Option<File> {
        let (first, rest) = module.build_id.split_at_checked(2)?;
        if !module.build_id.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let path = format!(".build-id/{first}/{rest}.debug");
        let mut found = self.debug.iter().filter_map(|folder| folder.file(&path));
        found.find(|file| has_build_id(file, &module.build_id))
    }

    /// Names by a file; where its debug data is the death of whoever reads it, by its symbols
    /// alone.
    fn ask(&mut self, file: &File, debug: Debug, addresses: &[u64]) -> Vec<Named> {
        if is_of_holes(file) {
            self.failures += 1;
            return Vec::new();
        }
        for debug in [debug, Debug::None] {
            let question = Question {
                addresses: addresses.into(),
                debug,
                installed: self.debug.iter().map(|it| it.path.clone()).collect(),
            };
            let begun = Instant::now();
            let answer = match &self.helper {
                None => Some(question.names(file)),
                // Half of what is left: one file does not take all of it.
                Some(helper) => helper::ask(helper, file, &question, self.left / 2).ok(),
            };
            let took = begun.elapsed();
            if let Some(answer) = answer {
                self.failures = self.failures.saturating_add(answer.lost.into());
                return self.as_many_as_fit(answer.named);
            }
            self.failures += 1;
            self.left = self.left.saturating_sub(took);
        }
        Vec::new()
    }

    fn as_many_as_fit(&mut self, mut named: Vec<Named>) -> Vec<Named> {
        let fit = named.iter().position(|it| {
            let left = self.room.checked_sub(it.bytes());
            self.room = left.unwrap_or(self.room);
            left.is_none()
        });
        if let Some(fit) = fit {
            named.truncate(fit);
            self.failures += 1;
        }
        named
    }
}

/// A folder of debug files, whatever takes its name meanwhile.
#[derive(Debug)]
struct DebugFolder {
    path: PathBuf,
    folder: OwnedFd,
}

impl DebugFolder {
    fn open(path: PathBuf) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(&path, flags, Mode::empty())?;
        Ok(Self { path, folder })
    }

    /// A file of it; one that links lead to only where they stay below the folder.
    fn file(&self, path: &str) -> Option<File> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let place = openat2(&self.folder, path, flags, Mode::empty(), beneath).ok()?;
        open_if_regular(&File::from(place))
    }
}

fn has_build_id(file: &File, build_id: &str) -> bool {
    Elf::<File>::read(file).is_some_and(|elf| elf.build_id() == build_id)
}

fn is_of_holes(file: &File) -> bool {
    // Whole blocks are counted: a small file has more of them than it needs.
    file.metadata()
        .is_ok_and(|found| found.blocks().saturating_mul(512) < ReadAt::len(file) / LEAST_ON_DISK)
}
