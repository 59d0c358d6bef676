//! Reading an interpreter out of memory that holds anything.

use super::layout::{LineFormat, PythonLayout};
use super::lines;
use super::made_up::{MadeUpMemory, WORDS};
use super::tasks::TaskPlace;
use crate::elf::u64_at;
use crate::fuzzing::{Mutation, in_own_process, rebased};
use crate::interpreter::CopiedFunction;
use crate::modules::Modules;

/// Of functions that came with a stack: code and instruction.
const MAX_COPIED: usize = 8;
/// More words would find nothing that fewer do not.
const MAX_WORDS: usize = 1024;

/// A layout by the first byte, changes of a sound interpreter's memory by the second, then more
/// memory: its words are the state of the runtime, which leads to threads, frames, code and tasks.
pub(crate) fn read(bytes: &[u8]) {
    let Some((&[version, changes], rest)) = bytes.split_first_chunk() else {
        return;
    };
    let layout = match u32::from(version % 6) {
        5 => PythonLayout::from_debug_offsets(rest),
        minor => PythonLayout::of(8 + minor),
    };
    let Some(layout) = layout else { return };
    let mut made = MadeUpMemory::new();
    let base = made.address();
    // The room does not move.
    made.words.resize(WORDS, 0);
    let sound = made.words.len();
    let mut words = rest.chunks_exact(8).filter_map(|word| u64_at(word, 0));
    for word in words.by_ref().take(usize::from(changes % 8)) {
        let change = Mutation::of(word, base, sound);
        made.words[change.word] = change.value;
    }
    let copied: Vec<u64> = words.clone().take(MAX_COPIED).collect();
    let copied: Vec<u64> = copied
        .iter()
        .map(|word| rebased(*word, base, sound))
        .collect();
    let runtime = made.address() + sound as u64 * 8;
    let room = WORDS + MAX_WORDS;
    made.words
        .extend(words.take(MAX_WORDS).map(|word| rebased(word, base, room)));
    made.words.resize(room, 0);
    assert_eq!(made.address(), base, "the memory stays where it is");
    let modules = &mut Modules::default();
    let mut python = made.interpreter(layout, &modules.budget);
    let task = TaskPlace {
        at: made.task,
        weak: version & 0x80 != 0,
    };
    in_own_process(|process| {
        let _ = python.task(process, task, modules);
        python.runtime = runtime;
        let _ = crate::interpreter::groups(process, 1, &mut python);
        let _ = python.threads(process);
        if let Some(states) = python.states(process) {
            let _ = python.own_state(process, &states);
        }
        for words in copied.chunks_exact(2) {
            let function = CopiedFunction {
                code: words[0],
                instruction: words[1],
                last: false,
            };
            if let Some(Some(raw)) = python.raw_of_copied(process, &function) {
                let _ = python.code_at(process, raw.code);
            }
        }
    });
    for format in [
        LineFormat::Lnotab,
        LineFormat::Deltas,
        LineFormat::Locations,
    ] {
        for offset in [0, 1, 64, u64::from(u32::MAX), u64::MAX] {
            lines::line(format, rest, u32::from(changes), offset);
        }
    }
}
