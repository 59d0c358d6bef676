//! Python frames of a thread, read from outside out of CPython's own structures: see
//! [`interpreter`](crate::interpreter).

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod layout;
mod lines;
#[cfg(any(test, fuzzing))]
mod made_up;
mod objects;
mod read;
mod tasks;

use std::ops::Range;
use std::sync::Arc;

use whywait_events::ModuleKind;

use crate::interpreter::{
    CodeNames, CopiedFrames, CopiedFunction, CoroutinePlaces, FoundInterpreter, FramePlaces,
    Interpreter, LastOfCall, LoopCalls, RawFrame, Reader, StatePlace,
};
use crate::loss::{Language, Loss, Losses, Unread};
use crate::modules::{Image, Modules, PythonImage};
use crate::process::Process;
use layout::{Entry, Frames, PythonLayout};
pub(crate) use read::CPython;
pub use tasks::{CoroutineTask, TaskLocks, TaskPlace};

/// Where a process's interpreter has what its threads run; `None`: it is not Python, of a version
/// that is not known, or has not begun to run.
pub(crate) fn places(
    reader: &mut Reader<CPython>,
    process: &mut Process,
    modules: &mut Modules,
    losses: &mut Losses,
) -> Option<FramePlaces> {
    reader.look_again(process, modules, losses);
    let runtime = reader.interpreter(process.tgid())?;
    let states = runtime.states(process)?;
    // Without a thread it has not begun.
    states.first()?;
    let state = StatePlace::Own {
        at: runtime.own_state(process, &states),
        thread_pointer: runtime.layout.thread.pointer(),
    };
    Some(match runtime.layout.frames {
        Frames::Objects {
            current,
            back,
            code,
            last,
            ..
        } => FramePlaces {
            current,
            current_in_cframe: None,
            previous: back,
            code,
            instruction: last,
            last_of_call: LastOfCall::Each,
            state,
            coroutines: None,
        },
        Frames::Light {
            current,
            indirect,
            previous,
            code,
            instruction,
            entry,
        } => FramePlaces {
            current,
            current_in_cframe: indirect.map(|cframe| cframe.current),
            previous,
            code,
            instruction,
            last_of_call: match entry {
                Entry::Flag(at) => LastOfCall::Flag { at, mask: u8::MAX },
                Entry::Shim(at) => LastOfCall::Shim(at),
            },
            state,
            coroutines: Some(CoroutinePlaces {
                owner: entry.owner(),
                threads: runtime.threads(process)?,
            }),
        },
    })
}

/// Where the tasks of a process's asyncio are; none where it is no Python of which [`places`]
/// knows.
pub(crate) fn tasks(
    reader: &mut Reader<CPython>,
    process: &mut Process,
    modules: &mut Modules,
) -> Result<Vec<TaskPlace>, Loss> {
    match reader.interpreter(process.tgid()) {
        Some(runtime) => runtime.tasks(process, modules),
        None => Ok(Vec::new()),
    }
}

/// What the task at a place does; `Ok(None)`: there is none.
pub(crate) fn task(
    reader: &mut Reader<CPython>,
    process: &mut Process,
    place: TaskPlace,
    modules: &mut Modules,
) -> Result<Option<CoroutineTask>, Loss> {
    match reader.interpreter(process.tgid()) {
        Some(runtime) => runtime.task(process, place, modules),
        None => Ok(None),
    }
}

impl Interpreter for CPython {
    const KIND: ModuleKind = ModuleKind::Python;
    const LANGUAGE: Language = Language::Python;

    fn find(process: &mut Process, modules: &mut Modules) -> FoundInterpreter<Self> {
        process.look_for(FILES, modules);
        let Some((image, bias)) = process.holding(Self::is_in) else {
            return FoundInterpreter::No;
        };
        match image.python.clone() {
            Some(python) => find_runtime(process, &python, bias, modules),
            None => FoundInterpreter::No,
        }
    }

    fn is_in(image: &Image) -> bool {
        image.python.is_some()
    }

    fn loops(&self, process: &Process) -> Vec<Range<u64>> {
        let Some((image, bias)) = process.holding(Self::is_in) else {
            return Vec::new();
        };
        let eval = image.python.iter().flat_map(|python| &python.eval);
        eval.map(|range| range.start.wrapping_add(bias)..range.end.wrapping_add(bias))
            .collect()
    }

    fn loop_calls(&self) -> LoopCalls {
        match self.layout.frames {
            Frames::Light { indirect, .. } => LoopCalls::OnStack {
                current: indirect.map(|cframe| cframe.current),
            },
            Frames::Objects { .. } => LoopCalls::Counted { by_pointer: true },
        }
    }

    fn thread(&mut self, process: &mut Process, own_id: u32) -> Result<u64, Unread> {
        match self.thread_state(process, own_id) {
            Err(Unread::Thread) => self.state_of_forked(process, own_id).ok_or(Unread::Thread),
            state => state,
        }
    }

    fn is_of(&mut self, process: &mut Process, thread: u64, own_id: u32) -> Option<bool> {
        self.is_state_of(process, thread, own_id)
    }

    fn chain(&mut self, process: &mut Process, thread: u64, most: usize) -> Option<Vec<RawFrame>> {
        self.chained(process, thread, most)
    }

    fn code(&mut self, process: &mut Process, raw: &RawFrame) -> Option<Arc<CodeNames>> {
        self.code_at(process, raw.code)
    }

    fn line(&self, code: &CodeNames, raw: &RawFrame) -> u32 {
        self.line_of(code, raw)
    }

    fn copied(&self, process: &mut Process, copied: &[CopiedFunction]) -> CopiedFrames {
        let mut known = CopiedFrames::default();
        let mut call = 0;
        for function in copied {
            let Some(raw) = self.raw_of_copied(process, function) else {
                known.cut = true;
                break;
            };
            known.frames.extend(raw.map(|raw| RawFrame { call, ..raw }));
            call += u64::from(function.last);
        }
        known
    }
}

/// Beginnings of the names of files that may have the interpreter, or its asyncio.
const FILES: &[&[u8]] = &[b"python", b"libpython", b"_asyncio."];

fn find_runtime(
    process: &mut Process,
    python: &PythonImage,
    bias: u64,
    modules: &Modules,
) -> FoundInterpreter<CPython> {
    let address = |symbol: u64| bias.wrapping_add(symbol);
    let runtime = address(python.runtime);
    let layout = find_layout(process, python, bias, runtime);
    match layout.filter(|_| !python.types.contains(&0)) {
        Some(layout) => FoundInterpreter::Yes(CPython::new(
            layout,
            runtime,
            python.types.map(address),
            &modules.budget,
        )),
        None => FoundInterpreter::Unknown,
    }
}

fn find_layout(
    process: &mut Process,
    python: &PythonImage,
    bias: u64,
    runtime: u64,
) -> Option<PythonLayout> {
    let mut bytes = [0; PythonLayout::DEBUG_OFFSETS];
    process.read_memory(runtime, &mut bytes).then_some(())?;
    if bytes.starts_with(b"xdebugpy") {
        return PythonLayout::from_debug_offsets(&bytes);
    }
    let minor = match python.version {
        Some(symbol) => {
            let mut version = [0; 4];
            process
                .read_memory(bias.wrapping_add(symbol), &mut version)
                .then_some(())?;
            let version = u32::from_le_bytes(version);
            (version >> 24 == 3).then_some(version >> 16 & 0xff)?
        }
        None => minor_of(&python.file_name)?,
    };
    PythonLayout::of(minor)
}

/// The version in names such as `python3.10` and `libpython3.8.so.1.0`.
fn minor_of(file_name: &str) -> Option<u32> {
    let (_, rest) = file_name.split_once("python3.")?;
    let digits = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    rest[..digits].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_in_file_names() {
        assert_eq!(minor_of("libpython3.10.so.1.0"), Some(10));
        assert_eq!(minor_of("python3.8"), Some(8));
        assert_eq!(minor_of("python3"), None);
        assert_eq!(minor_of("python3."), None);
    }
}
