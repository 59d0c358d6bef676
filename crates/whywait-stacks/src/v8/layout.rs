//! Where V8 keeps what its frames are, as the program itself says: each build of V8 exports the
//! numbers as variables for debuggers (`v8dbg_…`, tools/gen-postmortem-metadata.py).
//!
//! Not all that is needed is exported. What is not is found by what it must be: each object says by
//! its map what type it is. That holds for V8 10.2 (node 18) to 14.6 (node 26), whose objects were
//! looked at in running programs.

use std::collections::HashMap;
use std::ops::Range;

use crate::cfi::UnwindTables;

/// The exported numbers, by their names without `v8dbg_`.
pub(crate) type Constants = HashMap<String, i32>;

/// How names of the exported variables begin.
pub(crate) const EXPORTED: &[u8] = b"v8dbg_";
/// More than any version exports.
pub(crate) const MAX_EXPORTED: usize = 2048;

/// What a file has of V8.
#[derive(Debug, Clone)]
pub(crate) struct V8Image {
    /// `None`: some of the numbers are missing.
    pub(crate) layout: Option<V8Layout>,
    /// The functions that V8 brings along, which no compiler made: they have frame pointers, and no
    /// unwind tables.
    pub(crate) builtins: Range<u64>,
}

impl V8Image {
    /// From the numbers that a file exports and its unwind tables; `None`: it exports none.
    pub(crate) fn of(constants: &Constants, tables: Option<&UnwindTables>) -> Option<Self> {
        (!constants.is_empty()).then(|| Self {
            layout: V8Layout::of(constants),
            builtins: tables.and_then(UnwindTables::largest_gap).unwrap_or(0..0),
        })
    }
}

/// Offsets and numbers. Offsets in objects are from the object's beginning; references are one more
/// than that ([`V8Layout::HEAP_OBJECT`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct V8Layout {
    pub(super) frame: FrameSlots,
    pub(super) types: ObjectTypes,
    /// In a map: the type of its objects.
    pub(super) instance_type: u64,
    /// In a function: what all its closures share.
    pub(super) shared: u64,
    /// In what closures share: the name or the scope, and the script.
    pub(super) name_or_scope: u64,
    pub(super) script: u64,
    pub(super) source: u64,
    pub(super) script_name: u64,
    pub(super) scope: ScopeSlots,
    pub(super) strings: StringLayout,
    /// In an object that holds machine code: where the code begins.
    pub(super) instructions: u64,
    pub(super) code_kind: CodeKinds,
    /// Machine code and what is known of it are one object (before V8 11).
    pub(super) code_is_one: bool,
}

/// Offsets from the frame pointer, and markers of frames that are no function's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FrameSlots {
    pub(super) context_or_type: i64,
    pub(super) function: i64,
    pub(super) bytecode: i64,
    /// Of a regular expression that was compiled; `None`: such frames have no marker.
    pub(super) regular_expression: Option<u64>,
}

/// Of which compiler code is: a part of its flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CodeKinds {
    /// Where the flags are; `None`: not exported.
    pub(super) flags: Option<u64>,
    pub(super) mask: u32,
    /// The compiler that optimises most. (Its number is the second behind that of the one that does
    /// not, with or without one in between: src/objects/code-kind.h.)
    pub(super) last: u32,
}

/// Types of objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ObjectTypes {
    pub(super) map: u16,
    pub(super) shared: u16,
    pub(super) bytecode: u16,
    pub(super) interpreter_data: u16,
    pub(super) code: u16,
    pub(super) instructions: u16,
    pub(super) script: u16,
    pub(super) scope: u16,
    /// What refers to what closures share from where only some objects may be referred to.
    pub(super) shared_wrapper: Option<u16>,
    /// Lists; a code's data on how to leave it is one of these.
    pub(super) lists: Vec<u16>,
    /// Lists whose elements may go.
    pub(super) weak_lists: Vec<u16>,
    pub(super) byte_arrays: Vec<u16>,
    pub(super) first_non_string: u16,
}

/// What a scope has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ScopeSlots {
    /// How many variables it keeps in its context, and where their names begin; in words behind the
    /// map.
    pub(super) context_locals: u64,
    pub(super) first_variable: u64,
}

/// Kinds of strings, and where they have their characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StringLayout {
    pub(super) length: u64,
    pub(super) representation: u16,
    pub(super) encoding: u16,
    pub(super) one_byte: u16,
    pub(super) sequential: u16,
    pub(super) cons: u16,
    pub(super) external: u16,
    pub(super) sliced: u16,
    pub(super) thin: u16,
    pub(super) one_byte_characters: u64,
    pub(super) two_byte_characters: u64,
    pub(super) cons_first: u64,
    pub(super) cons_second: u64,
    pub(super) thin_actual: u64,
    pub(super) sliced_parent: u64,
    pub(super) sliced_offset: u64,
    pub(super) external_resource: u64,
}

impl V8Layout {
    /// What a reference is beyond its object's address.
    pub(super) const HEAP_OBJECT: u64 = 1;
    /// Words of the heap and of frames.
    pub(super) const WORD: u64 = 8;

    /// From the exported numbers; `None`: one is missing, or it is built in another way (with
    /// compressed pointers, above all).
    pub(crate) fn of(constants: &Constants) -> Option<Self> {
        let numbers = KnownNumbers(constants);
        let is = |name, value| numbers.number(name).ok_or(()) == Ok(value);
        let is_known_build = is("TaggedSize", 8)
            && is("HeapObjectTag", 1)
            && is("HeapObjectTagMask", 3)
            && is("SmiTag", 0)
            && is("SmiTagMask", 1)
            && is("SmiValueShift", 1)
            && is("SmiShiftSize", 31)
            && is("class_HeapObject__map__Map", 0)
            && is("scopeinfo_idx_nparams", 1);
        if !is_known_build {
            return None;
        }
        let code_is_one = numbers.kind("InstructionStream").is_none();
        Some(Self {
            frame: FrameSlots::of(numbers)?,
            types: ObjectTypes::of(numbers, code_is_one)?,
            instance_type: numbers.offset("class_Map__instance_type__uint16_t")?,
            shared: numbers.offset("class_JSFunction__shared__SharedFunctionInfo")?,
            name_or_scope: numbers.field("class_SharedFunctionInfo__name_or_scope_info__")?,
            // `script_or_debug_info` before V8 12.
            script: numbers
                .field("class_SharedFunctionInfo__script__")
                .or_else(|| numbers.field("class_SharedFunctionInfo__script_or_debug_info__"))?,
            source: numbers.offset("class_Script__source__Object")?,
            script_name: numbers.offset("class_Script__name__Object")?,
            scope: ScopeSlots {
                context_locals: numbers.offset("scopeinfo_idx_ncontextlocals")?,
                first_variable: numbers.offset("scopeinfo_idx_first_vars")?,
            },
            strings: StringLayout::of(numbers)?,
            instructions: match code_is_one {
                true => numbers.field("class_Code__instruction_start__")?,
                false => numbers.field("class_InstructionStream__instruction_start__")?,
            },
            code_kind: CodeKinds::of(numbers)?,
            code_is_one,
        })
    }
}

impl FrameSlots {
    fn of(numbers: KnownNumbers<'_>) -> Option<Self> {
        let slot = |name| {
            let offset = i64::from(numbers.number(name)?);
            // Below the frame pointer, within the fixed part of the frame.
            (-256..0)
                .contains(&offset)
                .then_some(offset)
                .filter(|offset| offset % 8 == 0)
        };
        Some(Self {
            context_or_type: slot("off_fp_context_or_frame_type")?,
            function: slot("off_fp_function")?,
            bytecode: slot("off_fp_bytecode_array")?,
            regular_expression: numbers
                .offset("frametype_IrregexpFrame")
                // A marker has its lowest bit clear, as a small integer.
                .map(|number| number << 1),
        })
    }
}

impl CodeKinds {
    fn of(numbers: KnownNumbers<'_>) -> Option<Self> {
        let number = |name| u32::try_from(numbers.number(name)?).ok();
        (number("CodeKindFieldShift")? == 0).then_some(())?;
        Some(Self {
            flags: numbers.field("class_Code__flags__"),
            mask: number("CodeKindFieldMask")?,
            last: number("CodeKindBaseline")?.checked_add(2)?,
        })
    }
}

impl ObjectTypes {
    fn of(numbers: KnownNumbers<'_>, code_is_one: bool) -> Option<Self> {
        let code = numbers.kind("Code")?;
        let kinds = |names: &[&str]| {
            let kinds = names.iter().filter_map(|name| numbers.kind(name));
            Vec::from_iter(kinds)
        };
        Some(Self {
            map: numbers.kind("Map")?,
            shared: numbers.kind("SharedFunctionInfo")?,
            bytecode: numbers.kind("BytecodeArray")?,
            interpreter_data: numbers.kind("InterpreterData")?,
            code,
            instructions: match code_is_one {
                true => code,
                false => numbers.kind("InstructionStream")?,
            },
            script: numbers.kind("Script")?,
            scope: numbers.kind("ScopeInfo")?,
            shared_wrapper: numbers.kind("SharedFunctionInfoWrapper"),
            lists: kinds(&["FixedArray", "TrustedFixedArray", "ProtectedFixedArray"]),
            weak_lists: kinds(&["WeakFixedArray", "TrustedWeakFixedArray"]),
            byte_arrays: kinds(&["ByteArray", "TrustedByteArray"]),
            first_non_string: u16::try_from(numbers.number("FirstNonstringType")?).ok()?,
        })
    }
}

impl StringLayout {
    fn of(numbers: KnownNumbers<'_>) -> Option<Self> {
        let bits = |name| u16::try_from(numbers.number(name)?).ok();
        Some(Self {
            length: numbers.offset("class_String__length__int32_t")?,
            representation: bits("StringRepresentationMask")?,
            encoding: bits("StringEncodingMask")?,
            one_byte: bits("OneByteStringTag")?,
            sequential: bits("SeqStringTag")?,
            cons: bits("ConsStringTag")?,
            external: bits("ExternalStringTag")?,
            sliced: bits("SlicedStringTag")?,
            thin: bits("ThinStringTag")?,
            one_byte_characters: numbers.offset("class_SeqOneByteString__chars__char")?,
            two_byte_characters: numbers.offset("class_SeqTwoByteString__chars__char")?,
            cons_first: numbers.offset("class_ConsString__first__String")?,
            cons_second: numbers.offset("class_ConsString__second__String")?,
            thin_actual: numbers.offset("class_ThinString__actual__String")?,
            sliced_parent: numbers.offset("class_SlicedString__parent__String")?,
            sliced_offset: numbers.offset("class_SlicedString__offset__SMI")?,
            external_resource: numbers.offset("class_ExternalString__resource__Object")?,
        })
    }
}

/// Looks numbers up, checked.
#[derive(Clone, Copy)]
struct KnownNumbers<'a>(&'a Constants);

impl KnownNumbers<'_> {
    fn number(self, name: &str) -> Option<i32> {
        self.0.get(name).copied()
    }

    /// No object's fixed part, and no list of kinds of frames, is as large.
    fn offset(self, name: &str) -> Option<u64> {
        u64::try_from(self.number(name)?)
            .ok()
            .filter(|offset| *offset < 4096)
    }

    /// An offset by the beginning of its name: the rest is the field's type as V8's source has it,
    /// which changes. Where there are two, they must agree.
    fn field(self, begins: &str) -> Option<u64> {
        let mut found = self
            .0
            .keys()
            .filter(|name| name.starts_with(begins))
            .map(|name| self.offset(name));
        let first = found.next()??;
        found.all(|other| other == Some(first)).then_some(first)
    }

    /// A type of objects: `type_Map__MAP_TYPE`.
    fn kind(self, name: &str) -> Option<u16> {
        let begins = format!("type_{name}__");
        let named = self.0.iter().find(|(name, _)| name.starts_with(&begins));
        named.and_then(|(_, value)| u16::try_from(*value).ok())
    }
}
