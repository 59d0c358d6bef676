//! Names for frames of ELF files, after the recording.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use blazesym::symbolize::source::{Elf as ElfSource, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolizer};
use whywait_events::{Frame, Module, ModuleKind, Symbol};

use crate::elf::Elf;
use crate::go::GoTable;
use crate::modules::open_regular;

/// Gives names to frames of ELF files: function, inlined functions, source file and line as far as
/// the file, or a separate debug file under `/usr/lib/debug`, tells.
///
/// Which file is asked: the very file that was mapped, where it was kept open
/// ([`Unwinder::place`](crate::Unwinder::place)), by its path as long as it has it. Else the one at
/// the module's path, if its build-id is the module's; a module without a build-id takes a file
/// without one (Go's linker writes none by default) and no other, for nothing better can be
/// checked. If that file is another one by now, or gone, the debug file of the module's build-id
/// serves. Else the frames get no names: a wrong name is worse than none.
#[derive(Debug, Default)]
pub struct Symboliser {
    debug: Option<PathBuf>,
    unnamed: Vec<Unnamed>,
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
}

const DEBUG: &str = "/usr/lib/debug";
const MAX_NAME: usize = 4096;
const MAX_DEPTH: usize = 256;

impl Symboliser {
    /// Makes a symboliser that looks for separate debug files in `/usr/lib/debug`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Looks for separate debug files in another directory (laid out as
    /// `DIRECTORY/.build-id/ab/cdef….debug`).
    pub fn with_debug_directory(directory: impl Into<PathBuf>) -> Self {
        Self {
            debug: Some(directory.into()),
            ..Self::default()
        }
    }

    /// Names of those `frames` that are in the ELF files among `modules`; frames without a name are
    /// left out, and counted by [`unnamed`](Self::unnamed). A frame need be given once only.
    /// `place` may say where the very file that was mapped can be opened.
    ///
    /// Each file is opened once, asked for all its addresses and closed, so that memory holds one
    /// file's debug data at a time.
    pub fn symbolise(
        &mut self,
        modules: &[Module],
        frames: &[Frame],
        place: Option<&dyn Fn(u32) -> Option<PathBuf>>,
    ) -> Vec<Symbol> {
        let mut addresses: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for frame in frames {
            addresses
                .entry(frame.module)
                .or_default()
                .push(frame.address);
        }
        let mut symbols = Vec::new();
        for module in modules.iter().filter(|m| m.kind == ModuleKind::Elf) {
            let Some(mut addresses) = addresses.remove(&module.id) else {
                continue;
            };
            addresses.sort_unstable();
            addresses.dedup();
            let Some(path) = self.file_of(module, place.and_then(|place| place(module.id))) else {
                self.unnamed.push(Unnamed {
                    module: module.id,
                    frames: addresses.len(),
                    why: WhyUnnamed::Gone,
                });
                continue;
            };
            // Debug data comes from the observed program.
            let named = catch_unwind(AssertUnwindSafe(|| {
                self.names(module.id, &path, &addresses)
            }))
            .unwrap_or_default();
            let with_name = named.iter().filter(|symbol| symbol.depth == 0).count();
            if with_name < addresses.len() {
                self.unnamed.push(Unnamed {
                    module: module.id,
                    frames: addresses.len() - with_name,
                    why: WhyUnnamed::Stripped,
                });
            }
            symbols.extend(named);
        }
        symbols
    }

    /// Which frames got no names, by module, in the order in which that was found out.
    pub fn unnamed(&self) -> &[Unnamed] {
        &self.unnamed
    }

    /// The file to ask.
    fn file_of(&self, module: &Module, mapped: Option<PathBuf>) -> Option<PathBuf> {
        let path = PathBuf::from(&module.path);
        if let Some(mapped) = mapped {
            // By its path, debug files beside it are found.
            let kept = path.is_absolute() && is_same_file(&path, &mapped);
            return if kept {
                Some(path)
            } else {
                self.debug_file(module).or(Some(mapped))
            };
        }
        if path.is_absolute() && build_id(&path).is_some_and(|id| id == module.build_id) {
            return Some(path);
        }
        self.debug_file(module)
    }

    /// The debug file of the module's build-id.
    fn debug_file(&self, module: &Module) -> Option<PathBuf> {
        let (first, rest) = module.build_id.split_at_checked(2)?;
        if !module.build_id.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let debug = self
            .debug_directory()
            .join(format!(".build-id/{first}/{rest}.debug"));
        build_id(&debug)
            .is_some_and(|id| id == module.build_id)
            .then_some(debug)
    }

    fn debug_directory(&self) -> &Path {
        self.debug.as_deref().unwrap_or(Path::new(DEBUG))
    }

    fn names(&self, module: u32, path: &Path, addresses: &[u64]) -> Vec<Symbol> {
        let symbolizer = Symbolizer::builder()
            .enable_auto_reload(false)
            .set_debug_dirs(Some([self.debug_directory()]))
            .build();
        let source = Source::Elf(ElfSource::new(path));
        let found = symbolizer
            .symbolize(&source, Input::VirtOffset(addresses))
            .unwrap_or_default();
        let mut symbols = Vec::new();
        let mut unnamed = Vec::new();
        let mut found = found.into_iter();
        for &address in addresses {
            let frame = Frame { module, address };
            match found.next().and_then(|found| found.into_sym()) {
                Some(symbol) => push(&mut symbols, frame, &symbol),
                None => unnamed.push(frame),
            }
        }
        symbols.extend(go_names(path, &unnamed));
        symbols
    }
}

fn build_id(path: &Path) -> Option<String> {
    Some(Elf::<File>::read(&open_regular(path)?)?.build_id())
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| {
        let found = std::fs::metadata(path).ok()?;
        Some((found.dev(), found.ino()))
    };
    place(one).is_some_and(|it| Some(it) == place(other))
}

/// The function and those inlined into it at a frame's address, innermost first.
fn push(symbols: &mut Vec<Symbol>, frame: Frame, found: &Sym<'_>) {
    let inlined = found
        .inlined
        .iter()
        .rev()
        .map(|f| (&f.name, f.code_info.as_ref()));
    let all = inlined.chain([(&found.name, found.code_info.as_deref())]);
    for (depth, (name, code)) in all.take(MAX_DEPTH).enumerate() {
        let (file, line) = code.map_or_else(Default::default, place_in_source);
        let name = name.chars().take(MAX_NAME).collect();
        symbols.push(Symbol {
            frame,
            depth: depth as u16,
            name,
            file,
            line,
        });
    }
}

fn place_in_source(code: &CodeInfo<'_>) -> (String, u32) {
    (
        code.to_path()
            .to_string_lossy()
            .chars()
            .take(MAX_NAME)
            .collect(),
        code.line.unwrap_or(0),
    )
}

/// A stripped Go program still has its own table.
fn go_names(path: &Path, frames: &[Frame]) -> Vec<Symbol> {
    let table = || GoTable::read(&Elf::<File>::read(&open_regular(path)?)?, None);
    if frames.is_empty() {
        return vec![];
    }
    let Some(table) = table() else { return vec![] };
    let symbol = |&frame: &Frame| {
        let name = table.name(frame.address)?;
        Some(Symbol {
            frame,
            depth: 0,
            name,
            file: String::new(),
            line: 0,
        })
    };
    frames.iter().filter_map(symbol).collect()
}
