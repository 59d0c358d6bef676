//! Java's frames between native ones, in each way in which the virtual machine runs code.

use std::process::Command;

use crate::common::*;
use whywait_events::ModuleKind;
use whywait_stacks::Unwinder;

/// The lines of the calls in `Sleeper.java`.
const LINES: [(&str, u32); 4] = [
    ("Sleeper.innermost", 39),
    ("Sleeper.middle", 31),
    ("Sleeper.outer", 26),
    ("Sleeper.run", 21),
];

/// A thread of that name, once it waits for good: these are all on futexes.
fn sleeper(running: &Running, name: &str) -> Sleeper {
    const FUTEX: u64 = 202;
    running.sleeper_where(64 << 10, |tid, syscall| {
        let comm = std::fs::read_to_string(format!("/proc/{}/task/{tid}/comm", running.id()));
        syscall == FUTEX && comm.is_ok_and(|comm| comm.trim() == name)
    })
}

#[test]
fn interpreted_and_compiled_methods_and_what_they_inlined() {
    let folder = scratch("java");
    let compiled = Command::new("javac")
        .args(["-d", folder.to_str().unwrap()])
        .arg(program("Sleeper.java"))
        .status();
    assert!(compiled.expect("javac runs").success());
    let quick = [
        "-XX:TieredStopAtLevel=1",
        "-XX:Tier3InvocationThreshold=100",
    ];
    let all = ["-XX:-TieredCompilation", "-XX:CompileThreshold=100"];
    for how in [&["-Xint"][..], &quick, &all] {
        let mut arguments = vec![
            "-Xbatch",
            "-XX:+UseSerialGC",
            "-cp",
            folder.to_str().unwrap(),
        ];
        arguments.extend(how);
        arguments.push("Sleeper");
        let running = run("java".as_ref(), &arguments);
        let locked = sleeper(&running, "locked");
        let asleep = sleeper(&running, "sleeper");
        for thread in [&asleep, &locked] {
            let mut unwinder = Unwinder::new();
            let unwound =
                unwinder.unwind_sleeping(thread.tgid, thread.tid, thread.registers, &thread.stack);
            let names = Names::of(&mut unwinder, &unwound);
            let list = names.list(&unwound.frames);
            assert_eq!(losses(&unwinder), [], "{how:?} {list:#?}");
            assert!(!unwound.truncated, "{how:?} {list:#?}");
            let of_java = names.modules.iter().find(|it| it.kind == ModuleKind::Jit);
            let of_java = of_java.expect("a module of compiled code").id;
            let own: Vec<(&str, u32)> = unwound
                .frames
                .iter()
                .filter(|frame| frame.module == of_java)
                .filter_map(|frame| names.symbols.get(frame)?.first())
                .filter(|symbol| symbol.file == "Sleeper.java")
                .map(|symbol| (&*symbol.name, symbol.line))
                .collect();
            let as_expected = match thread.tid == asleep.tid {
                true => own.starts_with(&LINES),
                // The interpreter is past the entry of a monitor before it has entered it: at the
                // next line.
                false => matches!(own[..], [("Sleeper.lock", 46 | 47), ..]),
            };
            assert!(as_expected, "{how:?} {own:?} {list:#?}");
            assert_in_order(
                &list,
                &["java.lang.Thread.run", "JavaCalls::call", "start_thread"],
            );
        }
    }
}
