//! Frames of JavaScript between native frames.

use std::path::Path;

use crate::common::*;
use whywait_events::{Module, ModuleKind};
use whywait_stacks::Unwinder;

/// Names and lines of the script's functions in the stack of a node that sleeps in one.
fn functions(arguments: &[&str]) -> Vec<(String, u32)> {
    let program = program("sleeper.mjs");
    let arguments = [&[program.to_str().unwrap()], arguments].concat();
    let running = run(Path::new("node"), &arguments);
    // `futex`: what `Atomics.wait` sleeps in.
    let sleeper = running.sleeper_where(64 << 10, |tid, syscall| {
        tid == running.id() && syscall == 202
    });
    let mut unwinder = Unwinder::new();
    let unwound =
        unwinder.unwind_sleeping(sleeper.tgid, sleeper.tid, sleeper.registers, &sleeper.stack);
    let names = Names::of(&mut unwinder, &unwound);
    let list = names.list(&unwound.frames);
    assert_eq!(losses(&unwinder), [], "{list:#?}");
    assert!(!unwound.truncated && !unwound.repeats, "{list:#?}");
    assert_in_order(
        &list,
        &["serve", "listOnTimeout", "uv_run", "main", "_start"],
    );
    let compiled = |module: &&Module| module.kind == ModuleKind::Jit;
    let module = names.modules.iter().find(compiled).unwrap().id;
    let of_scripts = unwound.frames.iter().filter(|frame| frame.module == module);
    of_scripts
        .map(|frame| &names.symbols[frame][0])
        .filter(|symbol| !symbol.file.starts_with("node:"))
        .map(|symbol| {
            assert!(
                symbol.file.ends_with("/tests/programs/sleeper.mjs"),
                "{symbol:?}"
            );
            (symbol.name.clone(), symbol.line)
        })
        .collect()
}

fn of_script() -> [(String, u32); 5] {
    [
        ("nap", 4),
        ("render", 9),
        ("function at sleeper.mjs:15", 15),
        ("draw", 15),
        ("serve", 20),
    ]
    .map(|(name, line)| (name.to_owned(), line))
}

#[test]
fn functions_of_the_interpreter() {
    assert_eq!(functions(&[]), of_script());
}

/// What was inlined has no frame of its own.
#[test]
fn functions_that_were_optimised() {
    let found = functions(&["warm"]);
    let of_script = of_script();
    let mut rest = of_script.iter();
    assert!(
        found.iter().all(|it| rest.any(|wanted| wanted == it)),
        "{found:#?}"
    );
    assert_eq!(found.last(), of_script.last());
}
