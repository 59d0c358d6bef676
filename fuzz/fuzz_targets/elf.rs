//! An ELF file of the target, and its stack: unwind tables, Go's functions, symbols.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whywait_stacks::fuzzing;

fuzz_target!(init: whywait_fuzz::only_ours_end_it(), |input: &[u8]| {
    fuzzing::elf(input);
});
