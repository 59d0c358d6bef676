//! Functions of Ruby and PHP between native frames, of the interpreters that are here.

use std::path::Path;
use std::time::Duration;

use whywait_events::{Frame, ModuleKind};
use whywait_stacks::{Registers, RunningThread, Unwinder};

use crate::common::*;

/// `clock_nanosleep`, `ppoll`, `futex`, `poll`, `select`, `pselect6`, `nanosleep`.
const SLEEPS: [u64; 7] = [230, 271, 202, 7, 23, 270, 35];

/// Functions of a language with their lines, innermost first.
fn functions(names: &Names, frames: &[Frame], kind: ModuleKind) -> Vec<(String, u32)> {
    let modules = names.modules.iter().filter(|module| module.kind == kind);
    let ids: Vec<u32> = modules.map(|module| module.id).collect();
    frames
        .iter()
        .filter(|frame| ids.contains(&frame.module))
        .map(|frame| &names.symbols[frame][0])
        .map(|symbol| (symbol.name.clone(), symbol.line))
        .collect()
}

fn named(wanted: &[(&str, u32)]) -> Vec<(String, u32)> {
    let owned = wanted
        .iter()
        .map(|(name, line)| ((*name).to_owned(), *line));
    owned.collect()
}

#[test]
fn functions_of_ruby() {
    let script = program("sleeper.rb");
    for arguments in [&[][..], &["--yjit", "--yjit-call-threshold=1"]] {
        let arguments = [arguments, &[script.to_str().unwrap()]].concat();
        let running = run(Path::new("/usr/bin/ruby"), &arguments);
        let main = running.id();
        let mut unwinder = Unwinder::new();
        let sleeper = running.sleeper_where(64 << 10, |tid, syscall| {
            tid == main && SLEEPS.contains(&syscall)
        });
        let unwound =
            unwinder.unwind_sleeping(sleeper.tgid, sleeper.tid, sleeper.registers, &sleeper.stack);
        let mut names = Names::of(&mut unwinder, &unwound);
        let list = names.list(&unwound.frames);
        let compiled = arguments.len() > 1;
        let lost = losses(&unwinder);
        assert!(compiled || lost.is_empty(), "{lost:?} {list:#?}");
        assert!(!unwound.repeats, "its functions are elsewhere");
        let wanted = [
            ("sleep", 0),
            ("handle", 5),
            ("compare", 10),
            ("block in request", 16),
            ("sort", 0),
            ("request", 16),
            ("<main>", 26),
        ];
        let found = functions(&names, &unwound.frames, ModuleKind::Ruby);
        assert_eq!(found, named(&wanted), "{list:#?}");

        // Where it goes on before it is read, its stack alone says it: of each call of the loop.
        let gone = u32::MAX;
        let woken = unwinder.unwind_sleeping(sleeper.tgid, gone, sleeper.registers, &sleeper.stack);
        names.add(&mut unwinder);
        let wanted = [("handle", 5), ("request", 16)];
        let found = functions(&names, &woken.frames, ModuleKind::Ruby);
        let list = names.list(&woken.frames);
        assert!(compiled || found == named(&wanted), "{found:?} {list:#?}");

        let sleeper = running.sleeper_where(64 << 10, |tid, _| tid != main);
        let unwound =
            unwinder.unwind_sleeping(sleeper.tgid, sleeper.tid, sleeper.registers, &sleeper.stack);
        let names = Names {
            modules: names.modules,
            ..Names::of(&mut unwinder, &unwound)
        };
        let wanted = [("lock", 0), ("wait_for", 20), ("block in <main>", 25)];
        let found = functions(&names, &unwound.frames, ModuleKind::Ruby);
        assert_eq!(found, named(&wanted), "{:#?}", names.list(&unwound.frames));
    }
}

#[test]
fn functions_of_php() {
    let script = program("sleeper.php");
    let jit: [&[&str]; 2] = [
        &[],
        &[
            "-d",
            "opcache.enable_cli=1",
            "-d",
            "opcache.jit_buffer_size=16M",
            "-d",
            "opcache.jit=function",
        ],
    ];
    for arguments in jit {
        let arguments = [arguments, &[script.to_str().unwrap()]].concat();
        let running = run(Path::new("/usr/bin/php"), &arguments);
        let sleeper = running.sleeper(&SLEEPS, 64 << 10);
        let mut unwinder = Unwinder::new();
        let unwound =
            unwinder.unwind_sleeping(sleeper.tgid, sleeper.tid, sleeper.registers, &sleeper.stack);
        let names = Names::of(&mut unwinder, &unwound);
        let list = names.list(&unwound.frames);
        let lost = losses(&unwinder);
        assert!(arguments.len() > 1 || lost.is_empty(), "{lost:?} {list:#?}");
        let wanted = [
            ("sleep", 0),
            ("Server::handle", 8),
            ("compare", 14),
            ("usort", 0),
            ("request", 22),
            ("{main}", 25),
        ];
        let found = functions(&names, &unwound.frames, ModuleKind::Php);
        assert_eq!(found, named(&wanted), "{list:#?}");
    }
}

/// A thread that computes, at one moment.
struct Moment {
    at_ns: u64,
    registers: Registers,
    kept: [u64; 2],
    stack: Vec<u8>,
}

/// The innermost function in the language itself.
fn innermost(unwinder: &mut Unwinder, names: &mut Names, sampled: Sampled<'_>) -> Option<String> {
    let thread = RunningThread {
        tgid: sampled.id,
        tid: sampled.id,
        at_ns: sampled.moment.at_ns,
        registers: sampled.moment.registers,
        kept: sampled.kept,
    };
    let unwound = unwinder.unwind_running(thread, &sampled.moment.stack);
    names.add(unwinder);
    let found = functions(names, &unwound.frames, sampled.kind);
    found
        .into_iter()
        .find(|(_, line)| *line > 0)
        .map(|(name, _)| name)
}

struct Sampled<'a> {
    id: u32,
    kind: ModuleKind,
    moment: &'a Moment,
    kept: Option<[u64; 2]>,
}

/// While it stands still two looks agree, and are the truth. What is read when it has gone on, by
/// its registers at that moment, must be that.
fn registers_name_the_innermost(interpreter: &str, script: &str, kind: ModuleKind) {
    const MOMENTS: usize = 60;
    let running = run(Path::new(interpreter), &[program(script).to_str().unwrap()]);
    let id = running.id();
    let (mut still, mut later) = (Unwinder::new(), Unwinder::new());
    let (mut still_names, mut later_names) = (Names::default(), Names::default());
    let mut right = 0;
    let mut seen = 0;
    for _ in 0..1000 {
        std::thread::sleep(Duration::from_millis(7));
        let stopped = Stopped::new(id);
        let look = || {
            let (registers, kept) = stopped.registers();
            Moment {
                at_ns: now_ns(),
                registers,
                kept,
                stack: copy(id, registers.sp, 16 << 10),
            }
        };
        let sampled = |moment, kept| Sampled {
            id,
            kind,
            moment,
            kept,
        };
        let first = look();
        innermost(&mut still, &mut still_names, sampled(&first, None));
        let moment = look();
        let truth = innermost(&mut still, &mut still_names, sampled(&moment, None));
        drop(stopped);
        std::thread::sleep(Duration::from_millis(3));
        let found = innermost(
            &mut later,
            &mut later_names,
            sampled(&moment, Some(moment.kept)),
        );
        // Before that the interpreter begins.
        let is_one = |name: &String| ["even", "odd"].contains(&&**name);
        let Some(truth) = truth.filter(is_one) else {
            continue;
        };
        seen += 1;
        // Its callers are all that is known before the function was seen.
        let is_right = found.as_deref() == Some(&*truth);
        let nothing = !found.is_some_and(|found| is_one(&found));
        assert!(is_right || nothing, "{interpreter}: in {truth}");
        right += usize::from(is_right);
        if seen == MOMENTS {
            break;
        }
    }
    assert_eq!(seen, MOMENTS, "{interpreter} {:?}", losses(&still));
    // The first ones in each function may be unknown, and those that were not in the loop yet.
    assert!(
        right * 100 >= seen * 90,
        "{interpreter}: {right} of {seen}, {:?}",
        losses(&later)
    );
}

#[test]
fn registers_name_the_innermost_function_of_ruby() {
    registers_name_the_innermost("/usr/bin/ruby", "burner.rb", ModuleKind::Ruby);
}

#[test]
fn registers_name_the_innermost_function_of_php() {
    registers_name_the_innermost("/usr/bin/php", "burner.php", ModuleKind::Php);
}
