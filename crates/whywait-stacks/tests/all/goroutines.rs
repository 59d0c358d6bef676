//! Goroutines that are on no thread, by their addresses.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::*;
use whywait_events::TaskState;
use whywait_stacks::{Goroutine, Unwinder, Unwound};

/// So many goroutines the program makes.
const GOROUTINES: usize = 10;
/// nanosleep and clock_nanosleep (x86-64 numbers).
const SLEEPS: [u64; 2] = [35, 230];

/// The program; it is killed in the end.
struct Parked {
    child: Child,
    /// What each goroutine is in, what it waits in (`-`: it runs), and where it is.
    goroutines: Vec<(String, String, u64)>,
}

impl Drop for Parked {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn parked(name: &str, flags: &[&str]) -> Parked {
    let file = scratch(name).join("parked");
    let status = Command::new("go")
        .arg("build")
        .args(flags)
        .arg("-o")
        .arg(&file)
        .arg(".")
        .current_dir(program("parked"))
        .status()
        .expect("go runs");
    assert!(status.success());
    let mut child = Command::new(&file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let goroutines = lines.take(GOROUTINES).map(|line| {
        let line = line.expect("a line");
        let mut words = line.split(' ').map(str::to_owned);
        let mut word = || words.next().expect("a word");
        let (function, waits_in) = (word(), word());
        (function, waits_in, word().parse().expect("an address"))
    });
    let goroutines = goroutines.collect();
    Parked { child, goroutines }
}

/// The goroutine, once it is in the state that is wanted and nothing was lost.
fn once(unwinder: &mut Unwinder, tgid: u32, address: u64, wanted: TaskState) -> Goroutine {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match unwinder.goroutine(tgid, address) {
            Some(found) if found.state == wanted => return found,
            found => assert!(Instant::now() < deadline, "{found:?}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn check(name: &str, flags: &[&str]) {
    let program = parked(name, flags);
    let tgid = program.child.id();
    let mut unwinder = Unwinder::new();
    let mut all = Unwound::default();
    let mut waiting = Vec::new();
    for (function, waits_in, address) in &program.goroutines {
        if waits_in == "-" {
            let found = once(&mut unwinder, tgid, *address, TaskState::Running);
            assert_eq!(found.stack, None, "{function}");
            continue;
        }
        let found = once(&mut unwinder, tgid, *address, TaskState::Waiting);
        let stack = found.stack.expect("it is on no thread");
        all.frames.extend(&stack.frames);
        waiting.push((function, waits_in, stack));
    }
    let addresses: Vec<u64> = program.goroutines.iter().map(|one| one.2).collect();
    let families = unwinder.families(tgid, &addresses).expect("a list");
    for (address, family) in addresses.iter().zip(families) {
        let siblings: Vec<u64> = family.siblings.iter().map(|(at, _)| *at).collect();
        let others = addresses.iter().filter(|other| *other != address);
        let lacks: Vec<&u64> = others.filter(|other| !siblings.contains(other)).collect();
        assert!(
            lacks.is_empty(),
            "main began all: {lacks:x?} of {addresses:x?}"
        );
        assert!(!siblings.contains(address), "itself");
    }
    let names = Names::of(&mut unwinder, &all);
    for (function, waits_in, stack) in waiting {
        let list = names.list(&stack.frames);
        assert!(!stack.truncated, "{list:#?} {:?}", losses(&unwinder));
        assert_in_order(
            &list,
            &["runtime.gopark", waits_in, function, "runtime.goexit"],
        );
    }
}

#[test]
fn what_goroutines_wait_in() {
    check("parked", &[]);
}

#[test]
fn what_goroutines_of_a_stripped_program_wait_in() {
    check("parked-stripped", &["-ldflags=-s -w", "-trimpath"]);
}

#[test]
fn what_goroutines_of_a_movable_program_wait_in() {
    check("parked-pie", &["-buildmode=pie"]);
}

/// Nothing but a goroutine is taken for one.
#[test]
fn other_addresses_are_no_goroutines() {
    let program = parked("parked-other", &[]);
    let tgid = program.child.id();
    let mut unwinder = Unwinder::new();
    let mut tried = 0;
    for (_, _, address) in &program.goroutines {
        for at in (address - 4096..address + 4096).step_by(8) {
            let is_one = program
                .goroutines
                .iter()
                .any(|(_, _, address)| *address == at);
            if is_one {
                continue;
            }
            // Those of the runtime lie there, too: they agree with themselves.
            if let Some(found) = unwinder.goroutine(tgid, at) {
                assert!(found.stack.is_none_or(|stack| !stack.truncated), "{at:#x}");
            }
            tried += 1;
        }
    }
    for address in [0, 8, u64::MAX, u64::MAX - 176, 1 << 47] {
        assert_eq!(unwinder.goroutine(tgid, address), None);
    }
    let unreadable = losses(&unwinder);
    let refused = unreadable
        .iter()
        .find(|(reason, _)| *reason == "go task not readable")
        .map_or(0, |(_, count)| *count);
    assert!(
        refused > tried * 9 / 10,
        "{refused} of {tried}: {unreadable:?}"
    );
}

#[test]
fn a_program_of_another_language_has_none() {
    let running = run("/bin/sleep".as_ref(), &["1000"]);
    // Until then it may have no memory of its own yet.
    running.sleeper(&SLEEPS, 8);
    let mut unwinder = Unwinder::new();
    assert_eq!(unwinder.goroutine(running.id(), 0xc0_0000_01c0), None);
    assert_eq!(losses(&unwinder), [("go version not supported", 1)]);
}
