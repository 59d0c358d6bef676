//! Frames of a V8 that is made up.

use whywait_events::Symbol;

use super::layout::V8Layout;
use super::made_up::*;
use super::*;
use crate::cfi::UnwindTables;

impl MadeUpV8 {
    /// Those at an address that is in V8's code.
    fn frames_in(&mut self, ip: u64, innermost: bool, stack: &[u64]) -> ManagedFrames {
        self.frames(ip, innermost, stack).expect("code of V8's")
    }

    fn names(&mut self, found: &ManagedFrames) -> Vec<(String, String, u32)> {
        let symbols = self.modules.take_new_symbols();
        let named = |frame: &Frame| {
            let named = |symbol: &&Symbol| symbol.frame == *frame;
            let symbol = symbols.iter().find(named);
            symbol.map(|it| (it.name.clone(), it.file.clone(), it.line))
        };
        found
            .frames
            .iter()
            .map(|frame| named(frame).unwrap_or_default())
            .collect()
    }

    fn lost(&self) -> Vec<&'static str> {
        let counted = self.losses.iter().filter(|(_, count)| *count > 0);
        counted.map(|(name, _)| name).collect()
    }
}

fn caller() -> ManagedExit {
    ManagedExit::To(Registers {
        ip: BUILTIN + 8,
        sp: STACK + 48,
        bp: STACK + 0x100,
        lr: 0,
    })
}

fn render() -> (String, String, u32) {
    ("render".into(), "/srv/server.mjs".into(), 3)
}

#[test]
fn a_function_of_the_interpreter_has_its_name_and_line() {
    let mut memory = V8Memory::default();
    let (closure, bytecode) = interpreted(&mut memory);
    let mut made = MadeUpV8::new(memory);
    let found = made.frames_in(BUILTIN + 4, false, &frame(closure, bytecode));
    assert_eq!(made.names(&found), [render()]);
    assert_eq!(found.exit, caller());
    // V8's function that runs the bytecode has no frame of its own.
    let found = made.frames_in(BUILTIN, true, &frame(closure, bytecode));
    assert_eq!((found.frames.len(), found.frames[0]), (2, native()));
    assert_eq!(made.lost(), [""; 0]);
}

#[test]
fn a_closure_that_was_moved_still_leads_to_its_function() {
    let mut memory = V8Memory::default();
    let (closure, bytecode) = interpreted(&mut memory);
    // Where it is now: an address without a reference's mark.
    memory.set(closure, 0, HEAP + 0x40);
    let mut made = MadeUpV8::new(memory);
    let found = made.frames_in(BUILTIN + 4, false, &frame(closure, bytecode));
    assert_eq!(made.names(&found), [render()]);
}

#[test]
fn a_function_that_does_not_run_the_frames_bytecode_is_not_its() {
    let mut memory = V8Memory::default();
    let (closure, _) = interpreted(&mut memory);
    let other = memory.of_kind(BYTECODE);
    let mut made = MadeUpV8::new(memory);
    let found = made.frames_in(BUILTIN + 4, false, &frame(closure, other));
    assert_eq!(made.names(&found)[0].0, "[jit]");
    assert_eq!(found.exit, caller());
    assert_eq!(made.lost(), ["v8 function changed while read"]);
}

#[test]
fn a_function_that_was_seen_is_looked_at_again() {
    let mut memory = V8Memory::default();
    let (closure, bytecode) = interpreted(&mut memory);
    let mut made = MadeUpV8::new(memory);
    made.frames_in(BUILTIN + 4, false, &frame(closure, bytecode));
    // The closure has gone since; what all closures share is still there.
    let found = made.frames_in(BUILTIN + 4, false, &frame(0, bytecode));
    assert_eq!(found.frames.len(), 1);
    assert_ne!(*found.frames, [native()]);
    // Then all of it.
    made.memory.0.fill(0);
    let found = made.frames_in(BUILTIN + 4, false, &frame(0, bytecode));
    assert_eq!(*found.frames, [made.modules.unnamed_jit()]);
}

#[test]
fn a_function_whose_script_is_being_moved_has_no_name_until_it_is_there() {
    let mut memory = V8Memory::default();
    let (closure, bytecode) = interpreted(&mut memory);
    let file = memory
        .0
        .windows(8)
        .position(|it| it == b"file:///")
        .unwrap();
    let map = file - 16;
    let of_string: [u8; 8] = memory.0[map..map + 8].try_into().unwrap();
    // Where it is now: an address without a reference's mark.
    memory.0[map] &= !1;
    let mut made = MadeUpV8::new(memory);
    let found = made.frames_in(BUILTIN + 4, false, &frame(closure, bytecode));
    assert_eq!(made.names(&found)[0].0, "[jit]");
    assert_eq!(made.lost(), ["v8 function not readable"]);
    made.memory.0[map..map + 8].copy_from_slice(&of_string);
    let found = made.frames_in(BUILTIN + 4, false, &frame(closure, bytecode));
    assert_eq!(made.names(&found), [render()]);
}

#[test]
fn compiled_code_is_of_the_function_in_its_object() {
    let mut memory = V8Memory::default();
    let bytecode = memory.of_kind(BYTECODE);
    let shared = memory.function("render", bytecode);
    let closure = memory.closure(shared);
    let leaving = memory.leaving(shared, None);
    let (optimised, baseline) = (memory.code(leaving), memory.code(bytecode));
    let made = &mut MadeUpV8::new(memory);
    let found = made.frames_in(optimised, true, &frame(closure, 0));
    assert_eq!(made.names(&found), [render()]);
    assert_eq!(found.exit, caller());
    for (ip, innermost) in [(optimised, false), (baseline, false), (baseline, true)] {
        let again = made.frames_in(ip, innermost, &frame(closure, bytecode));
        assert_eq!(again.frames, found.frames);
        assert_eq!(again.exit, caller());
    }
    assert_eq!(made.lost(), [""; 0]);
}

#[test]
fn what_was_inlined_is_named_where_code_calls() {
    let mut memory = V8Memory::default();
    let bytecode = memory.of_kind(BYTECODE);
    let (inner, outer) = (
        memory.function("inner", 0),
        memory.function("outer", bytecode),
    );
    let closure = memory.closure(outer);
    let leaving = memory.leaving(outer, Some(inner));
    let code = memory.code(leaving);
    let made = &mut MadeUpV8::new(memory);
    let mut names = |ip, innermost| {
        let found = made.frames_in(ip, innermost, &frame(closure, 0));
        assert_eq!(found.exit, caller());
        found.frames.len()
    };
    // A position of the function's own; then of what was inlined; and no call.
    assert_eq!(names(code, false), 1);
    assert_eq!(names(code + 16, false), 2);
    assert_eq!(names(code + 16, true), 1);
    let found = made.frames_in(code + 16, false, &frame(closure, 0));
    let known = made.modules.take_new_symbols();
    let name = |at: usize| known.iter().find(|it| it.frame == found.frames[at]);
    assert_eq!(name(0).unwrap().name, "inner");
    assert_eq!(name(1).unwrap().name, "outer");
    assert_eq!(made.lost(), [""; 0]);
}

#[test]
fn the_innermost_function_may_have_no_frame_yet() {
    let mut memory = V8Memory::default();
    let (outer, bytecode) = interpreted(&mut memory);
    let leaf = memory.of_kind(BYTECODE);
    let leaf = memory.function("leaf", leaf);
    let leaving = memory.leaving(leaf, None);
    let ip = memory.code(leaving);
    let made = &mut MadeUpV8::new(memory);
    let returns = BUILTIN + 4;
    let stack = [&[returns, 0][..], &frame(outer, bytecode)].concat();
    let found = made.frames_in(ip, true, &stack);
    assert_eq!(made.names(&found)[0].0, "leaf");
    let bp = STACK + stack.len() as u64 * 8 - 16;
    let caller = Registers {
        ip: returns,
        sp: STACK + 8,
        bp,
        lr: 0,
    };
    assert_eq!(found.exit, ManagedExit::To(caller));
    // The caller's frame pointer was just saved.
    let stack = [&[bp + 8, returns][..], &frame(outer, bytecode)].concat();
    let stack = [&[STACK + stack.len() as u64 * 8 - 16][..], &stack[1..]].concat();
    let found = made.frames_in(ip, true, &stack);
    assert!(matches!(found.exit, ManagedExit::To(it) if it.sp == STACK + 16 && it.ip == returns));
}

#[test]
fn who_called_a_function_of_v8s_without_a_frame_is_known_by_the_return_address() {
    let mut memory = V8Memory::default();
    let (closure, bytecode) = interpreted(&mut memory);
    let shared = closure + 24;
    let shared = {
        let mut bytes = [0; 8];
        memory.read_exact_at(&mut bytes, shared - 1).unwrap();
        u64::from_le_bytes(bytes)
    };
    assert_ne!(bytecode, 0);
    let leaving = memory.leaving(shared, None);
    let returns = memory.code(leaving);
    let made = &mut MadeUpV8::new(memory);
    let stack = [&[7, returns][..], &frame(closure, 5)].concat();
    let found = made.frames_in(BUILTIN, true, &stack);
    assert_eq!(made.names(&found)[1], render());
    // Its return address is not there; then the frame is the innermost function's own.
    let stack = [&[7, 9][..], &frame(closure, 5)].concat();
    let unnamed = made.modules.unnamed_jit();
    assert_eq!(
        made.frames_in(BUILTIN, true, &stack).frames,
        [native(), unnamed].into()
    );
    made.memory.set(shared, 8, small(3));
    assert_eq!(*made.frames_in(BUILTIN, true, &stack).frames, [native()]);
}

#[test]
fn a_regular_expression_is_called_so_and_other_code_is_not_named() {
    let mut memory = V8Memory::default();
    let code = memory.object(&[0x90; 8]) - 1 + 16;
    let made = &mut MadeUpV8::new(memory);
    let stack = [0, 0, 0, 27 << 1, STACK + 0x100, BUILTIN + 8];
    let found = made.frames_in(code, true, &stack);
    assert_eq!(made.names(&found)[0].0, "[regular expression]");
    assert_eq!(made.lost(), [""; 0]);
    let found = made.frames_in(code, true, &[0, 0, 0, 6, STACK + 0x100, BUILTIN + 8]);
    assert!(found.frames.is_empty());
    assert!(matches!(found.exit, ManagedExit::To(_)));
    assert_eq!(made.lost(), ["v8 code not found"]);
}

#[test]
fn a_regular_expression_without_a_marker_is_known_by_its_code() {
    let mut memory = V8Memory::default();
    let code = memory.code(0);
    let flags = memory.0.len() - 14 * 8;
    memory.0[flags] = 3;
    let made = &mut MadeUpV8::new(memory);
    made.v8.layout.frame.regular_expression = None;
    let found = made.frames_in(code, true, &frame(HEAP + 9, 0));
    assert_eq!(made.names(&found)[0].0, "[regular expression]");
    assert_eq!(found.exit, caller());
}

#[test]
fn without_a_number_nothing_is_read() {
    assert!(V8Layout::of(&constants()).is_some());
    for (name, _) in NODE_20 {
        // What is not in every version.
        let some = [
            "frametype_IrregexpFrame",
            "type_FixedArray__FIXED_ARRAY_TYPE",
            "type_WeakFixedArray__WEAK_FIXED_ARRAY_TYPE",
            "type_ByteArray__BYTE_ARRAY_TYPE",
        ];
        if some.contains(name) {
            continue;
        }
        let mut less = constants();
        less.remove(*name);
        let image = V8Image::of(&less, None::<&UnwindTables>).unwrap();
        let budget = Budget::default();
        assert!(
            matches!(V8::open(&image, &budget), Err(Loss::V8Constants)),
            "{name}"
        );
    }
    let mut compressed = constants();
    compressed.insert("TaggedSize".to_owned(), 4);
    assert_eq!(V8Layout::of(&compressed), None);
    assert!(V8Image::of(&Constants::new(), None).is_none());
}

#[test]
fn strings_that_lead_in_circles_end() {
    let mut memory = V8Memory::default();
    let bytecode = memory.of_kind(BYTECODE);
    let (thin, cons, sliced) = (memory.map(5 | 8), memory.map(1 | 8), memory.map(3 | 8));
    let mut circles = Vec::new();
    for map in [thin, cons, sliced] {
        let string = memory.object(&[map, 4 << 32, 0, 0]);
        memory.set(string, 16, string);
        memory.set(string, 24, if map == sliced { 0 } else { string });
        circles.push(string);
    }
    let mut maps = HashMap::new();
    let layout = V8Layout::of(&constants()).unwrap();
    let mut heap = V8Heap {
        memory: &memory,
        layout: &layout,
        maps: &mut maps,
    };
    for string in circles {
        let string = Reference::of(string).unwrap();
        assert_eq!(heap.text(string), None);
        assert_eq!(heap.characters(string), None);
    }
    assert_eq!(heap.text(Reference::of(bytecode).unwrap()), None);
}

/// Any word of the heap and the stack may be anything.
#[test]
fn whatever_is_in_memory_it_is_read_in_bounds() {
    let mut memory = V8Memory::default();
    let (closure, bytecode) = interpreted(&mut memory);
    let shared = memory.function("render", bytecode);
    let leaving = memory.leaving(shared, None);
    let code = memory.code(leaving);
    let whole = memory.0.clone();
    let mut state = 7u64;
    let mut next = move || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        state >> 16
    };
    let made = &mut MadeUpV8::new(memory);
    for _ in 0..3000 {
        made.memory.0.copy_from_slice(&whole);
        for _ in 0..4 {
            let at = (next() as usize % (whole.len() / 8)) * 8;
            let word = match next() % 4 {
                0 => next() << 16,
                1 => HEAP + 1 + ((next() % whole.len() as u64) & !7),
                2 => u64::MAX - next() % 64,
                _ => next() % 64,
            };
            made.memory.0[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        let mut stack = frame(closure, bytecode);
        if next() % 2 == 0 {
            let at = next() as usize % stack.len();
            stack[at] = HEAP + 1 + ((next() % whole.len() as u64) & !7);
        }
        for (ip, innermost) in [
            (BUILTIN, true),
            (BUILTIN + 4, false),
            (code, true),
            (code, false),
        ] {
            let found = made.frames_in(ip, innermost, &stack);
            assert!(found.frames.len() <= 2);
        }
    }
}
