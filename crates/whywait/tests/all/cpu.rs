//! Loops that spin for nothing are found, and what only looks like it is left alone. What CPU time
//! was for.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use crate::common::{self, bpf, compiled, run, scratch, start, text, whywait};
use serde_json::Value;

/// The program of `programs/spin.c`.
fn program() -> &'static str {
    static BUILT: OnceLock<String> = OnceLock::new();
    BUILT.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/spin.c");
        let output =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("spin-{}", std::process::id()));
        let status = Command::new("cc")
            .args(["-O1", "-pthread", "-o"])
            .arg(&output)
            .arg(&source)
            .status()
            .expect("there is a C compiler");
        assert!(status.success(), "cc {}: {status}", source.display());
        text(&output).to_owned()
    })
}

/// Attaches to a loop that has gone round for a while, for so long, and returns the report.
fn attached(what: &str, duration: &str) -> Value {
    let mut target = start(common::program(program(), &[what]).stdin(std::process::Stdio::piped()));
    target.until_line("ready");
    std::thread::sleep(std::time::Duration::from_millis(300));
    let pid = target.pid().to_string();
    let report = run(&mut whywait(&[
        "-p", &pid, "-d", duration, "--format", "json",
    ]))
    .exits(0)
    .json();
    assert!(target.is_running(), "{what} goes on");
    report
}

fn found<'a>(report: &'a Value, code: &str) -> Option<&'a Value> {
    report["findings"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|finding| finding["code"] == code)
}

#[track_caller]
fn spins(what: &str, why: &str, kind: &str, call: &str) {
    if !bpf() {
        return;
    }
    // As long as it may take.
    let report = attached(what, "2s");
    let finding = found(&report, "futile-wakeups")
        .unwrap_or_else(|| panic!("{what} was not found: {report:#}"));
    let subject = &finding["subject"];
    assert_eq!(subject["why"], why, "{finding:#}");
    assert_eq!(subject["fd_kind"], kind, "{finding:#}");
    let cycle = subject["cycle"].to_string();
    assert!(cycle.contains(call), "{call} in {cycle}");
}

#[test]
fn a_descriptor_that_is_armed_for_writing_is_found_in_two_seconds() {
    spins("armed-write", "nothing-to-write", "tcp", "EPOLLOUT");
}

#[test]
fn a_peer_that_has_gone_is_found() {
    spins("hang-up", "hang-up-not-consumed", "socket", "EPOLLHUP");
}

#[test]
fn a_timer_that_nobody_reads_is_found() {
    spins("timer", "never-read", "timerfd", "EPOLLIN");
}

#[test]
fn an_event_that_nobody_reads_is_found() {
    spins("eventfd", "never-read", "eventfd", "EPOLLIN");
}

#[test]
fn poll_is_looked_into_too() {
    spins("poll", "nothing-to-write", "tcp", "poll");
}

#[test]
fn select_is_looked_into_too() {
    spins("select", "nothing-to-write", "tcp", "select");
}

#[test]
fn an_edge_that_is_asked_for_anew_is_found() {
    spins("rearm-edge", "nothing-to-write", "tcp", "epoll_ctl MOD");
}

#[track_caller]
fn is_left_alone(what: &str) {
    if !bpf() {
        return;
    }
    let report = attached(what, "2s");
    for code in ["futile-wakeups", "thundering-herd"] {
        assert!(found(&report, code).is_none(), "{what}: {report:#}");
    }
}

#[test]
fn a_busy_poller_that_receives_is_left_alone() {
    is_left_alone("busy-poll");
}

#[test]
fn timers_that_do_work_are_left_alone() {
    is_left_alone("timer-work");
    is_left_alone("timeout-work");
}

#[test]
fn a_loop_that_would_go_round_anyway_is_left_alone() {
    is_left_alone("left");
}

#[test]
fn writes_that_progress_are_left_alone() {
    is_left_alone("writes");
}

#[test]
fn a_thread_that_computes_is_left_alone() {
    is_left_alone("compute");
}

#[test]
fn a_runtime_that_wakes_its_poller_is_left_alone() {
    is_left_alone("eventfd-edge");
}

#[test]
fn a_healthy_server_under_load_is_not_traced() {
    if !bpf() {
        return;
    }
    let report = attached("echo", "2s");
    assert!(
        report["coverage"].get("bursts").is_none(),
        "nothing suggested a burst: {report:#}"
    );
    assert!(
        report["cpu"]["total_ns"].as_u64() > Some(100_000_000),
        "it was under load: {report:#}"
    );
}

#[test]
fn the_rate_is_that_of_the_loop_without_tracing() {
    if !bpf() {
        return;
    }
    // Another program may have the CPU's other half for a while: one of three is near.
    let mut said = Vec::new();
    for _ in 0..3 {
        let dir = scratch();
        let file = dir.path().join("report.json");
        let command = format!(
            "sleep 3 | {} armed-write > {}/turns",
            program(),
            text(dir.path())
        );
        run(&mut whywait(&[
            "--format",
            "json",
            "-o",
            text(&file),
            "--",
            "sh",
            "-c",
            &command,
        ]))
        .exits(0);
        let report: Value =
            serde_json::from_slice(&std::fs::read(&file).expect("a report")).expect("JSON");
        let turns: f64 = std::fs::read_to_string(dir.path().join("turns"))
            .expect("it prints its turns")
            .lines()
            .find_map(|line| line.strip_prefix("turns ")?.parse().ok())
            .expect("a number");
        let finding = found(&report, "futile-wakeups").expect("it spins");
        let ratio = finding["subject"]["turns"].as_f64().expect("a number") / turns;
        said.push(ratio);
        if (0.8..1.2).contains(&ratio) {
            return;
        }
    }
    panic!("turns as reported, of all that there were: {said:?}");
}

#[test]
fn detail_full_traces_without_a_suspicion_and_says_so() {
    if !bpf() {
        return;
    }
    run(&mut whywait(&["--detail", "full", "--", "sleep", "0.5"]))
        .exits(0)
        .says("detail: full")
        .says("traced for");
    let run = run(&mut whywait(&["--", "sleep", "0.5"])).exits(0);
    assert!(
        !run.out.contains("traced"),
        "nothing suggested it: {}",
        run.out
    );
}

#[test]
fn the_table_of_cpu_time_has_listeners_and_threads() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let recording = dir.path().join("recording");
    run(&mut whywait(&[
        "record",
        "-o",
        text(&recording),
        "--",
        "sh",
        "-c",
        &format!("sleep 1 | {} compute", program()),
    ]))
    .exits(0);
    run(&mut whywait(&["report", text(&recording), "--cpu"]))
        .exits(0)
        .says("not for a request")
        .says("thread");
    let cpu = run(&mut whywait(&[
        "report",
        text(&recording),
        "--cpu",
        "--format",
        "json",
    ]))
    .exits(0)
    .json();
    let total_ns = cpu["cpu"]["total_ns"].as_u64().expect("a number");
    assert!(total_ns > 100_000_000, "{cpu:#}");
    assert_eq!(cpu["cpu"]["futile_ns"], 0, "{cpu:#}");
}

#[test]
fn connections_stand_side_by_side() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let recording = dir.path().join("recording");
    let mut target =
        start(common::program(program(), &["expensive"]).stdin(std::process::Stdio::piped()));
    target.until_line("ready");
    let pid = target.pid().to_string();
    run(&mut whywait(&[
        "record",
        "-p",
        &pid,
        "-d",
        "3s",
        "-o",
        text(&recording),
    ]))
    .exits(0);
    run(&mut whywait(&["report", text(&recording), "--cpu"]))
        .exits(0)
        .says("peer 127.0.0.1");
    let cpu = run(&mut whywait(&[
        "report",
        text(&recording),
        "--cpu",
        "--format",
        "json",
    ]))
    .exits(0)
    .json();
    let sockets = cpu["cpu"]["sockets"].as_array().expect("connections");
    let mut each: Vec<f64> = sockets
        .iter()
        .map(|socket| socket["per_request_ns"].as_f64().expect("a number") / 1e3)
        .collect();
    each.sort_by(f64::total_cmp);
    let [cheap, expensive, most_expensive] = each[..] else {
        panic!("three connections, one of which has ended: {cpu:#}");
    };
    // They compute for 100, 300 and 1,000 us. What comes to that of the kernel's work is the
    // machine's, but the same for all three.
    assert!((80.0..250.0).contains(&cheap), "{cheap} us: {cpu:#}");
    let between = [expensive - cheap, most_expensive - expensive];
    assert!(
        (150.0..250.0).contains(&between[0]) && (560.0..840.0).contains(&between[1]),
        "200 us and 700 us between them, not {between:?}: {cpu:#}"
    );
    let sum = |rows: &Value| -> f64 {
        let rows = rows.as_array().into_iter().flatten();
        rows.filter_map(|row| row["cpu_ns"].as_f64()).sum()
    };
    let share = sum(&cpu["cpu"]["sockets"]) / sum(&cpu["cpu"]["listeners"]);
    assert!((0.97..1.001).contains(&share), "{share}: {cpu:#}");
}

/// A cgroup that may use a part of a CPU, and is gone with this.
struct Limited(std::path::PathBuf);

impl Limited {
    /// `None` where the system lets nobody make one.
    fn new(percent: u32) -> Option<Self> {
        let name = format!("whywait-test-{}", std::process::id());
        let quota = percent * 1000;
        let make = |hierarchy: &str, file: &str, limit: String| {
            let dir = Path::new(hierarchy).join(&name);
            fs::create_dir(&dir).ok()?;
            let made = Self(dir);
            // Only the kernel's own file is a limit.
            let limits = fs::OpenOptions::new().write(true).open(made.0.join(file));
            limits.ok()?.write_all(limit.as_bytes()).ok()?;
            Some(made)
        };
        make("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", quota.to_string())
            .or_else(|| make("/sys/fs/cgroup", "cpu.max", format!("{quota} 100000")))
    }

    fn take_in(&self, pid: u32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).expect("the group takes it");
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        // Its last process may still be on its way out.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

#[test]
fn a_limit_that_stops_a_server_is_what_its_requests_wait_for() {
    if !bpf() {
        return;
    }
    let Some(group) = Limited::new(20) else {
        eprintln!("not tested: no cgroup with a CPU limit can be made here");
        return;
    };
    let report = |limited: bool| {
        let mut server = start(&mut common::program(compiled("limited"), &[]));
        server.until_line("ready");
        if limited {
            group.take_in(server.pid());
        }
        let pid = server.pid().to_string();
        let report = run(&mut whywait(&["-p", &pid, "-d", "2s", "--format", "json"]))
            .exits(0)
            .json();
        assert!(server.is_running(), "the server goes on");
        report
    };
    let limited = report(true);
    let finding = found(&limited, "cpu-limit")
        .unwrap_or_else(|| panic!("expected cpu-limit, got {:#}", limited["findings"]));
    assert_eq!(finding["severity"], "warning", "{finding:#}");
    assert_eq!(finding["subject"]["cpus"], 0.2);
    assert_eq!(
        found(&limited, "serial-work"),
        None,
        "25 ms of work are not what takes long: {:#}",
        limited["findings"]
    );
    let free = report(false);
    assert_eq!(found(&free, "cpu-limit"), None, "it has no limit");
}
