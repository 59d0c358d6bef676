//! The table of modules: one number for each mapped file, shared between the processes that map it,
//! and what unwinding needs of the file, read once.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions};
use std::io::Read;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use whywait_events::{Frame, Module, ModuleKind, Symbol, UNNAMED_JIT};

use crate::budget::{Budget, Charge};
use crate::cfi::UnwindTables;
use crate::elf::{Elf, ReadAt, Segment};
use crate::go::GoTable;
use crate::interner::Interner;
use crate::maps::{MappedSource, Mapping};
use crate::unread::UnreadRuntime;
use crate::v8::{Constants, EXPORTED, MAX_EXPORTED, V8Image};

/// What is known of an ELF file.
#[derive(Debug)]
pub(crate) struct Image {
    /// The module's id.
    pub(crate) id: u32,
    /// Loadable segments.
    pub(crate) segments: Vec<Segment>,
    /// Unwind tables.
    pub(crate) tables: Option<UnwindTables>,
    /// Go's function table.
    pub(crate) go: Option<GoTable>,
    /// Functions at which a thread starts: no caller.
    pub(crate) starts: Vec<Range<u64>>,
    /// What the file has of the Python interpreter.
    pub(crate) python: Option<PythonImage>,
    /// What the file has of the Ruby interpreter.
    pub(crate) ruby: Option<RubyImage>,
    /// What the file has of PHP's engine.
    pub(crate) php: Option<PhpImage>,
    /// Where the file has the offsets of asyncio's structures (from 3.14).
    pub(crate) asyncio: Option<u64>,
    /// Exported variables with which a runtime describes itself, and their addresses.
    described: Vec<(String, u64)>,
    /// What the file has of V8.
    pub(crate) v8: Option<V8Image>,
    /// Names for frames of the vDSO, which no file on disk has: start, end, name.
    pub(crate) vdso_symbols: Vec<(Range<u64>, String)>,
    charge: Charge,
}

/// Addresses, as the file states them, of what reading the Python interpreter's frames needs.
#[derive(Debug, Clone, Default)]
pub(crate) struct PythonImage {
    /// `_PyRuntime`.
    pub(crate) runtime: u64,
    /// `Py_Version`, from 3.11: the version as a number.
    pub(crate) version: Option<u64>,
    /// `PyCode_Type`, `PyUnicode_Type`, `PyBytes_Type`.
    pub(crate) types: [u64; 3],
    /// The file's name, which holds the version before 3.11.
    pub(crate) file_name: String,
    /// `_PyEval_EvalFrameDefault` and the parts that the compiler split off.
    pub(crate) eval: Vec<Range<u64>>,
}

/// Addresses, as the file states them, of what reading the Ruby interpreter's frames needs.
#[derive(Debug, Clone, Default)]
pub(crate) struct RubyImage {
    /// `ruby_version`: text.
    pub(crate) version: u64,
    /// `ruby_current_vm_ptr`, unless it was stripped off.
    pub(crate) vm: Option<u64>,
    /// `ruby_vm_at_exit`, a function that loads it.
    pub(crate) at_exit: Option<u64>,
    /// Initialised data.
    pub(crate) data: Range<u64>,
}

/// Addresses, as the file states them, of what reading the frames of PHP's engine needs.
#[derive(Debug, Clone, Default)]
pub(crate) struct PhpImage {
    /// `executor_globals`, unless it is built for threads.
    pub(crate) globals: Option<u64>,
    /// `module_registry`.
    pub(crate) modules: u64,
    /// `sapi_module`.
    pub(crate) runs_as: Option<u64>,
    /// `execute_ex` and the parts that the compiler split off.
    pub(crate) execute: Vec<Range<u64>>,
}

/// Symbol tables larger than this are left unread; those of the largest programs are below it.
const MAX_SYMBOLS: u64 = 128 << 20;
const MAX_VDSO: u64 = 256 << 10;
/// Files that are kept open; others are looked for by their paths later.
const MAX_FILES: usize = 96;
/// How much of files is read for all recording: at most some seconds' work.
const MAX_READ: u64 = 4 << 30;
/// Functions at which threads start, or parts of the interpreter's loop.
const MAX_OF_A_KIND: usize = 64;
/// What a file costs beside its tables, without its path.
const FILE: usize = 1024;
/// How the variables begin with which HotSpot describes itself.
const DESCRIBES_HOTSPOT: &[u8] = b"gHotSpotVM";
/// How much of a command line is read for its first word.
const MAX_COMMAND: u64 = 4096;
/// Files that could not be read and are named.
const MAX_UNREADABLE: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct FileKey {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    path: Vec<u8>,
}

/// The module table.
#[derive(Debug)]
pub(crate) struct Modules {
    by_file: HashMap<FileKey, Option<Arc<Image>>>,
    by_build_id: HashMap<(String, Vec<u8>), Arc<Image>>,
    /// Of all kinds but ELF there is one module each.
    special: HashMap<ModuleKind, u32>,
    last_id: u32,
    new: Vec<Module>,
    /// The files of modules, open, so that they can give names however they are called by then.
    files: HashMap<u32, File>,
    /// Files that could not be read, by their paths.
    unreadable: BTreeSet<String>,
    unnamed_jit: Option<Frame>,
    /// Files of interpreters and virtual machines that are read.
    runtimes: BTreeSet<u32>,
    /// Those that whywait does not read, and that have such code.
    unread: BTreeSet<UnreadRuntime>,
    /// Names that must be taken while the process lives.
    pub(crate) symbols: Interner,
    /// For all that is kept of the target.
    pub(crate) budget: Budget,
    /// How much was read of files.
    read: u64,
}

impl Default for Modules {
    fn default() -> Self {
        let budget = Budget::default();
        Self {
            by_file: HashMap::new(),
            by_build_id: HashMap::new(),
            special: HashMap::new(),
            last_id: 0,
            new: Vec::new(),
            files: HashMap::new(),
            unreadable: BTreeSet::new(),
            unnamed_jit: None,
            runtimes: BTreeSet::new(),
            unread: BTreeSet::new(),
            symbols: Interner::new(&budget),
            budget,
            read: 0,
        }
    }
}

impl Image {
    /// The address, as the file states it, of a variable with which a runtime describes itself.
    pub(crate) fn exported(&self, name: &str) -> Option<u64> {
        let found = self.described.iter().find(|(its, _)| its == name)?;
        Some(found.1)
    }
}

impl Modules {
    /// Modules since the last call.
    pub(crate) fn take_new(&mut self) -> Vec<Module> {
        std::mem::take(&mut self.new)
    }

    /// Symbols since the last call.
    pub(crate) fn take_new_symbols(&mut self) -> Vec<Symbol> {
        self.symbols.take_new()
    }

    fn add(&mut self, kind: ModuleKind, build_id: String, path: &[u8]) -> u32 {
        self.last_id += 1;
        let path = String::from_utf8_lossy(path).into_owned();
        self.new.push(Module {
            id: self.last_id,
            kind,
            build_id,
            path,
        });
        self.last_id
    }

    /// The module of frames that are in no file.
    pub(crate) fn special(&mut self, kind: ModuleKind) -> u32 {
        if let Some(&id) = self.special.get(&kind) {
            return id;
        }
        let path: &[u8] = match kind {
            ModuleKind::Kernel => b"[kernel]",
            ModuleKind::Jit => b"[jit]",
            ModuleKind::Python => b"python",
            ModuleKind::Ruby => b"ruby",
            ModuleKind::Php => b"php",
            ModuleKind::Elf | ModuleKind::Unknown => b"[unknown]",
        };
        let id = self.add(kind, String::new(), path);
        self.special.insert(kind, id);
        id
    }

    /// The frame of all just-in-time compiled code of which no name is known: its address would
    /// mean nothing later.
    pub(crate) fn unnamed_jit(&mut self) -> Frame {
        if let Some(frame) = self.unnamed_jit {
            return frame;
        }
        let id = self.special(ModuleKind::Jit);
        let frame = self.symbols.frame(id, UNNAMED_JIT, "", 0);
        self.unnamed_jit = Some(frame);
        frame
    }

    /// Whether a frame is in just-in-time compiled code.
    pub(crate) fn is_compiled(&self, frame: Frame) -> bool {
        self.special.get(&ModuleKind::Jit) == Some(&frame.module)
    }

    /// Whether a frame is that of code without a name.
    pub(crate) fn is_unnamed(&self, frame: Frame) -> bool {
        self.unnamed_jit == Some(frame)
    }

    /// A file has an interpreter or a virtual machine that is read: what its own functions are
    /// called says nothing of the program that it runs.
    pub(crate) fn note_runtime(&mut self, module: u32) {
        self.runtimes.insert(module);
    }

    /// Whether it has.
    pub(crate) fn is_runtime(&self, module: u32) -> bool {
        self.runtimes.contains(&module)
    }

    /// Makes one frame of neighbours in just-in-time compiled code without a name.
    pub(crate) fn join_unnamed(&self, frames: &mut Vec<Frame>) {
        if self.unnamed_jit.is_some() {
            frames.dedup_by(|a, b| a == b && Some(*a) == self.unnamed_jit);
        }
    }

    /// The image of a mapped file. `None`: it could not be opened, or is not an ELF file.
    pub(crate) fn file(&mut self, tgid: u32, mapping: &Mapping, path: &[u8]) -> Option<Arc<Image>> {
        let (place, metadata) = find_file(tgid, mapping, path)?;
        let key = FileKey {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            path: path.to_vec(),
        };
        if let Some(known) = self.by_file.get(&key) {
            return known.clone();
        }
        let image = open_regular(&place).and_then(|file| {
            let shown = executed_as(tgid, path).unwrap_or_else(|| path.to_vec());
            let image = self.read(&file, path, &shown)?;
            if self.files.len() < MAX_FILES {
                self.files.entry(image.id).or_insert(file);
            }
            Some(image)
        });
        if image.is_some() || self.symbols.charge(FILE + path.len()) {
            self.by_file.insert(key, image.clone());
        }
        image
    }

    /// The file of a module, also when it has no name any more.
    pub(crate) fn open_file(&self, module: u32) -> Option<File> {
        self.files.get(&module)?.try_clone().ok()
    }

    /// Code was met in a file that cannot be read.
    pub(crate) fn note_unreadable(&mut self, path: &[u8]) {
        if self.unreadable.len() < MAX_UNREADABLE {
            self.unreadable
                .insert(String::from_utf8_lossy(path).into_owned());
        }
    }

    /// Files with code that could not be read.
    pub(crate) fn unreadable(&self) -> impl Iterator<Item = &str> {
        self.unreadable.iter().map(String::as_str)
    }

    /// There was just-in-time compiled code without a name, of a runtime that is not read.
    pub(crate) fn note_unread(&mut self, runtime: UnreadRuntime) {
        self.unread.insert(runtime);
    }

    /// Those of which there was.
    pub(crate) fn unread(&self) -> impl Iterator<Item = UnreadRuntime> {
        self.unread.iter().copied()
    }

    /// The image of the vDSO, from a copy of its bytes.
    pub(crate) fn vdso(&mut self, bytes: &[u8]) -> Option<Arc<Image>> {
        if bytes.len() as u64 > MAX_VDSO {
            return None;
        }
        self.read(bytes, b"[vdso]", b"[vdso]")
    }

    /// Reads a file, which recordings then have by the path `shown`.
    pub(crate) fn read<R: ReadAt + ?Sized>(
        &mut self,
        file: &R,
        path: &[u8],
        shown: &[u8],
    ) -> Option<Arc<Image>> {
        let elf = Elf::read(file)?;
        let build_id = elf.build_id();
        let key = (build_id.clone(), path.to_vec());
        if !build_id.is_empty()
            && let Some(known) = self.by_build_id.get(&key)
        {
            return Some(known.clone());
        }
        // The path is kept here and there: in keys, and by those who name the frames.
        let mut charge = self.budget.take(FILE + 4 * path.len())?;
        self.read = self.read.saturating_add(elf.to_read());
        if self.read > MAX_READ {
            self.budget.refuse();
            return None;
        }
        let tables = UnwindTables::read(&elf).filter(|tables| charge.grow(tables.bytes()));
        let is_vdso = path == b"[vdso]";
        let mut image = Image {
            id: self.add(ModuleKind::Elf, build_id.clone(), shown),
            segments: elf.segments.clone(),
            tables,
            go: None,
            starts: vec![],
            python: None,
            ruby: None,
            php: None,
            asyncio: elf.section(".AsyncioDebug").map(|section| section.address),
            described: vec![],
            v8: None,
            vdso_symbols: vec![],
            charge,
        };
        let mut python = PythonImage::default();
        let mut ruby = RubyImage::default();
        let mut php = PhpImage::default();
        let mut runtime_text = None;
        let mut constants = Constants::new();
        elf.symbols(MAX_SYMBOLS, |name, address, size| {
            let range = address..address.saturating_add(size.max(1));
            match name {
                // The C library's thread starts: musl's have no unwind data that says so. Several
                // of a name can be local to their files.
                b"_start" | b"_dl_start_user" | b"clone" | b"__clone" | b"clone3" | b"__clone3"
                    if image.starts.len() < MAX_OF_A_KIND =>
                {
                    // `_start` of assembly may have no size; its few instructions fit into this.
                    image
                        .starts
                        .push(range.start..range.end.max(address.saturating_add(32)));
                }
                b"_PyRuntime" => python.runtime = address,
                b"PyCode_Type" => python.types[0] = address,
                b"PyUnicode_Type" => python.types[1] = address,
                b"PyBytes_Type" => python.types[2] = address,
                b"Py_Version" => python.version = Some(address),
                _ if name.starts_with(DESCRIBES_HOTSPOT)
                    && image.described.len() < MAX_OF_A_KIND =>
                {
                    let name = String::from_utf8_lossy(name).into_owned();
                    image.described.push((name, address));
                }
                _ if name.starts_with(EXPORTED) && constants.len() < MAX_EXPORTED => {
                    let name = String::from_utf8_lossy(&name[EXPORTED.len()..]).into_owned();
                    let number = elf.number_at_address(address);
                    constants.extend(number.map(|number| (name, number)));
                }
                b"ruby_version" => ruby.version = address,
                b"ruby_current_vm_ptr" => ruby.vm = Some(address),
                b"ruby_vm_at_exit" => ruby.at_exit = Some(address),
                b"executor_globals" => php.globals = Some(address),
                b"module_registry" => php.modules = address,
                b"sapi_module" => php.runs_as = Some(address),
                b"runtime.text" => runtime_text = Some(address),
                _ if name.starts_with(b"_PyEval_EvalFrameDefault")
                    && python.eval.len() < MAX_OF_A_KIND
                    && !python.eval.contains(&range) =>
                {
                    python.eval.push(range);
                }
                _ if (name == b"execute_ex" || name.starts_with(b"execute_ex."))
                    && php.execute.len() < MAX_OF_A_KIND
                    && !php.execute.contains(&range) =>
                {
                    php.execute.push(range);
                }
                _ if is_vdso && size != 0 => {
                    image
                        .vdso_symbols
                        .push((range, String::from_utf8_lossy(name).into_owned()));
                }
                _ => {}
            }
        });
        if python.runtime != 0 && !python.eval.is_empty() {
            let start = path.iter().rposition(|&b| b == b'/').map_or(0, |i| i + 1);
            python.file_name = String::from_utf8_lossy(&path[start..]).into_owned();
            image.python = Some(python);
        }
        image.v8 = V8Image::of(&constants, image.tables.as_ref());
        if php.modules != 0 && !php.execute.is_empty() {
            image.php = Some(php);
        }
        // Both together: a program that only asks for the version has no interpreter.
        if ruby.version != 0 && ruby.at_exit.is_some() {
            ruby.data = elf.section(".data").map_or(0..0, |data| data.addresses());
            image.ruby = Some(ruby);
        }
        image.go = GoTable::read(&elf, runtime_text).filter(|go| image.charge.grow(go.bytes()));
        let image = Arc::new(image);
        if !build_id.is_empty() {
            self.by_build_id.insert(key, image.clone());
        }
        Some(image)
    }
}

/// The path by which a process was executed, where that is a link to its file beside it: the name
/// that people know it by (Debian's `redis-server` is a link to `redis-check-rdb`).
fn executed_as(tgid: u32, path: &[u8]) -> Option<Vec<u8>> {
    let process = PathBuf::from(format!("/proc/{tgid}"));
    let executable = std::fs::read_link(process.join("exe")).ok()?;
    (executable.as_os_str().as_bytes() == path).then_some(())?;
    let mut command = Vec::new();
    let file = File::open(process.join("cmdline")).ok()?;
    file.take(MAX_COMMAND).read_to_end(&mut command).ok()?;
    // A process that says what it does writes that behind its name.
    let command = command.split(|byte| matches!(byte, 0 | b' ')).next()?;
    let name = OsStr::from_bytes(command.rsplit(|byte| *byte == b'/').next()?);
    let link = executable.with_file_name(name);
    let seen = process.join("root").join(link.strip_prefix("/").ok()?);
    let is_link = std::fs::symlink_metadata(&seen).ok()?.is_symlink();
    let [its, own] = [&seen, &process.join("exe")].map(|path| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.dev(), metadata.ino()))
    });
    (is_link && its.is_some() && its == own).then(|| link.into_os_string().into_vec())
}

/// Where the mapped file can be opened. `map_files` leads to the very file, also when it was
/// deleted or replaced; it needs a capability that a confined recorder may lack, then the path in
/// the process's own mount namespace serves, if the inode is still that of the mapping.
pub(crate) fn find_file(tgid: u32, mapping: &Mapping, path: &[u8]) -> Option<(PathBuf, Metadata)> {
    let Range { start, end } = mapping.range;
    let direct = PathBuf::from(format!("/proc/{tgid}/map_files/{start:x}-{end:x}"));
    if let Ok(metadata) = std::fs::metadata(&direct) {
        return metadata.is_file().then_some((direct, metadata));
    }
    let root = PathBuf::from(format!("/proc/{tgid}/root"));
    // The kernel says both as seen from here. They differ where the process changed its root.
    let from_root = match std::fs::read_link(&root) {
        Ok(of_root) => Path::new(OsStr::from_bytes(path)).strip_prefix(of_root),
        Err(_) => Path::new(OsStr::from_bytes(path)).strip_prefix("/"),
    };
    let by_path = root.join(from_root.ok()?);
    let metadata = std::fs::metadata(&by_path).ok()?;
    (metadata.is_file() && metadata.ino() == mapping.inode).then_some((by_path, metadata))
}

/// Opens a file of which another user may have made a FIFO, a terminal or a device in the meantime:
/// these are not touched.
pub(crate) fn open_regular(path: &std::path::Path) -> Option<File> {
    let place = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open(path)
        .ok()?;
    open_if_regular(&place)
}

/// Opens a file for reading of which there is a descriptor of its place (`O_PATH`).
pub(crate) fn open_if_regular(place: &File) -> Option<File> {
    place.metadata().ok()?.is_file().then_some(())?;
    File::open(format!("/proc/self/fd/{}", place.as_raw_fd())).ok()
}

/// Whether a mapping is of a file that could be an ELF file.
pub(crate) fn file_path(mapping: &Mapping) -> Option<&[u8]> {
    match &mapping.source {
        MappedSource::File(path) => Some(path),
        MappedSource::Vdso | MappedSource::Anonymous => None,
    }
}
