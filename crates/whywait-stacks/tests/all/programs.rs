//! Stacks of real programs, built without frame pointers where the compiler has the choice.

use crate::common::*;
use whywait_events::ModuleKind;
use whywait_stacks::{StackBehind, Unwinder};

// 219: a nanosleep that goes on after an interruption.
const NANOSLEEP: [u64; 3] = [35, 219, 230];
const FUTEX: [u64; 1] = [202];
const READ: [u64; 1] = [0];
const STACK: usize = 16 << 10;

fn check(sleeper: &Sleeper, wanted: &[&str]) -> Vec<String> {
    let mut unwinder = Unwinder::new();
    let unwound = unwinder.unwind(sleeper.tgid, sleeper.registers, &sleeper.stack);
    let names = Names::of(&mut unwinder, &unwound);
    let list = names.list(&unwound.frames);
    assert!(!unwound.truncated, "{list:#?} {:?}", losses(&unwinder));
    assert_eq!(losses(&unwinder), []);
    assert_in_order(&list, wanted);
    for module in &names.modules {
        assert_eq!(module.kind, ModuleKind::Elf, "{module:?}");
    }
    list
}

#[test]
fn c() {
    let program_file = scratch("c").join("sleeper");
    let flags = ["-O2", "-fomit-frame-pointer", "-pthread"];
    build("gcc", &flags, &program("sleeper.c"), &program_file);
    let running = run(&program_file, &[]);
    check(
        &running.sleeper(&NANOSLEEP, STACK),
        &["nanosleep", "innermost", "middle", "main", "_start"],
    );
    check(
        &running.sleeper(&FUTEX, STACK),
        &["pthread_mutex_lock", "wait_for_lock", "worker", "clone"],
    );
}

/// A thread that has gone on by the time: nothing more can be read of its stack.
#[test]
fn a_frame_larger_than_the_copy() {
    const COPY: usize = 8 << 10;
    let program_file = scratch("c-large").join("large");
    let flags = ["-O2", "-fomit-frame-pointer"];
    build("gcc", &flags, &program("large.c"), &program_file);
    let running = run(&program_file, &[]);
    let Sleeper {
        tgid,
        registers,
        stack,
        ..
    } = running.sleeper(&READ, 128 << 10);
    let gone = (tgid, u32::MAX);
    let copy = &stack[..COPY];
    let mut unwinder = Unwinder::new();
    let unwound = unwinder.unwind_slept(gone, registers, None, copy);
    assert!(unwound.truncated, "what is behind it was not copied");
    let large = unwinder.take_large_frames();
    let &[frame] = &large[..] else {
        panic!("one large frame, and not {large:?}");
    };
    assert_eq!((frame.tgid, frame.ip), (tgid, registers.ip));
    let distance = frame.distance as usize;
    assert!((60 << 10..68 << 10).contains(&distance), "{distance}");

    let behind = |sp| StackBehind {
        place: [registers.ip, sp],
        distance: frame.distance,
        bytes: stack[distance..(distance + COPY).min(stack.len())].to_vec(),
    };
    unwinder.stack_behind_came(u32::MAX, behind(registers.sp));
    let unwound = unwinder.unwind_slept(gone, registers, None, copy);
    let names = Names::of(&mut unwinder, &unwound);
    let list = names.list(&unwound.frames);
    assert!(!unwound.truncated, "{list:#?}");
    assert_in_order(&list, &["read_into_stack", "serve", "main", "_start"]);
    assert!(unwinder.take_large_frames().is_empty(), "it is known");

    // One serves one stack, and only where the thread was the same place.
    let unwound = unwinder.unwind_slept(gone, registers, None, copy);
    assert!(unwound.truncated, "a piece was used twice");
    unwinder.stack_behind_came(u32::MAX, behind(registers.sp - 16));
    let unwound = unwinder.unwind_slept(gone, registers, None, copy);
    assert!(unwound.truncated, "a piece of another stack was used");
}

#[test]
fn c_static_and_not_relocatable() {
    let program_file = scratch("c-static").join("sleeper");
    let flags = [
        "-O2",
        "-fomit-frame-pointer",
        "-static",
        "-no-pie",
        "-pthread",
    ];
    build("gcc", &flags, &program("sleeper.c"), &program_file);
    let running = run(&program_file, &[]);
    check(
        &running.sleeper(&NANOSLEEP, STACK),
        &["nanosleep", "innermost", "middle", "main", "_start"],
    );
    check(
        &running.sleeper(&FUTEX, STACK),
        &["wait_for_lock", "worker", "clone"],
    );
}

/// musl has neither unwind tables nor frame pointers. Its threads sleep in it all the same.
#[test]
fn c_with_musl() {
    for (name, linked) in [("c-musl", "-pie"), ("c-musl-static", "-static")] {
        let program_file = scratch(name).join("sleeper");
        let flags = ["-O2", "-fomit-frame-pointer", "-pthread", linked];
        build("musl-gcc", &flags, &program("sleeper.c"), &program_file);
        let running = run(&program_file, &[]);
        let callers = |syscalls: &[u64], wanted: &[&str]| {
            let sleeper = running.sleeper(syscalls, STACK);
            let mut unwinder = Unwinder::new();
            let unwound = unwinder.unwind(sleeper.tgid, sleeper.registers, &sleeper.stack);
            let names = Names::of(&mut unwinder, &unwound).list(&unwound.frames);
            assert_in_order(&names, wanted);
        };
        callers(&NANOSLEEP, &["innermost", "middle", "main"]);
        callers(&FUTEX, &["wait_for_lock", "worker"]);
    }
}

/// A program is known by the name by which it was executed, as people know it.
#[test]
fn c_by_a_link() {
    let folder = scratch("c-link");
    let program_file = folder.join("toolbox");
    let flags = ["-O2", "-pthread"];
    build("gcc", &flags, &program("sleeper.c"), &program_file);
    let link = folder.join("sleeper");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink("toolbox", &link).expect("a link can be made");
    for (executed, known) in [(&link, &link), (&program_file, &program_file)] {
        let running = run(executed, &[]);
        let sleeper = running.sleeper(&NANOSLEEP, STACK);
        let mut unwinder = Unwinder::new();
        unwinder.unwind(sleeper.tgid, sleeper.registers, &sleeper.stack);
        let modules = unwinder.take_new_modules();
        let paths: Vec<&str> = modules.iter().map(|module| &*module.path).collect();
        let known = known.to_str().expect("UTF-8");
        assert!(paths.contains(&known), "{known} is expected: {paths:?}");
    }
}

#[test]
fn c_out_of_a_signal_handler() {
    let program_file = scratch("c-signal").join("sleeper");
    let flags = ["-O2", "-fomit-frame-pointer", "-pthread"];
    build("gcc", &flags, &program("sleeper.c"), &program_file);
    let running = run(&program_file, &["signal"]);
    let sleeper = running.sleeper(&NANOSLEEP, STACK);
    check(
        &sleeper,
        &[
            "nanosleep",
            "innermost",
            "middle",
            "handler",
            "raise",
            "main",
            "_start",
        ],
    );
}

#[test]
fn rust() {
    let program_file = scratch("rust").join("sleeper");
    let flags = ["-O", "-C", "force-frame-pointers=no", "-C", "debuginfo=1"];
    build("rustc", &flags, &program("sleeper.rs"), &program_file);
    let running = run(&program_file, &[]);
    check(
        &running.sleeper(&NANOSLEEP, STACK),
        &[
            "sleep",
            "sleeper::sleep_long",
            "sleeper::main",
            "main",
            "_start",
        ],
    );
    let list = check(
        &running.sleeper(&FUTEX, STACK),
        &[
            "Mutex",
            "sleeper::take_lock",
            "::handle",
            "__rust_begin_short_backtrace",
            "clone",
        ],
    );
    assert!(
        list.iter().any(|name| name.contains("::inlined")),
        "inlined functions are named: {list:#?}"
    );
    assert!(
        !list.iter().any(|name| name.contains("17h")),
        "no hashes: {list:#?}"
    );
}

#[test]
fn go() {
    let directory = scratch("go");
    let program_file = directory.join("sleeper");
    build("go", &["build"], &program("sleeper.go"), &program_file);
    let stripped = directory.join("stripped");
    build(
        "go",
        &["build", "-ldflags=-s -w", "-buildmode=pie"],
        &program("sleeper.go"),
        &stripped,
    );
    for file in [program_file, stripped] {
        let running = run(&file, &[]);
        let wanted = [
            "Nanosleep",
            "main.innermost",
            "main.middle",
            "main.main",
            "runtime.main",
            "runtime.goexit",
        ];
        check(
            &running.sleeper_where(STACK, |tid, syscall| {
                tid == running.id() && NANOSLEEP.contains(&syscall)
            }),
            &wanted,
        );
        // The runtime's own threads: its monitor, and those that wait for work.
        check(
            &running.sleeper(&FUTEX, STACK),
            &["runtime.futex", "runtime.futexsleep", "runtime.note"],
        );
    }
}

/// libuv's poll has an array of 12 KB on its stack; other programs have more.
#[test]
fn a_copy_that_was_too_short() {
    let program_file = scratch("short").join("sleeper");
    build(
        "gcc",
        &["-O2", "-fomit-frame-pointer", "-pthread"],
        &program("sleeper.c"),
        &program_file,
    );
    let running = run(&program_file, &[]);
    let mut sleeper = running.sleeper(&NANOSLEEP, 64);
    let mut unwinder = Unwinder::new();
    let unwound = unwinder.unwind(sleeper.tgid, sleeper.registers, &sleeper.stack);
    assert!(unwound.truncated);
    assert_eq!(losses(&unwinder), [("ran out of stack bytes", 1)]);
    let whole =
        unwinder.unwind_sleeping(sleeper.tgid, sleeper.tid, sleeper.registers, &sleeper.stack);
    assert!(!whole.truncated && whole.frames.starts_with(&unwound.frames));
    // Not if the thread sleeps there for another reason by now.
    sleeper.stack[0] ^= 1;
    let cut =
        unwinder.unwind_sleeping(sleeper.tgid, sleeper.tid, sleeper.registers, &sleeper.stack);
    assert!(cut.truncated);
}
