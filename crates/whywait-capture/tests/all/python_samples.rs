//! Python functions in samples of running threads, of every interpreter here whose layout is known.
//!
//! Needs the privileges to record. With `WHYWAIT_NO_BPF=1` nothing is tested.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use whywait_capture::{Options, Session};
use whywait_events::recording::{NamedFrame, Recording};
use whywait_events::{ModuleKind, Sample};

use crate::common::{self, Running};

/// Debian's Python, and all others that are installed side by side.
fn interpreters() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = (8..=13)
        .map(|minor| PathBuf::from(format!("/usr/bin/python3.{minor}")))
        .filter(|path| path.exists())
        .collect();
    let home = std::env::var("HOME").unwrap_or_default();
    for version in std::fs::read_dir(format!("{home}/.pyenv/versions"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = version.file_name().to_string_lossy().into_owned();
        let minor = name
            .strip_prefix("3.")
            .and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
        if minor.is_some_and(|minor| (8..=13).contains(&minor)) {
            found.push(version.path().join("bin/python3"));
        }
    }
    assert!(!found.is_empty(), "no Python here");
    found
}

/// A sample: when, its Python functions innermost first with their lines.
struct Sampled {
    at_ns: u64,
    python: Vec<(String, u32)>,
    /// The innermost frame is none of Python's.
    in_c: bool,
}

struct Watched {
    interpreter: String,
    samples: Vec<Sampled>,
    counters: BTreeMap<String, u64>,
    output: Vec<String>,
}

/// The interpreter's own start takes a tenth of this, however busy the machine is.
const BURNT_TICKS: u64 = 30;

/// Waits until the process has used the CPU for 300 ms.
fn until_it_burns(pid: u32) {
    let begun = Instant::now();
    loop {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
        // After the name, which may hold anything: fields 14 and 15 of the whole line, in ticks of
        // 10 ms.
        let rest = stat.rsplit(')').next().unwrap_or_default();
        let fields: Vec<u64> = rest
            .split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse().ok())
            .collect();
        if fields.iter().sum::<u64>() >= BURNT_TICKS {
            return;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "it burns nothing: {stat}"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// One at a time: each burns a CPU, and is to be read while it does.
static ALONE: Mutex<()> = Mutex::new(());

/// Runs the program, records it for some time and reads the recording.
fn watch(interpreter: &Path, mode: &str, time: Duration) -> Watched {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/burner.py");
    let child = Command::new(interpreter)
        .arg(program)
        .arg(mode)
        .stdout(Stdio::piped())
        .spawn();
    let mut burner = Running(child.expect("the interpreter starts"));
    until_it_burns(burner.0.id());
    let name = interpreter.display().to_string();
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("python-{mode}-{}.whywait", name.replace('/', "-")));
    let _ = std::fs::remove_dir_all(&dir);
    let mut session = Session::start(burner.0.id(), vec![], &dir, &Options::default())
        .expect("the privileges to record");
    let begun = Instant::now();
    while begun.elapsed() < time {
        session.turn().expect("the recording goes on");
        session.sleep();
    }
    session.finish(None).expect("the recording is finished");
    burner.0.kill().expect("it burned until now");
    let output = BufReader::new(burner.0.stdout.take().expect("it is piped"))
        .lines()
        .map_while(Result::ok)
        .collect();
    let recording = Recording::open(&dir).expect("a recording");
    let stacks = recording.stacks().expect("stacks");
    // Without what 3.11 and later put in front.
    let short = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    let mut samples = Vec::new();
    let mut take = |sample: &Sample| {
        let frames: Vec<_> = stacks.named(sample.user_stack).collect();
        let is_python = |frame: &&NamedFrame<'_>| {
            frame
                .module
                .is_some_and(|module| module.kind == ModuleKind::Python)
        };
        let python = frames.iter().filter(|frame| is_python(frame));
        let python = python
            .map(|frame| (short(&frame.names[0].name), frame.names[0].line))
            .collect();
        samples.push(Sampled {
            at_ns: sample.at_ns,
            python,
            in_c: !frames.first().is_some_and(|frame| is_python(&frame)),
        });
    };
    recording.read::<Sample>(None, &mut take).expect("samples");
    let counters = recording.counters().expect("counters");
    let watched = Watched {
        interpreter: name,
        samples,
        counters,
        output,
    };
    println!(
        "{mode} {}: {} samples, {:?}",
        watched.interpreter,
        watched.samples.len(),
        watched.python_counters()
    );
    watched
}

impl Watched {
    fn python_counters(&self) -> Vec<(&String, &u64)> {
        self.counters
            .iter()
            .filter(|(name, count)| name.contains("python") && **count > 0)
            .collect()
    }

    /// Asserts that at least this share of the samples is so.
    fn most(&self, percent: usize, what: &str, is: impl Fn(&Sampled) -> bool) {
        let count = self.samples.iter().filter(|sample| is(sample)).count();
        // A machine that is too busy to unwind in time is not what is tested.
        let late = self
            .counters
            .get("stacks.python sample too old")
            .map_or(0, |late| *late as usize);
        let all = self.samples.len().saturating_sub(late);
        println!("  {what}: {count} of {all}");
        assert!(all > 50, "{}: {all} samples", self.interpreter);
        let counters = self.python_counters();
        assert!(
            count * 100 >= all * percent,
            "{}: {what}: {count} of {all}; {counters:?}",
            self.interpreter
        );
    }
}

#[test]
fn a_function_that_burns_is_named_with_its_callers() {
    // Each may be at any of its lines when it is sampled, the outer ones where they call.
    let wanted = [
        ("burn_steadily", &[13, 14, 15, 16][..]),
        ("handle", &[20, 21]),
        ("outer", &[24, 25]),
        ("<module>", &[1, 67]),
    ];
    let Some(_turn) = common::together() else {
        return;
    };
    for interpreter in interpreters() {
        let watched = watch(&interpreter, "steady", Duration::from_secs(2));
        let fits = |sample: &Sampled| {
            let mut python = sample.python.iter().skip_while(|(name, _)| name == "small");
            wanted.iter().all(|(name, lines)| {
                python
                    .next()
                    .is_some_and(|(n, line)| n == name && lines.contains(line))
            }) && python.next().is_none()
        };
        for sample in &watched.samples {
            assert!(
                fits(sample) || sample.python.is_empty(),
                "{}: {:?}",
                watched.interpreter,
                sample.python
            );
        }
        watched.most(90, "named", fits);
    }
}

#[test]
fn no_function_is_named_long_before_or_after_it_runs() {
    let Some(_turn) = common::together() else {
        return;
    };
    for interpreter in interpreters() {
        let watched = watch(&interpreter, "turns", Duration::from_secs(3));
        let turns: Vec<(u64, &str)> = watched
            .output
            .iter()
            .filter_map(|line| {
                let (at, name) = line.split_once(' ')?;
                Some((at.parse().ok()?, name))
            })
            .collect();
        let function = |sample: &Sampled| {
            sample
                .python
                .iter()
                .find(|(name, _)| name == "left" || name == "right")
                .map(|(name, _)| name.clone())
        };
        const SLACK_NS: u64 = 25_000_000;
        let (mut named, mut exact) = (0, 0);
        for sample in &watched.samples {
            let Some(name) = function(sample) else {
                continue;
            };
            let at = sample.at_ns;
            let near =
                |turn: &&[(u64, &str)]| turn[0].0 <= at + SLACK_NS && at <= turn[1].0 + SLACK_NS;
            let mut around = turns.windows(2).filter(near).peekable();
            let known = around.peek().is_some();
            assert!(
                !known || around.any(|turn| turn[0].1 == name),
                "{}: {name} at {at}",
                watched.interpreter
            );
            named += usize::from(known);
            exact += usize::from(
                turns
                    .windows(2)
                    .any(|t| t[0].0 <= at && at < t[1].0 && t[0].1 == name),
            );
        }
        // Far more often than promised it is the very function.
        println!("  the very function: {exact} of {named}");
        assert!(
            exact * 100 >= named * 97,
            "{}: {exact} of {named}",
            watched.interpreter
        );
        watched.most(60, "named", |sample| function(sample).is_some());
    }
}

#[test]
fn a_function_that_sleeps_is_not_where_the_cpu_went() {
    let Some(_turn) = common::together() else {
        return;
    };
    for interpreter in interpreters() {
        let watched = watch(&interpreter, "short", Duration::from_secs(2));
        // The thread may be met on its way into the sleep and out of it, in C.
        watched.most(98, "without the sleep", |sample| {
            sample.in_c || !sample.python.iter().any(|(name, _)| name == "rest")
        });
        watched.most(90, "not in the sleep's function either", |sample| {
            !sample.python.iter().any(|(name, _)| name == "rest")
        });
    }
}
