//! Virtual machines that are made up: as real ones are laid out, and as none should be.

use super::layout::VERSIONS;
use super::made_up::*;
use super::*;
use crate::unwind::CopiedStack;

fn frames_at(
    vm: &mut HotSpot,
    memory: &JvmMemory,
    registers: Registers,
    innermost: bool,
    bytes: &[u8],
) -> Result<(Vec<(String, u32)>, ManagedExit), Loss> {
    let mut modules = Modules::default();
    let stack = CopiedStack::new(registers.sp, bytes);
    let place = ManagedPlace {
        registers,
        innermost,
        stack,
    };
    assert!(vm.covers(memory, place.address()));
    let found = vm.frames(place, memory, &mut modules)?;
    let symbols = modules.take_new_symbols();
    let named = found.frames.iter().map(|frame| {
        let symbol = symbols.iter().find(|it| it.frame == *frame);
        symbol.map_or(("known".to_owned(), 0), |it| (it.name.clone(), it.line))
    });
    Ok((named.collect(), found.exit))
}

fn at(ip: u64) -> Registers {
    Registers {
        ip,
        sp: STACK,
        bp: STACK + 0x80,
        lr: 0,
    }
}

fn named(name: &str, line: u32) -> (String, u32) {
    (format!("com.acme.Server.{name}"), line)
}

#[test]
fn each_version_describes_all_that_is_read_and_nothing_is_guessed() {
    for (text, version) in DESCRIBED.into_iter().zip(VERSIONS) {
        let description = Description::written(text, STATICS);
        assert!(
            JvmLayout::of_version(&description, version).is_some(),
            "{version}"
        );
        for left_out in text.lines().filter(|line| !line.contains("Abstract_VM")) {
            let without = text.replace(&format!("{left_out}\n"), "");
            let description = Description::written(&without, STATICS);
            let layout = JvmLayout::of_version(&description, version);
            assert_eq!(layout, None, "{version} without {left_out}");
        }
    }
}

#[test]
fn a_version_that_was_not_tried_is_refused() {
    let description = Description::written(DESCRIBED[1], STATICS);
    let at = description.static_field("Abstract_VM_Version", "_vm_major_version");
    let of = |version: u32| {
        let memory = JvmMemory(vec![(at.unwrap(), version.to_le_bytes().to_vec())]);
        JvmLayout::of(&description, &memory)
    };
    assert!(of(17).is_ok());
    assert_eq!(of(18), Err(Loss::HotSpotVersion));
    let nothing = JvmLayout::of(&description, &JvmMemory::default());
    assert_eq!(nothing, Err(Loss::HotSpotDescription));
}

#[test]
fn a_method_that_is_interpreted() {
    for version in 0..VERSIONS.len() {
        let world = MadeUpJvm::of(version);
        let mut vm = world.vm();
        let bytecodes = world.outer + 0x200 + world.layout.method.head as u64;
        let bytes = interpreted(world.outer, bytecodes + 3);
        let caller = ManagedExit::To(Registers {
            ip: 0x1234,
            sp: STACK + 0xa0,
            bp: STACK + 0x200,
            lr: 0,
        });
        let registers = at(INTERPRETER.start + 0x10);
        let called = frames_at(&mut vm, &world.memory, registers, false, &bytes);
        assert_eq!(called, Ok((vec![named("outer", OUTER_LINE)], caller)));
        // Where it is itself, only a register says.
        let mut vm = world.vm();
        let innermost = frames_at(&mut vm, &world.memory, registers, true, &bytes);
        assert_eq!(innermost, Ok((vec![named("outer", 0)], caller)));
        for wrong in [
            interpreted(world.outer, bytecodes + 16),
            interpreted(world.outer, bytecodes - 1),
            interpreted(world.outer + 8, bytecodes),
            interpreted(0, bytecodes),
            interpreted(u64::MAX, bytecodes),
        ] {
            let found = frames_at(&mut vm, &world.memory, registers, false, &wrong);
            assert_eq!(found, Err(Loss::HotSpotMethod));
        }
    }
}

#[test]
fn what_a_compiled_method_has_inlined() {
    for version in 0..VERSIONS.len() {
        let world = MadeUpJvm::of(version);
        let code = world.blob + CODE;
        let size = 8 * FRAME_WORDS;
        let bytes = stack(&[
            (size - 8, 0x5678),
            (size - 16, STACK + 0x300),
            (8, code + 0x80),
        ]);
        let caller = ManagedExit::To(Registers {
            ip: 0x5678,
            sp: STACK + size,
            bp: STACK + 0x300,
            lr: 0,
        });
        let found = |offset, innermost| {
            let registers = at(code + offset);
            frames_at(&mut world.vm(), &world.memory, registers, innermost, &bytes)
        };
        let outer = named("outer", OUTER_LINE);
        let both = vec![named("inner", INNER_LINE), outer.clone()];
        assert_eq!(found(0x40, false), Ok((vec![outer], caller)));
        assert_eq!(found(0x80, false), Ok((both.clone(), caller)));
        // Elsewhere only the method itself is certain.
        let somewhere = Ok((vec![named("outer", 0)], caller));
        assert_eq!(found(0x60, true), somewhere);
        assert_eq!(found(0x60, false), somewhere);
        // It is to be given up, and says itself where it would have returned to.
        let handler = 0x200 - 0x10;
        assert_eq!(found(handler, false), Ok((both, caller)));
    }
}

#[test]
fn a_loop_of_an_inlined_function_is_in_it() {
    let mut world = MadeUpJvm::of(1);
    let code = world.blob + CODE;
    // Behind the place at 0x80 it goes back to 0x50: test; jne.
    world
        .memory
        .put(code + 0x80, &[0x41, 0x85, 0x02, 0x75, 0xcb, 0xc3]);
    let bytes = stack(&[]);
    let found = |offset| {
        let found = frames_at(
            &mut world.vm(),
            &world.memory,
            at(code + offset),
            true,
            &bytes,
        );
        found.map(|(named, _)| named)
    };
    let inlined = vec![named("inner", 0), named("outer", OUTER_LINE)];
    assert_eq!(found(0x60), Ok(inlined.clone()));
    assert_eq!(found(0x50), Ok(inlined));
    assert_eq!(found(0x4f), Ok(vec![named("outer", 0)]));
}

#[test]
fn other_code_at_the_same_address_is_not_taken_for_what_was_there() {
    let mut world = MadeUpJvm::of(1);
    let mut vm = world.vm();
    let registers = at(world.blob + CODE + 0x40);
    let bytes = stack(&[]);
    let before = frames_at(&mut vm, &world.memory, registers, false, &bytes);
    assert_eq!(before.unwrap().0[0].0, "com.acme.Server.outer");
    let id = world.layout.compiled.id;
    let method = world.layout.compiled.method;
    let (blob, inner) = (world.blob, world.inner);
    std::thread::sleep(STAYS_FOR);
    world.set(blob, id, 8);
    world.set(blob, method, inner);
    let after = frames_at(&mut vm, &world.memory, registers, false, &bytes);
    assert_eq!(after.unwrap().0[0].0, "com.acme.Server.inner");
}

/// A small generator of numbers: runs are repeatable.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[test]
fn whatever_is_in_memory_it_ends() {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let odd = [
        0,
        1,
        7,
        0x7f,
        0xff,
        0xffff,
        0x7fff_ffff,
        u64::MAX,
        u64::MAX - 7,
        HEAP,
        MAP,
        STACK,
    ];
    for round in 0..600 {
        let mut world = MadeUpJvm::of(round % VERSIONS.len());
        for _ in 0..1 + numbers.next() % 6 {
            let piece = numbers.next() as usize % world.memory.0.len();
            let (start, bytes) = &world.memory.0[piece];
            let at = start + numbers.next() % (bytes.len() as u64 - 8);
            let value = match numbers.next() % 3 {
                0 => numbers.next(),
                1 => odd[numbers.next() as usize % odd.len()],
                _ => STRUCTURES + numbers.next() % 0x4000,
            };
            world.memory.put(at, &value.to_le_bytes());
        }
        let mut vm = world.vm();
        let mut modules = Modules::default();
        let bytecodes = world.outer + 0x200 + world.layout.method.head as u64;
        let bytes = interpreted(world.outer, bytecodes + numbers.next() % 20);
        for offset in [0, 0x10, 0x40, 0x60, 0x80, 0x1f0, 0x7bf8, 0x8400] {
            let registers = at(world.blob + CODE + offset);
            for innermost in [true, false] {
                let stack = CopiedStack::new(STACK, &bytes);
                let place = ManagedPlace {
                    registers,
                    innermost,
                    stack,
                };
                if vm.covers(&world.memory, place.address()) {
                    let _ = vm.frames(place, &world.memory, &mut modules);
                }
            }
        }
    }
}

#[test]
fn a_map_that_leads_in_circles_or_far_ends() {
    for step in [1, 0xfe] {
        let mut world = MadeUpJvm::of(1);
        world.memory.put(MAP, &[step; 0x200]);
        let mut vm = world.vm();
        let registers = at(world.blob + CODE + 0x40);
        let found = frames_at(&mut vm, &world.memory, registers, false, &stack(&[]));
        assert_eq!(found, Err(Loss::HotSpotCode));
    }
}
