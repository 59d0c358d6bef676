//! `whywait diff` and `whywait gate`, as a shell sees them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{bpf, run, scratch, start, text, until, whywait};
use nix::sys::signal::Signal;
use whywait_events::recording::{Meta, Writer};
use whywait_events::{Event, Part, Parts, Request, ThreadChange, ThreadEvent};

const MS: u64 = 1_000_000;

/// A recording of twenty requests that take so long each, computing.
fn record(dir: &Path, ms: u64, number: u64) {
    let mut meta = Meta {
        started_ns: 1_000 * MS,
        ended_ns: Some(9_000 * MS),
        complete: true,
        pid: Some(100),
        command: vec!["server".to_owned()],
        ..Meta::default()
    };
    meta.options.threshold_ns = MS;
    let mut writer = Writer::create(dir, &meta).expect("writable");
    let mut write = |event: Event| writer.write(&event).expect("writable");
    write(Event::Thread(ThreadEvent {
        at_ns: 1_000 * MS,
        tid: 100,
        tgid: 100,
        parent_tid: 0,
        change: ThreadChange::Found,
        comm: "\x1b[2Jserver".to_owned(),
        command: String::new(),
    }));
    for seq in 0..20 {
        let ready_ns = (1_100 + u64::from(seq) * 100) * MS;
        // No two runs are quite alike.
        let ns = ms * MS + number % 3 * 20_000;
        let mut service = Parts::default();
        service[Part::OnCpu] = ns;
        write(Event::Request(Request {
            socket: 12,
            seq,
            tgid: 100,
            local_port: 8080,
            ready_ns,
            recv_ns: Some(ready_ns),
            recv_tid: 100,
            first_send_ns: Some(ready_ns + ns),
            last_send_ns: Some(ready_ns + ns),
            send_tid: 100,
            service,
            ..Request::default()
        }));
    }
    writer.finish(&meta).expect("writable");
}

/// A folder of recordings.
fn side(dir: &Path, name: &str, ms: u64, runs: u64) -> PathBuf {
    let side = dir.join(name);
    fs::create_dir(&side).expect("writable");
    for number in 0..runs {
        record(&side.join(format!("run-{number}")), ms, number);
    }
    side
}

#[test]
fn two_sides_are_compared() {
    let dir = scratch();
    let (base, head) = (
        side(dir.path(), "base", 10, 5),
        side(dir.path(), "head", 12, 5),
    );
    let (base, head) = (text(&base), text(&head));
    let compared = run(&mut whywait(&["diff", base, head]))
        .exits(0)
        .says("worse: ")
        .says("CPU in serving")
        .says("+20 %")
        .says("base: 5 runs, 100 requests");
    assert!(compared.err.is_empty() && !compared.out.contains('\x1b'));
    let json = run(&mut whywait(&["diff", base, head, "--format", "json"]))
        .exits(0)
        .json();
    assert_eq!(
        (&json["schema"], &json["verdict"]),
        (&1.into(), &"worse".into())
    );
    assert_eq!(json["test"]["ways"], 252);
    run(&mut whywait(&["diff", base, base]))
        .exits(0)
        .says("no difference");
    let one = format!("{base}/run-0");
    run(&mut whywait(&["diff", &one, head]))
        .exits(0)
        .says("no verdict: too few runs");
    let file = dir.path().join("diff.txt");
    let quiet = run(&mut whywait(&["diff", base, head, "-o", text(&file)])).exits(0);
    assert!(
        quiet.out.is_empty() && fs::read_to_string(file).is_ok_and(|text| text.contains("worse"))
    );
}

#[test]
fn what_cannot_be_compared_is_told() {
    let dir = scratch();
    let base = side(dir.path(), "base", 10, 1);
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).expect("writable");
    let base = text(&base);
    run(&mut whywait(&["diff", base, text(&empty)]))
        .exits(1)
        .in_one_line()
        .complains("no folder of recordings");
    run(&mut whywait(&["diff", base, "/no/such"]))
        .exits(1)
        .in_one_line();
    for wrong in [
        &["diff", base][..],
        &["diff", base, base, "--alpha", "2"],
        &["diff", base, base, "--min-effect", "5"],
        &["gate"],
        &["gate", "b.toml"],
        &["gate", "b.toml", base, "--load", "x"],
        &["gate", "b.toml", base, "--init", "--github"],
    ] {
        run(&mut whywait(wrong)).exits(2);
    }
    for strange in [
        "{}",
        "{\"schema\": 9, \"runs\": []}",
        "{\"schema\": 1, \"runs\": []}",
        "\u{0}",
        "[",
        "[[[[[[",
    ] {
        let file = dir.path().join("strange.json");
        fs::write(&file, strange).expect("writable");
        run(&mut whywait(&["diff", text(&file), base]))
            .exits(1)
            .in_one_line()
            .complains("no baseline");
    }
}

#[test]
fn a_budget_is_written_kept_to_and_broken() {
    let dir = scratch();
    let (base, head) = (
        side(dir.path(), "base", 10, 5),
        side(dir.path(), "head", 20, 5),
    );
    let (base, head) = (text(&base), text(&head));
    let file = dir.path().join("budget.toml");
    let budget = text(&file);
    run(&mut whywait(&["gate", budget, base]))
        .exits(2)
        .complains("--init");
    run(&mut whywait(&["gate", "--init", budget, base]))
        .exits(0)
        .complains("wrote");
    run(&mut whywait(&["gate", "--init", budget, base]))
        .exits(2)
        .complains("there already");
    run(&mut whywait(&["gate", budget, base]))
        .exits(0)
        .says("gate: passed");
    let xml = dir.path().join("gate.xml");
    let broken = run(&mut whywait(&[
        "gate",
        budget,
        head,
        "--github",
        "--junit",
        text(&xml),
    ]))
    .exits(3)
    .says("gate: failed")
    .says("broken  latency p50 <")
    .says("::error file=");
    assert!(broken.err.is_empty());
    assert!(fs::read_to_string(xml).is_ok_and(|xml| xml.contains("<failure message=")));
    let json = run(&mut whywait(&["gate", budget, head, "--format", "json"]))
        .exits(3)
        .json();
    assert_eq!(json["failed"], true);
    fs::write(&file, "schema = 1\nlimits = [\"latency p98 < 1ms\"]\n").expect("writable");
    run(&mut whywait(&["gate", budget, base]))
        .exits(2)
        .complains("budget.toml:2:20: latency has no p98");
}

#[test]
fn a_baseline_is_saved_and_held_against() {
    let dir = scratch();
    let (base, head) = (
        side(dir.path(), "base", 10, 5),
        side(dir.path(), "head", 12, 5),
    );
    let (base, head) = (text(&base), text(&head));
    let (budget, baseline) = (dir.path().join("budget.toml"), dir.path().join("base.json"));
    fs::write(
        &budget,
        "schema = 1\n[regressions]\nbaseline = \"base.json\"\n",
    )
    .expect("writable");
    let budget = text(&budget);
    run(&mut whywait(&["gate", budget, base]))
        .exits(1)
        .complains("cannot read the baseline");
    run(&mut whywait(&[
        "gate",
        budget,
        base,
        "--save-baseline",
        text(&baseline),
    ]))
    .exits(0);
    run(&mut whywait(&["gate", budget, base]))
        .exits(0)
        .says("nothing got worse");
    run(&mut whywait(&["gate", budget, head]))
        .exits(3)
        .says("broken  not worse than base.json");
    run(&mut whywait(&["diff", text(&baseline), head]))
        .exits(0)
        .says("worse: ");
}

#[test]
fn a_command_is_run_several_times() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let (budget, kept) = (dir.path().join("budget.toml"), dir.path().join("kept"));
    fs::write(&budget, "schema = 1\n[findings]\nmax-severity = \"note\"\n").expect("writable");
    let budget = text(&budget);
    let passed = run(&mut whywait(&[
        "gate",
        budget,
        "--runs",
        "2",
        "--keep",
        text(&kept),
        "--",
        "echo",
        "hello",
    ]))
    .exits(0)
    .says("gate: passed, 2 runs")
    .complains("run 2 of 2")
    .complains("hello");
    assert!(
        !passed.out.contains("hello"),
        "standard output is whywait's: {}",
        passed.out
    );
    run(&mut whywait(&["gate", budget, text(&kept)]))
        .exits(0)
        .says("2 runs");
    run(&mut whywait(&["gate", budget, "--", "sh", "-c", "exit 7"]))
        .exits(1)
        .complains("the command failed: exit code 7");
    run(&mut whywait(&["gate", budget, "--", "/no/such/program"])).exits(1);
    // The load ends the command; its failure is the gate's.
    run(&mut whywait(&[
        "gate",
        budget,
        "--load",
        "sleep 0.3",
        "--",
        "sleep",
        "60",
    ]))
    .exits(0);
    run(&mut whywait(&[
        "gate", budget, "--load", "exit 4", "--", "sleep", "60",
    ]))
    .exits(1)
    .complains("the load failed");
    run(&mut whywait(&[
        "gate", budget, "--load", "sleep 60", "--", "true",
    ]))
    .exits(1)
    .complains("before its load did");
}

#[test]
fn a_signal_ends_all_of_it() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let (budget, mark) = (dir.path().join("budget.toml"), dir.path().join("mark"));
    fs::write(&budget, "schema = 1\n").expect("writable");
    let script = format!("echo $$ > {}; exec sleep 60", text(&mark));
    let gate = start(&mut whywait(&[
        "gate",
        text(&budget),
        "--runs",
        "3",
        "--",
        "sh",
        "-c",
        &script,
    ]));
    let read = || {
        fs::read_to_string(&mark)
            .ok()
            .and_then(|pid| pid.trim().parse::<u32>().ok())
    };
    until("the command runs", || read().is_some());
    let pid = read().expect("it wrote it");
    gate.signal(Signal::SIGTERM);
    gate.end().exits(1).complains("interrupted");
    until("the command is gone", || {
        !Path::new(&format!("/proc/{pid}")).exists()
    });
}
