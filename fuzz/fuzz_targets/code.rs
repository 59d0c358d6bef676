//! Machine code that is followed to where it returns.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whywait_stacks::fuzzing;

fuzz_target!(|input: &[u8]| {
    fuzzing::machine_code(input);
});
