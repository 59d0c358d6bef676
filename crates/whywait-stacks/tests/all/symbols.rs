//! Names, lines and inlined functions; files that were deleted, replaced, or came later; names by
//! perf's map.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::common::*;
use whywait_events::{Frame, Module, ModuleKind, Symbol};
use whywait_stacks::{Registers, Symboliser, Unwinder, WhyUnnamed};

const NANOSLEEP: [u64; 3] = [35, 219, 230];

/// The symbols of the sleeper's frames in its main program.
fn symbols_of(
    unwinder: &mut Unwinder,
    sleeper: &Sleeper,
    symboliser: &mut Symboliser,
) -> Vec<Symbol> {
    let unwound = unwinder.unwind(sleeper.tgid, sleeper.registers, &sleeper.stack);
    assert!(!unwound.truncated, "{:?}", losses(unwinder));
    let modules = unwinder.take_new_modules();
    let main: Vec<Module> = modules
        .into_iter()
        .filter(|m| m.path.contains("sleeper"))
        .collect();
    assert_eq!(main.len(), 1);
    symboliser.symbolise(&main, &unwound.frames, None)
}

fn names(symbols: &[Symbol]) -> Vec<&str> {
    symbols.iter().map(|s| s.name.as_str()).collect()
}

#[test]
fn lines_and_inlined_functions() {
    let file = scratch("lines").join("sleeper");
    build("rustc", &["-O", "-g"], &program("sleeper.rs"), &file);
    let running = run(&file, &[]);
    let sleeper = running.sleeper_where(16 << 10, |tid, _| tid != running.id());
    let symbols = symbols_of(&mut Unwinder::new(), &sleeper, &mut Symboliser::new());
    let position = |name: &str| {
        let found = symbols.iter().position(|s| s.name.contains(name));
        found.unwrap_or_else(|| panic!("{name} in {:#?}", names(&symbols)))
    };
    let (inlined, handle) = (
        &symbols[position("::inlined")],
        &symbols[position("::handle")],
    );
    assert_eq!(inlined.frame, handle.frame);
    assert!(inlined.depth < handle.depth);
    assert!(inlined.file.ends_with("sleeper.rs"), "{inlined:?}");
    assert_eq!((inlined.line, handle.line), (15, 11));
    // Depths of a frame count up from 0.
    let of_frame: Vec<u16> = symbols
        .iter()
        .filter(|s| s.frame == handle.frame)
        .map(|s| s.depth)
        .collect();
    assert_eq!(of_frame, (0..of_frame.len() as u16).collect::<Vec<_>>());
}

#[test]
fn separate_debug_file_by_build_id() {
    let directory = scratch("separate");
    let file = directory.join("sleeper");
    build(
        "gcc",
        &["-O2", "-g", "-pthread", "-Wl,--build-id"],
        &program("sleeper.c"),
        &file,
    );
    let tool = |arguments: &[&str]| {
        assert!(
            Command::new("objcopy")
                .args(arguments)
                .status()
                .unwrap()
                .success()
        );
    };
    let (path, debug) = (file.to_str().unwrap(), directory.join("debug"));
    let separate = directory.join("separate.debug");
    tool(&["--only-keep-debug", path, separate.to_str().unwrap()]);
    tool(&["--strip-all", path]);
    let running = run(&file, &[]);
    let sleeper = running.sleeper(&NANOSLEEP, 16 << 10);
    let mut unwinder = Unwinder::new();
    let unwound = unwinder.unwind(sleeper.tgid, sleeper.registers, &sleeper.stack);
    let modules = unwinder.take_new_modules();
    let main = modules.iter().find(|m| m.path.contains("sleeper")).unwrap();
    let place = debug.join(".build-id").join(&main.build_id[..2]);
    std::fs::create_dir_all(&place).unwrap();
    std::fs::rename(
        &separate,
        place.join(format!("{}.debug", &main.build_id[2..])),
    )
    .unwrap();
    // The program's file may be gone by the time of the report.
    std::fs::remove_file(&file).unwrap();
    let only = std::slice::from_ref(main);
    assert!(
        Symboliser::new()
            .symbolise(only, &unwound.frames, None)
            .is_empty()
    );
    let below = |folder: &Path| {
        let mut symboliser = Symboliser::new();
        symboliser.look_below(folder).unwrap();
        symboliser.symbolise(only, &unwound.frames, None)
    };
    let symbols = below(&debug);
    for wanted in ["innermost", "middle", "main"] {
        assert!(names(&symbols).contains(&wanted), "{symbols:#?}");
    }
    assert!(
        symbols
            .iter()
            .any(|s| s.file.ends_with("sleeper.c") && s.line > 0)
    );

    // A link may lead to a file of the same folder, and to none elsewhere.
    let name = place.join(format!("{}.debug", &main.build_id[2..]));
    let (inside, outside) = (debug.join("usr"), directory.join("elsewhere"));
    std::fs::rename(&name, &inside).unwrap();
    symlink("../../usr", &name).unwrap();
    assert_eq!(below(&debug), symbols);
    std::fs::rename(&inside, &outside).unwrap();
    for target in [Path::new("../../../elsewhere"), &outside] {
        std::fs::remove_file(&name).unwrap();
        symlink(target, &name).unwrap();
        assert!(below(&debug).is_empty(), "{}", target.display());
    }
    assert!(Symboliser::new().look_below(&outside).is_err());
}

#[test]
fn a_folder_of_debug_files_is_the_one_that_was_named() {
    let directory = scratch("debug-moved");
    let file = directory.join("sleeper");
    build(
        "gcc",
        &["-O2", "-g", "-pthread", "-Wl,--build-id"],
        &program("sleeper.c"),
        &file,
    );
    let running = run(&file, &[]);
    let sleeper = running.sleeper(&NANOSLEEP, 16 << 10);
    let mut unwinder = Unwinder::new();
    let unwound = unwinder.unwind(sleeper.tgid, sleeper.registers, &sleeper.stack);
    let modules = unwinder.take_new_modules();
    let main = modules.iter().find(|m| m.path.contains("sleeper")).unwrap();
    let debug = directory.join("debug");
    let place = debug.join(".build-id").join(&main.build_id[..2]);
    std::fs::create_dir_all(&place).unwrap();
    std::fs::rename(&file, place.join(format!("{}.debug", &main.build_id[2..]))).unwrap();
    let mut symboliser = Symboliser::new();
    symboliser.look_below(&debug).unwrap();
    std::fs::rename(&debug, directory.join("moved")).unwrap();
    std::fs::create_dir(&debug).unwrap();
    let only = std::slice::from_ref(main);
    let symbols = symboliser.symbolise(only, &unwound.frames, None);
    assert!(names(&symbols).contains(&"innermost"), "{symbols:#?}");
}

#[test]
fn a_file_that_was_replaced_while_it_runs() {
    let file = scratch("replaced").join("sleeper");
    build(
        "gcc",
        &["-O2", "-fomit-frame-pointer", "-pthread", "-Wl,--build-id"],
        &program("sleeper.c"),
        &file,
    );
    let running = run(&file, &[]);
    let sleeper = running.sleeper(&NANOSLEEP, 16 << 10);
    std::fs::remove_file(&file).unwrap();
    std::fs::copy("/bin/true", &file).unwrap();
    // It still unwinds, by the mapped file; and the wrong file's names are not used.
    let mut unwinder = Unwinder::new();
    let mut symboliser = Symboliser::new();
    assert!(symbols_of(&mut unwinder, &sleeper, &mut symboliser).is_empty());
    assert_eq!(symboliser.unnamed()[0].why, WhyUnnamed::Gone);
}

#[test]
fn the_file_that_was_mapped_gives_names_whatever_became_of_it() {
    let file = scratch("upgraded").join("sleeper");
    // Without a build-id nothing tells the file at its path from the one that was mapped.
    let flags = ["-O2", "-g", "-pthread", "-Wl,--build-id=none"];
    build("gcc", &flags, &program("sleeper.c"), &file);
    let running = run(&file, &[]);
    let sleeper = running.sleeper(&NANOSLEEP, 16 << 10);
    std::fs::remove_file(&file).unwrap();
    let mut unwinder = Unwinder::new();
    let unwound = unwinder.unwind(sleeper.tgid, sleeper.registers, &sleeper.stack);
    let modules = unwinder.take_new_modules();
    let named = |unwinder: &Unwinder| {
        let mapped = |module: u32| unwinder.file(module);
        Symboliser::new().symbolise(&modules, &unwound.frames, Some(&mapped))
    };
    let has_all = |symbols: &[Symbol]| {
        for wanted in ["innermost", "middle", "main"] {
            assert!(names(symbols).contains(&wanted), "{symbols:#?}");
        }
        let in_source = |s: &Symbol| s.file.ends_with("sleeper.c") && s.line > 0;
        assert!(symbols.iter().any(in_source), "{symbols:#?}");
    };
    has_all(&named(&unwinder));
    // Another one in its place, and the process gone.
    let other = [
        "-O0",
        "-g",
        "-pthread",
        "-Wl,--build-id=none",
        "-Dmiddle=other",
    ];
    build("gcc", &other, &program("sleeper.c"), &file);
    drop(running);
    has_all(&named(&unwinder));
}

#[test]
fn a_stripped_file_is_said_to_be_one() {
    let file = scratch("stripped").join("sleeper");
    build(
        "gcc",
        &["-O2", "-s", "-pthread"],
        &program("sleeper.c"),
        &file,
    );
    let running = run(&file, &[]);
    let sleeper = running.sleeper(&NANOSLEEP, 16 << 10);
    let mut symboliser = Symboliser::new();
    symbols_of(&mut Unwinder::new(), &sleeper, &mut symboliser);
    let unnamed = symboliser.unnamed();
    assert_eq!(unnamed.len(), 1, "{unnamed:?}");
    assert_eq!(unnamed[0].why, WhyUnnamed::Stripped);
    assert!(unnamed[0].frames >= 3, "{unnamed:?}");
}

#[test]
fn a_second_process_shares_the_modules() {
    let file = scratch("shared").join("sleeper");
    build("gcc", &["-O2", "-pthread"], &program("sleeper.c"), &file);
    let (first, second) = (run(&file, &[]), run(&file, &[]));
    let mut unwinder = Unwinder::new();
    let mut stack = |running: &Running| {
        let sleeper = running.sleeper(&NANOSLEEP, 16 << 10);
        unwinder.unwind(sleeper.tgid, sleeper.registers, &sleeper.stack)
    };
    // Also the addresses are the same, for they are the file's.
    assert_eq!(stack(&first), stack(&second));
    let modules = unwinder.take_new_modules();
    assert_eq!(
        modules.iter().map(|m| m.id).collect::<Vec<_>>(),
        [1, 2],
        "libc and the program: {modules:?}"
    );
    unwinder.forget(first.id());
    assert!(unwinder.take_new_modules().is_empty());
}

#[test]
fn names_by_perfs_map() {
    const PAUSE: u64 = 34;
    let program_file = scratch("perf-map").join("jit");
    build(
        "gcc",
        &["-O1", "-fno-omit-frame-pointer"],
        &program("jit.c"),
        &program_file,
    );
    let running = run(&program_file, &[]);
    let sleeper = running.sleeper_where(64 << 10, |tid, syscall| {
        tid == running.id() && syscall == PAUSE
    });
    let mut unwinder = Unwinder::new();
    let unwound = unwinder.unwind(sleeper.tgid, sleeper.registers, &sleeper.stack);
    assert!(!unwound.truncated, "{:?}", losses(&unwinder));
    let names = Names::of(&mut unwinder, &unwound);
    assert_in_order(
        &names.list(&unwound.frames),
        &["sleep_long", "calls_what_sleeps", "main", "_start"],
    );
    let jit = names
        .modules
        .iter()
        .find(|m| m.kind == ModuleKind::Jit)
        .unwrap();
    assert!(
        unwound
            .frames
            .iter()
            .filter(|f| f.module == jit.id)
            .all(|f| f.address < 1 << 20)
    );
    let _ = std::fs::remove_file(format!("/tmp/perf-{}.map", running.id()));
}

#[test]
fn kernel_frames_carry_no_addresses() {
    let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap();
    let line = symbols
        .lines()
        .find(|line| line.ends_with(" T schedule"))
        .unwrap();
    let address = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
    let mut unwinder = Unwinder::new();
    let frames = unwinder.kernel(&[address + 4, address + 8]);
    let wanted = if address == 0 { "[kernel]" } else { "schedule" };
    assert_eq!(unwinder.take_new_symbols()[0].name, wanted);
    assert!(frames.iter().all(|f: &Frame| f.address < 100));
    // A user stack of a process that is not there does not disturb it.
    unwinder.unwind(u32::MAX - 1, Registers::default(), &[]);
}

#[test]
fn libraries_loaded_later() {
    let file = scratch("later").join("later.py");
    let script =
        "import time\ntime.sleep(2)\nimport ctypes\nctypes.CDLL(None).poll(None, 0, 1000000)\n";
    std::fs::write(&file, script).unwrap();
    let running = run("/usr/bin/python3".as_ref(), &[file.to_str().unwrap()]);
    let mut unwinder = Unwinder::new();
    let mut modules = Vec::new();
    for (syscalls, wanted) in [(&[23, 270, 230, 219][..], "python3"), (&[7], "libffi")] {
        let sleeper = running.sleeper(syscalls, 64 << 10);
        let unwound = unwinder.unwind(sleeper.tgid, sleeper.registers, &sleeper.stack);
        assert_eq!(losses(&unwinder), []);
        assert!(!unwound.truncated);
        modules.extend(unwinder.take_new_modules());
        let through =
            |m: &Module| m.path.contains(wanted) && unwound.frames.iter().any(|f| f.module == m.id);
        assert!(modules.iter().any(through), "{wanted} {modules:#?}");
    }
}
