//! A V8 that is made up, word by word: for tests, and to be made worse of.

use super::layout::V8Layout;
use super::*;
use crate::unwind::CopiedStack;

/// What node 20 exports, as far as it is used here.
pub(super) const NODE_20: &[(&str, i32)] = &[
    ("TaggedSize", 8),
    ("HeapObjectTag", 1),
    ("HeapObjectTagMask", 3),
    ("SmiTag", 0),
    ("SmiTagMask", 1),
    ("SmiValueShift", 1),
    ("SmiShiftSize", 31),
    ("class_HeapObject__map__Map", 0),
    ("class_Map__instance_type__uint16_t", 12),
    ("class_JSFunction__shared__SharedFunctionInfo", 24),
    ("class_SharedFunctionInfo__name_or_scope_info__Object", 16),
    (
        "class_SharedFunctionInfo__script_or_debug_info__HeapObject",
        32,
    ),
    ("class_Script__source__Object", 8),
    ("class_Script__name__Object", 16),
    ("scopeinfo_idx_nparams", 1),
    ("scopeinfo_idx_ncontextlocals", 2),
    ("scopeinfo_idx_first_vars", 3),
    ("class_InstructionStream__instruction_start__uintptr_t", 16),
    ("off_fp_context_or_frame_type", -8),
    ("off_fp_function", -16),
    ("off_fp_bytecode_array", -32),
    ("frametype_IrregexpFrame", 27),
    ("type_Map__MAP_TYPE", 255),
    (
        "type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE",
        SHARED as i32,
    ),
    ("type_BytecodeArray__BYTECODE_ARRAY_TYPE", BYTECODE as i32),
    ("type_InterpreterData__INTERPRETER_DATA_TYPE", 159),
    ("type_Code__CODE_TYPE", CODE as i32),
    ("type_InstructionStream__INSTRUCTION_STREAM_TYPE", 252),
    ("type_Script__SCRIPT_TYPE", 167),
    ("type_ScopeInfo__SCOPE_INFO_TYPE", 261),
    ("type_FixedArray__FIXED_ARRAY_TYPE", LIST as i32),
    (
        "type_WeakFixedArray__WEAK_FIXED_ARRAY_TYPE",
        WEAK_LIST as i32,
    ),
    ("type_ByteArray__BYTE_ARRAY_TYPE", BYTES as i32),
    ("CodeKindFieldShift", 0),
    ("CodeKindFieldMask", 15),
    ("CodeKindBaseline", 11),
    ("FirstNonstringType", 128),
    ("class_String__length__int32_t", 12),
    ("StringRepresentationMask", 7),
    ("StringEncodingMask", 8),
    ("OneByteStringTag", 8),
    ("SeqStringTag", 0),
    ("ConsStringTag", 1),
    ("ExternalStringTag", 2),
    ("SlicedStringTag", 3),
    ("ThinStringTag", 5),
    ("class_SeqOneByteString__chars__char", 16),
    ("class_SeqTwoByteString__chars__char", 16),
    ("class_ConsString__first__String", 16),
    ("class_ConsString__second__String", 24),
    ("class_ThinString__actual__String", 16),
    ("class_SlicedString__parent__String", 16),
    ("class_SlicedString__offset__SMI", 24),
    ("class_ExternalString__resource__Object", 16),
];

pub(super) const SHARED: u16 = 262;
pub(super) const BYTECODE: u16 = 191;
pub(super) const CODE: u16 = 245;
pub(super) const LIST: u16 = 175;
pub(super) const WEAK_LIST: u16 = 240;
pub(super) const BYTES: u16 = 190;
pub(super) const ONE_BYTE: u16 = 8;
pub(super) const MAP: u16 = 255;

pub(super) const HEAP: u64 = 0x10_0000;
pub(super) const BUILTIN: u64 = 0x40_0000;
pub(super) const SOURCE: &str =
    "import fs from 'fs';\n\nfunction render(page) { return fs.x(page); }\n";

pub(super) fn constants() -> Constants {
    let owned = |(name, value): &(&str, i32)| ((*name).to_owned(), *value);
    NODE_20.iter().map(owned).collect()
}

/// V8Memory from [`HEAP`] on.
#[derive(Clone, Default)]
pub(super) struct V8Memory(pub(super) Vec<u8>);

impl ReadAt for V8Memory {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        let offset = offset.checked_sub(HEAP);
        let offset = offset.ok_or(std::io::ErrorKind::UnexpectedEof)?;
        self.0[..].read_exact_at(buffer, offset)
    }
    fn len(&self) -> u64 {
        self.0.len() as u64
    }
}

pub(super) fn small(value: u64) -> u64 {
    value << 32
}

impl V8Memory {
    /// A new object; a reference to it.
    pub(super) fn object(&mut self, words: &[u64]) -> u64 {
        let at = HEAP + self.0.len() as u64;
        self.0
            .extend(words.iter().flat_map(|word| word.to_le_bytes()));
        at + 1
    }

    pub(super) fn set(&mut self, reference: u64, offset: u64, word: u64) {
        let at = (reference - 1 + offset - HEAP) as usize;
        self.0[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }

    /// The map of a type's objects. The first one is that of maps.
    pub(super) fn map(&mut self, kind: u16) -> u64 {
        if self.0.is_empty() {
            let of_maps = self.object(&[HEAP + 1, u64::from(MAP) << 32]);
            assert_eq!(of_maps, HEAP + 1);
        }
        self.object(&[HEAP + 1, u64::from(kind) << 32])
    }

    pub(super) fn string(&mut self, text: &str) -> u64 {
        let map = self.map(ONE_BYTE);
        let mut words = vec![map, (text.len() as u64) << 32];
        for piece in text.as_bytes().chunks(8) {
            let mut bytes = [0; 8];
            bytes[..piece.len()].copy_from_slice(piece);
            words.push(u64::from_le_bytes(bytes));
        }
        self.object(&words)
    }

    /// A function of the script; what its closures share.
    pub(super) fn function(&mut self, name: &str, data: u64) -> u64 {
        let (source, file) = (self.string(SOURCE), self.string("file:///srv/server.mjs"));
        let script = self.map(167);
        let script = self.object(&[script, source, file, small(0), small(0)]);
        let begin = SOURCE.find("(page)").unwrap() as u64;
        let own = self.string(name);
        // One variable in the context, a name of its own, and an inferred one.
        let flags = 1 << 12 | 1 << 14;
        let (map, variable) = (self.map(261), self.string("page"));
        let scope = self.object(&[
            map,
            small(flags),
            small(1),
            small(1),
            variable,
            small(0),
            own,
            small(0),
            small(0),
            small(begin),
            small(begin + 20),
            0,
        ]);
        let map = self.map(SHARED);
        self.object(&[map, data, scope, 0, script, 0, 0, 0])
    }

    pub(super) fn of_kind(&mut self, kind: u16) -> u64 {
        let map = self.map(kind);
        self.object(&[map, 0, 0, 0, 0, 0, 0, 0])
    }

    pub(super) fn closure(&mut self, shared: u64) -> u64 {
        let map = self.map(2066);
        self.object(&[map, 0, 0, shared, 0, 0, 0, 0])
    }

    /// Compiled code, with what it was made from; an address in it.
    pub(super) fn code(&mut self, data: u64) -> u64 {
        let map = self.map(CODE);
        // By the last compiler, and from two positions: of the second one a function was inlined.
        let calls = self.bytes(&[0, 4, 48, 0x80, 0x80, 0x80, 0x80, 0x10]);
        let code = self.object(&[map, 0, data, calls, 0, 0, 13, 0]);
        let map = self.map(252);
        let stream = self.object(&[map, code, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90]);
        self.set(code, 32, stream);
        self.set(code, 40, stream - 1 + 16);
        stream - 1 + 32
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> u64 {
        let map = self.map(BYTES);
        let mut words = vec![map, small(bytes.len() as u64)];
        for piece in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..piece.len()].copy_from_slice(piece);
            words.push(u64::from_le_bytes(word));
        }
        self.object(&words)
    }

    /// Data on how to leave code of a function, and what was inlined into it.
    pub(super) fn leaving(&mut self, shared: u64, inlined: Option<u64>) -> u64 {
        let count = u64::from(inlined.is_some());
        let map = self.map(WEAK_LIST);
        let functions = self.object(&[map, small(2), inlined.unwrap_or(0), 0]);
        let at = self.bytes(&[0; 16]);
        let map = self.map(LIST);
        let mut words = [0; 16];
        words[..5].copy_from_slice(&[map, small(14), 0, small(count), functions]);
        words[8..10].copy_from_slice(&[shared, at]);
        self.object(&words)
    }
}

/// A V8, its memory, and what reading it has given.
pub(super) struct MadeUpV8 {
    pub(super) v8: V8,
    pub(super) modules: Modules,
    pub(super) losses: Losses,
    pub(super) memory: V8Memory,
}

pub(super) const STACK: u64 = 0x7000_0000;

impl MadeUpV8 {
    pub(super) fn new(memory: V8Memory) -> Self {
        let image = V8Image {
            layout: V8Layout::of(&constants()),
            builtins: 0..0,
        };
        let modules = Modules::default();
        Self {
            v8: V8::open(&image, &modules.budget).unwrap(),
            modules,
            losses: Losses::default(),
            memory,
        }
    }

    /// The frames at an address, of a stack on which the frame pointer leads to the word before the
    /// last two.
    pub(super) fn frames(
        &mut self,
        ip: u64,
        innermost: bool,
        stack: &[u64],
    ) -> Option<ManagedFrames> {
        let bytes: Vec<u8> = stack.iter().flat_map(|word| word.to_le_bytes()).collect();
        let place = ManagedPlace {
            registers: Registers {
                ip,
                sp: STACK,
                bp: STACK + bytes.len() as u64 - 16,
                lr: 0,
            },
            innermost,
            stack: CopiedStack::new(STACK, &bytes),
        };
        let heap = HEAP..HEAP + self.memory.len();
        let code = |address: u64| match address {
            BUILTIN..0x50_0000 => V8Code::Builtin(native()),
            address if heap.contains(&address) => V8Code::Compiled,
            _ => V8Code::Other,
        };
        self.v8.frames(
            place,
            &self.memory,
            &code,
            &mut self.modules,
            &mut self.losses,
        )
    }
}

pub(super) fn native() -> Frame {
    Frame {
        module: 99,
        address: 1,
    }
}

/// A function's part of the stack: bytecode, arguments, function, context, the caller's frame
/// pointer and the return address.
pub(super) fn frame(closure: u64, bytecode: u64) -> [u64; 6] {
    [bytecode, 3, closure, HEAP + 1, STACK + 0x100, BUILTIN + 8]
}

/// A function of the interpreter: its closure and bytecode.
pub(super) fn interpreted(memory: &mut V8Memory) -> (u64, u64) {
    let bytecode = memory.of_kind(BYTECODE);
    let shared = memory.function("render", bytecode);
    (memory.closure(shared), bytecode)
}
