//! Reading a virtual machine out of memory that holds anything.

use std::cell::RefCell;
use std::sync::LazyLock;

use super::made_up::{
    CODE, HEAP, INTERPRETER, JvmMemory, MadeUpJvm, STACK, STRUCTURES, interpreted,
};
use super::*;
use crate::elf::u64_at;
use crate::fuzzing::Mutation;
use crate::unwind::CopiedStack;

/// One of each version, and what they are made of, in words.
static WORLDS: LazyLock<[MadeUpJvm; 4]> = LazyLock::new(|| [0, 1, 2, 3].map(MadeUpJvm::of));

/// The version by the first byte, changes of its memory by the second, the first ones of its stack;
/// the fifth version describes itself by what follows.
pub(crate) fn read(bytes: &[u8]) {
    let Some((&[version, changes], rest)) = bytes.split_first_chunk() else {
        return;
    };
    let Some(world) = WORLDS.get(usize::from(version % 5)) else {
        describe(rest);
        return;
    };
    let mut world = world.clone();
    let bytecodes = world.outer + 0x200 + world.layout.method.head as u64;
    let mut stack = interpreted(world.outer, bytecodes + 3);
    let on_stack = changes >> 6;
    let mut at = INTERPRETER.start;
    let words = rest.chunks_exact(8).filter_map(|word| u64_at(word, 0));
    for (change, word) in (0..).zip(words.take(usize::from(changes & 0x3f))) {
        if change < on_stack {
            let change = Mutation::of(word, STACK, stack.len() / 8);
            stack[change.word * 8..][..8].copy_from_slice(&change.value.to_le_bytes());
            at = change.value;
            continue;
        }
        // Its structures, heap, map and metadata lie one behind another.
        let change = Mutation::of(word, STRUCTURES, 0x8_0000);
        let all: usize = world
            .memory
            .0
            .iter()
            .map(|(_, piece)| piece.len() / 8)
            .sum();
        let mut place = (word >> 16) as usize % all * 8;
        for (_, piece) in &mut world.memory.0 {
            if let Some(found) = piece.get_mut(place..place + 8) {
                found.copy_from_slice(&change.value.to_le_bytes());
                break;
            }
            place -= piece.len();
        }
    }
    let mut vm = world.vm();
    let mut modules = Modules::default();
    let code = world.blob + CODE;
    let places = [0, 0x10, 0x40, 0x60, 0x80, 0x1f0].map(|offset| code + offset);
    let others = [INTERPRETER.start + 0x10, at, HEAP + 0x9010];
    for ip in places.into_iter().chain(others) {
        for innermost in [true, false] {
            let place = ManagedPlace {
                registers: Registers {
                    ip,
                    sp: STACK,
                    bp: STACK + 0x80,
                    lr: 0,
                },
                innermost,
                stack: CopiedStack::new(STACK, &stack),
            };
            if vm.covers(&world.memory, place.address()) {
                let _ = vm.frames(place, &world.memory, &mut modules);
            }
        }
    }
}

/// What a virtual machine says of itself: exported variables are words from the beginning on.
fn describe(bytes: &[u8]) {
    const AT: u64 = 0x1_0000;
    let memory = JvmMemory(vec![(AT, bytes.to_vec())]);
    let known = RefCell::new(Vec::new());
    let symbol = |name: &str| {
        let mut known = known.borrow_mut();
        let found = known.iter().position(|it| it == name);
        let place = found.unwrap_or_else(|| {
            known.push(name.to_owned());
            known.len() - 1
        });
        Some(AT + 8 * place as u64)
    };
    let _ = HotSpot::open(&memory, symbol, &Budget::default());
}
