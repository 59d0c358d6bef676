//! One process: its mappings, and what is known of each code address seen in it.

use std::collections::HashMap;
use std::fs::File;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use whywait_events::{Frame, ModuleKind};

use crate::arch;
use crate::budget::{Budget, Charge};
use crate::cfi::{UnwindContext, UnwindRow};
#[cfg(target_arch = "x86_64")]
use crate::code::{self, CodeExit};
use crate::elf::Elf;
use crate::go::GoFrame;
use crate::goroutine;
use crate::goroutines::GoroutineList;
use crate::hotspot::HotSpot;
use crate::loss::{Loss, Losses};
use crate::managed::{HOTSPOT, Managed, ManagedFrames, ManagedPlace};
use crate::maps::{self, MappedSource, Mapping, Mappings};
use crate::modules::{Image, Modules, file_path};
use crate::perf_map::PerfMap;
use crate::unread::UnreadRuntime;
use crate::v8::{V8, V8Code, V8Image};

/// How to leave the frame at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameExit {
    /// framehop knows, by the unwind tables.
    Tables {
        /// They refer to the frame pointer.
        by_frame_pointer: bool,
    },
    /// By the frame pointer: nothing else is known.
    FramePointer,
    /// There are no tables; its code may say how.
    NoTables,
    /// As its code is about to do.
    #[cfg(target_arch = "x86_64")]
    Code(CodeExit),
    /// By Go's table.
    Go(GoFrame),
    /// Out of a signal handler.
    Signal,
    /// Nowhere: the thread starts here.
    Start,
    /// The tables are not to be trusted.
    Refused,
}

/// A code address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CodeAddress {
    /// Its frame.
    pub(crate) frame: Frame,
    /// How to leave it.
    pub(crate) step: FrameExit,
}

struct Mapped {
    mapping: Mapping,
    /// `None`: not looked at yet.
    image: Option<Option<(Arc<Image>, u64)>>,
}

impl Mapped {
    /// Whether its code was made while the program ran. A runtime that maps it twice, once to write
    /// it, has it in a file of memory (Erlang's, .NET's); a program may be started from one, too.
    fn is_made(&self) -> bool {
        match &self.mapping.source {
            MappedSource::Anonymous => true,
            MappedSource::File(path) => {
                path.starts_with(b"/memfd:") && matches!(self.image, Some(None))
            }
            MappedSource::Vdso => false,
        }
    }
}

/// A process.
pub(crate) struct Process {
    tgid: u32,
    mapped: Vec<Mapped>,
    /// For the mappings.
    charge: Charge,
    read_at: Instant,
    /// How long reading the mappings took.
    reading_took: Duration,
    rereads: u32,
    /// framehop's modules: the mappings that were looked at.
    pub(crate) unwinder: arch::Unwinder<Arc<[u8]>>,
    /// framehop's cache. Its entries are keyed by a 16-bit count of module changes, which can
    /// wrap in a long recording: so each process has its own, and a new one with each change.
    pub(crate) cache: arch::Cache,
    places: HashMap<u64, CodeAddress, BuildHasherDefault<AddressHasher>>,
    places_charge: Charge,
    /// How functions without tables go on from an address.
    #[cfg(target_arch = "x86_64")]
    code_exits: HashMap<u64, Option<CodeExit>, BuildHasherDefault<AddressHasher>>,
    perf_map: PerfMap,
    memory: Option<File>,
    /// The runtime that has made code of its own here.
    managed: Managed,
    /// Whether it is known how its goroutines are laid out. `None`: not looked at yet.
    has_goroutines: Option<bool>,
    /// Where they are.
    pub(crate) goroutine_list: GoroutineList,
}

/// Reading `/proc/PID/maps` costs some 100 us of the reader's time and takes the process's map
/// lock.
const REREAD_AFTER: Duration = Duration::from_millis(100);
/// A program that has just begun maps its libraries one after another, and may already sleep: it is
/// looked at more often.
const FIRST_REREAD_AFTER: Duration = Duration::from_micros(500);
const FIRST_REREADS: u32 = 64;
/// Mappings are read in at most one in so many parts of the time.
const READING_SHARE: u32 = 20;
const MAX_PLACES: usize = 1 << 18;
/// Places are charged for in blocks of so many, with what the table takes beside them.
const PLACES_AT_ONCE: usize = 1024;
const PLACE: usize = 2 * size_of::<(u64, CodeAddress)>();
/// Addresses whose code is followed: each takes up to a millisecond. A C library has some hundred
/// at which a thread can be.
#[cfg(target_arch = "x86_64")]
const MAX_CODE_EXITS: usize = 512;
/// What a process takes beside its mappings and places: framehop's cache, above all.
const PROCESS: usize = 64 << 10;

impl Process {
    /// Reads the process's mappings. Fails when it is gone, or has none (a kernel thread), or when
    /// there is no room for it.
    pub(crate) fn open(tgid: u32, budget: &Budget) -> Result<Self, Loss> {
        let mut charge = budget.take(PROCESS).ok_or(Loss::Memory)?;
        let begun = Instant::now();
        let mappings = maps::read(tgid).map_err(|_| Loss::NoMaps)?;
        let mappings = kept(mappings, &mut charge);
        if mappings.is_empty() {
            return Err(Loss::NoMaps);
        }
        Ok(Self::with(tgid, mappings, charge, begun.elapsed(), budget))
    }

    fn with(
        tgid: u32,
        mappings: Vec<Mapping>,
        charge: Charge,
        reading_took: Duration,
        budget: &Budget,
    ) -> Self {
        Self {
            tgid,
            mapped: mappings
                .into_iter()
                .map(|mapping| Mapped {
                    mapping,
                    image: None,
                })
                .collect(),
            charge,
            read_at: Instant::now(),
            reading_took,
            rereads: 0,
            unwinder: arch::Unwinder::new(),
            cache: arch::Cache::new(),
            places: HashMap::default(),
            places_charge: budget.nothing(),
            #[cfg(target_arch = "x86_64")]
            code_exits: HashMap::default(),
            perf_map: PerfMap::new(tgid, budget),
            memory: None,
            managed: Managed::default(),
            has_goroutines: None,
            goroutine_list: GoroutineList::default(),
        }
    }

    /// A process that is not there, with one file mapped.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn of_image(image: Arc<Image>, mapping: Mapping, bias: u64) -> Self {
        let budget = Budget::default();
        let mut process = Self::with(0, vec![mapping], budget.nothing(), Duration::ZERO, &budget);
        process.know(0, Some((image, bias)));
        process
    }

    /// Reads the mappings again, unless that was done a moment ago. Whether it was done, and found
    /// something new.
    pub(crate) fn reread(&mut self) -> bool {
        let wait = if self.rereads < FIRST_REREADS {
            FIRST_REREAD_AFTER
        } else {
            REREAD_AFTER
        };
        let since = self.read_at.elapsed();
        if since < wait || since < self.reading_took * READING_SHARE {
            return false;
        }
        self.rereads += 1;
        let begun = Instant::now();
        let mappings = maps::read(self.tgid);
        self.read_at = Instant::now();
        self.reading_took = begun.elapsed();
        let Ok(mappings) = mappings else {
            return false;
        };
        let old = std::mem::take(&mut self.mapped);
        if old.iter().map(|m| &m.mapping).eq(mappings.found.iter()) {
            self.mapped = old;
            return false;
        }
        self.charge = self.charge.emptied();
        let mappings = kept(mappings, &mut self.charge);
        let mut old: HashMap<u64, Mapped> = old
            .into_iter()
            .map(|m| (m.mapping.range.start, m))
            .collect();
        self.mapped = mappings
            .into_iter()
            .map(|mapping| match old.remove(&mapping.range.start) {
                Some(m) if m.mapping == mapping => m,
                Some(m) => {
                    old.insert(mapping.range.start, m);
                    Mapped {
                        mapping,
                        image: None,
                    }
                }
                None => Mapped {
                    mapping,
                    image: None,
                },
            })
            .collect();
        if matches!(self.managed, Managed::None) {
            self.managed = Managed::NotLookedFor;
        }
        if !old.is_empty() {
            // Something went: forget all places rather than sort out which.
            self.forget_places();
            for gone in old.into_keys() {
                framehop::Unwinder::remove_module(&mut self.unwinder, gone);
            }
            self.cache = arch::Cache::new();
        }
        true
    }

    /// What is at a code address; `None`: no executable mapping.
    pub(crate) fn place(
        &mut self,
        address: u64,
        modules: &mut Modules,
        context: &mut UnwindContext,
    ) -> Option<CodeAddress> {
        if let Some(place) = self.places.get(&address) {
            return Some(*place);
        }
        let index = match self.find(address) {
            Some(index) => index,
            None if self.reread() => self.find(address)?,
            None => return None,
        };
        let Some((image, bias)) = self.image(index, modules) else {
            return Some(CodeAddress {
                frame: self.unnamed(index, address, modules),
                step: FrameExit::FramePointer,
            });
        };
        let svma = address.wrapping_sub(bias);
        let frame = Frame {
            module: image.id,
            address: svma,
        };
        if let Some((_, name)) = image
            .vdso_symbols
            .iter()
            .find(|(range, _)| range.contains(&svma))
        {
            modules.symbols.name_address(frame, name);
        }
        let step = if image.starts.iter().any(|range| range.contains(&svma)) {
            FrameExit::Start
        } else if let Some(go) = image.go.as_ref().and_then(|go| go.frame(svma)) {
            FrameExit::Go(go)
        } else {
            match image
                .tables
                .as_ref()
                .map(|tables| tables.row(svma, context))
            {
                Some(UnwindRow::Usable { by_frame_pointer }) => {
                    FrameExit::Tables { by_frame_pointer }
                }
                Some(UnwindRow::Start) => FrameExit::Start,
                Some(UnwindRow::Signal) => FrameExit::Signal,
                Some(UnwindRow::Refused) => FrameExit::Refused,
                Some(UnwindRow::Missing) | None => FrameExit::NoTables,
            }
        };
        if self.places.len() >= MAX_PLACES
            || self.places.len().is_multiple_of(PLACES_AT_ONCE)
                && !self.places_charge.grow(PLACES_AT_ONCE * PLACE)
        {
            self.forget_places();
        }
        let place = CodeAddress { frame, step };
        self.places.insert(address, place);
        Some(place)
    }

    /// How the function without tables that goes on at an address returns, by its code. `None`: it
    /// does not show.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn code_exit(&mut self, address: u64) -> Option<CodeExit> {
        if let Some(known) = self.code_exits.get(&address) {
            return *known;
        }
        if self.code_exits.len() >= MAX_CODE_EXITS {
            return None;
        }
        let found = code::exit(address, |from, size| self.read_up_to(from, size));
        self.code_exits.insert(address, found);
        found
    }

    fn forget_places(&mut self) {
        // Not only cleared: the room would stay.
        self.places = HashMap::default();
        #[cfg(target_arch = "x86_64")]
        {
            self.code_exits = HashMap::default();
        }
        self.places_charge = self.places_charge.emptied();
    }

    fn find(&self, address: u64) -> Option<usize> {
        find_in(&self.mapped, address)
    }

    /// The frame of code in no file: a just-in-time compiler's, by the name its map gives, or just
    /// by where it is.
    fn unnamed(&mut self, index: usize, address: u64, modules: &mut Modules) -> Frame {
        if !self.mapped[index].is_made() {
            if let Some(path) = file_path(&self.mapped[index].mapping) {
                modules.note_unreadable(path);
            }
            let id = modules.special(ModuleKind::Unknown);
            return modules.symbols.frame(id, "[unreadable file]", "", 0);
        }
        let id = modules.special(ModuleKind::Jit);
        match self.perf_map.name(address) {
            Some(name) => modules.symbols.frame(id, name, "", 0),
            None => modules.unnamed_jit(),
        }
    }

    /// The image of a mapping, read when first asked for.
    fn image(&mut self, index: usize, modules: &mut Modules) -> Option<(Arc<Image>, u64)> {
        if let Some(known) = &self.mapped[index].image {
            return known.clone();
        }
        let found = self.find_image(index, modules);
        self.know(index, found.clone());
        found
    }

    /// Notes the image of a mapping, or that it has none.
    fn know(&mut self, index: usize, found: Option<(Arc<Image>, u64)>) {
        if let Some((image, bias)) = &found
            && let Some(tables) = &image.tables
        {
            let range = self.mapped[index].mapping.range.clone();
            // framehop keeps addresses within a module as u32, from its lowest segment.
            let base = image.segments.iter().map(|s| s.address).min().unwrap_or(0);
            let module = framehop::Module::new(
                String::new(),
                range,
                base.wrapping_add(*bias),
                tables.for_framehop(base),
            );
            framehop::Unwinder::add_module(&mut self.unwinder, module);
            self.cache = arch::Cache::new();
        }
        self.mapped[index].image = Some(found);
    }

    fn find_image(&mut self, index: usize, modules: &mut Modules) -> Option<(Arc<Image>, u64)> {
        let mapping = self.mapped[index].mapping.clone();
        let image = if mapping.source == MappedSource::Vdso {
            let size = usize::try_from(mapping.range.end - mapping.range.start)
                .ok()?
                .min(1 << 18);
            let mut bytes = vec![0; size];
            self.read_memory(mapping.range.start, &mut bytes)
                .then_some(())?;
            modules.vdso(&bytes)?
        } else {
            modules.file(self.tgid, &mapping, file_path(&mapping)?)?
        };
        let bias = Elf::<File>::bias(&image.segments, mapping.range.start, mapping.offset)?;
        Some((image, bias))
    }

    /// What the process's runtime says of a place in code that it made; `None`: nothing.
    pub(crate) fn managed(
        &mut self,
        place: ManagedPlace<'_>,
        modules: &mut Modules,
        losses: &mut Losses,
    ) -> Option<ManagedFrames> {
        if matches!(self.managed, Managed::NotLookedFor) {
            self.managed = match self.index_of_file(HOTSPOT) {
                Some(_) => Managed::Mapped,
                None => self.open_v8(modules, losses),
            };
        }
        match self.managed {
            Managed::Mapped => {
                // Once there is such code the virtual machine is ready to be read.
                let index = self.find(place.address())?;
                if self.image(index, modules).is_some() {
                    return None;
                }
                self.managed = self.open_managed(modules, losses);
            }
            Managed::NotLookedFor | Managed::None | Managed::Refused => return None,
            Managed::HotSpot(_) => {}
            Managed::V8(_) => {
                // As for a place in a file: what was just mapped is not known yet.
                let index = match self.find(place.address()) {
                    None if self.reread() => self.find(place.address()),
                    index => index,
                };
                self.image(index?, modules);
            }
        }
        self.memory()?;
        let memory = self.memory.as_ref()?;
        let mapped = &self.mapped;
        let v8_code = |address| v8_code(mapped, address);
        let found = self
            .managed
            .frames(place, memory, &v8_code, modules, losses);
        let mut found = found.unwrap_or_else(|loss| {
            losses.count(loss);
            None
        })?;
        if found.frames.is_empty() {
            let index = self.find(place.address())?;
            found.frames = [self.unnamed(index, place.address(), modules)].into();
        }
        Some(found)
    }

    fn open_managed(&mut self, modules: &mut Modules, losses: &mut Losses) -> Managed {
        let budget = modules.budget.clone();
        let index = self.index_of_file(HOTSPOT);
        let Some((image, bias)) = index.and_then(|index| self.image(index, modules)) else {
            return Managed::Refused;
        };
        let Some(memory) = self.memory() else {
            return Managed::Refused;
        };
        let symbol = |name: &str| Some(image.exported(name)?.wrapping_add(bias));
        match HotSpot::open(memory, symbol, &budget) {
            Ok(vm) => {
                modules.note_runtime(image.id);
                Managed::HotSpot(Box::new(vm))
            }
            Err(loss) => {
                losses.count(loss);
                Managed::Refused
            }
        }
    }

    /// Whether the code that its runtime made can be read.
    pub(crate) fn reads_managed(&self) -> bool {
        matches!(self.managed, Managed::HotSpot(_) | Managed::V8(_))
    }

    /// Which runtime it has, of those that are not read.
    pub(crate) fn unread_runtime(&self) -> UnreadRuntime {
        let mapped = self.mapped.iter();
        UnreadRuntime::of(mapped.filter_map(|mapped| file_path(&mapped.mapping)))
    }

    /// Whether what a stack refers to may soon be elsewhere.
    pub(crate) fn moves_objects(&self) -> bool {
        matches!(self.managed, Managed::V8(_))
    }

    /// The V8 in the program, or in a library that is called after node.
    fn open_v8(&mut self, modules: &mut Modules, losses: &mut Losses) -> Managed {
        // Where return addresses are on other processors was not tried.
        if cfg!(not(target_arch = "x86_64")) {
            return Managed::None;
        }
        let program = goroutine::program(self.tgid);
        let may_have = |mapping: &Mapping| {
            let path = file_path(mapping).unwrap_or_default();
            let name = path.rsplit(|&b| b == b'/').next().unwrap_or_default();
            Some(mapping.inode) == program || name.starts_with(b"libnode")
        };
        for index in 0..self.mapped.len() {
            if !may_have(&self.mapped[index].mapping) {
                continue;
            }
            let Some((image, _)) = self.image(index, modules) else {
                continue;
            };
            let Some(v8) = image.v8.as_ref() else {
                continue;
            };
            return match V8::open(v8, &modules.budget) {
                Ok(v8) => {
                    modules.note_runtime(image.id);
                    Managed::V8(Box::new(v8))
                }
                Err(loss) => {
                    losses.count(loss);
                    Managed::Refused
                }
            };
        }
        Managed::None
    }

    /// The first mapping of a file of a name.
    fn index_of_file(&self, name: &[u8]) -> Option<usize> {
        self.mapped.iter().position(|m| {
            let path = file_path(&m.mapping);
            path.is_some_and(|path| path.rsplit(|&b| b == b'/').next() == Some(name))
        })
    }

    /// Reads the files whose names begin so, also when no stack led into them yet.
    pub(crate) fn look_for(&mut self, names: &[&[u8]], modules: &mut Modules) {
        for index in 0..self.mapped.len() {
            let named = file_path(&self.mapped[index].mapping).is_some_and(|path| {
                let name = path.rsplit(|&b| b == b'/').next().unwrap_or_default();
                names.iter().any(|start| name.starts_with(start))
            });
            if named {
                self.image(index, modules);
            }
        }
    }

    /// The first mapping (already looked at) with a certain image, and its bias.
    pub(crate) fn holding(&self, is_it: impl Fn(&Image) -> bool) -> Option<(&Arc<Image>, u64)> {
        self.mapped
            .iter()
            .filter_map(|m| m.image.as_ref()?.as_ref())
            .find(|(image, _)| is_it(image))
            .map(|(image, bias)| (image, *bias))
    }

    /// The function that a code address is in, by the unwind tables of its file.
    pub(crate) fn function(
        &mut self,
        address: u64,
        modules: &mut Modules,
    ) -> Option<(Arc<Image>, Range<u64>)> {
        let index = self.find(address)?;
        let (image, bias) = self.image(index, modules)?;
        let range = image
            .tables
            .as_ref()?
            .function(address.wrapping_sub(bias))?;
        Some((
            image,
            range.start.wrapping_add(bias)..range.end.wrapping_add(bias),
        ))
    }

    /// Where the function at an address has saved registers, as its unwind table has it.
    pub(crate) fn saved(
        &mut self,
        address: u64,
        modules: &mut Modules,
        context: &mut UnwindContext,
    ) -> Option<[Option<i64>; 2]> {
        let index = self.find(address)?;
        let (image, bias) = self.image(index, modules)?;
        let tables = image.tables.as_ref()?;
        tables.saved(address.wrapping_sub(bias), context)
    }

    /// Code in no file: just-in-time compilers'.
    pub(crate) fn compiled_code(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.mapped
            .iter()
            .filter(|m| m.is_made())
            .map(|m| m.mapping.range.clone())
    }

    /// Where it has the offsets of asyncio's structures, of the mappings already looked at.
    pub(crate) fn asyncio(&self) -> Option<u64> {
        self.mapped.iter().find_map(|m| {
            let (image, bias) = m.image.as_ref()?.as_ref()?;
            Some(image.asyncio?.wrapping_add(*bias))
        })
    }

    /// Whether it is Go, of a version of which it is known how goroutines are laid out.
    pub(crate) fn has_goroutines(&mut self, modules: &mut Modules) -> bool {
        if let Some(known) = self.has_goroutines {
            return known;
        }
        let program = goroutine::program(self.tgid);
        let indices = 0..self.mapped.len();
        let of_program = indices.filter(|at| Some(self.mapped[*at].mapping.inode) == program);
        let has = Vec::from_iter(of_program).into_iter().any(|at| {
            let image = self.image(at, modules);
            let go = image.as_ref().and_then(|(image, _)| image.go.as_ref());
            go.is_some_and(|go| go.has_known_goroutines)
        });
        self.has_goroutines = Some(has);
        has
    }

    /// Fills `buffer` with the process's memory from `address`; whether all of it could be read.
    pub(crate) fn read_memory(&mut self, address: u64, buffer: &mut [u8]) -> bool {
        self.memory()
            .is_some_and(|memory| memory.read_exact_at(buffer, address).is_ok())
    }

    /// The process's memory from `address` to the end of its mapping, at most `size` bytes.
    pub(crate) fn read_up_to(&mut self, address: u64, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        // A read goes as far as there is memory: it ends behind the stack's top.
        let read = self
            .memory()
            .and_then(|memory| memory.read_at(&mut bytes, address).ok());
        bytes.truncate(read.unwrap_or(0));
        bytes
    }

    fn memory(&mut self) -> Option<&File> {
        if self.memory.is_none() {
            self.memory = File::open(format!("/proc/{}/mem", self.tgid)).ok();
        }
        self.memory.as_ref()
    }

    /// The process's id.
    pub(crate) fn tgid(&self) -> u32 {
        self.tgid
    }
}

fn find_in(mapped: &[Mapped], address: u64) -> Option<usize> {
    let after = mapped.partition_point(|m| m.mapping.range.start <= address);
    let index = after.checked_sub(1)?;
    mapped[index]
        .mapping
        .range
        .contains(&address)
        .then_some(index)
}

/// What of V8 lies at an address, by the mappings and the images that were looked at.
fn v8_code(mapped: &[Mapped], address: u64) -> V8Code {
    let Some(index) = find_in(mapped, address) else {
        return V8Code::Other;
    };
    if mapped[index].is_made() {
        return V8Code::Compiled;
    }
    let Some(Some((image, bias))) = &mapped[index].image else {
        return V8Code::Other;
    };
    let svma = address.wrapping_sub(*bias);
    let is_builtin = |v8: &V8Image| v8.builtins.contains(&svma);
    match image.v8.as_ref().is_some_and(is_builtin) {
        true => V8Code::Builtin(Frame {
            module: image.id,
            address: svma,
        }),
        false => V8Code::Other,
    }
}

/// More than an object takes of which the fields are read.
pub(crate) const OBJECT: usize = 512;

/// A word of a process's memory.
pub(crate) fn word(process: &mut Process, at: u64) -> Option<u64> {
    if at >= arch::USER_END {
        return None;
    }
    let mut bytes = [0; 8];
    process
        .read_memory(at, &mut bytes)
        .then(|| u64::from_le_bytes(bytes))
}

/// The word that an object has so many bytes behind its address.
pub(crate) fn field(process: &mut Process, object: u64, offset: u64) -> Option<u64> {
    word(process, object.checked_add(offset)?)
}

/// The first `size` bytes of an object.
pub(crate) fn object(process: &mut Process, at: u64, size: usize) -> Option<[u8; OBJECT]> {
    if at == 0 || at >= arch::USER_END || !at.is_multiple_of(8) {
        return None;
    }
    let mut bytes = [0; OBJECT];
    process
        .read_memory(at, bytes.get_mut(..size)?)
        .then_some(bytes)
}

/// As many mappings as there is room for.
fn kept(mappings: Mappings, charge: &mut Charge) -> Vec<Mapping> {
    let mut found = mappings.found;
    let fit = found
        .iter()
        .position(|mapping| !charge.grow(size_of::<Mapped>() + mapping.bytes()));
    found.truncate(fit.unwrap_or(found.len()));
    if mappings.cut_short {
        charge.refused();
    }
    found
}

/// Addresses as keys: multiply and fold. Keys are chosen by the observed program, which at worst
/// slows its own lookups.
#[derive(Default)]
pub(crate) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }
    fn write_u64(&mut self, value: u64) {
        let product = (u128::from(self.0 ^ value))
            * 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835_u128 as u64 as u128;
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}

/// Whether a range holds an address that was moved by `bias`.
pub(crate) fn holds(ranges: &[Range<u64>], address: u64) -> bool {
    ranges.iter().any(|range| range.contains(&address))
}
