//! Small things of the target, by the first byte: a perf map, `/proc/PID/maps`, a compiler's name
//! of a function, a goroutine.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whywait_stacks::fuzzing;

fuzz_target!(|input: &[u8]| {
    let Some((kind, rest)) = input.split_first() else {
        return;
    };
    match kind % 4 {
        0 => fuzzing::perf_map(rest),
        1 => fuzzing::maps(rest),
        2 => fuzzing::name(rest),
        _ => fuzzing::goroutine(rest),
    }
});
