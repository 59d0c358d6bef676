//! How long unwinding takes. Run on purpose, in release: `cargo test --release -p whywait-stacks
//! speed:: -- --ignored --nocapture`.

use std::time::{Duration, Instant};

use crate::common::*;
use whywait_stacks::{RunningThread, Unwinder};

fn measure(what: &str, running: &Running, sleeper: &Sleeper) {
    let mut cold = Duration::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        Unwinder::new().unwind(sleeper.tgid, sleeper.registers, &sleeper.stack);
        cold = cold.min(start.elapsed());
    }
    let mut unwinder = Unwinder::new();
    let frames = unwinder
        .unwind(sleeper.tgid, sleeper.registers, &sleeper.stack)
        .frames
        .len();
    let mut again = Duration::MAX;
    for _ in 0..20 {
        unwinder.forget(running.id());
        let start = Instant::now();
        unwinder.unwind(sleeper.tgid, sleeper.registers, &sleeper.stack);
        again = again.min(start.elapsed());
    }
    const ROUNDS: u32 = 20_000;
    let start = Instant::now();
    for _ in 0..ROUNDS {
        unwinder.unwind(sleeper.tgid, sleeper.registers, &sleeper.stack);
    }
    let warm = start.elapsed() / ROUNDS;
    let start = Instant::now();
    for _ in 0..200 {
        unwinder.unwind_sleeping(sleeper.tgid, sleeper.tid, sleeper.registers, &sleeper.stack);
    }
    let sleeping = start.elapsed() / 200;
    let mut running_on = Duration::MAX;
    for _ in 0..2000 {
        // Each sample with a look of its own: in a recording one serves the samples of 10 ms.
        let start = Instant::now();
        let thread = RunningThread {
            tgid: sleeper.tgid,
            tid: sleeper.tid,
            at_ns: now_ns(),
            registers: sleeper.registers,
            kept: None,
        };
        unwinder.unwind_running(thread, &sleeper.stack);
        running_on = running_on.min(start.elapsed());
    }
    println!(
        "{what}: {frames} frames; cold {cold:?}, a further process with the same files {again:?}, \
         warm {warm:?}, with a look for Python frames {sleeping:?}, as a sample of a running \
         thread {running_on:?}; {:?}",
        losses(&unwinder)
    );
}

#[test]
#[ignore = "a measurement"]
fn speed() {
    let directory = scratch("speed");
    let c = directory.join("c");
    build("gcc", &["-O2", "-pthread"], &program("sleeper.c"), &c);
    let go = directory.join("go");
    build("go", &["build"], &program("sleeper.go"), &go);
    let rust = directory.join("rust");
    build("rustc", &["-O"], &program("sleeper.rs"), &rust);
    for file in [&c, &go, &rust] {
        let running = run(file, &[]);
        let sleeper = running.sleeper_where(16 << 10, |tid, syscall| {
            tid == running.id() && syscall != 202
        });
        measure(
            file.file_name().unwrap().to_str().unwrap(),
            &running,
            &sleeper,
        );
    }
    let running = run(
        "/usr/bin/python3".as_ref(),
        &[program("sleeper.py").to_str().unwrap()],
    );
    let sleeper = running.sleeper_where(16 << 10, |tid, syscall| {
        tid == running.id() && syscall != 202
    });
    measure("python", &running, &sleeper);
    let running = run("node".as_ref(), &["-e", "setTimeout(() => {}, 1e6)"]);
    let sleeper = running.sleeper_where(64 << 10, |tid, syscall| {
        tid == running.id() && syscall != 202
    });
    measure("node", &running, &sleeper);
    let mut unwinder = Unwinder::new();
    let unwound = unwinder.unwind(sleeper.tgid, sleeper.registers, &sleeper.stack);
    let modules = unwinder.take_new_modules();
    let start = Instant::now();
    let symbols = whywait_stacks::Symboliser::new()
        .symbolise(&modules, &unwound.frames, None)
        .len();
    println!("node: {symbols} names in {:?}", start.elapsed());
}
