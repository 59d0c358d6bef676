//! Where CPython keeps what, by version (x86-64).
//!
//! The tables for 3.8 to 3.12 were computed with `offsetof` from the headers of 3.8.18, 3.9.18,
//! 3.10.13, 3.11.7 and 3.12.1, and are tested against those interpreters; the structures do not
//! change within a minor version once it is released. 3.13 and 3.14 say themselves
//! (`_Py_DebugOffsets` at the start of `_PyRuntime`); what they leave out was computed from the
//! headers of 3.13.0 and 3.14.8.

use crate::elf::u64_at;

/// Offsets in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PythonLayout {
    pub(super) interpreters_head: u64,
    pub(super) interpreter_next: u64,
    pub(super) interpreter_threads: u64,
    pub(super) thread_next: u64,
    pub(super) thread_interpreter: u64,
    pub(super) thread: ThreadId,
    pub(super) frames: Frames,
    pub(super) code: CodeObject,
    /// Sizes of `PyASCIIObject` and `PyCompactUnicodeObject`: where a string's characters are.
    pub(super) string_headers: (u64, u64),
    /// How coroutines are laid out. `None`: before 3.11, where nobody reads them.
    pub(super) coroutines: Option<CoroutineLayout>,
}

/// Coroutines and generators, and how to find those of tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CoroutineLayout {
    /// In the interpreter's state: the dictionary of modules.
    pub(super) modules: u64,
    /// In the coroutine: how far it is.
    pub(super) state: u64,
    /// What that is before it has begun.
    pub(super) new: i8,
    /// In the coroutine: its frame, which lies within it.
    pub(super) frame: u64,
    /// In the frame: local variables, and behind them the stack of values.
    pub(super) locals: u64,
    /// In the frame: where that stack ends.
    pub(super) top: StackTop,
    /// In a code object: how many local variables there are.
    pub(super) local_count: u64,
    /// Tasks are in lists of their threads (from 3.14), and not in a set.
    pub(super) listed: bool,
}

/// How a frame says where its stack of values ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StackTop {
    /// By the number of values, local variables included.
    Count(u64),
    /// By an address.
    Address(u64),
}

/// How a thread state says whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ThreadId {
    /// By the address of the C library's thread structure.
    Pthread(u64),
    /// By the kernel's thread id.
    Native(u64),
}

/// How frames are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Frames {
    /// Objects, one for each call of the interpreter's loop (to 3.10). The last instruction counts
    /// units of `unit` bytes.
    Objects {
        current: u64,
        back: u64,
        code: u64,
        last: u64,
        unit: u64,
    },
    /// `_PyInterpreterFrame`, several for each call of the loop (from 3.11).
    Light {
        /// In the thread state.
        current: u64,
        /// `current` leads to a `_PyCFrame` on the C stack, one for each call of the loop (3.11,
        /// 3.12).
        indirect: Option<CFrame>,
        previous: u64,
        code: u64,
        instruction: u64,
        entry: Entry,
    },
}

/// `_PyCFrame`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CFrame {
    pub(super) current: u64,
    pub(super) previous: u64,
}

/// How the outermost frame of a call of the interpreter's loop is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    /// A flag in the frame itself (3.11).
    Flag(u64),
    /// A frame behind it without code, whose owner (at this offset) is `FRAME_OWNED_BY_CSTACK`, 3.
    Shim(u64),
}

/// The code object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CodeObject {
    pub(super) name: u64,
    pub(super) file: u64,
    pub(super) first_line: u64,
    pub(super) lines: u64,
    pub(super) line_format: LineFormat,
    /// Where the instructions start, for frames that keep a pointer to the instruction.
    pub(super) instructions: u64,
}

/// How line numbers are written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineFormat {
    /// `co_lnotab` (to 3.9).
    Lnotab,
    /// `co_linetable` of 3.10.
    Deltas,
    /// `co_linetable` since 3.11 (`Objects/locations.md`).
    Locations,
}

impl ThreadId {
    /// Where a thread state has the thread pointer: the C library's name of the thread, which is
    /// that on Linux, stands before the kernel's id (`PyThreadState.thread_id`).
    pub(super) fn pointer(self) -> u64 {
        match self {
            ThreadId::Pthread(at) => at,
            ThreadId::Native(at) => at.saturating_sub(8),
        }
    }
}

impl Entry {
    /// Where a frame says who owns it: in 3.11 behind the flag.
    pub(super) fn owner(self) -> u64 {
        match self {
            Entry::Flag(at) => at + 1,
            Entry::Shim(at) => at,
        }
    }
}

pub(super) const OWNED_BY_C_STACK: u8 = 3;

impl PythonLayout {
    /// The layout of a minor version (of 3), for versions without debug offsets.
    pub(super) fn of(minor: u32) -> Option<Self> {
        match minor {
            8 => Some(objects(104, 1, LineFormat::Lnotab)),
            9 => Some(objects(104, 1, LineFormat::Lnotab)),
            10 => Some(objects(96, 2, LineFormat::Deltas)),
            11 => Some(Self {
                interpreters_head: 40,
                interpreter_next: 0,
                interpreter_threads: 16,
                thread_next: 8,
                thread_interpreter: 16,
                thread: ThreadId::Native(160),
                frames: Frames::Light {
                    current: 56,
                    indirect: Some(CFrame {
                        current: 8,
                        previous: 16,
                    }),
                    previous: 48,
                    code: 32,
                    instruction: 56,
                    entry: Entry::Flag(68),
                },
                code: light_code(72, 184),
                string_headers: (48, 72),
                coroutines: Some(CoroutineLayout {
                    modules: 888,
                    state: 75,
                    new: -2,
                    frame: 80,
                    locals: 72,
                    top: StackTop::Count(64),
                    local_count: 76,
                    listed: false,
                }),
            }),
            12 => Some(Self {
                interpreters_head: 40,
                interpreter_next: 0,
                interpreter_threads: 72,
                thread_next: 8,
                thread_interpreter: 16,
                thread: ThreadId::Native(144),
                frames: Frames::Light {
                    current: 56,
                    indirect: Some(CFrame {
                        current: 0,
                        previous: 8,
                    }),
                    previous: 8,
                    code: 0,
                    instruction: 56,
                    entry: Entry::Shim(70),
                },
                code: light_code(68, 192),
                string_headers: (40, 56),
                coroutines: Some(CoroutineLayout {
                    modules: 944,
                    state: 67,
                    new: -2,
                    frame: 72,
                    locals: 72,
                    top: StackTop::Count(64),
                    local_count: 72,
                    listed: false,
                }),
            }),
            _ => None,
        }
    }

    /// How much of `_PyRuntime` [`from_debug_offsets`](Self::from_debug_offsets) looks at.
    pub(super) const DEBUG_OFFSETS: usize = 720;

    /// The layout that the interpreter itself states (`pycore_runtime.h` of 3.13,
    /// `pycore_debug_offsets.h` of 3.14; `_Py_DebugOffsets`).
    pub(super) fn from_debug_offsets(bytes: &[u8]) -> Option<Self> {
        if !bytes.starts_with(b"xdebugpy") {
            return None;
        }
        // Anything absurd means that this is not the structure we know.
        let word = |i: usize| u64_at(bytes, i * 8).filter(|&value| value < 1 << 20);
        let version = u64_at(bytes, 8)?;
        let free_threaded = word(2)? != 0;
        let places = match version >> 16 {
            0x030d => DebugOffsets::V3_13,
            0x030e => DebugOffsets::V3_14,
            _ => return None,
        };
        if free_threaded {
            return None;
        }
        let DebugOffsets {
            interpreter,
            modules,
            thread,
            frame,
            code,
            coroutine,
        } = places;
        let (state, coroutine_frame, top) = match coroutine {
            Some(coroutine) => (
                word(coroutine + 3)?,
                word(coroutine + 2)?,
                StackTop::Address(word(frame + 6)?),
            ),
            None => (67, 72, StackTop::Count(64)),
        };
        Some(Self {
            interpreters_head: word(DebugOffsets::RUNTIME + 2)?,
            interpreter_next: word(interpreter + 2)?,
            interpreter_threads: word(interpreter + 3)?,
            thread_next: word(thread + 2)?,
            thread_interpreter: word(thread + 3)?,
            thread: ThreadId::Native(word(thread + 6)?),
            frames: Frames::Light {
                current: word(thread + 4)?,
                indirect: None,
                previous: word(frame + 1)?,
                code: word(frame + 2)?,
                instruction: word(frame + 3)?,
                entry: Entry::Shim(word(frame + 5)?),
            },
            code: CodeObject {
                file: word(code + 1)?,
                name: word(code + 3)?,
                lines: word(code + 4)?,
                first_line: word(code + 5)?,
                line_format: LineFormat::Locations,
                instructions: word(code + 9)?,
            },
            string_headers: (40, 56),
            coroutines: Some(CoroutineLayout {
                modules: word(modules)?,
                state,
                new: -3,
                frame: coroutine_frame,
                locals: word(frame + 4)?,
                top,
                local_count: 72,
                listed: coroutine.is_some(),
            }),
        })
    }
}

/// Where in `_Py_DebugOffsets` the offsets of each structure begin, in words: later versions insert
/// some.
struct DebugOffsets {
    interpreter: usize,
    /// The interpreter's dictionary of modules.
    modules: usize,
    thread: usize,
    frame: usize,
    code: usize,
    /// `None`: not stated.
    coroutine: Option<usize>,
}

impl DebugOffsets {
    const RUNTIME: usize = 3;
    const V3_13: Self = Self {
        interpreter: 6,
        modules: 11,
        thread: 19,
        frame: 28,
        code: 34,
        coroutine: None,
    };
    const V3_14: Self = Self {
        interpreter: 6,
        modules: 12,
        thread: 22,
        frame: 31,
        code: 39,
        coroutine: Some(83),
    };
}

fn objects(last: u64, unit: u64, line_format: LineFormat) -> PythonLayout {
    PythonLayout {
        interpreters_head: 32,
        interpreter_next: 0,
        interpreter_threads: 8,
        thread_next: 8,
        thread_interpreter: 16,
        thread: ThreadId::Pthread(176),
        frames: Frames::Objects {
            current: 24,
            back: 24,
            code: 32,
            last,
            unit,
        },
        code: CodeObject {
            name: 112,
            file: 104,
            first_line: 40,
            lines: 120,
            line_format,
            instructions: 0,
        },
        string_headers: (48, 72),
        coroutines: None,
    }
}

fn light_code(first_line: u64, instructions: u64) -> CodeObject {
    CodeObject {
        name: 128,
        file: 112,
        first_line,
        lines: 136,
        line_format: LineFormat::Locations,
        instructions,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_debug_offsets_are_refused() {
        assert_eq!(PythonLayout::from_debug_offsets(b""), None);
        let mut bytes = vec![0u8; PythonLayout::DEBUG_OFFSETS];
        bytes[..8].copy_from_slice(b"xdebugpy");
        assert_eq!(PythonLayout::from_debug_offsets(&bytes), None, "version 0");
        bytes[8..16].copy_from_slice(&0x030d_00f0u64.to_le_bytes());
        assert!(PythonLayout::from_debug_offsets(&bytes).is_some());
        assert_eq!(PythonLayout::from_debug_offsets(&bytes[..100]), None);
        bytes[40..48].fill(0xff);
        assert_eq!(PythonLayout::from_debug_offsets(&bytes), None);
    }
}
