//! The tables that say what the ids of stacks and the addresses in them mean: `stacks`, `modules`
//! and `symbols`.

use crate::StackId;
use crate::names::names;
use crate::recording::{Record, Sink, table};

/// A stack, innermost frame first: as many rows of the table `stacks` as it has frames.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stack {
    /// Its id, from 1.
    pub id: StackId,
    /// Whether unwinding ended before the thread's start (too few bytes copied, or no unwind data).
    pub truncated: bool,
    /// Frames, innermost first.
    pub frames: Vec<Frame>,
}

/// A frame: an address within a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Frame {
    /// Which [`Module`].
    pub module: u32,
    /// For an ELF file: the address as its symbol table has it (not a file offset, not a process
    /// address), of the call instruction rather than of the return address. For other kinds: a
    /// number that [`Symbol`] names.
    pub address: u64,
}

table! {
    /// A frame of a stack. A stack without frames has one row, whose `module` and `address` are
    /// NULL. A flight recorder repeats a stack in each segment that names it: count `DISTINCT`, or
    /// group by `stack, depth`.
    pub(crate) struct StackRow {
        /// Id of the stack.
        stack: StackId = Delta,
        /// 0: the innermost frame.
        depth: u32 = Delta,
        /// The frame.
        frame: Option<Frame> = Dictionary {
            /// Module of the frame.
            module,
            /// Address as in the module's symbol table, so without load address; of the call
            /// rather than of the return address.
            address,
        },
        /// Unwinding ended before the thread's start (too few bytes copied, or no unwind data).
        truncated: bool = Plain,
    }
}

impl Record for Stack {
    fn rows<S: Sink>(&self, sink: &mut S) -> Result<(), S::Error> {
        let row = |depth, frame| StackRow {
            stack: self.id,
            depth,
            frame,
            truncated: self.truncated,
        };
        if self.frames.is_empty() {
            return sink.row(&row(0, None));
        }
        for (depth, frame) in (0..).zip(&self.frames) {
            sink.row(&row(depth, Some(*frame)))?;
        }
        Ok(())
    }
}

names! {
    /// What a module is.
    pub enum ModuleKind, default Unknown, unknown names Unknown {
        /// A mapped ELF file.
        Elf = 0 "elf",
        /// The kernel. Addresses are arbitrary numbers (no kernel address is written to disk).
        Kernel = 1 "kernel",
        /// Anonymous code, such as a just-in-time compiler's.
        Jit = 2 "jit",
        /// Frames of the Python interpreter.
        Python = 3 "python",
        /// Frames of the Ruby interpreter.
        Ruby = 5 "ruby",
        /// Frames of PHP's engine.
        Php = 6 "php",
        /// No mapping was found for the address.
        Unknown = 4 "unknown",
    }
}

impl ModuleKind {
    /// Whether its frames are functions that an interpreter runs.
    pub const fn is_interpreted(self) -> bool {
        matches!(self, Self::Python | Self::Ruby | Self::Php)
    }
}

/// What all code of a just-in-time compiler is called that has no name of its own. It may be any
/// function.
pub const UNNAMED_JIT: &str = "[jit]";

table! {
    /// A mapped file, or another source of frames.
    pub struct Module {
        /// Id of the module, from 1.
        id: u32 = Delta { module },
        /// What it is.
        kind: ModuleKind = Dictionary,
        /// GNU build-id in hex, empty when it has none.
        build_id: String = Plain,
        /// Its path as the target saw it. Hostile: it may hold any byte; what is not UTF-8 was
        /// replaced.
        path: String = Plain,
    }
}

table! {
    /// The name of a frame. A frame in inlined code has several, innermost (`depth` 0) first.
    pub struct Symbol {
        /// The frame.
        frame: Frame = Dictionary {
            /// With `address`: the frame.
            module,
            /// See `stacks`.
            address,
        },
        /// 0: the innermost function at the address; 1: the function it was inlined into; and so
        /// on.
        depth: u16 = Dictionary,
        /// Demangled function name. Hostile.
        name: String = Dictionary,
        /// Source file, empty when unknown. Hostile.
        file: String = Dictionary,
        /// Line, 0 when unknown.
        line: u32 = Dictionary,
    }
}
