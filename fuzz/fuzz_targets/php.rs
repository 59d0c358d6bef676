//! Memory of a program that runs PHP.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whywait_stacks::fuzzing;

fuzz_target!(|input: &[u8]| {
    fuzzing::php(input);
});
