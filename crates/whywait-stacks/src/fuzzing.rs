//! What the fuzz targets (`fuzz/`) call: the parts that read what a target chose, without a target.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::arch::Registers;
use crate::cfi::UnwindContext;
#[cfg(target_arch = "x86_64")]
use crate::code;
use crate::elf::u64_at;
use crate::goroutine::GoroutineHead;
use crate::goroutines;
use crate::hotspot;
use crate::loss::Losses;
use crate::made_up::{ObjectMemory, own_process};
use crate::maps::{MappedSource, Mapping, Search, parse_line};
use crate::modules::{Image, Modules};
use crate::perf_map::Entries;
use crate::php;
use crate::process::Process;
use crate::python;
use crate::ruby;
use crate::symbolise;
use crate::unwind::{CopiedStack, ModulesAndContext, walk_frames};
use crate::v8;

const PATH: &[u8] = b"/fuzzed";
/// Where a file is mapped.
const BIAS: u64 = 0x7f00_0000_0000;
/// Where the stack is.
const STACK: u64 = 0x7ffd_0000_0000;
/// Its size, at most.
const MAX_STACK: usize = 1024;
/// From so many places the stack is walked.
const PLACES: usize = 32;

/// A file: its outline, unwind tables, function table, and the stack at its end, walked from places
/// all over its code.
pub fn elf(bytes: &[u8]) {
    let mut modules = Modules::default();
    let Some(image) = modules.read(bytes, PATH, PATH) else {
        return;
    };
    let places = places(&image);
    let lowest = image.segments.iter().map(|it| it.address).min();
    let from = BIAS.wrapping_add(lowest.unwrap_or(0));
    let mapping = Mapping {
        range: from..from.saturating_add(1 << 32),
        offset: 0,
        inode: 1,
        source: MappedSource::File(PATH.to_vec()),
    };
    let mut process = Process::of_image(Arc::clone(&image), mapping, BIAS);
    let mut context = UnwindContext::new();
    let stack = &bytes[bytes.len().saturating_sub(MAX_STACK)..];
    let (mut walk, sp) = (Vec::new(), STACK);
    for place in places {
        if let Some(go) = &image.go {
            go.name(place);
        }
        let registers = Registers {
            ip: BIAS.wrapping_add(place),
            sp,
            bp: sp + stack.len() as u64 / 2 / 8 * 8,
            lr: 0,
        };
        let stack = CopiedStack::new(sp, stack);
        let mut modules = ModulesAndContext {
            modules: &mut modules,
            context: &mut context,
            losses: &mut Losses::default(),
        };
        walk.clear();
        // As where stacks are walked: framehop may panic.
        let walked = catch_unwind(AssertUnwindSafe(|| {
            walk_frames(&mut process, registers, stack, &mut modules, &mut walk)
        }));
        if walked.is_err() {
            return;
        }
    }
}

/// Where its segments, its functions with unwind tables and those of Go's table begin and end.
fn places(image: &Image) -> Vec<u64> {
    let code = image.segments.iter().filter(|it| it.executable);
    let bounds = code.flat_map(|it| {
        let end = it.address.wrapping_add(it.size);
        [
            it.address,
            it.address.wrapping_add(it.size / 2),
            end.wrapping_sub(1),
        ]
    });
    let rows = image.tables.iter().flat_map(|tables| tables.addresses());
    let rows = rows.flat_map(|at| [at, at.wrapping_add(1), at.wrapping_add(16)]);
    bounds.take(PLACES / 4).chain(rows).take(PLACES).collect()
}

/// Machine code without unwind tables, from its first byte on.
#[cfg(target_arch = "x86_64")]
pub fn machine_code(bytes: &[u8]) {
    const AT: u64 = 0x40_0000;
    code::exit(AT, |from, size| {
        let from = from.checked_sub(AT).and_then(|it| usize::try_from(it).ok());
        let rest = from.and_then(|from| bytes.get(from..)).unwrap_or_default();
        rest[..size.min(rest.len())].to_vec()
    });
}

/// The text of a perf map, in two parts, as one that grows.
pub fn perf_map(bytes: &[u8]) {
    let mut entries = Entries::default();
    for part in [&bytes[..bytes.len() / 2], &bytes[bytes.len() / 2..]] {
        entries.parse(part);
        entries.settle();
    }
    for at in addresses(bytes) {
        entries.find(at);
    }
}

/// The text of `/proc/PID/maps`.
pub fn maps(bytes: &[u8]) {
    let mut search = Search::of(&addresses(bytes));
    for line in bytes.split(|byte| *byte == b'\n') {
        if let Some(mapping) = parse_line(line) {
            mapping.bytes();
        }
        search.look(line);
    }
}

/// A name that a compiler made.
pub fn name(bytes: &[u8]) {
    if let Ok(name) = str::from_utf8(bytes) {
        symbolise::demangled(name);
    }
}

/// An interpreter's memory: see `python/fuzzing.rs`.
pub fn python(bytes: &[u8]) {
    python::fuzzing::read(bytes);
}

/// A virtual machine's memory: see `hotspot/fuzzing.rs`.
pub fn hotspot(bytes: &[u8]) {
    hotspot::fuzzing::read(bytes);
}

/// JavaScript's memory: see `v8/fuzzing.rs`.
pub fn v8(bytes: &[u8]) {
    v8::fuzzing::read(bytes);
}

/// A PHP's memory: see `php/fuzzing.rs`.
pub fn php(bytes: &[u8]) {
    php::fuzzing::read(bytes);
}

/// A Ruby's memory: see `ruby/fuzzing.rs`.
pub fn ruby(bytes: &[u8]) {
    ruby::fuzzing::read(bytes);
}

/// Reads this process, whose mappings are looked up once.
pub(crate) fn in_own_process<T>(read: impl FnOnce(&mut Process) -> T) -> T {
    thread_local! {
        static OWN: RefCell<Process> = RefCell::new(own_process());
    }
    OWN.with_borrow_mut(read)
}

/// Changes sound memory, as often as the first byte says, and puts the rest behind it, as far as
/// there is room.
pub(crate) fn worsen(memory: &mut ObjectMemory, bytes: &[u8]) {
    let (&changes, rest) = bytes.split_first().unwrap_or((&0, &[]));
    let (base, sound) = (memory.address(), memory.words.len());
    let room = memory.words.capacity();
    let mut words = rest.chunks_exact(8).filter_map(|word| u64_at(word, 0));
    for word in words.by_ref().take(usize::from(changes % 8)) {
        let change = Mutation::of(word, base, sound);
        memory.words[change.word] = change.value;
    }
    let more = words.take(room - sound);
    memory
        .words
        .extend(more.map(|word| rebased(word, base, room)));
}

/// What takes the place of a word of sound memory.
pub(crate) struct Mutation {
    /// Which one.
    pub(crate) word: usize,
    pub(crate) value: u64,
}

impl Mutation {
    /// A change of memory of so many words, from a word of the input: to a small number, an address
    /// in the memory, one at the end of all, or any.
    pub(crate) fn of(word: u64, memory: u64, words: usize) -> Self {
        Self {
            word: (word >> 48) as usize % words,
            value: match word >> 40 & 3 {
                0 => word & 0xff,
                1 => inside(word, memory, words),
                2 => u64::MAX - (word & 0x3f),
                _ => word << 24,
            },
        }
    }
}

/// Words of an input that begin with these bytes stand for addresses in its memory.
const POINTER: u64 = 0xf0f0;

/// A word of an input, as one of memory that begins at an address.
pub(crate) fn rebased(word: u64, memory: u64, words: usize) -> u64 {
    match word >> 48 {
        POINTER => inside(word, memory, words),
        _ => word,
    }
}

/// An address in memory, marked as references are.
fn inside(word: u64, memory: u64, words: usize) -> u64 {
    memory + (word & 0xf_ffff) % words as u64 * 8 + (word >> 20 & 3)
}

/// What should be a goroutine, or a list of them. Whatever it is, what is taken of it has bounds.
pub fn goroutine(bytes: &[u8]) {
    goroutines::made_up(bytes);
    let at = u64_at(bytes, 0).unwrap_or(0);
    if let Some(head) = GoroutineHead::parse(bytes, at)
        && let Some((from, size)) = head.used()
    {
        assert!(from.checked_add(size as u64).is_some());
    }
}

/// Some addresses, of the input's own words and digits.
fn addresses(bytes: &[u8]) -> Vec<u64> {
    let words = bytes.chunks_exact(8).filter_map(|word| u64_at(word, 0));
    let texts = bytes.split(|byte| !byte.is_ascii_hexdigit());
    let numbers = texts.filter_map(|text| u64::from_str_radix(str::from_utf8(text).ok()?, 16).ok());
    words.take(16).chain(numbers.take(64)).collect()
}
