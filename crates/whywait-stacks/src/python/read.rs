//! Reading the interpreter's frames out of a process.

use std::collections::HashMap;
use std::sync::Arc;

use super::layout::{Entry, Frames, OWNED_BY_C_STACK, PythonLayout, ThreadId};
use super::lines;
use super::tasks::Tasks;
use crate::budget::Budget;
use crate::elf::u64_at;
use crate::interpreter::{CodeNames, CodePlace, CopiedFunction, RawFrame};
use crate::loss::Unread;
use crate::perf_map::own_id;
use crate::process::{Process, field, object, word};

/// The interpreter in a process.
#[derive(Debug)]
pub(crate) struct CPython {
    pub(super) layout: PythonLayout,
    /// Address of `_PyRuntime`.
    pub(super) runtime: u64,
    /// Addresses of `PyCode_Type`, `PyUnicode_Type` and `PyBytes_Type`: what is read must be of
    /// these types.
    pub(super) types: [u64; 3],
    codes: HashMap<[u64; 4], Arc<CodeNames>>,
    budget: Budget,
    /// The thread's id and state of a process that was forked without Python knowing: the state
    /// has the id of the thread that forked it.
    pub(super) forked: Option<(u32, u64)>,
    /// What is known of its tasks.
    pub(super) tasks: Tasks,
}

const MAX_INTERPRETERS: usize = 64;
const MAX_THREADS: usize = 8192;
/// Of so many it is looked for where they have their state.
const LOOKED_AT_THREADS: usize = 16;
const MAX_STRING: u64 = 4096;
/// Functions of thousands of lines have less.
const MAX_LINES: u64 = 128 << 10;
/// What a code object takes beside its strings and lines.
const CODE: usize = 2 * size_of::<([u64; 4], Arc<CodeNames>)>() + size_of::<CodeNames>();
const MAX_CODES: usize = 1 << 16;
impl CPython {
    pub(super) fn new(
        layout: PythonLayout,
        runtime: u64,
        types: [u64; 3],
        budget: &Budget,
    ) -> Self {
        Self {
            layout,
            runtime,
            types,
            codes: HashMap::new(),
            budget: budget.clone(),
            forked: None,
            tasks: Tasks::default(),
        }
    }

    /// The line that a frame is at.
    pub(super) fn line_of(&self, code: &CodeNames, raw: &RawFrame) -> u32 {
        // A frame that has not begun yet points in front of its first instruction.
        let offset = match self.layout.frames {
            Frames::Objects { unit, .. } => {
                u64::try_from(raw.instruction as i32).unwrap_or(0) * unit
            }
            Frames::Light { .. } => raw.instruction.saturating_sub(code.place.begin),
        };
        let format = self.layout.code.line_format;
        code.line(offset, |table| {
            lines::line(format, table, code.place.first_line, offset)
        })
    }

    /// The thread state of thread `tid` (an id in the process's own pid namespace).
    pub(super) fn thread_state(&self, process: &mut Process, tid: u32) -> Result<u64, Unread> {
        let layout = &self.layout;
        let read = |process: &mut Process, object, offset| {
            field(process, object, offset).ok_or(Unread::Memory)
        };
        let mut interpreter = read(process, self.runtime, layout.interpreters_head)?;
        for _ in 0..MAX_INTERPRETERS {
            if interpreter == 0 {
                break;
            }
            let mut thread = read(process, interpreter, layout.interpreter_threads)?;
            for _ in 0..MAX_THREADS {
                if thread == 0 {
                    break;
                }
                if read(process, thread, layout.thread_interpreter)? != interpreter {
                    return Err(Unread::Memory);
                }
                if self
                    .is_state_of(process, thread, tid)
                    .ok_or(Unread::Memory)?
                {
                    return Ok(thread);
                }
                thread = read(process, thread, layout.thread_next)?;
            }
            interpreter = read(process, interpreter, layout.interpreter_next)?;
        }
        Err(Unread::Thread)
    }

    /// All thread states, with the threads' ids in the process's own pid namespace; `None`: they
    /// could not be read, or do not say whose they are.
    pub(super) fn threads(&self, process: &mut Process) -> Option<Vec<(u32, u64)>> {
        let ThreadId::Native(at) = self.layout.thread else {
            return None;
        };
        let states = self.states(process)?;
        let mut whose = |state| Some((u32::try_from(field(process, state, at)?).ok()?, state));
        states.into_iter().map(&mut whose).collect()
    }

    /// All thread states; `None`: they could not be read.
    pub(super) fn states(&self, process: &mut Process) -> Option<Vec<u64>> {
        let layout = &self.layout;
        let mut states = Vec::new();
        let mut interpreter = field(process, self.runtime, layout.interpreters_head)?;
        for _ in 0..MAX_INTERPRETERS {
            if interpreter == 0 {
                break;
            }
            let mut thread = field(process, interpreter, layout.interpreter_threads)?;
            for _ in 0..MAX_THREADS {
                if thread == 0 {
                    break;
                }
                states.push(thread);
                thread = field(process, thread, layout.thread_next)?;
            }
            interpreter = field(process, interpreter, layout.interpreter_next)?;
        }
        Some(states)
    }

    /// Where in the threads' own data the address of their state is: at the same place in each of
    /// those that are looked at. It is not asked which C library that is; one that has them
    /// elsewhere has no such place.
    pub(super) fn own_state(&self, process: &mut Process, states: &[u64]) -> Option<u64> {
        /// Of what glibc has at the thread pointer, `pthread_setspecific`'s first block is within.
        const OWN_BYTES: usize = 0x600;
        let mut places: Option<Vec<u64>> = None;
        for &state in states.iter().take(LOOKED_AT_THREADS) {
            let pointer = field(process, state, self.layout.thread.pointer())?;
            let mut own = [0; OWN_BYTES];
            if pointer >= crate::arch::USER_END || !process.read_memory(pointer, &mut own) {
                return None;
            }
            let has = |at: &u64| u64_at(&own, *at as usize) == Some(state);
            places = Some(match places {
                Some(places) => places.into_iter().filter(has).collect(),
                None => (8..OWN_BYTES as u64 - 8).step_by(8).filter(has).collect(),
            });
        }
        places?.first().copied()
    }

    /// A function as it was copied with a stack; `Some(None)`: of a C function that called the
    /// loop. `None`: its instruction is not one of its code, so that it is not what it was.
    pub(super) fn raw_of_copied(
        &self,
        process: &mut Process,
        function: &CopiedFunction,
    ) -> Option<Option<RawFrame>> {
        /// `PyVarObject.ob_size`: how many units of two bytes its code has.
        const UNITS: u64 = 16;
        if function.code == 0 {
            return Some(None);
        }
        let code = untagged(function.code);
        let mut raw = RawFrame {
            address: 0,
            code,
            instruction: function.instruction,
            call: 0,
        };
        if let Frames::Objects { .. } = self.layout.frames {
            // Its number, in four bytes.
            raw.instruction &= u64::from(u32::MAX);
            return Some(Some(raw));
        }
        let units = field(process, code, UNITS)?;
        let begin = code.checked_add(self.layout.code.instructions)?;
        // A frame that has not begun points in front of its first one.
        let at = function.instruction.checked_add(2)?.checked_sub(begin)?;
        (at / 2 <= units).then_some(Some(raw))
    }

    /// The state of thread `tid`, if that is the first one of its process, and the only state there
    /// is has the id of no such thread. So it is in a process that C has forked, as uWSGI does:
    /// only `os.fork`, or who calls `PyOS_AfterFork_Child` itself, sets it right.
    pub(super) fn state_of_forked(&mut self, process: &mut Process, tid: u32) -> Option<u64> {
        let [(other, state)] = self.threads(process)?[..] else {
            return None;
        };
        let status = format!("/proc/{}/status", process.tgid());
        let is_first = other != tid && own_id(&status) == Some(tid);
        is_first.then(|| self.forked = Some((tid, state)))?;
        Some(state)
    }

    /// Whether a thread state is that of thread `tid`.
    pub(super) fn is_state_of(&self, process: &mut Process, thread: u64, tid: u32) -> Option<bool> {
        if self.forked == Some((tid, thread)) {
            return Some(true);
        }
        match self.layout.thread {
            ThreadId::Native(at) => Some(field(process, thread, at)? == u64::from(tid)),
            ThreadId::Pthread(at) => {
                let pthread = field(process, thread, at)?;
                Some(is_thread(process, pthread, tid))
            }
        }
    }

    /// The frames of a thread, innermost first, as they are chained; `None`: that could not be
    /// read, or is deeper than `most`.
    pub(super) fn chained(
        &self,
        process: &mut Process,
        thread: u64,
        most: usize,
    ) -> Option<Vec<RawFrame>> {
        match self.layout.frames {
            Frames::Objects { .. } => self.object_frames(process, thread, most),
            Frames::Light { .. } => self.light_frames(process, thread, most),
        }
    }

    fn object_frames(
        &self,
        process: &mut Process,
        thread: u64,
        most: usize,
    ) -> Option<Vec<RawFrame>> {
        let Frames::Objects {
            current,
            back,
            code,
            last,
            ..
        } = self.layout.frames
        else {
            return None;
        };
        let mut frame = field(process, thread, current)?;
        let mut chain = Vec::new();
        while frame != 0 {
            if chain.len() >= most {
                return None;
            }
            let bytes = object(process, frame, 112)?;
            chain.push(RawFrame {
                address: frame,
                code: u64_at(&bytes, code as usize)?,
                instruction: u64::from(crate::elf::u32_at(&bytes, last as usize)?),
                call: frame,
            });
            frame = u64_at(&bytes, back as usize)?;
        }
        Some(chain)
    }

    fn light_frames(
        &self,
        process: &mut Process,
        thread: u64,
        most: usize,
    ) -> Option<Vec<RawFrame>> {
        let Frames::Light {
            current,
            indirect,
            previous,
            code,
            instruction,
            entry,
        } = self.layout.frames
        else {
            return None;
        };
        let mut frame = field(process, thread, current)?;
        let mut call = 0;
        if let Some(cframe) = indirect.filter(|_| frame != 0) {
            call = frame;
            frame = field(process, call, cframe.current)?;
        }
        let (mut chain, mut group, mut count) = (Vec::new(), 0, 0);
        while frame != 0 {
            count += 1;
            if count > most {
                return None;
            }
            let bytes = object(process, frame, 80)?;
            let ends = match entry {
                Entry::Flag(at) => *bytes.get(at as usize)? != 0,
                Entry::Shim(at) => *bytes.get(at as usize)? == OWNED_BY_C_STACK,
            };
            // A shim belongs to the C function that entered the loop; it has no code of the
            // program.
            if !(ends && matches!(entry, Entry::Shim(_))) {
                chain.push(RawFrame {
                    address: frame,
                    code: untagged(u64_at(&bytes, code as usize)?),
                    instruction: u64_at(&bytes, instruction as usize)?,
                    call,
                });
            }
            if ends {
                match indirect {
                    Some(cframe) => call = field(process, call, cframe.previous)?,
                    // Known only now: the shim is what lies on the C stack.
                    None => chain[group..].iter_mut().for_each(|raw| raw.call = frame),
                }
                group = chain.len();
            }
            frame = u64_at(&bytes, previous as usize)?;
        }
        Some(chain)
    }

    /// What a code object is called, and where its instructions are. The object is looked at each
    /// time: another one may be at its address by now.
    pub(super) fn code_at(&mut self, process: &mut Process, code: u64) -> Option<Arc<CodeNames>> {
        let bytes = object(process, code, 200)?;
        if u64_at(&bytes, 8)? != self.types[0] {
            return None;
        }
        let pointer = |at: u64| u64_at(&bytes, at as usize);
        let layout = &self.layout.code;
        let first_line = crate::elf::u32_at(&bytes, layout.first_line as usize)?;
        let key = [
            code,
            pointer(layout.name)?,
            pointer(layout.lines)?,
            u64::from(first_line),
        ];
        if let Some(names) = self.codes.get(&key) {
            return Some(Arc::clone(names));
        }
        if self.codes.len() >= MAX_CODES || self.budget.is_short() {
            self.codes = HashMap::new();
        }
        let begin = code.wrapping_add(self.layout.code.instructions);
        let names = Arc::new(self.names(process, &bytes, first_line, begin)?);
        self.codes.insert(key, Arc::clone(&names));
        Some(names)
    }

    fn names(
        &self,
        process: &mut Process,
        code: &[u8],
        first_line: u32,
        begin: u64,
    ) -> Option<CodeNames> {
        let layout = &self.layout.code;
        let name = self.string(process, u64_at(code, layout.name as usize)?)?;
        let file = self.string(process, u64_at(code, layout.file as usize)?)?;
        let table = u64_at(code, layout.lines as usize)?;
        let head = object(process, table, 32)?;
        let size = u64_at(&head, 16)?;
        if u64_at(&head, 8)? != self.types[2] {
            return None;
        }
        let mut charge = self.budget.take(CODE + name.len() + file.len())?;
        let lines = if size > MAX_LINES {
            self.budget.refuse();
            None
        } else if charge.grow(size as usize) {
            let mut lines = vec![0; size as usize];
            process
                .read_memory(table.checked_add(32)?, &mut lines)
                .then_some(())?;
            Some(lines)
        } else {
            None
        };
        let place = CodePlace {
            file,
            first_line,
            begin,
        };
        Some(CodeNames::new(name, place, lines, charge))
    }

    /// A `str`: ASCII or, with the wider header, of 1, 2 or 4 bytes a character.
    pub(super) fn string(&self, process: &mut Process, at: u64) -> Option<String> {
        let head = object(process, at, 40)?;
        if u64_at(&head, 8)? != self.types[1] {
            return None;
        }
        let length = u64_at(&head, 16)?.min(MAX_STRING);
        let state = crate::elf::u32_at(&head, 32)?;
        let (kind, compact, ascii) = (
            u64::from(state >> 2 & 7),
            state >> 5 & 1 != 0,
            state >> 6 & 1 != 0,
        );
        if !compact || !matches!(kind, 1 | 2 | 4) {
            return None;
        }
        let header = if ascii {
            self.layout.string_headers.0
        } else {
            self.layout.string_headers.1
        };
        let mut bytes = vec![0; (length * kind) as usize];
        process
            .read_memory(at.checked_add(header)?, &mut bytes)
            .then_some(())?;
        let character = |value: u32| char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER);
        Some(match kind {
            1 => bytes.iter().map(|&b| char::from(b)).collect(),
            2 => bytes
                .chunks_exact(2)
                .map(|c| character(u32::from(u16::from_le_bytes([c[0], c[1]]))))
                .collect(),
            _ => bytes
                .chunks_exact(4)
                .map(|c| character(u32::from_le_bytes([c[0], c[1], c[2], c[3]])))
                .collect(),
        })
    }
}

/// Whether glibc's thread structure at `pthread` is that of thread `tid`. Its head points to itself
/// at 16, and the thread's id is at 720 (glibc for x86-64 keeps both in place: debuggers'
/// `libthread_db` users rely on them).
fn is_thread(process: &mut Process, pthread: u64, tid: u32) -> bool {
    const SELF: u64 = 16;
    const TID: u64 = 720;
    if pthread >= crate::arch::USER_END || word(process, pthread + SELF) != Some(pthread) {
        return false;
    }
    let mut bytes = [0; 4];
    process.read_memory(pthread + TID, &mut bytes) && u32::from_le_bytes(bytes) == tid
}

/// The address of an object to which a frame refers: from 3.14 on the lowest bits say how
/// (`_PyStackRef`).
pub(super) fn untagged(reference: u64) -> u64 {
    reference & !3
}

#[cfg(test)]
mod tests {
    use super::super::layout::PythonLayout;
    use super::super::made_up::{MadeUpMemory, WORDS};
    use super::*;
    use crate::fuzzing::in_own_process;
    use crate::modules::Modules;

    fn in_made_up(made: &MadeUpMemory, look: impl FnOnce(&mut CPython, &mut Process)) {
        let layout = PythonLayout::of(12).expect("3.12 is known");
        let mut python = made.interpreter(layout, &Modules::default().budget);
        in_own_process(|process| look(&mut python, process));
    }

    #[test]
    fn a_copied_function_is_in_its_code_or_none() {
        let made = MadeUpMemory::new();
        let begin = made.code + 192;
        in_made_up(&made, |python, process| {
            let mut at = |code, instruction| {
                let function = CopiedFunction {
                    code,
                    instruction,
                    last: false,
                };
                python.raw_of_copied(process, &function)
            };
            assert_eq!(at(0, 0), Some(None), "a shim");
            let known = at(made.code, begin + 4).flatten().expect("in its code");
            assert_eq!(known.code, made.code);
            assert!(at(made.code, begin - 2).is_some(), "it has not begun");
            assert!(at(made.code, begin + 8).is_none(), "behind its code");
            assert!(at(made.code, begin - 4).is_none());
            assert!(at(made.code, 0).is_none() && at(made.code, u64::MAX).is_none());
            assert!(at(8, begin).is_none(), "nothing is there");
        });
    }

    #[test]
    fn threads_have_their_state_at_one_place() {
        let mut made = MadeUpMemory::new();
        // Two states, each with the thread pointer at 136, and two threads' own data.
        let first = made.address() + made.words.len() as u64 * 8;
        let (second, own) = (first + 256, [first + 512, first + 512 + 0x600]);
        made.words.resize(WORDS, 0);
        for (state, own) in [first, second].into_iter().zip(own) {
            made.set(state + 136, own);
            made.set(own + 0x318, state);
        }
        // A leftover that one thread has and the other does not.
        made.set(own[0] + 0x80, first);
        let place = |made: &MadeUpMemory, states: &[u64]| {
            let mut found = None;
            in_made_up(made, |python, process| {
                found = python.own_state(process, states);
            });
            found
        };
        assert_eq!(place(&made, &[first, second]), Some(0x318));
        made.set(own[1] + 0x318, first);
        assert_eq!(place(&made, &[first, second]), None);
        assert_eq!(place(&made, &[]), None);
    }
}
