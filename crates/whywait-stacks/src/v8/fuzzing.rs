//! Reading V8's frames out of memory that holds anything.

use super::made_up::{BUILTIN, HEAP, MadeUpV8, V8Memory, frame, interpreted};
use crate::elf::u64_at;
use crate::fuzzing::{Mutation, rebased};

/// More words would find nothing that fewer do not.
const MAX_WORDS: usize = 1024;
/// Of them, so many at most are put on the stack below the frame.
const MAX_STACK: usize = 15;

/// How much is on the stack by the first byte, changes of a sound heap by the second; then words:
/// those of the changes, of the stack, and of more heap.
pub(crate) fn read(bytes: &[u8]) {
    let Some((&[below, changes], rest)) = bytes.split_first_chunk() else {
        return;
    };
    let mut memory = V8Memory::default();
    let (closure, bytecode) = interpreted(&mut memory);
    let (inner, outer) = (
        memory.function("inner", bytecode),
        memory.function("outer", bytecode),
    );
    let leaving = memory.leaving(outer, Some(inner));
    let (optimised, baseline) = (memory.code(leaving), memory.code(bytecode));
    let sound = memory.0.len() / 8;
    let mut words = rest.chunks_exact(8).filter_map(|word| u64_at(word, 0));
    for word in words.by_ref().take(usize::from(changes % 8)) {
        let change = Mutation::of(word, HEAP, sound);
        let at = change.word * 8;
        memory.0[at..at + 8].copy_from_slice(&change.value.to_le_bytes());
    }
    let room = sound + MAX_WORDS;
    let rebased = |word| rebased(word, HEAP, room);
    let mut stack: Vec<u64> = words
        .by_ref()
        .take(usize::from(below) % (MAX_STACK + 1))
        .map(rebased)
        .collect();
    stack.extend(frame(closure, bytecode));
    for word in words.take(MAX_WORDS).map(rebased) {
        memory.0.extend(word.to_le_bytes());
    }
    let end = HEAP + memory.0.len() as u64;
    let mut made = MadeUpV8::new(memory);
    let own = [BUILTIN, BUILTIN + 4, optimised, optimised + 16, baseline];
    let others = stack.clone().into_iter();
    for ip in own
        .into_iter()
        .chain(others.filter(|word| (HEAP + 1..end).contains(word)))
    {
        for innermost in [true, false] {
            made.frames(ip, innermost, &stack);
        }
    }
}
