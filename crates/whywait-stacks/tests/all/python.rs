//! Python frames between native frames, of every interpreter here whose layout is known.

use crate::common::*;
use whywait_events::{Module, ModuleKind};
use whywait_stacks::Unwinder;

#[test]
fn functions_and_lines() {
    for interpreter in interpreters(13) {
        let running = run(&interpreter, &[program("sleeper.py").to_str().unwrap()]);
        let what = interpreter.display();
        // select, pselect6, clock_nanosleep: what `time.sleep` does has changed.
        let sleeper = running.sleeper_where(64 << 10, |tid, syscall| {
            tid == running.id() && [23, 270, 230, 219].contains(&syscall)
        });
        let mut unwinder = Unwinder::new();
        let unwound =
            unwinder.unwind_sleeping(sleeper.tgid, sleeper.tid, sleeper.registers, &sleeper.stack);
        let names = Names::of(&mut unwinder, &unwound);
        let list = names.list(&unwound.frames);
        assert_eq!(losses(&unwinder), [], "{what} {list:#?}");
        assert!(!unwound.truncated, "{what}");
        assert!(
            !list
                .iter()
                .any(|name| name.starts_with("_PyEval_EvalFrameDefault")),
            "{what} {list:#?}"
        );
        assert_in_order(
            &list,
            &["handle", "compare", "request", "<module>", "_start"],
        );
        let python: Vec<(String, u32)> = python_frames(&names, &unwound.frames);
        // `co_qualname` is there from 3.11.
        let handle = if python[0].0 == "handle" {
            "handle"
        } else {
            "Server.handle"
        };
        let wanted = [
            (handle, 9),
            ("compare", 13),
            ("request", 19),
            ("<module>", 29),
        ];
        assert_eq!(
            python,
            wanted.map(|(name, line)| (name.to_owned(), line)),
            "{what} {list:#?}"
        );

        let sleeper = running.sleeper_where(64 << 10, |tid, _| tid != running.id());
        let unwound =
            unwinder.unwind_sleeping(sleeper.tgid, sleeper.tid, sleeper.registers, &sleeper.stack);
        let names = Names {
            modules: names.modules,
            ..Names::of(&mut unwinder, &unwound)
        };
        let python = python_frames(&names, &unwound.frames);
        assert_eq!(python[0], ("wait_for".to_owned(), 23), "{what}");
        assert!(
            python.last().unwrap().0.ends_with("_bootstrap"),
            "{what} {python:?}"
        );
        assert_eq!(losses(&unwinder), [], "{what}");
    }
}

fn python_frames(names: &Names, frames: &[whywait_events::Frame]) -> Vec<(String, u32)> {
    let python = |m: &&Module| m.kind == ModuleKind::Python;
    let module = names
        .modules
        .iter()
        .find(python)
        .expect("a Python module")
        .id;
    let symbols = frames
        .iter()
        .filter(|f| f.module == module)
        .map(|f| &names.symbols[f][0]);
    symbols
        .map(|s| {
            assert!(s.file.ends_with(".py"), "{s:?}");
            (s.name.clone(), s.line)
        })
        .collect()
}

/// As of a server that is written in C, and runs Python in its workers.
#[test]
fn a_process_whose_fork_python_was_not_told_of() {
    for interpreter in interpreters(13) {
        let running = run(&interpreter, &[program("forked.py").to_str().unwrap()]);
        let what = interpreter.display();
        let children = format!("/proc/{0}/task/{0}/children", running.id());
        let child = loop {
            let children = std::fs::read_to_string(&children).unwrap();
            if let Some(child) = children.split_whitespace().next() {
                break child.parse().unwrap();
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        };
        let sleeper = Running::sleeper_of(child, 64 << 10, |_, syscall| {
            [23, 270, 230, 219].contains(&syscall)
        });
        let mut unwinder = Unwinder::new();
        let unwound =
            unwinder.unwind_sleeping(sleeper.tgid, sleeper.tid, sleeper.registers, &sleeper.stack);
        let names = Names::of(&mut unwinder, &unwound);
        let python = python_frames(&names, &unwound.frames);
        let wanted = [("work", 12), ("<module>", 18)];
        let wanted = wanted.map(|(name, line)| (name.to_owned(), line));
        assert_eq!(python, wanted, "{what}");
        assert_eq!(losses(&unwinder), [], "{what}");
    }
}

#[test]
fn a_thread_that_moved_on_has_no_python_frames() {
    let running = run(
        &interpreters(13)[0],
        &[program("sleeper.py").to_str().unwrap()],
    );
    let mut sleeper = running.sleeper_where(16 << 10, |tid, _| tid == running.id());
    // As if the stack had been copied during another sleep at the same place.
    let last = sleeper.stack.len() - 1;
    sleeper.stack[last] ^= 1;
    let mut unwinder = Unwinder::new();
    let unwound =
        unwinder.unwind_sleeping(sleeper.tgid, sleeper.tid, sleeper.registers, &sleeper.stack);
    assert!(!unwound.frames.is_empty());
    assert!(
        unwinder
            .take_new_modules()
            .iter()
            .all(|m| m.kind != ModuleKind::Python)
    );
    assert!(losses(&unwinder).contains(&("python thread moved on", 1)));
}
