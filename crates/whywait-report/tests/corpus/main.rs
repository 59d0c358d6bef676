//! What holds of the reports of all recordings that are kept of the labs (`tests/corpus`).

use whywait_events::recording::Recording;
use whywait_model::{Input, Model};
use whywait_report::text::{TextOptions, render, words};
use whywait_report::{BRIEF_BYTES, Report, brief_to_json};
use whywait_testkit::{Kept, in_parallel, kept_recordings};

/// A usual report, without -v, has no more lines.
const USUAL_LINES: usize = 25;

/// Names that a thing has elsewhere, as in JSON's keys, and the one that reports use.
const OTHER_NAMES: [(&str, &str); 13] = [
    ("ready-unserved", words::UNREAD),
    ("ready (", words::UNREAD),
    ("ready and unread", words::UNREAD),
    ("ready but unread", words::UNREAD),
    ("not read yet", words::UNREAD),
    ("on-cpu", "on CPU"),
    ("runnable", "without a CPU"),
    ("control group", "cgroup"),
    ("ring of io_uring", "io_uring ring"),
    ("were ready for up to", words::UNREAD),
    ("in the mean", "on average"),
    ("as a rule", "(median)"),
    ("asleep in sleep", "asleep"),
];

/// The text without its lines and indents.
fn words_of(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn reports_of_the_kept_recordings() {
    let kept = kept_recordings();
    let read = in_parallel(&kept, Read::of);
    let wrong: Vec<&str> = read
        .iter()
        .flat_map(|read| &read.wrong)
        .map(String::as_str)
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let mut lines: Vec<usize> = read.iter().map(|read| read.lines).collect();
    lines.sort_unstable();
    let median = lines[lines.len() / 2];
    assert!(median <= USUAL_LINES, "a usual report has {median} lines");
}

/// What is held of one report.
struct Read {
    /// What is wrong with it.
    wrong: Vec<String>,
    /// Lines of its text.
    lines: usize,
}

impl Read {
    fn of(kept: &Kept) -> Self {
        let scratch = kept.unpack();
        let recording = Recording::open(&scratch.path().join("recording"));
        let input = recording.and_then(|recording| Input::read(&recording));
        let model = Model::new(input.unwrap_or_else(|error| panic!("{}: {error}", kept.name())));
        let report = Report::of(&model);
        let mut wrong = Vec::new();
        let brief = brief_to_json(&report).expect("a brief is always JSON");
        if brief.len() >= BRIEF_BYTES {
            wrong.push(format!("{}: a brief of {} bytes", kept.name(), brief.len()));
        }
        let text = render(&report, TextOptions::default());
        let all = TextOptions {
            verbose: true,
            ..TextOptions::default()
        };
        let said = words_of(&render(&report, all));
        for (other, name) in OTHER_NAMES {
            if said.contains(other) {
                wrong.push(format!("{}: {other:?} is {name:?}", kept.name()));
            }
        }
        // A thread is `worker (15)` in all sentences.
        for thread in model.threads.values().filter(|it| !it.name.is_empty()) {
            let turned = format!("{} ({})", thread.tid, thread.name);
            if said.contains(&turned) {
                wrong.push(format!("{}: {turned:?} the other way round", kept.name()));
            }
        }
        Self {
            wrong,
            lines: text.lines().count(),
        }
    }
}
