//! What looks like a secret in a command line is in the recording, and in nothing else.

use std::fs;
use std::path::{Path, PathBuf};

use whywait_events::recording::Recording;

use crate::common::{program, run, scratch, text, walk, whywait};

/// Part of each secret.
const SECRET: &str = "hunter2";

/// Command lines as people have them: words, a shell's script, and a title that a process gave
/// itself.
const COMMANDS: [&[&str]; 3] = [
    &[
        "/srv/app",
        "--port",
        "80",
        "--password",
        "hunter2",
        "token=hunter2",
        "postgres://me:hunter2@db/one",
        "me:hunter2@tcp(db)/one",
        "-H",
        "Authorization: Bearer hunter2",
    ],
    &[
        "sh",
        "-c",
        "TOKEN=hunter2 /srv/app --port 80 --password 'hunter2' --db http://me:hunter2@db/",
    ],
    &["/srv/app: worker --port 80 --password hunter2 --api-key=hunter2"],
];

/// A recording of a real server, as if it had been started with this command.
fn recorded(folder: &Path, name: &str, command: &[&str]) -> PathBuf {
    const KEPT: &str = "asyncio-blocked-broken";
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/recordings");
    let archive = format!("{kept}/{KEPT}.tar.gz");
    let unpack = ["-x", "-z", "--no-same-owner", "-f", &archive];
    run(program("tar", &unpack).current_dir(folder)).exits(0);
    let recording = folder.join(name);
    fs::rename(folder.join(KEPT), &recording).expect("it is there");
    let path = recording.join("meta.json");
    let meta = fs::read_to_string(&path).expect("it has one");
    let mut meta: serde_json::Value = serde_json::from_str(&meta).expect("it is JSON");
    meta["command"] = command.into();
    meta["servers"] =
        serde_json::json!([{ "pid": meta["pid"], "command": command, "ports": [80] }]);
    fs::write(path, meta.to_string()).expect("it is ours");
    let read = Recording::open(&recording).expect("it is a recording");
    assert_eq!(read.meta().command, command);
    recording
}

/// The formats that a command takes, as it names them itself.
fn formats(command: &[&str]) -> Vec<String> {
    let wrong = run(&mut whywait(&[command, &["--format", "none"]].concat())).exits(2);
    let (_, listed) = wrong
        .err
        .split_once("[possible values: ")
        .expect("it lists what it takes");
    let (listed, _) = listed.split_once(']').expect("an end");
    let formats: Vec<String> = listed.split(", ").map(str::to_owned).collect();
    assert!(formats.len() > 1, "{formats:?}");
    formats
}

/// Fails where a secret is said. Gives what was written.
#[track_caller]
fn silent(args: &[&str], written: &Path) -> Vec<u8> {
    let said = run(&mut whywait(args));
    assert!(matches!(said.code, 0 | 3), "{args:?}: {}", said.err);
    let mut all = said.out.into_bytes();
    all.extend(said.err.into_bytes());
    for file in walk(written).into_iter().filter(|path| path.is_file()) {
        all.extend(plain(&file));
    }
    let secret = SECRET.as_bytes();
    assert!(
        !all.windows(secret.len()).any(|bytes| bytes == secret),
        "{args:?} says a secret"
    );
    all
}

/// What is in a file, which may be compressed.
fn plain(file: &Path) -> Vec<u8> {
    let bytes = fs::read(file).expect("it can be read");
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return bytes;
    }
    let plain = program("gzip", &["-d", "-c", text(file)]).output();
    plain.expect("there is gzip").stdout
}

#[test]
fn no_view_of_a_recording_says_a_secret() {
    let dir = scratch();
    for (number, command) in COMMANDS.iter().enumerate() {
        let dir = dir.path().join(number.to_string());
        let kept = dir.join("kept");
        fs::create_dir_all(&kept).expect("writable");
        let recording = recorded(&kept, "run", command);
        let recording = text(&recording);
        let written = dir.join("written");
        let fresh = || {
            let _ = fs::remove_dir_all(&written);
            fs::create_dir(&written).expect("writable");
            written.join("report")
        };
        let all = |args: &[&str]| {
            let report = fresh();
            silent(&[args, &["-o", text(&report)]].concat(), &written)
        };
        for format in formats(&["report", recording]) {
            let args = ["report", recording, "--format", &format];
            let shown = String::from_utf8_lossy(&all(&args)).into_owned();
            if ["json", "html"].contains(&&*format) {
                assert!(shown.contains("***"), "{format} has the command: {shown}");
            }
            for of in ["waits", "cpu"] {
                if ["folded", "pprof"].contains(&&*format) {
                    all(&[&args[..], &["--of", of]].concat());
                }
            }
        }
        let json = run(&mut whywait(&["report", recording, "--format", "json"])).json();
        let slowest = json["requests"]["slowest"][0]["id"]
            .as_str()
            .expect("one is slowest");
        for view in [
            &["--waits"][..],
            &["--uring"],
            &["--cpu"],
            &["--calls"],
            &["--requests"],
            &["--request", slowest],
        ] {
            for format in ["text", "json"] {
                all(&[&["report", recording, "--format", format][..], view].concat());
            }
        }
        all(&["report", recording, "--verbose"]);
        all(&["report", recording, "--server", ":80"]);
        all(&["report", recording, "--format", "json", "--brief"]);
        for format in formats(&["diff", recording, recording]) {
            all(&["diff", recording, recording, "--format", &format]);
        }
        let budget = dir.join("budget.toml");
        silent(
            &["gate", "--init", text(&budget), recording],
            &dir.join("none"),
        );
        silent(&["report", recording], &budget);
        for format in formats(&["gate", text(&budget), recording]) {
            let files = [fresh(), written.join("xml"), written.join("base")];
            let [report, xml, base] = files.each_ref().map(|path| text(path));
            let gate = ["gate", text(&budget), recording, "--format", &format];
            let more = ["-o", report, "--junit", xml, "--save-baseline", base];
            silent(&[&gate[..], &more].concat(), &written);
        }
        for format in formats(&["publish", recording, text(&written)]) {
            fresh();
            let to = ["publish", recording, "--format", &format];
            let to = if format == "jsonl" {
                [&to[..], &["-"]].concat()
            } else {
                [&to[..], &[text(&written)]].concat()
            };
            silent(&to, &written);
        }
    }
}
