//! Memory of a program that runs JavaScript.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whywait_stacks::fuzzing;

fuzz_target!(|input: &[u8]| {
    fuzzing::v8(input);
});
