//! Where each thing that is read lies in a virtual machine's structures: as it describes them
//! itself. What differs in more than a place from version to version is an `enum` here.

use super::description::Description;
use super::memory::{FieldPlace, Width};
use crate::arch::Registers;
use crate::elf::ReadAt;
use crate::loss::Loss;
use crate::unwind::CopiedStack;

/// Versions of which it was tried that they mean by their fields what is read here.
pub(super) const VERSIONS: [u64; 4] = [11, 17, 21, 25];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JvmLayout {
    pub(super) cache: CacheLayout,
    pub(super) blob: BlobLayout,
    pub(super) compiled: CompiledLayout,
    pub(super) debug: DebugLayout,
    pub(super) method: MethodLayout,
    /// Where the pointer to the interpreter's queue of codelets is.
    pub(super) interpreter: u64,
    /// In that queue: where its code begins, and its size.
    pub(super) codelets: (FieldPlace, FieldPlace),
    /// Where the address is to which what native code called returns.
    pub(super) call_stub_return: u64,
}

/// `CodeCache` and `CodeHeap`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CacheLayout {
    /// Where the pointer to the array of heaps is.
    pub(super) heaps: u64,
    /// In an array: length and elements.
    pub(super) array: (FieldPlace, FieldPlace),
    /// In a heap: the memory, and the map of its segments.
    pub(super) memory: u64,
    pub(super) map: u64,
    pub(super) segment_log2: FieldPlace,
    /// In each of those: where it begins, and where it will end at most.
    pub(super) low: FieldPlace,
    pub(super) high: FieldPlace,
    /// Size of what precedes a blob, and whether the block is in use.
    pub(super) block: usize,
    pub(super) used: FieldPlace,
}

/// `CodeBlob`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BlobLayout {
    /// How much of one is read: that of the largest kind.
    pub(super) head: usize,
    pub(super) name: FieldPlace,
    pub(super) size: FieldPlace,
    pub(super) frame_size: FieldPlace,
    pub(super) frame_complete: FieldPlace,
    pub(super) code: (BlobPlace, BlobPlace),
}

/// An address, or an offset from the blob's beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlobPlace {
    Address(FieldPlace),
    FromBlob(FieldPlace),
    /// From the code's beginning.
    FromCode(FieldPlace),
}

/// `nmethod`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CompiledLayout {
    pub(super) method: FieldPlace,
    pub(super) id: FieldPlace,
    /// Where callers enter that know the class.
    pub(super) entry: BlobPlace,
    /// Where a frame returns to that is to be given up.
    pub(super) deoptimise: [BlobPlace; 2],
    /// In such a frame: where it would have returned to, from its stack pointer.
    pub(super) original: FieldPlace,
}

/// What says which functions were inlined where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DebugLayout {
    pub(super) tables: DebugTables,
    /// `PcDesc`: its size, the offset in the code, that of the innermost function.
    pub(super) entry: usize,
    pub(super) code: FieldPlace,
    pub(super) scope: FieldPlace,
    /// The bytes of a compressed number are never 0 (from 20 on).
    pub(super) excludes_zero: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DebugTables {
    /// Behind the code (to 22): places from the blob's beginning.
    Behind {
        entries: FieldPlace,
        entries_end: FieldPlace,
        scopes: FieldPlace,
        metadata: FieldPlace,
    },
    /// In memory of their own (25): the tables' and the objects', and where they are in it.
    Apart {
        tables: FieldPlace,
        entries: FieldPlace,
        scopes: FieldPlace,
        objects: FieldPlace,
        metadata: FieldPlace,
    },
}

/// `Method`, `ConstMethod`, `ConstantPool`, `Klass`, `Symbol`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MethodLayout {
    pub(super) constant: FieldPlace,
    /// Size of a `ConstMethod`, behind which its bytecodes begin.
    pub(super) head: usize,
    pub(super) pool: FieldPlace,
    /// Of all of it, in words.
    pub(super) words: FieldPlace,
    pub(super) flags: FieldPlace,
    pub(super) has_lines: u64,
    pub(super) code_size: FieldPlace,
    pub(super) name: FieldPlace,
    /// Size of a `ConstantPool`, behind which its entries begin.
    pub(super) pool_head: usize,
    pub(super) pool_length: FieldPlace,
    pub(super) class: FieldPlace,
    pub(super) class_name: FieldPlace,
    pub(super) source: SourceName,
    pub(super) text_length: FieldPlace,
    pub(super) text: u64,
}

/// Where the number of the source file's name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SourceName {
    Pool(FieldPlace),
    Class(FieldPlace),
}

impl JvmLayout {
    /// That of a virtual machine that describes itself so.
    pub(super) fn of(description: &Description, memory: &dyn ReadAt) -> Result<Self, Loss> {
        let version = description
            .static_field("Abstract_VM_Version", "_vm_major_version")
            .ok_or(Loss::HotSpotDescription)?;
        let number = FieldPlace {
            offset: 0,
            width: Width::I32,
        };
        let version = number.at(memory, version).ok_or(Loss::HotSpotDescription)?;
        if !VERSIONS.contains(&version) {
            return Err(Loss::HotSpotVersion);
        }
        Self::of_version(description, version).ok_or(Loss::HotSpotDescription)
    }

    pub(super) fn of_version(it: &Description, version: u64) -> Option<Self> {
        Some(Self {
            cache: CacheLayout::of(it)?,
            blob: BlobLayout::of(it)?,
            compiled: CompiledLayout::of(it)?,
            debug: DebugLayout::of(it, version)?,
            method: MethodLayout::of(it)?,
            interpreter: it.static_field("AbstractInterpreter", "_code")?,
            codelets: (
                it.field("StubQueue", "_stub_buffer")?,
                it.field("StubQueue", "_buffer_limit")?,
            ),
            call_stub_return: it.static_field("StubRoutines", "_call_stub_return_address")?,
        })
    }
}

impl CacheLayout {
    fn of(it: &Description) -> Option<Self> {
        let array = it
            .field("GrowableArrayBase", "_len")
            .or_else(|| it.field("GenericGrowableArray", "_len"))?;
        Some(Self {
            heaps: it.static_field("CodeCache", "_heaps")?,
            array: (array, it.field("GrowableArray<int>", "_data")?),
            memory: it.part("CodeHeap", "_memory")?,
            map: it.part("CodeHeap", "_segmap")?,
            segment_log2: it.field("CodeHeap", "_log2_segment_size")?,
            low: it.field("VirtualSpace", "_low")?,
            high: it.field("VirtualSpace", "_high_boundary")?,
            block: it.size("HeapBlock")?,
            used: it.field("HeapBlock::Header", "_used")?,
        })
    }
}

impl BlobLayout {
    fn of(it: &Description) -> Option<Self> {
        let code = match it.field("CodeBlob", "_code_begin") {
            Some(begin) => (
                BlobPlace::Address(begin),
                BlobPlace::Address(it.field("CodeBlob", "_code_end")?),
            ),
            None => (
                BlobPlace::FromBlob(it.field("CodeBlob", "_code_offset")?),
                BlobPlace::FromBlob(it.field("CodeBlob", "_data_offset")?),
            ),
        };
        Some(Self {
            head: it.size("nmethod")?,
            name: it.field("CodeBlob", "_name")?,
            size: it.field("CodeBlob", "_size")?,
            frame_size: it.field("CodeBlob", "_frame_size")?,
            frame_complete: it.field("CodeBlob", "_frame_complete_offset")?,
            code,
        })
    }
}

/// `nmethod` was in two parts up to 22.
fn of_compiled(it: &Description, name: &str) -> Option<FieldPlace> {
    it.field("CompiledMethod", name)
        .or_else(|| it.field("nmethod", name))
}

impl CompiledLayout {
    fn of(it: &Description) -> Option<Self> {
        let entry = match it.field("nmethod", "_verified_entry_point") {
            Some(entry) => BlobPlace::Address(entry),
            None => BlobPlace::FromCode(it.field("nmethod", "_verified_entry_offset")?),
        };
        let deoptimise = |address, offset| match of_compiled(it, address) {
            Some(address) => Some(BlobPlace::Address(address)),
            None => it.field("nmethod", offset).map(BlobPlace::FromBlob),
        };
        Some(Self {
            method: of_compiled(it, "_method")?,
            id: it.field("nmethod", "_compile_id")?,
            entry,
            deoptimise: [
                deoptimise("_deopt_handler_begin", "_deopt_handler_offset")?,
                deoptimise("_deopt_mh_handler_begin", "_deopt_mh_handler_offset")?,
            ],
            original: it.field("nmethod", "_orig_pc_offset")?,
        })
    }
}

impl DebugLayout {
    fn of(it: &Description, version: u64) -> Option<Self> {
        let entries = it.field("nmethod", "_scopes_pcs_offset")?;
        let tables = match it.field("nmethod", "_immutable_data") {
            Some(tables) => DebugTables::Apart {
                tables,
                entries,
                scopes: it.field("nmethod", "_scopes_data_offset")?,
                objects: it.field("CodeBlob", "_mutable_data")?,
                metadata: it.field("CodeBlob", "_relocation_size")?,
            },
            None => DebugTables::Behind {
                entries,
                entries_end: it.field("nmethod", "_dependencies_offset")?,
                scopes: of_compiled(it, "_scopes_data_begin")?,
                metadata: it.field("nmethod", "_metadata_offset")?,
            },
        };
        Some(Self {
            tables,
            entry: it.size("PcDesc")?,
            code: it.field("PcDesc", "_pc_offset")?,
            scope: it.field("PcDesc", "_scope_decode_offset")?,
            excludes_zero: version >= 20,
        })
    }
}

impl MethodLayout {
    fn of(it: &Description) -> Option<Self> {
        let flags = it
            .field("ConstMethod", "_flags")
            .or_else(|| it.field("ConstMethod", "_flags._flags"))?;
        let has_lines = it
            .integer("ConstMethod::_has_linenumber_table")
            .or_else(|| it.integer("ConstMethodFlags::_misc_has_linenumber_table"))?;
        let source = match it.field("ConstantPool", "_source_file_name_index") {
            Some(index) => SourceName::Pool(index),
            None => SourceName::Class(it.field("InstanceKlass", "_source_file_name_index")?),
        };
        Some(Self {
            constant: it.field("Method", "_constMethod")?,
            head: it.size("ConstMethod")?,
            pool: it.field("ConstMethod", "_constants")?,
            words: it.field("ConstMethod", "_constMethod_size")?,
            flags,
            has_lines: u64::try_from(has_lines).ok()?,
            code_size: it.field("ConstMethod", "_code_size")?,
            name: it.field("ConstMethod", "_name_index")?,
            pool_head: it.size("ConstantPool")?,
            pool_length: it.field("ConstantPool", "_length")?,
            class: it.field("ConstantPool", "_pool_holder")?,
            class_name: it.field("Klass", "_name")?,
            source,
            text_length: it.field("Symbol", "_length")?,
            text: it.part("Symbol", "_body")?,
        })
    }
}

/// A frame of the interpreter on x86-64: words from its frame pointer (`frame_x86.hpp`; the same
/// from 11 to 25).
pub(super) struct InterpreterFrame {
    pub(super) method: u64,
    /// The bytecode that it is at, or that has called.
    pub(super) bytecode: u64,
    pub(super) caller: Registers,
}

impl InterpreterFrame {
    /// The one that a frame pointer leads to.
    pub(super) fn at(bp: u64, stack: CopiedStack<'_>) -> Option<Self> {
        let word = |words: i64| stack.read(bp.checked_add_signed(8 * words)?);
        Some(Self {
            method: word(-3)?,
            bytecode: word(-8)?,
            caller: Registers {
                ip: word(1)?,
                // Where its stack ended before it was made longer for what is called.
                sp: word(-1)?,
                bp: word(0)?,
                lr: 0,
            },
        })
    }
}
