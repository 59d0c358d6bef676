//! Targets that are made to hang, abort or exhaust whoever watches them: the recording ends soon
//! after its time, takes little memory, and gives a report that says what was lost.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::made_up_elf::MadeUp;
use crate::common::{Running, bpf, compiled, program, run, scratch, start, text, whywait};

/// How much later than it should a recording may end.
const LATE: Duration = Duration::from_secs(10);
/// What whywait may take, with its helpers.
const MEMORY_KIB: u64 = 400 << 10;

/// What came of watching a target for a while.
struct Watched {
    report: String,
    json: serde_json::Value,
}

impl Watched {
    #[track_caller]
    fn lost(&self, reason: &str) {
        let lost = &self.json["coverage"]["lost_by_reason"][reason];
        assert!(
            lost.as_u64().is_some_and(|lost| lost > 0),
            "expected a loss, {reason}: {}",
            self.json["coverage"]
        );
        assert!(self.report.contains(reason), "{}", self.report);
    }
}

fn odd(args: &[&str]) -> Running {
    let file = compiled("odd");
    let mut target = start(&mut program(file, args));
    target.until_line("ready");
    target
}

#[track_caller]
fn watch(target: &Running, seconds: u64) -> Watched {
    watch_while(target, seconds, |_| {})
}

/// Watches, and does something again and again, which is given whywait's pid.
#[track_caller]
fn watch_while(target: &Running, seconds: u64, mut meanwhile: impl FnMut(u32)) -> Watched {
    let dir = scratch();
    let recording = dir.path().join("recording");
    let (pid, time) = (target.pid().to_string(), format!("{seconds}s"));
    let args = ["record", "-p", &pid, "-d", &time, "-o", text(&recording)];
    let mut watcher = start(&mut whywait(&args));
    watcher.until_err("watching process");
    let begun = Instant::now();
    let mut peaks = BTreeMap::new();
    while watcher.is_running() {
        meanwhile(watcher.pid());
        for pid in with_descendants(watcher.pid()) {
            if let Some(peak) = peak_kib(pid) {
                peaks.insert(pid, peak);
            }
        }
        assert!(
            begun.elapsed() < Duration::from_secs(seconds) + LATE,
            "expected an end {LATE:?} after its time; err: {}",
            watcher.err()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    watcher.end().exits(0);
    let all: u64 = peaks.values().max().copied().unwrap_or(0);
    assert!(all < MEMORY_KIB, "it took {} MiB: {peaks:?}", all >> 10);
    let report = run(&mut whywait(&["report", text(&recording)])).exits(0);
    let json = ["report", text(&recording), "--format", "json"];
    Watched {
        report: report.out,
        json: run(&mut whywait(&json)).exits(0).json(),
    }
}

fn with_descendants(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut at = 0;
    while at < found.len() {
        let path = format!("/proc/{0}/task/{0}/children", found[at]);
        let children = fs::read_to_string(path).unwrap_or_default();
        found.extend(
            children
                .split_whitespace()
                .filter_map(|it| it.parse::<u32>().ok()),
        );
        at += 1;
    }
    found
}

fn peak_kib(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    peak.trim().strip_suffix(" kB")?.trim().parse().ok()
}

/// A FIFO, to which nobody writes.
fn fifo(path: &Path) {
    run(&mut program("mkfifo", &[text(path)])).exits(0);
}

/// Watches a program that sleeps within these files.
#[track_caller]
fn watch_files(files: &[PathBuf]) -> Watched {
    let mut args = vec!["map"];
    args.extend(files.iter().map(|file| text(file)));
    watch(&odd(&args), 1)
}

#[test]
fn a_fifo_or_a_hole_as_a_debug_file() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let path = |name: &str| dir.path().join(name);
    fifo(&path("fifo"));
    let hole = fs::File::create(path("hole")).expect("a file");
    hole.set_len(3 << 40).expect("it is a hole");
    MadeUp::default()
        .build_id(1)
        .debug_link(&path("fifo"))
        .symbols(1, 20)
        .write(&path("to-fifo.so"));
    MadeUp::default()
        .build_id(2)
        .debug_link(&path("hole"))
        .symbols(1, 20)
        .write(&path("to-hole.so"));
    MadeUp::default()
        .build_id(3)
        .symbols(1, 20)
        .write(&path("with-dwp.so"));
    fifo(&path("with-dwp.so.dwp"));
    let names = ["to-fifo.so", "to-hole.so", "with-dwp.so"];
    let watched = watch_files(&names.map(path));
    // Neither link is followed; a file beside the program is not even looked for.
    watched.lost("file-names");
    assert_eq!(watched.json["coverage"]["lost_by_reason"]["file-names"], 2);
}

#[test]
fn debug_data_that_claims_to_be_endless_costs_names() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let path = dir.path().join("compressed.so");
    MadeUp::default()
        .build_id(1)
        .compressed(1 << 46)
        .write(&path);
    watch_files(&[path]).lost("file-names");
}

#[test]
fn a_library_that_shrinks_while_it_is_read() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let [shrinks, cut] = ["shrinks.so", "cut.so"].map(|name| dir.path().join(name));
    for (number, path) in (1..).zip([&shrinks, &cut]) {
        MadeUp::default()
            .build_id(number)
            .symbols(200_000, 60)
            .write(path);
    }
    let whole = fs::read(&shrinks).expect("a file");
    let all_of_cut = fs::read(&cut).expect("a file");
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let file = writable(&shrinks);
    let shrinking = std::thread::spawn(move || {
        let pause = Duration::from_millis(1);
        while stopped.recv_timeout(pause).is_err() {
            file.set_len(8192).expect("it is ours");
            std::os::unix::fs::FileExt::write_all_at(&file, &whole, 0).expect("it is ours");
        }
    });
    // Sometimes all of the one is there whenever it is read, and the other is cut before its tables
    // are read or after its names are: it takes some tries until it is in between.
    let target = odd(&["map", text(&shrinks), text(&cut)]);
    let mut tries = (0..10).map(|_| {
        let (file, mut looks) = (writable(&cut), 0);
        let watched = watch_while(&target, 2, |whywait| {
            looks += u32::from(has_open(whywait, &cut));
            if looks == 60 {
                file.set_len(8192).expect("it is ours");
            }
        });
        std::os::unix::fs::FileExt::write_all_at(&file, &all_of_cut, 0).expect("it is ours");
        watched
    });
    let loses = |watched: &Watched| {
        let lost = &watched.json["coverage"]["lost_by_reason"]["file-names"];
        let said = watched.json.to_string();
        lost.as_u64() > Some(0) && said.contains("or the file is damaged")
    };
    let watched = tries
        .find(loses)
        .expect("a try in which it was cut in between");
    stop.send(()).expect("it goes on");
    shrinking.join().expect("no panic");
    watched.lost("file-names");
}

fn writable(path: &Path) -> fs::File {
    let file = OpenOptions::new().write(true).open(path);
    file.expect("a file")
}

fn has_open(pid: u32, path: &Path) -> bool {
    let open = fs::read_dir(format!("/proc/{pid}/fd"));
    let mut open = open.into_iter().flatten().flatten();
    open.any(|it| fs::read_link(it.path()).is_ok_and(|it| it == path))
}

#[test]
fn unwind_tables_of_holes() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let files: Vec<PathBuf> = (0..20)
        .map(|i| dir.path().join(format!("holes-{i}.so")))
        .collect();
    MadeUp::default().unwind_tables(50_000_000).write(&files[0]);
    for link in &files[1..] {
        fs::hard_link(&files[0], link).expect("a link");
    }
    watch_files(&files).lost("over-memory");
}

#[test]
fn a_million_symbols_with_long_names() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let path = dir.path().join("symbols.so");
    MadeUp::default().symbols(1_000_000, 65_000).write(&path);
    watch_files(&[path]).lost("file-names");
}

#[test]
fn a_perf_map_of_66_megabytes() {
    if !bpf() {
        return;
    }
    let target = odd(&["perf-map"]);
    let watched = watch(&target, 2);
    let _ = fs::remove_file(format!("/tmp/perf-{}.map", target.pid()));
    watched.lost("over-memory");
}

#[test]
fn sixty_four_thousand_mappings_with_long_paths() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    watch(&odd(&["mappings", text(dir.path())]), 3).lost("over-memory");
}

#[test]
fn line_tables_of_python() {
    if !bpf() {
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/lines.py");
    for more in [&[][..], &["huge"]] {
        let mut target = start(&mut program(
            "/usr/bin/python3",
            &[&[script], more].concat(),
        ));
        target.until_line("ready");
        watch(&target, 3).lost("over-memory");
    }
}

#[test]
fn functions_that_are_called_as_types_are_mangled() {
    if !bpf() {
        return;
    }
    let target = odd(&["names"]);
    let dir = scratch();
    let recording = dir.path().join("recording");
    let pid = target.pid().to_string();
    let args = ["record", "-p", &pid, "-d", "1s", "-o", text(&recording)];
    run(&mut whywait(&args)).exits(0);
    let folded = [
        "report",
        text(&recording),
        "--format",
        "folded",
        "--of",
        "waits",
    ];
    let stacks = run(&mut whywait(&folded)).exits(0).out;
    let chain = "main;Ss;w;Sa;Pv;d;i;";
    assert!(stacks.contains(chain), "expected {chain} in {stacks}");
}
