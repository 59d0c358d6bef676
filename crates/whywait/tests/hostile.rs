//! What others made is not trusted: names of a target, and recordings that come from who knows
//! where. Whatever they hold, `whywait report` gives a report or one clear line, in bounded time
//! and memory.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::{Run, binary, bpf, program, run, scratch, start, target, text, walk, whywait};
use whywait_events::recording::{Meta, Writer, WriterOptions};
use whywait_events::{
    Busy, Event, Frame, Module, ModuleKind, Part, Parts, Request, Sample, Stack, Symbol,
    ThreadChange, ThreadEvent, Wait, WakeContext,
};

/// Escape sequences, a bell, markup, another direction of writing, and bytes that are no text.
const NAME: &str = "\x1b[31m\x07<b>&\u{202e}";

#[track_caller]
fn is_clean(output: &str) {
    let raw = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    assert!(
        !output.contains(raw),
        "expected no raw control character, got {output:?}"
    );
}

#[test]
fn hostile_names_reach_no_terminal_raw() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let folder = dir.path().join("a\n\x1b]0;title\x07<i>\u{202e}");
    fs::create_dir(&folder).expect("a folder");
    let command = folder.join("\x1b[2J");
    fs::copy(target(), &command).expect("copied");
    let recording = dir.path().join("recording");
    let args = [
        "record",
        "-o",
        text(&recording),
        "--",
        text(&command),
        "named",
        NAME,
    ];
    let mut watcher = start(&mut whywait(&args));
    watcher.until_line("ready");
    std::thread::sleep(Duration::from_millis(100));
    is_clean(&watcher.end().exits(0).err);
    let mut seen = false;
    let read = whywait_events::recording::Recording::open(&recording).expect("readable");
    read.threads(None, &mut |thread| {
        seen |= thread.comm.contains("\x1b[31m\x07<b>&")
    })
    .expect("readable");
    assert!(seen, "expected the hostile name in the recording");
    for locale in ["C", "C.UTF-8"] {
        let report = run(whywait(&["report", text(&recording)]).env("LC_ALL", locale)).exits(0);
        is_clean(&report.out);
    }
    let json = run(&mut whywait(&[
        "report",
        text(&recording),
        "--format",
        "json",
    ]))
    .exits(0);
    assert!(
        json.json()["target"]["command"]
            .as_str()
            .is_some_and(|command| command.contains("[2J"))
    );
    let raw = |c: char| c.is_control() && c != '\n';
    assert!(
        !json.out.contains(raw),
        "expected escapes, got {:?}",
        json.out
    );
    // The folder's own name is hostile too.
    let hostile = folder.join("recording");
    let run = run(&mut whywait(&[
        "record",
        "-o",
        text(&hostile),
        "--",
        "true",
    ]))
    .exits(0);
    is_clean(&run.err);
}

/// Reads a recording with bounds on time and memory. Gives what a report may come to.
#[track_caller]
fn report(recording: &Path, what: &str, format: &str) -> Run {
    // Virtual memory, in KiB: whywait itself takes some 100 MiB of it in a debug build.
    let script = "ulimit -v 1500000; exec timeout -s KILL 50 \"$@\"";
    let args = [
        "-c",
        script,
        "bash",
        binary(),
        "report",
        text(recording),
        "--format",
        format,
    ];
    let run = run(&mut program("bash", &args));
    let keep = |reason: &str| -> ! {
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bad-recording");
        let _ = fs::remove_dir_all(&kept);
        let _ = std::process::Command::new("cp")
            .arg("-r")
            .arg(recording)
            .arg(&kept)
            .status();
        panic!(
            "{what}: expected a report or one line, got {reason} (kept in {}): exit code {}\n\
             out: {:.2000}\nerr: {:.2000}",
            kept.display(),
            run.code,
            run.out,
            run.err
        );
    };
    match run.code {
        0 if format == "json" && serde_json::from_str::<serde_json::Value>(&run.out).is_err() => {
            keep("broken JSON")
        }
        0 if !run.err.is_empty() => keep("words on standard error"),
        0 => {}
        1 if run.err.lines().count() != 1 || !run.err.starts_with("whywait: ") => {
            keep("more than a line")
        }
        1 if run.err.contains("internal error") => keep("a panic"),
        1 => {}
        _ => keep("another end"),
    }
    is_clean(&run.out);
    is_clean(&run.err);
    run
}

/// Numbers that look random and are the same each time (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
}

/// Makes up events; times and ids are as `time` and `id` have them.
struct MadeUp {
    random: Random,
    extreme: bool,
}

impl MadeUp {
    fn time(&mut self) -> u64 {
        let usual = 5_000_000_000 + self.random.next() % 3_000_000_000;
        if !self.extreme {
            return usual;
        }
        let odd = [
            0,
            1,
            999_999,
            u64::MAX,
            u64::MAX - 1,
            i64::MAX as u64,
            i64::MAX as u64 + 1,
            1 << 53,
        ];
        if self.random.below(2) == 0 {
            usual
        } else {
            self.random.pick(&odd)
        }
    }

    fn maybe(&mut self) -> Option<u64> {
        (self.random.below(4) > 0).then(|| self.time())
    }

    /// A length of time, or another number.
    fn ns(&mut self) -> u64 {
        if self.extreme {
            self.time()
        } else {
            self.random.next() % 3_000_000_000
        }
    }

    fn tid(&mut self) -> u32 {
        let odd = [0, 1, u32::MAX, i32::MAX as u32];
        if self.extreme && self.random.below(8) == 0 {
            self.random.pick(&odd)
        } else {
            100 + self.random.below(6) as u32
        }
    }

    fn id(&mut self) -> u32 {
        let odd = [0, 7_000, u32::MAX, i32::MAX as u32];
        if self.extreme && self.random.below(4) == 0 {
            self.random.pick(&odd)
        } else {
            self.random.below(9) as u32
        }
    }

    fn parts(&mut self) -> Parts {
        let mut parts = Parts::default();
        for part in Part::ALL {
            parts[part] = if self.random.below(3) == 0 {
                self.ns()
            } else {
                0
            };
        }
        parts
    }

    fn name(&mut self) -> String {
        let names = [
            "worker",
            "",
            NAME,
            "a\nb",
            "\u{9b}31m",
            "tokio-runtime-w",
            "sleep",
            "epoll_wait",
        ];
        let name = self.random.pick(&names).to_owned();
        if self.extreme && self.random.below(50) == 0 {
            "long ".repeat(20_000)
        } else {
            name
        }
    }

    fn event(&mut self) -> Event {
        let tgid = if self.extreme { self.tid() } else { 100 };
        match self.random.below(24) {
            0 => Event::Thread(ThreadEvent {
                at_ns: self.time(),
                tid: self.tid(),
                tgid,
                parent_tid: self.tid(),
                change: self.random.pick(&[
                    ThreadChange::Found,
                    ThreadChange::Fork,
                    ThreadChange::Exec,
                    ThreadChange::Rename,
                    ThreadChange::Exit,
                ]),
                comm: self.name(),
            }),
            1 => Event::Stack(Stack {
                id: self.id(),
                truncated: self.random.below(2) == 0,
                frames: (0..self.random.below(12))
                    .map(|_| Frame {
                        module: self.id(),
                        address: self.ns(),
                    })
                    .collect(),
            }),
            2 => Event::Module(Module {
                id: self.id(),
                kind: self.random.pick(&[
                    ModuleKind::Elf,
                    ModuleKind::Kernel,
                    ModuleKind::Jit,
                    ModuleKind::Python,
                    ModuleKind::Unknown,
                ]),
                build_id: self.name(),
                path: self.name(),
            }),
            3 => Event::Symbol(Symbol {
                frame: Frame {
                    module: self.id(),
                    address: self.ns(),
                },
                depth: self.id() as u16,
                name: self.name(),
                file: self.name(),
                line: self.id(),
            }),
            4..=6 => Event::Sample(Sample {
                at_ns: self.time(),
                tid: self.tid(),
                tgid,
                cpu: self.id(),
                user_stack: self.id(),
                kernel_stack: self.id(),
                periods: self.id(),
            }),
            7..=9 => Event::Busy(Busy {
                tid: self.tid(),
                tgid,
                start_ns: self.time(),
                end_ns: self.time(),
                on_cpu_ns: self.ns(),
                runnable_ns: self.ns(),
            }),
            10..=13 => {
                let service = self.parts();
                Event::Request(Request {
                    socket: self.random.next() % 4,
                    seq: self.id(),
                    tgid,
                    ready_ns: self.time(),
                    recv_ns: self.maybe(),
                    first_send_ns: self.maybe(),
                    last_send_ns: self.maybe(),
                    recv_tid: self.tid(),
                    send_tid: self.tid(),
                    bytes_in: self.ns(),
                    bytes_out: self.ns(),
                    fd: self.id() as i32,
                    epoll: self.id(),
                    read_armed: self.random.pick(&[None, Some(true), Some(false)]),
                    before_accept: self.random.below(2) == 0,
                    accept_tid: self.tid(),
                    local_port: self.id() as u16,
                    unserved_wakeup_ns: self.ns(),
                    service,
                    taken_ns: self.maybe(),
                })
            }
            _ => Event::Wait(Wait {
                tid: self.tid(),
                tgid,
                seq: self.id(),
                out_ns: self.time(),
                wake_ns: self.maybe(),
                in_ns: self.maybe(),
                since_before: self.random.below(8) == 0,
                syscall: self.random.pick(&[
                    None,
                    Some(0),
                    Some(7),
                    Some(202),
                    Some(230),
                    Some(232),
                    Some(281),
                    Some(426),
                    Some(u32::MAX),
                ]),
                args: [self.ns(), self.ns(), self.ns()],
                timeout: self.random.below(4) == 0,
                owner_tid: self.tid(),
                lock: self.ns(),
                holds: self.ns(),
                uninterruptible: self.random.below(4) == 0,
                io_wait: self.random.below(4) == 0,
                wake_context: self.random.pick(&[
                    WakeContext::Unknown,
                    WakeContext::Task,
                    WakeContext::Softirq,
                    WakeContext::Hardirq,
                    WakeContext::Exit,
                ]),
                waker_tid: self.tid(),
                waker_tgid: self.tid(),
                epoll: self.id(),
                user_stack: self.id(),
                kernel_stack: self.id(),
                waker_stack: self.id(),
                segment: self.parts(),
            }),
        }
    }

    /// Writes a recording of that many events into `dir`.
    fn record(&mut self, dir: &Path, events: usize) {
        let mut meta = Meta {
            whywait: "0.1.0".to_owned(),
            started_ns: 5_000_000_000,
            ended_ns: Some(8_000_000_000),
            pid: Some(100),
            command: vec!["server".to_owned(), NAME.to_owned()],
            notes: vec![format!("note {NAME}\nline")],
            ..Meta::default()
        };
        meta.options.threshold_ns = 1_000_000;
        if self.extreme {
            meta.started_ns = self.time();
            meta.ended_ns = self.maybe();
            meta.options.threshold_ns = self.time();
            meta.pid = Some(self.tid());
        }
        let options = WriterOptions {
            rows_per_segment: events / 2 + 1,
            ..WriterOptions::default()
        };
        let mut writer = Writer::create_with(dir, &meta, options).expect("writable");
        for _ in 0..events {
            writer.write(&self.event()).expect("writable");
        }
        for name in [
            "events",
            "lost.ring-full",
            "requests.count",
            "requests.total-ns",
            "latency.bucket.40",
        ] {
            let value = self.ns();
            writer.counter(name, value);
        }
        for bucket in [0, 7, 511, 512, u64::MAX] {
            let value = self.ns();
            writer.counter(&format!("latency.bucket.{bucket}"), value);
        }
        for part in Part::ALL {
            let value = self.ns();
            writer.counter(&format!("requests.service.{}", part.name()), value);
        }
        writer.finish(&meta).expect("writable");
    }
}

/// How many recordings to make up: `usual`, or as many as the environment asks for.
fn seeds(usual: u64) -> u64 {
    std::env::var("WHYWAIT_TEST_SEEDS").map_or(usual, |seeds| seeds.parse().expect("a number"))
}

fn made_up(seed: u64, extreme: bool) -> MadeUp {
    MadeUp {
        random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
        extreme,
    }
}

/// A recording to damage, and the paths of its files within.
fn intact() -> (tempfile::TempDir, PathBuf, Vec<PathBuf>) {
    let dir = scratch();
    let recording = dir.path().join("recording");
    made_up(7, false).record(&recording, 400);
    assert_eq!(report(&recording, "intact", "json").code, 0);
    let mut files: Vec<PathBuf> = walk(&recording)
        .into_iter()
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    assert!(
        files.len() > 18,
        "expected two segments of nine tables, got {files:?}"
    );
    (dir, recording, files)
}

#[test]
fn numbers_that_no_machine_makes() {
    for seed in 1..=seeds(80) {
        let dir = scratch();
        let recording = dir.path().join("recording");
        made_up(seed, true).record(&recording, 40 + seed as usize % 120 * 3);
        let format = if seed % 2 == 0 { "json" } else { "text" };
        let run = report(&recording, &format!("seed {seed}"), format);
        assert_eq!(run.code, 0, "seed {seed}: {}", run.err);
    }
}

#[test]
fn events_in_any_order_and_overlapping() {
    for seed in 1..=seeds(40) {
        let dir = scratch();
        let recording = dir.path().join("recording");
        made_up(seed, false).record(&recording, 300);
        let format = if seed % 2 == 0 { "json" } else { "text" };
        let run = report(&recording, &format!("seed {seed}"), format);
        assert_eq!(run.code, 0, "seed {seed}: {}", run.err);
    }
}

#[test]
fn files_cut_off() {
    let (_dir, recording, files) = intact();
    let mut random = Random(11);
    for file in &files {
        let whole = fs::read(file).expect("readable");
        for length in [0, 1, random.below(whole.len()), whole.len() - 1] {
            fs::write(file, &whole[..length]).expect("writable");
            let what = format!("{} cut to {length} bytes", file.display());
            let run = report(&recording, &what, "json");
            let is_meta = file.ends_with("meta.json");
            assert!(
                run.code == 0 || is_meta,
                "{what}: expected a report, got {}",
                run.err
            );
            if run.code == 0 && !is_meta {
                assert!(
                    run.out.contains("recording-incomplete"),
                    "{what}: expected recording-incomplete"
                );
            }
        }
        fs::write(file, &whole).expect("writable");
    }
}

#[test]
fn bytes_changed() {
    let (_dir, recording, files) = intact();
    let mut random = Random(13);
    for round in 0..60 {
        let file = random.pick(&files);
        let whole = fs::read(&file).expect("readable");
        let mut bytes = whole.clone();
        for _ in 0..1 + random.below(4) {
            let at = random.below(bytes.len());
            bytes[at] = random.next() as u8;
        }
        fs::write(&file, &bytes).expect("writable");
        report(
            &recording,
            &format!("round {round}, {}", file.display()),
            "json",
        );
        fs::write(&file, &whole).expect("writable");
    }
}

#[test]
fn files_swapped_missing_or_something_else() {
    let (dir, recording, files) = intact();
    let mut random = Random(17);
    for round in 0..30 {
        let (one, other) = (random.pick(&files), random.pick(&files));
        let (first, second) = (
            fs::read(&one).expect("readable"),
            fs::read(&other).expect("readable"),
        );
        fs::write(&one, &second).expect("writable");
        fs::write(&other, &first).expect("writable");
        report(
            &recording,
            &format!("round {round}, {} and {}", one.display(), other.display()),
            "json",
        );
        fs::write(&one, &first).expect("writable");
        fs::write(&other, &second).expect("writable");
    }
    for file in files.iter().filter(|file| !file.ends_with("meta.json")) {
        let whole = fs::read(file).expect("readable");
        fs::remove_file(file).expect("a file");
        report(&recording, &format!("without {}", file.display()), "json");
        // A pipe that nobody writes to must not be waited for; a device gives bytes for ever.
        run(&mut program("mkfifo", &[text(file)])).exits(0);
        report(&recording, &format!("{} is a pipe", file.display()), "json");
        fs::remove_file(file).expect("a file");
        std::os::unix::fs::symlink("/dev/zero", file).expect("a link");
        report(
            &recording,
            &format!("{} is a device", file.display()),
            "json",
        );
        fs::remove_file(file).expect("a file");
        fs::write(file, &whole).expect("writable");
    }
    drop(dir);
}

#[test]
fn meta_of_any_kind() {
    let (_dir, recording, _) = intact();
    let path = recording.join("meta.json");
    let meta: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&path).expect("readable")).expect("JSON");
    let mut places = Vec::new();
    pointers(&meta, String::new(), &mut places);
    assert!(places.len() > 20, "expected many fields, got {places:?}");
    let values = [
        "0",
        "1",
        "-1",
        "18446744073709551615",
        "18446744073709551616",
        "1e400",
        "0.5",
        "null",
        "true",
        "\"\"",
        "[]",
        "{}",
    ];
    for place in &places {
        for value in values {
            let Ok(value) = serde_json::from_str::<serde_json::Value>(value) else {
                continue;
            };
            let mut changed = meta.clone();
            *changed.pointer_mut(place).expect("a place") = value.clone();
            fs::write(&path, changed.to_string()).expect("writable");
            report(&recording, &format!("{place} is {value}"), "json");
        }
    }
    for (content, complaint) in [
        ("", "empty"),
        ("{", "meta.json"),
        ("[]", "not a whywait recording"),
        ("{\"schema\": 1e400, \"whywait\": \"1\"}", "meta.json"),
        ("{\"schema\": 4000000000, \"whywait\": \"9.0\"}", "newer"),
        ("{\"name\": \"somebody else's\"}", "not a whywait recording"),
    ] {
        fs::write(&path, content).expect("writable");
        let run = report(&recording, content, "text");
        run.exits(1).in_one_line().complains(complaint);
    }
    let deep = "[".repeat(100_000);
    fs::write(&path, deep).expect("writable");
    report(&recording, "a deep nest", "text")
        .exits(1)
        .in_one_line();
}

/// The places of all values within a JSON value.
fn pointers(value: &serde_json::Value, at: String, found: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                pointers(value, format!("{at}/{name}"), found);
            }
        }
        serde_json::Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                pointers(value, format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
    if !at.is_empty() {
        found.push(at);
    }
}

#[test]
fn segments_without_number() {
    let (_dir, recording, _) = intact();
    for name in [
        "seg-18446744073709551615",
        "seg-18446744073709551616",
        "seg-",
        "seg-0",
        "seg--1",
        "seg-000002.open",
        "seg-\x1b[31m",
    ] {
        fs::create_dir(recording.join(name)).expect("a folder");
        report(&recording, name, "text").exits(0);
        report(&recording, name, "json").exits(0);
        fs::remove_dir(recording.join(name)).expect("a folder");
    }
    for number in 10..5_010 {
        fs::create_dir(recording.join(format!("seg-{number:06}"))).expect("a folder");
    }
    let run = report(&recording, "thousands of segments", "json").exits(0);
    assert!(
        run.out.len() < 200_000,
        "expected a bounded report, got {} bytes",
        run.out.len()
    );
    assert!(run.out.contains("recording-incomplete"));
}

#[test]
fn a_report_to_a_closed_pipe_is_quiet() {
    let (_dir, recording, _) = intact();
    for format in ["text", "json"] {
        let script =
            format!("(sleep 0.1; \"$0\" report \"$1\" --format {format}; echo $? >&2) | true");
        let run = run(&mut program(
            "bash",
            &["-c", &script, binary(), text(&recording)],
        ))
        .exits(0);
        assert_eq!(run.err, "0\n", "{format}");
    }
    let script = "\"$0\" report \"$1\" > /dev/full";
    run(&mut program(
        "bash",
        &["-c", script, binary(), text(&recording)],
    ))
    .exits(1)
    .in_one_line()
    .complains("standard output");
}
