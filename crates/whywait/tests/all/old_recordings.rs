//! Recordings made by an earlier whywait give the report that they gave then: one of each lab, kept
//! in `tests/recordings` with what its report said.
//!
//! Compared is what programs read: codes, numbers, states, stacks. Sentences may change, and a
//! report may come to say more. Where a report is to say something else of the same recording,
//! `WHYWAIT_BLESS=recordings cargo test -p whywait old_recordings` keeps today's.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value};

/// Keys of sentences, which are for people.
const PROSE: [&str; 7] = [
    "command",
    "doing",
    "fix",
    "looked_at",
    "notes",
    "text",
    "title",
];

/// Differences of one recording that are shown.
const SHOWN: usize = 10;

#[test]
fn old_recordings_give_the_report_that_they_gave() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/recordings");
    let bless = std::env::var_os("WHYWAIT_BLESS").is_some_and(|value| value == "recordings");
    let mut names = recordings(&folder);
    names.sort();
    assert!(names.len() >= 20, "one of each lab, not {names:?}");
    let mut failures = String::new();
    for name in names {
        let today = without_prose(report(&folder, &name));
        let kept = folder.join(format!("{name}.json"));
        if bless {
            fs::write(&kept, in_lines(&today)).expect("the report can be kept");
            continue;
        }
        let text = fs::read_to_string(&kept).expect("the report was kept");
        let then = serde_json::from_str(&text).expect("it is JSON");
        let mut found = Vec::new();
        differences(&then, &today, "", &mut found);
        for difference in found.iter().take(SHOWN) {
            writeln!(failures, "{name}{difference}").expect("text grows");
        }
        if found.len() > SHOWN {
            writeln!(failures, "{name}: {} more", found.len() - SHOWN).expect("text grows");
        }
    }
    assert!(
        failures.is_empty(),
        "then, and today; if that is meant, `WHYWAIT_BLESS=recordings cargo test -p whywait \
         old_recordings` keeps today's:\n{failures}"
    );
}

fn recordings(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder).expect("there are recordings");
    files
        .filter_map(|file| {
            let name = file.expect("it can be listed").file_name().into_string();
            let name = name.expect("names are text");
            name.strip_suffix(".tar.gz").map(str::to_owned)
        })
        .collect()
}

/// Today's report of a recording.
fn report(folder: &Path, name: &str) -> Value {
    let scratch = tempfile::tempdir().expect("a temporary folder can be made");
    let archive: PathBuf = folder.join(format!("{name}.tar.gz"));
    let unpacked = Command::new("tar")
        .args(["-x", "-z", "--no-same-owner", "-f"])
        .arg(&archive)
        .current_dir(scratch.path())
        .status()
        .expect("there is tar");
    assert!(unpacked.success(), "{} is an archive", archive.display());
    let run = Command::new(env!("CARGO_BIN_EXE_whywait"))
        .args(["report", name, "--format", "json"])
        .current_dir(scratch.path())
        .output()
        .expect("whywait can be run");
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{name}: {said}");
    serde_json::from_slice(&run.stdout).expect("the report is JSON")
}

fn without_prose(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(key, _)| !PROSE.contains(&key.as_str()))
            .map(|(key, value)| (key, without_prose(value)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) => items.into_iter().map(without_prose).collect(),
        other => other,
    }
}

/// Where today's report does not say what it said then. It may have keys that there were not.
fn differences(then: &Value, today: &Value, path: &str, found: &mut Vec<String>) {
    match (then, today) {
        (Value::Object(then), Value::Object(today)) => {
            for (key, then) in then {
                let today = today.get(key).unwrap_or(&Value::Null);
                differences(then, today, &format!("{path}.{key}"), found);
            }
        }
        (Value::Array(then), Value::Array(today)) if then.len() == today.len() => {
            for (index, (then, today)) in then.iter().zip(today).enumerate() {
                differences(then, today, &format!("{path}[{index}]"), found);
            }
        }
        (then, today) if then == today => (),
        (then, today) => found.push(format!("{path}: {then} and {today}")),
    }
}

/// JSON with a line for each item of a list that is not deep down.
fn in_lines(report: &Value) -> String {
    fn write(value: &Value, depth: usize, text: &mut String) {
        let (open, items, close) = match value {
            Value::Object(fields) if depth < 4 && !fields.is_empty() => {
                let items = fields.iter().map(|(key, value)| (Some(key), value));
                ('{', items.collect::<Vec<_>>(), '}')
            }
            Value::Array(items) if depth < 4 && !items.is_empty() => {
                ('[', items.iter().map(|item| (None, item)).collect(), ']')
            }
            deep => return text.push_str(&deep.to_string()),
        };
        text.push(open);
        for (index, (key, value)) in items.iter().enumerate() {
            text.push_str(if index == 0 { "\n" } else { ",\n" });
            text.push_str(&" ".repeat(depth + 1));
            if let Some(key) = key {
                write!(text, "{}: ", Value::from(key.as_str())).expect("text grows");
            }
            write(value, depth + 1, text);
        }
        text.push('\n');
        text.push_str(&" ".repeat(depth));
        text.push(close);
    }
    let mut text = String::new();
    write(report, 0, &mut text);
    text.push('\n');
    text
}
