//! Recording real programs with real BPF: what whatever they do to themselves does to the
//! recording.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use crate::common::{
    self, binary, bpf, program, run, scratch, start, target, text, until, whywait,
};
use nix::sys::signal::Signal;
use whywait_events::recording::Recording;
use whywait_events::{ThreadChange, ThreadEvent, Wait};

fn open(dir: &Path) -> Recording {
    Recording::open(dir).unwrap_or_else(|error| panic!("expected a recording, got {error}"))
}

fn threads(dir: &Path) -> Vec<ThreadEvent> {
    let mut found = Vec::new();
    let visit = &mut |event: &ThreadEvent| found.push(event.clone());
    open(dir)
        .read::<ThreadEvent>(None, visit)
        .expect("readable");
    found
}

fn waits(recording: &Recording) -> Vec<Wait> {
    let mut found = Vec::new();
    let visit = &mut |wait: &Wait| found.push(wait.clone());
    recording.read::<Wait>(None, visit).expect("readable");
    found
}

/// The functions of a stack, innermost first.
fn functions(recording: &Recording, stack: u32) -> Vec<String> {
    let stacks = recording.stacks().expect("readable");
    stacks
        .named(stack)
        .flat_map(|frame| frame.names.iter().map(|name| name.name.to_string()))
        .collect()
}

fn has(events: &[ThreadEvent], change: ThreadChange, comm: &str) -> bool {
    events
        .iter()
        .any(|event| event.change == change && event.comm == comm)
}

#[test]
fn a_command_ends_and_its_exit_code_is_passed_on() {
    if !bpf() {
        return;
    }
    run(&mut whywait(&["--", "true"])).exits(0).reports();
    run(&mut whywait(&["--", "sh", "-c", "exit 7"]))
        .exits(7)
        .reports();
    run(&mut whywait(&["--", "sh", "-c", "kill -KILL $$"]))
        .exits(137)
        .reports();
    run(&mut whywait(&["--", "sh", "-c", "kill -TERM $$"]))
        .exits(143)
        .reports();
}

#[test]
fn with_closed_standard_output_a_command_keeps_its_exit_code() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let closed = |args: &[&str]| {
        let shell = ["-c", "exec \"$@\" >&-", "sh", binary()];
        run(&mut program("sh", &[&shell[..], args].concat()))
    };
    for (command, code) in [("exit 7", 7), ("exit 0", 1)] {
        closed(&["--", "sh", "-c", command])
            .exits(code)
            .in_one_line()
            .complains("standard output is closed");
    }
    // Nothing of `record` goes there.
    let recording = dir.path().join("recording");
    closed(&["record", "-o", text(&recording), "--", "sh", "-c", "exit 7"]).exits(7);
    run(&mut whywait(&["report", text(&recording)]))
        .exits(0)
        .reports();
    let report = dir.path().join("report");
    closed(&["-o", text(&report), "--", "sh", "-c", "exit 7"]).exits(7);
    assert!(report.exists(), "expected a report");
}

#[test]
fn a_command_that_does_not_exist_leaves_no_recording() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let recording = dir.path().join("recording");
    for command in ["no-such-command", "/no/such/command"] {
        run(&mut whywait(&[
            "record",
            "-o",
            text(&recording),
            "--",
            command,
        ]))
        .exits(127)
        .in_one_line()
        .complains(command);
        assert!(
            !recording.exists(),
            "expected no recording, got {recording:?}"
        );
    }
    run(&mut whywait(&["--", "/etc/passwd"]))
        .exits(126)
        .in_one_line();
    // A folder that was there stays, as it was.
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).expect("a folder");
    run(&mut whywait(&[
        "record",
        "-o",
        text(&empty),
        "--",
        "no-such-command",
    ]))
    .exits(127);
    let left = common::walk(&empty);
    assert!(left.len() == 1, "expected an empty folder, got {left:?}");
}

#[test]
fn a_report_comes_as_json_and_can_fail_a_run() {
    if !bpf() {
        return;
    }
    let json = run(&mut whywait(&["--format", "json", "--", "sleep", "0.05"]))
        .exits(0)
        .json();
    assert_eq!(json["schema"], 1);
    assert_eq!(json["target"]["command"], "sleep 0.05");
    assert_eq!(json["coverage"]["lost"], 0);
    // Nothing is wrong, so nothing fails; the command's own code counts.
    for severity in ["note", "warning", "error"] {
        run(&mut whywait(&["--fail-on", severity, "--", "true"])).exits(0);
    }
    run(&mut whywait(&[
        "--fail-on",
        "error",
        "--",
        "sh",
        "-c",
        "exit 9",
    ]))
    .exits(9);
}

/// Sends a line on each connection, all at once, and waits for all answers.
fn ask(port: u16, lines: &[&str]) {
    let mut connections: Vec<TcpStream> = lines
        .iter()
        .map(|_| TcpStream::connect(("127.0.0.1", port)).expect("it listens"))
        .collect();
    // Accepted, and known to its loop, before the one that blocks it comes.
    for connection in &mut connections {
        exchange(connection, "hello\n");
    }
    // Only a poll that is seen to wait shows who polls. It may take longer, and shows the same.
    std::thread::sleep(Duration::from_millis(20));
    for (connection, line) in connections.iter_mut().zip(lines) {
        connection.write_all(line.as_bytes()).expect("sent");
    }
    for connection in &mut connections {
        receive(connection);
    }
}

fn exchange(connection: &mut TcpStream, line: &str) {
    connection.write_all(line.as_bytes()).expect("sent");
    receive(connection);
}

fn receive(connection: &mut TcpStream) {
    connection
        .set_read_timeout(Some(common::DEADLINE))
        .expect("a time");
    let mut answer = [0; 64];
    let length = connection.read(&mut answer).expect("an answer");
    assert!(length > 0, "expected an answer, got the end");
}

#[test]
fn what_is_wrong_fails_a_run_that_asks_for_it() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let recording = dir.path().join("recording");
    let args = ["record", "-o", text(&recording), "--", target(), "loop"];
    let mut watcher = start(&mut whywait(&args));
    let port = watcher.line().parse().expect("a port");
    ask(port, &["slow\n", "quick\n", "quick\n", "quick\n"]);
    watcher.end().exits(0);
    let report = |format: &str, fail_on: &str| {
        let args = [
            "report",
            text(&recording),
            "--format",
            format,
            "--fail-on",
            fail_on,
        ];
        run(&mut whywait(&args))
    };
    let json = run(&mut whywait(&[
        "report",
        text(&recording),
        "--format",
        "json",
    ]))
    .exits(0)
    .json();
    let findings = json["findings"].as_array().expect("a list");
    let finding = findings
        .iter()
        .find(|finding| finding["code"] == "blocked-loop")
        .unwrap_or_else(|| panic!("expected blocked-loop, got {json:#}"));
    let severities = ["note", "warning", "error"];
    let severity = severities
        .iter()
        .position(|severity| finding["severity"] == *severity)
        .expect("a known severity");
    for (rank, name) in severities.iter().enumerate() {
        let code = if rank <= severity { 3 } else { 0 };
        report("text", name).exits(code).says("blocked-loop");
        assert_eq!(report("json", name).exits(code).json(), json);
    }
    // In one go, the finding counts and not the command's own code.
    let mut watcher = start(&mut whywait(&["--fail-on", "note", "--", target(), "loop"]));
    let port = watcher.line().parse().expect("a port");
    ask(port, &["slow\n", "quick\n", "quick\n", "quick\n"]);
    watcher.end().exits(3).says("blocked-loop");
}

#[test]
fn children_and_grandchildren_are_recorded() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let recording = dir.path().join("recording");
    let script = "sleep 0.01; (sleep 0.02; exec sleep 0.03) & wait; \
                  (setsid sh -c 'sleep 0.15; echo daemon' &); sleep 0.4";
    run(&mut whywait(&[
        "record",
        "-o",
        text(&recording),
        "--",
        "sh",
        "-c",
        script,
    ]))
    .exits(0)
    .says("daemon");
    let events = threads(&recording);
    for (change, comm, times) in [
        (ThreadChange::Exec, "sleep", 5),
        (ThreadChange::Exec, "setsid", 1),
    ] {
        let seen = events
            .iter()
            .filter(|event| event.change == change && event.comm == comm)
            .count();
        assert!(
            seen == times,
            "expected {change:?} of {comm} {times} times, got {events:#?}"
        );
    }
    // The daemon has no parent left in the target, and is followed all the same.
    assert!(
        has(&events, ThreadChange::Exec, "sh") && has(&events, ThreadChange::Exit, "sleep"),
        "expected sh and sleep, got {events:#?}"
    );
}

#[test]
fn a_child_made_while_recording_has_stacks_with_names() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let dir = dir.path().join("recording");
    run(&mut whywait(&[
        "record",
        "-o",
        text(&dir),
        "--",
        target(),
        "child-naps",
    ]))
    .exits(0);
    let recording = open(&dir);
    let waits = waits(&recording);
    let names: Vec<Vec<String>> = waits
        .iter()
        .map(|wait| functions(&recording, wait.user_stack))
        .collect();
    assert!(
        names
            .iter()
            .any(|names| names.iter().any(|name| name == "nap_in_the_child")),
        "expected a wait in nap_in_the_child, got {names:#?}"
    );
}

#[test]
fn a_thread_that_becomes_another_program_takes_the_process_over() {
    if !bpf() {
        return;
    }
    // On some virtual machines no switch is seen from or to their first process: then the sleep may
    // have no end, or not be there at all.
    const TRIES: usize = 3;
    let slept = (0..TRIES).any(|_| sleep_after_exec_in_a_thread());
    assert!(slept, "expected the sleep of the program that took over");
}

/// Whether the sleep of a program is seen that another one's thread has become.
fn sleep_after_exec_in_a_thread() -> bool {
    let dir = scratch();
    let recording = dir.path().join("recording");
    let command = [target(), "exec-in-thread", "/bin/sleep", "0.3"];
    let args = ["record", "-o", text(&recording), "--"];
    run(&mut whywait(&[&args[..], &command[..]].concat())).exits(0);
    let events = threads(&recording);
    let exec = events
        .iter()
        .rfind(|event| event.change == ThreadChange::Exec && event.comm == "sleep")
        .unwrap_or_else(|| panic!("expected an exec of sleep, got {events:#?}"));
    assert_eq!(
        exec.tid, exec.tgid,
        "the one thread left has the process's number"
    );
    // Every thread that appeared went again, also the one that changed its number.
    let began: Vec<u32> = events
        .iter()
        .filter(|event| event.change == ThreadChange::Fork)
        .map(|event| event.tid)
        .collect();
    assert!(!began.is_empty(), "expected a thread, got {events:#?}");
    for tid in began {
        let ended = |event: &ThreadEvent| event.tid == tid && event.change == ThreadChange::Exit;
        assert!(
            events.iter().any(ended),
            "expected an end of thread {tid}, got {events:#?}"
        );
    }
    waits(&open(&recording))
        .into_iter()
        .any(|wait| wait.tid == exec.tid && wait.out_ns > exec.at_ns && wait.in_ns.is_some())
}

#[test]
fn a_process_that_is_killed_ends_the_recording() {
    if !bpf() {
        return;
    }
    let mut process = start(&mut program(target(), &["echo"]));
    process.ping("ready");
    let mut watcher = start(&mut whywait(&["-p", &process.pid().to_string()]));
    watcher.until_err("watching process");
    process.signal(Signal::SIGKILL);
    process.end().exits(137);
    watcher.end().exits(0).reports();
}

#[test]
fn a_process_may_vanish_at_any_time() {
    if !bpf() {
        return;
    }
    for delay in [0, 20, 60, 120, 200] {
        let process = start(&mut program(target(), &["echo"]));
        let watcher = start(&mut whywait(&["-p", &process.pid().to_string()]));
        std::thread::sleep(Duration::from_millis(delay));
        process.signal(Signal::SIGKILL);
        let number = process.pid().to_string();
        process.end().exits(137);
        let run = watcher.end();
        match run.code {
            0 => drop(run.reports()),
            1 => drop(run.in_one_line().complains(&number)),
            _ => drop(
                run.exits(2)
                    .complains(&format!("there is no process {number}")),
            ),
        }
    }
}

#[test]
fn a_process_goes_on_without_its_first_thread() {
    if !bpf() {
        return;
    }
    let mut process = start(&mut program(target(), &["echo-without-first-thread"]));
    process.ping("ready");
    let number = process.pid().to_string();
    let stat = format!("/proc/{number}/stat");
    until("the first thread's end", || {
        fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") Z "))
    });
    let mut watcher = start(&mut whywait(&["-p", &number, "--format", "json"]));
    watcher.until_err("watching process");
    process.ping("still here");
    assert!(
        watcher.is_running(),
        "expected it to watch, got {}",
        watcher.err()
    );
    process.end().exits(0);
    let json = watcher.end().exits(0).json();
    assert_eq!(json["target"]["threads"], 2, "{json:#}");
}

#[test]
fn a_recording_ends_on_time() {
    if !bpf() {
        return;
    }
    let mut process = start(&mut program(target(), &["echo"]));
    let number = process.pid().to_string();
    let args = ["-p", &number, "-d", "300ms", "--format", "json"];
    let json = run(&mut whywait(&args)).exits(0).json();
    let watched = Duration::from_nanos(json["target"]["duration_ns"].as_u64().expect("a number"));
    assert!(
        watched >= Duration::from_millis(300) && watched < Duration::from_secs(5),
        "expected some 300 ms, got {watched:?}"
    );
    process.ping("still here");

    // A launched command is reported on, and waited for.
    let script = "read line; echo done; exit 4";
    let mut watcher = start(&mut whywait(&["-d", "100ms", "--", "sh", "-c", script]));
    while !watcher.line().starts_with("coverage: ") {}
    assert!(
        watcher.is_running(),
        "expected whywait to wait for its command"
    );
    watcher.end().exits(4).says("done");
}

#[test]
fn ctrl_c_ends_watching_a_process() {
    if !bpf() {
        return;
    }
    let mut process = start(&mut program(target(), &["echo"]));
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let mut watcher = start(&mut whywait(&["-p", &process.pid().to_string()]));
        watcher.until_err("Ctrl-C ends the recording");
        watcher.signal_group(signal);
        watcher.end().exits(0).reports();
        process.ping("still here");
    }
}

#[test]
fn ctrl_c_is_the_commands_and_the_report_still_comes() {
    if !bpf() {
        return;
    }
    let script = "trap 'echo interrupted; exit 5' INT; echo ready; while :; do sleep 0.02; done";
    let mut watcher = start(&mut whywait(&["--", "sh", "-c", script]));
    watcher.until_line("ready");
    watcher.signal_group(Signal::SIGINT);
    watcher.end().exits(5).says("interrupted").reports();
    // One that knows nothing of it dies of it.
    let mut watcher = start(&mut whywait(&["--", target(), "named", "x"]));
    watcher.until_line("ready");
    watcher.signal_group(Signal::SIGINT);
    watcher.end().exits(130).reports();
}

#[test]
fn signals_to_whywait_alone_are_passed_on() {
    if !bpf() {
        return;
    }
    for (signal, name) in [(Signal::SIGTERM, "TERM"), (Signal::SIGHUP, "HUP")] {
        let script = format!(
            "trap 'echo got {name}; exit 6' {name}; echo ready; while :; do sleep 0.02; done"
        );
        let mut watcher = start(&mut whywait(&["--", "sh", "-c", &script]));
        watcher.until_line("ready");
        watcher.signal(signal);
        watcher
            .end()
            .exits(6)
            .says(&format!("got {name}"))
            .reports();
    }
}

#[test]
fn thousands_of_threads_are_read_in_time() {
    if !bpf() {
        return;
    }
    const THREADS: usize = 3000;
    let dir = scratch();
    let dir = dir.path().join("recording");
    let mut process = start(&mut program(target(), &["threads", &THREADS.to_string()]));
    process.until_line("ready");
    let number = process.pid().to_string();
    let args = ["record", "-o", text(&dir), "-p", &number, "-d", "2s"];
    let ended = run(&mut whywait(&args)).exits(0);
    assert!(
        ended.took < Duration::from_secs(30),
        "expected some 3 s, got {:?}",
        ended.took
    );
    let recording = open(&dir);
    let mut tids: Vec<u32> = waits(&recording)
        .iter()
        .filter(|wait| wait.user_stack != 0)
        .map(|wait| wait.tid)
        .collect();
    tids.sort_unstable();
    tids.dedup();
    assert!(
        tids.len() == THREADS + 1,
        "expected stacks of {} threads, got {}",
        THREADS + 1,
        tids.len()
    );
    process.end().exits(0);
}

#[test]
fn ten_thousand_threads_in_futexes_cost_little_at_the_end() {
    if !bpf() {
        return;
    }
    const THREADS: usize = 10_000;
    let dir = scratch();
    let dir = dir.path().join("recording");
    let mut process = start(&mut program(target(), &["parked", &THREADS.to_string()]));
    process.until_line("ready");
    let number = process.pid().to_string();
    let args = ["record", "-o", text(&dir), "-p", &number, "-d", "1s"];
    let ended = run(&mut whywait(&args)).exits(0);
    // A debug build takes some ten times as long as any other. Compared with each other the stacks
    // took minutes.
    assert!(
        ended.took < Duration::from_secs(20),
        "expected some 4 s, got {:?}",
        ended.took
    );
    let mut tids: Vec<u32> = waits(&open(&dir))
        .iter()
        .filter(|wait| wait.user_stack != 0 && wait.syscall == Some(202))
        .map(|wait| wait.tid)
        .collect();
    tids.sort_unstable();
    tids.dedup();
    assert!(
        tids.len() == THREADS,
        "expected stacks of {THREADS} threads, got {}",
        tids.len()
    );
    let report = run(&mut whywait(&["report", text(&dir)])).exits(0);
    assert!(
        report.took < Duration::from_secs(10),
        "expected a report within 1 s, got {:?}",
        report.took
    );
    process.end().exits(0);
}

#[test]
fn a_program_whose_file_was_replaced_has_names() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let file = dir.path().join("server");
    for (what, replaced) in [("deleted", false), ("replaced", true)] {
        fs::copy(target(), &file).expect("copied");
        let mut process = start(&mut program(&file, &["echo"]));
        process.ping("ready");
        fs::remove_file(&file).expect("a file");
        if replaced {
            fs::copy("/bin/true", &file).expect("copied");
        }
        let recording = dir.path().join(what);
        let number = process.pid().to_string();
        let args = ["record", "-o", text(&recording), "-p", &number];
        let mut watcher = start(&mut whywait(&args));
        watcher.until_err("watching process");
        process.ping("still here");
        std::thread::sleep(Duration::from_millis(100));
        // Names come after the program has gone.
        process.end().exits(0);
        common::until("the end", || !watcher.is_running());
        watcher.end().exits(0);
        let recording = open(&recording);
        let named = waits(&recording).iter().any(|wait| {
            functions(&recording, wait.user_stack)
                .iter()
                .any(|name| name == "main" || name == "echo")
        });
        assert!(
            named,
            "{what}: expected functions of the program in a stack"
        );
    }
}

#[test]
fn a_program_without_names_is_said_to_have_none() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let file = dir.path().join("server");
    run(&mut program("strip", &["-o", text(&file), target()])).exits(0);
    run(&mut whywait(&["--", text(&file), "child-naps"]))
        .exits(0)
        .says("have no names")
        .says("it is stripped");
}

#[test]
fn names_come_from_a_folder_of_debug_files() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let [file, debug, recording] = ["server", "debug", "recording"].map(|it| dir.path().join(it));
    run(&mut program("strip", &["-o", text(&file), target()])).exits(0);
    let notes = run(&mut program("readelf", &["-n", text(&file)]))
        .exits(0)
        .out;
    let (_, id) = notes.split_once("Build ID: ").expect("the linker wrote it");
    let (first, rest) = id.lines().next().expect("an id").trim().split_at(2);
    let place = debug.join(".build-id").join(first);
    fs::create_dir_all(&place).expect("folders");
    fs::copy(target(), place.join(format!("{rest}.debug"))).expect("copied");
    let args = ["--debug-files", text(&debug), "-o", text(&recording)];
    let command = ["--", text(&file), "child-naps"];
    run(&mut whywait(&[&["record"], &args[..], &command].concat())).exits(0);
    let recording = open(&recording);
    let named = waits(&recording).iter().any(|wait| {
        functions(&recording, wait.user_stack)
            .iter()
            .any(|name| name == "main")
    });
    assert!(named, "expected functions of the stripped program");
}

/// Moves a folder away, and has a link to another one take its name.
fn take_its_place(folder: &Path, moved: &Path, other: &Path) {
    fs::rename(folder, moved).expect("it can be moved");
    symlink(other, folder).expect("a link");
}

#[test]
fn a_recording_stays_in_its_folder_when_the_one_around_it_is_moved_away() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let [named, moved, other] = ["named", "moved", "other"].map(|it| dir.path().join(it));
    fs::create_dir(&named).expect("a folder");
    // What is written by the path would find all that it needs.
    fs::create_dir_all(other.join("recording/seg-000001")).expect("folders");
    let mut process = start(&mut program(target(), &["echo"]));
    let recording = named.join("recording");
    let number = process.pid().to_string();
    let mut watcher = start(&mut whywait(&[
        "record",
        "-o",
        text(&recording),
        "-p",
        &number,
    ]));
    watcher.until_err("watching process");
    take_its_place(&named, &moved, &other);
    process.ping("still here");
    watcher.signal_group(Signal::SIGINT);
    watcher.end().exits(0);
    let recording = open(&moved.join("recording"));
    assert!(recording.meta().complete);
    assert_eq!(entries(&other), ["recording", "recording/seg-000001"]);
    process.end().exits(0);
}

#[test]
fn a_report_stays_in_the_folder_that_was_named_when_that_is_moved_away() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let [named, moved, other] = ["named", "moved", "other"].map(|it| dir.path().join(it));
    for folder in [&named, &other] {
        fs::create_dir(folder).expect("a folder");
    }
    let process = start(&mut program(target(), &["echo"]));
    let report = named.join("report");
    let number = process.pid().to_string();
    let mut watcher = start(&mut whywait(&["-o", text(&report), "-p", &number]));
    watcher.until_err("watching process");
    take_its_place(&named, &moved, &other);
    watcher.signal_group(Signal::SIGINT);
    watcher.end().exits(0);
    let written = fs::read_to_string(moved.join("report")).expect("a report");
    assert!(written.contains("coverage: "), "{written}");
    assert_eq!(entries(&other), [""; 0]);
    process.end().exits(0);
}

/// What there is below a folder, by name.
fn entries(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() {
            found.extend(
                entries(&entry.path())
                    .iter()
                    .map(|it| format!("{name}/{it}")),
            );
        }
        found.push(name);
    }
    found.sort();
    found
}

#[test]
fn the_largest_stacks_fit() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    for bytes in ["2K", "8K", "32K"] {
        let recording = dir.path().join(bytes);
        let mut process = start(&mut program(target(), &["deep"]));
        process.until_line("ready");
        let number = process.pid().to_string();
        let args = [
            "record",
            "-o",
            text(&recording),
            "-p",
            &number,
            "-d",
            "300ms",
            "--stack-bytes",
            bytes,
        ];
        run(&mut whywait(&args)).exits(0);
        let recording = open(&recording);
        let deepest = waits(&recording)
            .iter()
            .map(|wait| functions(&recording, wait.user_stack).len())
            .max();
        assert!(
            deepest > Some(1),
            "expected frames at {bytes}, got {deepest:?}"
        );
        process.end().exits(0);
    }
}

#[test]
fn of_all_that_listen_each_has_its_own_requests_and_verdict() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let recording = dir.path().join("recording");
    // Others listen on this machine, too.
    let mut blocked = start(&mut program(target(), &["loop"]));
    let mut healthy = start(&mut program(target(), &["loop"]));
    let [at, other] = [&mut blocked, &mut healthy]
        .map(|server| -> u16 { server.line().parse().expect("a port") });
    let mut watcher = start(&mut whywait(&["record", "-a", "-o", text(&recording)]));
    watcher.until_err("Ctrl-C ends the recording");
    ask(at, &["slow\n", "quick\n", "quick\n", "quick\n"]);
    ask(other, &["quick\n", "quick\n"]);
    watcher.signal_group(Signal::SIGINT);
    watcher.end().exits(0);
    let verdicts = run(&mut whywait(&["report", text(&recording)])).exits(0);
    verdicts.says(&format!("(pid {}) on :{at}", blocked.pid()));
    let of = |port: u16| {
        let server = format!(":{port}");
        let args = [
            "report",
            text(&recording),
            "--server",
            &server,
            "--format",
            "json",
        ];
        run(&mut whywait(&args)).exits(0).json()
    };
    let codes = |report: &serde_json::Value| -> Vec<String> {
        let findings = report["findings"].as_array().expect("a list");
        let code = |finding: &serde_json::Value| finding["code"].as_str().map(str::to_owned);
        findings.iter().filter_map(code).collect()
    };
    // A greeting and a line on each connection.
    let (at, other) = (of(at), of(other));
    assert_eq!(at["requests"]["count"], 8, "{at:#}");
    assert!(codes(&at).contains(&"blocked-loop".to_owned()), "{at:#}");
    assert_eq!(other["requests"]["count"], 4, "{other:#}");
    let blocked = codes(&other).contains(&"blocked-loop".to_owned());
    assert!(!blocked, "the loop of {other:#}");
}
