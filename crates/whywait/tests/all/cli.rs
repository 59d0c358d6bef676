//! The command, as a shell sees it. Nothing here needs privileges or watches anything.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use whywait_events::recording::{Meta, Writer};
use whywait_events::{Event, Request, ThreadChange, ThreadEvent, Wait};

/// What a run of whywait left: its exit code, standard output and standard error.
struct Run {
    code: i32,
    out: String,
    err: String,
}

impl Run {
    #[track_caller]
    fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "out: {}\nerr: {}", self.out, self.err);
        self
    }

    #[track_caller]
    fn says(self, text: &str) -> Self {
        assert!(self.out.contains(text), "{text:?} is not in: {}", self.out);
        self
    }

    #[track_caller]
    fn complains(self, text: &str) -> Self {
        assert!(self.err.contains(text), "{text:?} is not in: {}", self.err);
        self
    }

    /// One line that says what is wrong, and one with a hint; nothing on standard output.
    #[track_caller]
    fn rejects_usage(self) -> Self {
        let run = self.exits(2);
        let lines: Vec<&str> = run.err.lines().collect();
        assert!(
            matches!(
                lines[..],
                [what, hint] if what.starts_with("whywait: ") && hint.starts_with("  hint: ")
            ),
            "{}",
            run.err
        );
        assert_eq!(run.out, "");
        run
    }

    /// One line that says what happened; nothing on standard output.
    #[track_caller]
    fn fails(self) -> Self {
        let run = self.exits(1);
        assert!(
            run.err.starts_with("whywait: ") && run.err.lines().count() == 1,
            "{}",
            run.err
        );
        assert_eq!(run.out, "");
        run
    }
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        Run {
            code: output.status.code().expect("whywait exits by itself"),
            out: String::from_utf8(output.stdout).expect("standard output is UTF-8"),
            err: String::from_utf8(output.stderr).expect("standard error is UTF-8"),
        }
    }
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_whywait"));
    command
        .args(args)
        .env("RUST_BACKTRACE", "1")
        .env_remove("COLUMNS")
        .stdin(Stdio::null());
    command
}

fn whywait(args: &[&str]) -> Run {
    command(args).output().expect("whywait runs").into()
}

/// Runs a script with `$W` as whywait.
fn shell(script: &str) -> Run {
    let mut shell = Command::new("bash");
    shell
        .args(["-c", script])
        .env("W", env!("CARGO_BIN_EXE_whywait"))
        .stdin(Stdio::null());
    shell.output().expect("bash runs").into()
}

#[test]
fn help_teaches() {
    whywait(&["--help"])
        .exits(0)
        .says("Examples:")
        .says("whywait -p 1234 -d 10s")
        .says("Exit codes:");
    whywait(&["-h"])
        .exits(0)
        .says("Usage: whywait [OPTIONS] -- <CMD>...");
    whywait(&["record", "--help"])
        .exits(0)
        .says("--threshold <TIME>")
        .says("costs")
        .says("[default: 8K]");
    whywait(&["report", "--help"])
        .exits(0)
        .says("--fail-on <SEVERITY>")
        .says("--waits")
        .says("--cpu")
        .says("--request <ID>")
        .says("jq");
    whywait(&["--version"]).exits(0).says("whywait 0.");
}

#[test]
fn help_offers_only_what_there_is() {
    for verb in [
        &["--help"][..],
        &["report", "--help"],
        &["record", "--help"],
    ] {
        let help = whywait(verb).exits(0).out;
        for absent in ["__exec", "gate-fd", "svg", "csv"] {
            assert!(!help.contains(absent), "{absent} is in: {help}");
        }
    }
}

#[test]
fn usage_errors_are_a_line_and_a_hint() {
    whywait(&[])
        .rejects_usage()
        .complains("nothing to watch")
        .complains("whywait -- ./server");
    whywait(&["-d", "1s"])
        .rejects_usage()
        .complains("nothing to watch");
    whywait(&["--nonsense"])
        .rejects_usage()
        .complains("--nonsense");
    whywait(&["repot", "x"])
        .rejects_usage()
        .complains("whywait -- repot");
    whywait(&["report"]).rejects_usage().complains("<DIR>");
    whywait(&["report", "x", "--waits", "--request", "1:1"])
        .rejects_usage()
        .complains("cannot be used with");
    for view in [&["--waits"][..], &["--request", "1:1"]] {
        whywait(&[&["report", "x", "--fail-on", "error"], view].concat())
            .rejects_usage()
            .complains("cannot be used with");
        whywait(&[&["-p", "1"], view].concat()).rejects_usage();
    }
    whywait(&["report", "x", "--format", "yaml"])
        .rejects_usage()
        .complains("[possible values: text, json, html,");
    whywait(&["report", "x", "--of", "cpu"])
        .rejects_usage()
        .complains("--format folded");
    whywait(&["report", "x", "--fail-on", "erorr"])
        .rejects_usage()
        .complains("a similar value exists: 'error'");
    whywait(&["record"])
        .rejects_usage()
        .complains("nothing to watch");
    whywait(&["-p", "0"]).rejects_usage();
    whywait(&["-p", "1", "--", "true"])
        .rejects_usage()
        .complains("cannot be used with");
    whywait(&["-d", "10x", "--", "true"])
        .rejects_usage()
        .complains("such as 10s");
    whywait(&["-d", "0s", "--", "true"]).rejects_usage();
    whywait(&["--threshold", "1us", "--", "true"])
        .rejects_usage()
        .complains("10us to 10s");
    whywait(&["--stack-bytes", "64K", "--", "true"])
        .rejects_usage()
        .complains("1K to 32K");
    whywait(&["--detail", "everything", "--", "true"]).rejects_usage();
    whywait(&["--debug-files", "/dev/null", "--", "true"])
        .rejects_usage()
        .complains("/dev/null is no folder");
    whywait(&["--", ""]).rejects_usage().complains("empty");
    whywait(&["diff", "a"]).rejects_usage();
    whywait(&["gate", "a"]).rejects_usage();
}

#[test]
fn a_process_must_be_there() {
    // The largest number that Linux ever gives.
    whywait(&["-p", "4194304"])
        .rejects_usage()
        .complains("there is no process 4194304");
    whywait(&["record", "-p", "4194304"])
        .rejects_usage()
        .complains("there is no process 4194304");
}

#[test]
fn a_thread_is_not_a_process() {
    let (tid_sender, tid) = std::sync::mpsc::channel();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let link = fs::read_link("/proc/thread-self").expect("a thread has a number");
        tid_sender
            .send(
                link.file_name()
                    .expect("its last part")
                    .to_str()
                    .expect("digits")
                    .to_owned(),
            )
            .expect("sent");
        let _ = stopped.recv();
    });
    let tid = tid.recv().expect("received");
    let hint = format!("use -p {}", std::process::id());
    whywait(&["-p", &tid])
        .rejects_usage()
        .complains("is a thread of process")
        .complains(&hint);
    drop(stop);
    thread.join().expect("the thread ends");
}

#[test]
fn recordings_are_never_overwritten() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    fs::write(dir.path().join("precious"), "data").expect("a file");
    let path = dir.path().to_str().expect("UTF-8");
    whywait(&["record", "-o", path, "--", "true"])
        .rejects_usage()
        .complains("is not empty");
    whywait(&["--keep", path, "--", "true"])
        .rejects_usage()
        .complains("is not empty");
}

#[test]
fn explain_explains() {
    let codes = whywait(&["explain", "--list"]).exits(0).out;
    assert!(
        codes.lines().any(|code| code == "stranded-readiness"),
        "{codes}"
    );
    for code in codes.lines() {
        whywait(&["explain", code]).exits(0).says(code);
    }
    let meanings = whywait(&["explain"]).exits(0).out;
    for code in codes.lines() {
        assert!(meanings.contains(&format!("- {code}: ")), "{code}");
    }
    let coverage = whywait(&["explain", "coverage"])
        .exits(0)
        .says("ring-full")
        .out;
    let before = whywait(&["explain", "recording-incomplete"]).exits(0).out;
    assert_eq!(before, coverage, "its name when it was a finding");
    whywait(&["explain", "stranded-redness"])
        .rejects_usage()
        .complains("'stranded-readiness'");
}

#[test]
fn what_is_named_as_something_else_gets_the_flag_for_it() {
    let port = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
    let free = port.local_addr().expect("an address").port();
    drop(port);
    whywait(&["-p", "nginx"])
        .rejects_usage()
        .complains("--name nginx");
    whywait(&["1234"]).rejects_usage().complains("-p 1234");
    whywait(&[":http"]).rejects_usage().complains("TCP port");
    whywait(&["record", &format!(":{free}")])
        .rejects_usage()
        .complains("nobody listens on TCP port");
    whywait(&["--name", "no such\n\x1b[31m program"])
        .rejects_usage()
        .complains(r"no process is called no such\n\x1b[31m");
    whywait(&["--unit", "no-such-unit"])
        .rejects_usage()
        .complains("no unit no-such-unit.service runs");
    whywait(&["--container", "no-such-container"])
        .rejects_usage()
        .complains("as far as files tell");
    whywait(&["--cgroup", "/no/such/cgroup"])
        .rejects_usage()
        .complains("there is no cgroup");
    whywait(&[":80", "--", "true"])
        .rejects_usage()
        .complains("cannot be used with");
}

#[test]
fn there_are_manual_pages() {
    whywait(&["man"])
        .exits(0)
        .says(".TH whywait 1")
        .says("SYNOPSIS");
    let dir = tempfile::tempdir().expect("a temporary folder");
    let folder = dir.path().join("man1");
    let name = folder.to_str().expect("UTF-8");
    whywait(&["man", name]).exits(0);
    let page = fs::read_to_string(folder.join("whywait-record.1")).expect("a page");
    assert!(page.contains("rotate"), "{page}");
    assert!(!folder.join("whywait-__exec.1").exists());
    whywait(&["help", "record"]).exits(0).says("--rotate");
}

#[test]
fn a_packed_recording_is_read_as_its_folder() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let folder = dir.path().join("run1.whywait");
    let meta = Meta {
        command: ["serve", "--password", "hunter2"]
            .map(str::to_owned)
            .to_vec(),
        ..Meta::default()
    };
    let mut writer = Writer::create(&folder, &meta).expect("it is made");
    let thread = ThreadEvent {
        tid: 7,
        tgid: 7,
        comm: "serve".to_owned(),
        change: ThreadChange::Exec,
        ..ThreadEvent::default()
    };
    writer.write(&Event::Thread(thread)).expect("it is written");
    writer.finish(&meta).expect("it is finished");
    let path = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let report = |name: &str| {
        whywait(&["report", &path(name), "--format", "json"])
            .exits(0)
            .out
    };
    let expected = report("run1.whywait");

    whywait(&["pack", &path("run1.whywait")])
        .exits(0)
        .says("run1.whywait.tar.zst")
        .says("whywait report");
    let packed = path("run1.whywait.tar.zst");
    let first = fs::read(&packed).expect("a file");
    assert_eq!(report("run1.whywait.tar.zst"), expected);
    // Again the same bytes, from the folder and from the archive.
    whywait(&["pack", &packed, "-o", &path("again")]).exits(0);
    assert_eq!(fs::read(path("again")).expect("a file"), first);
    // Nobody else reads the password.
    let tar = "tar -C \"$D\" --zstd -xOf \"$D/again\" run1.whywait/meta.json";
    let meta = shell(&format!("D={}; {tar}", dir.path().display()))
        .exits(0)
        .out;
    assert!(
        meta.contains("--password") && !meta.contains("hunter2"),
        "{meta}"
    );
    // What tar itself makes, and the other commands.
    for flags in ["-cf", "-czf"] {
        let script = format!(
            "cd {} && tar {flags} by-hand run1.whywait",
            dir.path().display()
        );
        shell(&script).exits(0);
        assert_eq!(report("by-hand"), expected, "tar {flags}");
    }
    whywait(&["diff", &packed, &path("again")])
        .exits(0)
        .says("1 run");
    whywait(&["publish", &packed, &path("fleet")]).exits(0);
    whywait(&["report", &path("nothing.tar.zst")])
        .fails()
        .complains("whywait pack");
    whywait(&["pack", &path("")])
        .fails()
        .complains("no meta.json");
}

/// What a shell gets for the last of these words.
fn completed(words: &[&str]) -> String {
    let output = command(&[&["--", "whywait"], words].concat())
        .env("WHYWAIT_COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", words.len().to_string())
        .env("_CLAP_IFS", "\n")
        .output()
        .expect("whywait runs");
    Run::from(output).exits(0).out
}

#[test]
fn completions_offer_what_runs() {
    let port = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
    let port = port.local_addr().expect("an address").port().to_string();
    let own = std::process::id().to_string();
    assert!(completed(&["--port", &port]).lines().any(|it| it == port));
    assert!(completed(&["-p", &own]).lines().any(|it| it == own));
    let both = format!("1,{own}");
    assert!(completed(&["--pid", &both]).lines().any(|it| it == both));
    assert!(completed(&["--conta"]).contains("--container"));
    assert!(completed(&["rec"]).contains("record"));
    assert!(completed(&["report", "--format", "perf"]).contains("perfetto"));
}

#[test]
fn completions_are_for_three_shells() {
    whywait(&["completions", "bash"])
        .exits(0)
        .says("-F _clap_complete_whywait");
    whywait(&["completions", "zsh"])
        .exits(0)
        .says("#compdef whywait");
    whywait(&["completions", "fish"])
        .exits(0)
        .says("--command whywait");
    whywait(&["completions", "elvish"]).rejects_usage();
    shell("$W completions bash | bash -n").exits(0);
}

#[test]
fn check_says_what_is_allowed() {
    let run = whywait(&["check"]);
    assert!(run.code == 0 || run.code == 1, "{}", run.err);
    run.says("kernel").says("privileges").says("lockdown");
}

#[test]
fn a_report_needs_a_recording() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    whywait(&["report", &path("missing")])
        .fails()
        .complains("not a whywait recording")
        .complains("whywait record");
    whywait(&["report", &path("")])
        .fails()
        .complains("not a whywait recording");
    fs::write(path("file"), "").expect("a file");
    whywait(&["report", &path("file")])
        .fails()
        .complains("not a whywait recording");
    fs::create_dir(path("foreign")).expect("a folder");
    fs::write(path("foreign/meta.json"), "{\"name\": \"somebody else's\"}").expect("a file");
    whywait(&["report", &path("foreign")])
        .fails()
        .complains("belongs to another program");
}

const MS: u64 = 1_000_000;

/// A recording of a thread that sleeps for 30 ms within a request of 40 ms. Its name is hostile.
fn recording(dir: &Path, requests: u32) -> String {
    let mut meta = Meta {
        started_ns: 1_000 * MS,
        ended_ns: Some(2_000 * MS),
        pid: Some(100),
        command: vec!["server".to_owned()],
        ..Meta::default()
    };
    meta.options.threshold_ns = MS;
    let dir = dir.join(format!("recording-{requests}"));
    let mut writer = Writer::create(&dir, &meta).expect("writable");
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
    write(Event::Wait(Wait {
        tid: 100,
        tgid: 100,
        out_ns: 1_105 * MS,
        wake_ns: Some(1_135 * MS),
        in_ns: Some(1_135 * MS),
        // clock_nanosleep
        syscall: Some(230),
        seq: 1,
        ..Wait::default()
    }));
    for seq in 0..requests {
        write(Event::Request(Request {
            socket: 12,
            seq,
            tgid: 100,
            local_port: 8080,
            ready_ns: 1_100 * MS,
            recv_ns: Some(1_101 * MS),
            recv_tid: 100,
            first_send_ns: Some(1_140 * MS),
            last_send_ns: Some(1_140 * MS),
            send_tid: 100,
            ..Request::default()
        }));
    }
    writer.finish(&meta).expect("writable");
    dir.to_str().expect("UTF-8").to_owned()
}

#[test]
fn waits_are_a_table() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let recording = recording(dir.path(), 1);
    let run = whywait(&["report", &recording, "--waits"])
        .exits(0)
        .says("wait");
    assert!(!run.out.contains('\x1b') && run.err.is_empty());
    let run = whywait(&["report", &recording, "--waits", "--format", "json"]).exits(0);
    let json: serde_json::Value = serde_json::from_str(&run.out).expect("JSON");
    assert_eq!(json["schema"], 1);
    assert!(json["waits"].is_array(), "{json}");
    let file = dir.path().join("waits.txt");
    let file = file.to_str().expect("UTF-8");
    let run = whywait(&["report", &recording, "--waits", "-o", file]).exits(0);
    assert_eq!(run.out, "");
    assert!(fs::read_to_string(file).expect("written").contains("wait"));
}

#[test]
fn a_page_is_written_and_how_to_open_it_is_said() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let recording = recording(dir.path(), 1);
    let page = format!("{recording}.html");
    // As shells complete the name of a folder, too.
    for named in [recording.clone(), format!("{recording}/")] {
        let run = whywait(&["report", &named, "--open"])
            .exits(0)
            .says(&format!("wrote {page}; to look at it: xdg-open {page}"));
        assert_eq!(run.err, "");
        let html = fs::read_to_string(&page).expect("written beside the recording");
        assert!(html.starts_with("<!DOCTYPE html>"), "{html:.80}");
        fs::remove_file(&page).expect("it is a file");
    }
    let other = format!("{}/other.html", dir.path().display());
    whywait(&["report", &recording, "--open", "-o", &other])
        .exits(0)
        .says(&format!("wrote {other}"));
    assert!(fs::exists(&other).expect("a folder") && !fs::exists(&page).expect("a folder"));
    whywait(&["report", &recording, "--open", "--waits"])
        .exits(2)
        .complains("--open");
    whywait(&["report", "--open"]).exits(2).complains("DIR");
}

#[test]
fn a_request_is_told_step_by_step() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let recording = recording(dir.path(), 7);
    let report = whywait(&["report", &recording]).exits(0);
    let slowest = report
        .out
        .lines()
        .find(|line| line.starts_with("slowest: "))
        .expect("a slowest request");
    let id = &slowest[slowest.find('[').expect("an ID in brackets")..];
    assert_eq!(id, "[12:0]");
    for id in [id, "12:0", "12:6"] {
        let run = whywait(&["report", &recording, "--request", id])
            .exits(0)
            .says(&format!(
                "request {}: 40 ms on port 8080",
                id.trim_matches(['[', ']'])
            ))
            .says("+5 ms     30 ms  timer (sleep)   \\x1b[2Jserver (100)")
            .says("on CPU");
        assert!(!run.out.contains('\x1b') && run.err.is_empty());
    }
    let args = [
        "report",
        &recording,
        "--request",
        "12:0",
        "--format",
        "json",
    ];
    let run = whywait(&args).exits(0);
    let json: serde_json::Value = serde_json::from_str(&run.out).expect("JSON");
    assert_eq!(json["schema"], 1);
    assert_eq!(json["request"]["id"], "12:0");
    assert_eq!(json["request"]["latency_ns"], 40 * MS);
    assert!(
        json["request"]["path"]
            .as_array()
            .is_some_and(|path| path.len() >= 3)
    );
    let file = dir.path().join("request.txt");
    let file = file.to_str().expect("UTF-8");
    let run = whywait(&["report", &recording, "--request", "12:0", "-o", file]).exits(0);
    assert_eq!(run.out, "");
    assert!(
        fs::read_to_string(file)
            .expect("written")
            .starts_with("request 12:0: ")
    );
}

#[test]
fn a_request_that_is_not_there_gets_those_that_are() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let recording_7 = recording(dir.path(), 7);
    for id in ["12:7", "", "\x1b[2J"] {
        whywait(&["report", &recording_7, "--request", id])
            .rejects_usage()
            .complains("has no slow request")
            .complains("12:0, 12:1, 12:2")
            .complains("in brackets");
    }
    let recording_0 = recording(dir.path(), 0);
    whywait(&["report", &recording_0, "--request", "12:0"])
        .rejects_usage()
        .complains("1 ms or longer");
    whywait(&["report", &recording_0, "--waits"]).exits(0);
}

#[test]
fn hostile_paths_stay_on_their_line() {
    whywait(&["report", "no\n\x1b[31mthing"])
        .fails()
        .complains("\\x1b[31mthing");
}

#[test]
fn a_closed_pipe_is_quiet() {
    let run = shell("$W --help | head -c 1 >/dev/null; echo ${PIPESTATUS[0]}")
        .exits(0)
        .says("0");
    assert_eq!(run.err, "");
    for command in [
        "completions zsh",
        "explain stranded-readiness",
        "explain --list",
    ] {
        let run = shell(&format!("(sleep 0.1; $W {command}; echo $? >&2) | true")).exits(0);
        assert_eq!(run.err, "0\n", "{command}");
    }
}

#[test]
fn a_full_disk_is_not_quiet() {
    let run = shell("$W completions bash > /dev/full").exits(1);
    assert_eq!(
        run.err,
        "whywait: cannot write to standard output: No space left on device (os error 28)\n"
    );
}

/// Runs `__exec` with the gate as its standard input, already open.
#[test]
fn a_closed_standard_output_is_an_error() {
    for command in ["completions bash", "explain --list", "explain"] {
        let run = shell(&format!("$W {command} >&-")).exits(1);
        assert!(
            run.err.starts_with("whywait: standard output is closed"),
            "{command}: {}",
            run.err
        );
        // What looks the same to most programs is a choice.
        let run = shell(&format!("$W {command} <>/dev/null 1>&0")).exits(0);
        assert_eq!(run.err, "", "{command}");
    }
}

fn exec(args: &[&str]) -> Run {
    let mut args_all = vec!["__exec", "--gate-fd", "0"];
    args_all.extend(args);
    let mut child = command(&args_all);
    let child = child
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = child.spawn().expect("whywait runs");
    child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(b"!")
        .expect("written");
    child.wait_with_output().expect("it ends").into()
}

#[test]
fn the_gate_opens_for_a_byte() {
    exec(&["--", "echo", "--help", "a  b"])
        .exits(0)
        .says("--help a  b\n");
    exec(&["--", "sh", "-c", "exit 42"]).exits(42);
    // Bash says "Terminated" on standard error: as far as it can see, the command was its own
    // child.
    shell("echo '!' | $W __exec --gate-fd 0 -- sh -c 'kill -TERM $$'").exits(143);
}

#[test]
fn the_gate_stays_closed_when_the_watcher_ends() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let file = dir.path().join("ran");
    let run = whywait(&[
        "__exec",
        "--gate-fd",
        "0",
        "--",
        "touch",
        file.to_str().expect("UTF-8"),
    ]);
    run.exits(125).complains("the command was not started");
    assert!(!file.exists());
    whywait(&["__exec", "--gate-fd", "999", "--", "true"])
        .exits(125)
        .complains("descriptor 999");
}

#[test]
fn a_command_that_cannot_run_says_so_as_shells_do() {
    let run = exec(&["--", "no-such-command-anywhere"]).exits(127);
    assert_eq!(
        run.err,
        "whywait: cannot run no-such-command-anywhere: No such file or directory\n"
    );
    let run = exec(&["--", "/etc/passwd"]).exits(126);
    assert_eq!(
        run.err,
        "whywait: cannot run /etc/passwd: Permission denied\n"
    );
    exec(&["--", "\x1b[2J"])
        .exits(127)
        .complains("cannot run \\x1b[2J:");
}

#[test]
fn the_command_inherits_neither_the_gate_nor_an_ignored_sigpipe() {
    let script = "exec 7< <(echo '!')
$W __exec --gate-fd 7 -- sh -c 'ls /proc/self/fd; cat /proc/self/status'";
    let run = shell(script).exits(0);
    assert!(!run.out.lines().any(|line| line == "7"), "{}", run.out);
    let ignored = run
        .out
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .expect("the kernel says");
    let ignored = u64::from_str_radix(ignored.trim(), 16).expect("a mask");
    assert_eq!(ignored >> 12 & 1, 0, "SIGPIPE is ignored");
}

#[test]
fn the_command_runs_as_who_called_sudo() {
    if !is_root() {
        return;
    }
    // 65534 is nobody, on every distribution.
    let run = exec(&[
        "--uid",
        "65534",
        "--gid",
        "65534",
        "--",
        "sh",
        "-c",
        "id -u; id -ru; id -g; echo $USER; grep Groups /proc/self/status",
    ]);
    let run = run.exits(0);
    let lines: Vec<&str> = run.out.lines().collect();
    assert_eq!(lines[..4], ["65534", "65534", "65534", "nobody"]);
    // No group of root's is left.
    assert!(
        !lines[4]
            .split_whitespace()
            .skip(1)
            .any(|group| group == "0"),
        "{}",
        lines[4]
    );
    // And there is no way back.
    let run = exec(&[
        "--uid",
        "65534",
        "--gid",
        "65534",
        "--",
        "grep",
        "-E",
        "Cap(Eff|Prm)",
        "/proc/self/status",
    ])
    .exits(0);
    assert!(
        run.out
            .lines()
            .all(|line| line.ends_with("\t0000000000000000")),
        "{}",
        run.out
    );
    // A number without a name will do.
    exec(&["--uid", "54321", "--gid", "54321", "--", "id", "-u"])
        .exits(0)
        .says("54321");
    whywait(&["__exec", "--gate-fd", "0", "--uid", "1", "--", "true"]).rejects_usage();
}

#[test]
fn what_was_not_roots_stays_in_the_environment() {
    if !is_root() {
        return;
    }
    let script = "echo '!' | HOME=/given USER=root \
                  $W __exec --gate-fd 0 --uid 65534 --gid 65534 -- sh -c 'echo $HOME $USER'";
    shell(script).exits(0).says("/given nobody\n");
}

fn is_root() -> bool {
    let status = fs::read_to_string(Path::new("/proc/self/status")).expect("proc is mounted");
    status
        .lines()
        .any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"))
}
