//! Go's own table of functions (`.gopclntab`): names, and the frame's size at each instruction.
//!
//! Go writes no `.eh_frame`. Its frame pointers would do for most frames, but the thread's
//! innermost function (the one that makes the system call) has none, and a walk by frame pointers
//! skips its caller. The table gives exact frame sizes, is there in stripped programs too, and
//! marks the functions at which a stack begins.
//!
//! Layout: `runtime/symtab.go` (`pcHeader`, `_func`) of Go 1.18 and later.

use std::ops::Range;

use crate::elf::{Elf, ReadAt, Section, c_string, u32_at, u64_at};
use crate::goroutine;

/// Go's table.
#[derive(Debug)]
pub(crate) struct GoTable {
    bytes: Vec<u8>,
    text: u64,
    functions: usize,
    names: usize,
    deltas: usize,
    table: usize,
    quantum: u64,
    has_start_line: bool,
    /// It is known how the program's version lays out goroutines.
    pub(crate) has_known_goroutines: bool,
}

/// What the table says about a code address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GoFrame {
    /// Bytes between the stack pointer and the return address, `None` when the table does not say.
    pub(crate) size: Option<u32>,
    /// How the stack goes on.
    pub(crate) end: GoEnd,
}

/// How a Go stack goes on after a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GoEnd {
    /// With a caller.
    Caller,
    /// The function is the first of a goroutine or a thread.
    Start,
    /// Not at all: the thread left a goroutine for the scheduler here. (`morestack` may also go on
    /// with that goroutine, on a larger stack; it does not wait then.)
    Scheduler,
    /// The caller is on another stack (`systemstack`, `asmcgocall`): a goroutine's. After
    /// `systemstack` the frame pointer leads there.
    OtherStack,
}

const MAX_TABLE: u64 = 64 << 20;
const MAX_SYMBOLS: u64 = 128 << 20;
/// With the versions of all modules that are linked.
const MAX_BUILD_INFO: u64 = 1 << 20;
const MAX_NAME: usize = 4096;
const TOP_FRAME: u8 = 1;

impl GoTable {
    /// Reads the table of a Go program; `None`: not Go, too old (before 1.18), or broken.
    pub(crate) fn read<R: ReadAt + ?Sized>(
        elf: &Elf<'_, R>,
        runtime_text: Option<u64>,
    ) -> Option<Self> {
        let bytes = elf.data(Self::section(elf)?, MAX_TABLE)?;
        let magic = u32_at(&bytes, 0)?;
        if !matches!(magic, 0xffff_fff0 | 0xffff_fff1) || *bytes.get(7)? != 8 {
            return None;
        }
        let word = |i: usize| usize::try_from(u64_at(&bytes, 8 + 8 * i)?).ok();
        // The start of the text in the header is unrelocated in position-independent programs, and
        // gone since Go 1.26.
        let stated = u64_at(&bytes, 24)?;
        let text = runtime_text
            .or((stated != 0).then_some(stated))
            .or_else(|| Some(elf.section(".text")?.address))?;
        Some(Self {
            functions: word(0)?,
            names: word(3)?,
            deltas: word(6)?,
            table: word(7)?,
            quantum: u64::from(bytes[6]),
            text,
            has_start_line: magic == 0xffff_fff1,
            has_known_goroutines: Self::version(elf).is_some_and(|it| goroutine::is_known(&it)),
            bytes,
        })
    }

    /// The version of Go that made the program (`debug/buildinfo`, inline strings).
    fn version<R: ReadAt + ?Sized>(elf: &Elf<'_, R>) -> Option<String> {
        let section = elf.section(".go.buildinfo")?;
        let bytes = elf.data(section, MAX_BUILD_INFO)?;
        let inline = bytes.get(15)? & 2 != 0;
        if !bytes.starts_with(b"\xff Go buildinf:") || !inline {
            return None;
        }
        // Versions are short: a length of one byte.
        let length = usize::from(*bytes.get(32)?);
        let version = bytes.get(33..33 + length)?;
        Some(String::from_utf8_lossy(version).into_owned())
    }

    /// How much memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    fn section<'e, R: ReadAt + ?Sized>(elf: &'e Elf<'_, R>) -> Option<&'e Section> {
        elf.section(".gopclntab")
            .or_else(|| elf.section(".data.rel.ro.gopclntab"))
    }

    /// Where a Go program's code is, as the file states addresses: from its first function to the
    /// end of its last. `None` as for [`read`](Self::read).
    pub(crate) fn code_of<R: ReadAt + ?Sized>(elf: &Elf<'_, R>) -> Option<Range<u64>> {
        Self::section(elf)?;
        let mut runtime_text = None;
        elf.symbols(MAX_SYMBOLS, |name, address, _| {
            if name == b"runtime.text" {
                runtime_text = Some(address);
            }
        });
        let table = Self::read(elf, runtime_text)?;
        let entry = |i: usize| {
            let offset = u32_at(&table.bytes, table.table.checked_add(i.checked_mul(8)?)?)?;
            table.text.checked_add(u64::from(offset))
        };
        let code = entry(0)?..entry(table.functions)?;
        (!code.is_empty()).then_some(code)
    }

    /// Calls `visit` with the name of each function and where its code is, as the file states
    /// addresses.
    pub(crate) fn each_function(&self, mut visit: impl FnMut(&[u8], Range<u64>)) {
        let word = |at: Option<usize>| u32_at(&self.bytes, at?);
        let address = |offset: u32| self.text.checked_add(u64::from(offset));
        for i in 0..self.functions {
            let place = i.checked_mul(8).and_then(|at| self.table.checked_add(at));
            let of = |bytes: usize| place.and_then(|place| place.checked_add(bytes));
            let (Some(start), Some(record), Some(end)) = (word(place), word(of(4)), word(of(8)))
            else {
                return;
            };
            let record = self.table.checked_add(record as usize);
            if let (Some(start), Some(end)) = (address(start), address(end))
                && let Some(name) = record.and_then(|record| self.record_name(record))
                && start < end
            {
                visit(name, start..end);
            }
        }
    }

    /// Start of the function that holds `address`, and the offset of its record.
    fn function(&self, address: u64) -> Option<(u32, usize)> {
        let offset = u32::try_from(address.checked_sub(self.text)?).ok()?;
        let entry = |i: usize| u32_at(&self.bytes, self.table.checked_add(i.checked_mul(8)?)?);
        let (mut low, mut high) = (0, self.functions);
        if high == 0 || offset < entry(0)? || offset >= entry(high)? {
            return None;
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if entry(middle)? <= offset {
                low = middle
            } else {
                high = middle
            }
        }
        let record = u32_at(
            &self.bytes,
            self.table
                .checked_add(low.checked_mul(8)?)?
                .checked_add(4)?,
        )?;
        Some((offset, self.table.checked_add(record as usize)?))
    }

    fn record_name(&self, record: usize) -> Option<&[u8]> {
        let name = u32_at(&self.bytes, record.checked_add(4)?)? as usize;
        c_string(&self.bytes, self.names.checked_add(name)?, MAX_NAME)
    }

    /// The name of the function that holds `address` (as the file states addresses).
    pub(crate) fn name(&self, address: u64) -> Option<String> {
        let (_, record) = self.function(address)?;
        Some(String::from_utf8_lossy(self.record_name(record)?).into_owned())
    }

    /// How to leave the frame at `address`; `None`: not Go code.
    pub(crate) fn frame(&self, address: u64) -> Option<GoFrame> {
        let (offset, record) = self.function(address)?;
        let flag = record.checked_add(if self.has_start_line { 41 } else { 37 })?;
        let name = self.record_name(record)?;
        let end = if self.bytes.get(flag)? & TOP_FRAME != 0 {
            GoEnd::Start
        } else if matches!(name, b"runtime.mcall" | b"runtime.morestack") {
            GoEnd::Scheduler
        } else if matches!(name, b"runtime.systemstack" | b"runtime.asmcgocall") {
            GoEnd::OtherStack
        } else {
            GoEnd::Caller
        };
        Some(GoFrame {
            size: self.frame_size(offset, record),
            end,
        })
    }

    /// Walks the function's (stack delta, instruction delta) pairs up to the instruction.
    fn frame_size(&self, offset: u32, record: usize) -> Option<u32> {
        let start = u64::from(u32_at(&self.bytes, record)?);
        let pairs = u32_at(&self.bytes, record.checked_add(16)?)? as usize;
        if pairs == 0 {
            return None;
        }
        let mut at = self.deltas.checked_add(pairs)?;
        let (mut pc, mut size) = (start, -1i32);
        for i in 0..100_000 {
            let value = self.varint(&mut at)?;
            if value == 0 && i > 0 {
                return None;
            }
            let delta = (value >> 1) as i32 ^ -((value & 1) as i32);
            size = size.checked_add(delta)?;
            pc = pc.checked_add(u64::from(self.varint(&mut at)?).checked_mul(self.quantum)?)?;
            if u64::from(offset) < pc {
                return u32::try_from(size).ok().filter(|s| s % 8 == 0);
            }
        }
        None
    }

    fn varint(&self, at: &mut usize) -> Option<u32> {
        let mut value = 0u32;
        for shift in (0..32).step_by(7) {
            let byte = *self.bytes.get(*at)?;
            *at += 1;
            value |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}
