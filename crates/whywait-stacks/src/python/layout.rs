//! Where CPython keeps what, by version (x86-64).
//!
//! The tables for 3.8 to 3.12 were computed with `offsetof` from the headers of 3.8.18, 3.9.18,
//! 3.10.13, 3.11.7 and 3.12.1, and are tested against those interpreters; the structures do not
//! change within a minor version once it is released. 3.13 says itself (`_Py_DebugOffsets` at the
//! start of `_PyRuntime`).

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
            }),
            _ => None,
        }
    }

    /// How much of `_PyRuntime` [`from_debug_offsets`](Self::from_debug_offsets) looks at.
    pub(super) const DEBUG_OFFSETS: usize = 384;

    /// The layout that the interpreter itself states (`pycore_runtime.h` of 3.13,
    /// `_Py_DebugOffsets`).
    pub(super) fn from_debug_offsets(bytes: &[u8]) -> Option<Self> {
        if !bytes.starts_with(b"xdebugpy") {
            return None;
        }
        // Anything absurd means that this is not the structure we know.
        let word = |i: usize| u64_at(bytes, i * 8).filter(|&value| value < 1 << 20);
        let version = u64_at(bytes, 8)?;
        let free_threaded = word(2)? != 0;
        // The order of the fields is that of 3.13; later versions insert some.
        if version >> 16 != 0x030d || free_threaded {
            return None;
        }
        const RUNTIME: usize = 3;
        const INTERPRETER: usize = RUNTIME + 3;
        const THREAD: usize = INTERPRETER + 13;
        const FRAME: usize = THREAD + 9;
        const CODE: usize = FRAME + 6;
        Some(Self {
            interpreters_head: word(RUNTIME + 2)?,
            interpreter_next: word(INTERPRETER + 2)?,
            interpreter_threads: word(INTERPRETER + 3)?,
            thread_next: word(THREAD + 2)?,
            thread_interpreter: word(THREAD + 3)?,
            thread: ThreadId::Native(word(THREAD + 6)?),
            frames: Frames::Light {
                current: word(THREAD + 4)?,
                indirect: None,
                previous: word(FRAME + 1)?,
                code: word(FRAME + 2)?,
                instruction: word(FRAME + 3)?,
                entry: Entry::Shim(word(FRAME + 5)?),
            },
            code: CodeObject {
                file: word(CODE + 1)?,
                name: word(CODE + 3)?,
                lines: word(CODE + 4)?,
                first_line: word(CODE + 5)?,
                line_format: LineFormat::Locations,
                instructions: word(CODE + 9)?,
            },
            string_headers: (40, 56),
        })
    }
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
