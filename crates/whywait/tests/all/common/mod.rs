//! Runs whywait as a shell would, and waits for what is to happen rather than for time to pass.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

/// Nothing here takes a tenth of this on an idle machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Whether to run a test that needs BPF. Where BPF is refused such a test fails, unless the
/// environment says to leave it out.
pub(crate) fn bpf() -> bool {
    let skip = std::env::var_os("WHYWAIT_NO_BPF").is_some_and(|value| value == "1");
    if skip {
        eprintln!("skipped: WHYWAIT_NO_BPF");
    }
    !skip
}

pub(crate) fn binary() -> &'static str {
    env!("CARGO_BIN_EXE_whywait")
}

/// A program without whywait's own settings in its environment, in a process group of its own.
pub(crate) fn program(path: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> Command {
    // Whoever runs the tests in the background may have them ignore signals, and that is inherited;
    // `env` becomes the program, so that its process number stays.
    let mut command = Command::new("env");
    command
        .arg("--default-signal=HUP,INT,QUIT,TERM")
        .arg(path.as_ref());
    for name in [
        "COLUMNS", "SUDO_UID", "SUDO_GID", "LC_ALL", "LANG", "TMPDIR",
    ] {
        command.env_remove(name);
    }
    command
        .args(args)
        .env("RUST_BACKTRACE", "1")
        .stdin(Stdio::null())
        .process_group(0);
    command
}

pub(crate) fn whywait(args: &[&str]) -> Command {
    program(binary(), args)
}

/// The program of `programs/target.c`, compiled once.
pub(crate) fn target() -> &'static str {
    static BUILT: OnceLock<String> = OnceLock::new();
    BUILT.get_or_init(|| compiled("target"))
}

/// A program of `programs`, compiled now.
pub(crate) fn compiled(name: &str) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    // Built elsewhere and renamed: another test, or another run of them, may use or build it now.
    static BUILDS: AtomicUsize = AtomicUsize::new(0);
    let build = BUILDS.fetch_add(1, Ordering::Relaxed);
    let output = folder.join(format!("{name}-{}-{build}", std::process::id()));
    let status = Command::new("cc")
        .args(["-O1", "-fomit-frame-pointer", "-pthread", "-o"])
        .arg(&output)
        .arg(&source)
        .status()
        .expect("there is a C compiler");
    assert!(status.success(), "cc {}: {status}", source.display());
    let named = folder.join(name);
    fs::rename(&output, &named).expect("a file can be renamed");
    named.to_str().expect("UTF-8").to_owned()
}

/// Whether the output has the text, as it is or over the end of a line: reports wrap their
/// sentences, and where depends on the figures before.
fn has(output: &str, text: &str) -> bool {
    let words = output.split_whitespace().collect::<Vec<_>>().join(" ");
    output.contains(text) || words.contains(text)
}

/// What a program left: its exit code as a shell has it, what it wrote, how long it took.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) took: Duration,
}

impl Run {
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert!(
            self.code == code,
            "expected exit code {code}, got {}\nout: {}\nerr: {}",
            self.code,
            self.out,
            self.err
        );
        self
    }

    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Self {
        assert!(
            has(&self.out, text),
            "expected {text:?} on standard output, got:\n{}\nerr: {}",
            self.out,
            self.err
        );
        self
    }

    #[track_caller]
    pub(crate) fn complains(self, text: &str) -> Self {
        assert!(
            has(&self.err, text),
            "expected {text:?} on standard error, got:\n{}\nout: {}",
            self.err,
            self.out
        );
        self
    }

    /// Exactly one line of whywait's on standard error, and nothing on standard output.
    #[track_caller]
    pub(crate) fn in_one_line(self) -> Self {
        let lines: Vec<&str> = self.err.lines().collect();
        assert!(
            matches!(lines[..], [line] if line.starts_with("whywait: ")),
            "expected one line of whywait's on standard error, got:\n{}",
            self.err
        );
        assert!(
            self.out.is_empty(),
            "expected nothing on standard output, got:\n{}",
            self.out
        );
        self
    }

    /// It printed a report in text.
    #[track_caller]
    pub(crate) fn reports(self) -> Self {
        self.says("coverage: ")
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out)
            .unwrap_or_else(|error| panic!("expected JSON, got {error}: {}", self.out))
    }
}

/// Runs to the end.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> Run {
    start(command).end()
}

/// A program that runs. Killed when dropped.
pub(crate) struct Running {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    out: String,
    err: Arc<Mutex<String>>,
    err_end: Receiver<()>,
    /// Its standard output and error, as /proc names them.
    pipes: [PathBuf; 2],
    begun: Instant,
    ended: Option<ExitStatus>,
}

/// Starts a program whose standard output and error are read, and whose standard input stays open.
#[track_caller]
pub(crate) fn start(command: &mut Command) -> Running {
    start_with(command.stdin(Stdio::piped()))
}

fn start_with(command: &mut Command) -> Running {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", command.get_program().to_string_lossy()));
    let (sender, lines) = channel();
    let stdout = child.stdout.take().expect("a pipe");
    let mut stderr = child.stderr.take().expect("a pipe");
    let pipes = [stdout.as_raw_fd(), stderr.as_raw_fd()].map(|fd| {
        std::fs::read_link(format!("/proc/self/fd/{fd}")).expect("/proc has our own descriptors")
    });
    let mut stdout = BufReader::new(stdout);
    std::thread::spawn(move || {
        let mut line = Vec::new();
        while stdout.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            let _ = sender.send(String::from_utf8_lossy(&line).into_owned());
            line.clear();
        }
    });
    let err = Arc::new(Mutex::new(String::new()));
    let err_to = Arc::clone(&err);
    let (err_ended, err_end) = channel();
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(n) = stderr.read(&mut bytes)
            && n > 0
        {
            let text = String::from_utf8_lossy(&bytes[..n]).into_owned();
            err_to.lock().expect("no panic").push_str(&text);
        }
        let _ = err_ended.send(());
    });
    Running {
        input: child.stdin.take(),
        child,
        lines,
        out: String::new(),
        err,
        err_end,
        pipes,
        begun: Instant::now(),
        ended: None,
    }
}

impl Running {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What came on standard error up to now.
    pub(crate) fn err(&self) -> String {
        self.err.lock().expect("no panic").clone()
    }

    /// The next line on standard output.
    #[track_caller]
    pub(crate) fn line(&mut self) -> String {
        match self.lines.recv_timeout(DEADLINE) {
            Ok(line) => {
                self.out.push_str(&line);
                line.trim_end_matches('\n').to_owned()
            }
            Err(error) => panic!("expected a line, got {error}; err: {}", self.err()),
        }
    }

    /// Waits for a line on standard output.
    #[track_caller]
    pub(crate) fn until_line(&mut self, wanted: &str) {
        while self.line() != wanted {}
    }

    /// Waits until standard error has `text`.
    #[track_caller]
    pub(crate) fn until_err(&mut self, text: &str) {
        let begun = Instant::now();
        while !self.err().contains(text) {
            assert!(
                begun.elapsed() < DEADLINE && self.is_running(),
                "expected {text:?} on standard error, got:\n{}",
                self.err()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[track_caller]
    pub(crate) fn write(&mut self, text: &str) {
        let input = self.input.as_mut().expect("standard input is open");
        input.write_all(text.as_bytes()).expect("it is read");
    }

    /// Says something to a program that echoes, and has it back.
    #[track_caller]
    pub(crate) fn ping(&mut self, text: &str) {
        self.write(&format!("{text}\n"));
        let back = self.line();
        assert!(back == text, "expected {text:?} back, got {back:?}");
    }

    pub(crate) fn close_input(&mut self) {
        self.input = None;
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(pid(self.pid()), signal).expect("it runs");
    }

    /// As a terminal does: to the whole process group.
    pub(crate) fn signal_group(&self, signal: Signal) {
        killpg(pid(self.pid()), signal).expect("it runs");
    }

    pub(crate) fn is_running(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().expect("a child can be waited for");
        }
        self.ended.is_none()
    }

    /// Closes its standard input and waits for the end.
    #[track_caller]
    pub(crate) fn end(mut self) -> Run {
        self.close_input();
        let begun = Instant::now();
        while self.is_running() {
            assert!(
                begun.elapsed() < DEADLINE,
                "expected an end, got none in {DEADLINE:?}; err: {}",
                self.err()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
        let took = self.begun.elapsed();
        let status = self.ended.take().expect("it ended");
        let [stdout, stderr] = self.pipes.clone();
        read_to_end(&self.lines, &stdout, |line| self.out.push_str(&line));
        read_to_end(&self.err_end, &stderr, drop);
        Run {
            code: status
                .code()
                .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
            out: std::mem::take(&mut self.out),
            err: self.err(),
            took,
        }
    }
}

/// Takes what a reader sends until its pipe is at its end. On a busy machine that may take long; it
/// does not come while others hold the pipe, as a command does that goes on when whywait was
/// killed.
fn read_to_end<T>(reader: &Receiver<T>, pipe: &Path, mut take: impl FnMut(T)) {
    let begun = Instant::now();
    loop {
        match reader.recv_timeout(Duration::from_millis(500)) {
            Ok(sent) => take(sent),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) if begun.elapsed() > DEADLINE || others_hold(pipe) => {
                return;
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Whether another process has the pipe open.
fn others_hold(pipe: &Path) -> bool {
    let own = std::process::id().to_string();
    std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter(|process| process.file_name() != *own)
        .filter_map(|process| std::fs::read_dir(process.path().join("fd")).ok())
        .flatten()
        .flatten()
        .any(|fd| std::fs::read_link(fd.path()).is_ok_and(|target| target == pipe))
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_running() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

pub(crate) fn pid(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).expect("a process id"))
}

/// Waits for a condition.
#[track_caller]
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(
            begun.elapsed() < DEADLINE,
            "expected {what}, got nothing in {DEADLINE:?}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A temporary folder that others may enter.
pub(crate) fn scratch() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("a temporary folder");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).expect("it is ours");
    dir
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// All files and folders below, with the folder itself.
pub(crate) fn walk(dir: &Path) -> Vec<PathBuf> {
    let mut found = vec![dir.to_path_buf()];
    let mut at = 0;
    while at < found.len() {
        if found[at].is_dir() {
            let entries = fs::read_dir(&found[at]).expect("a folder");
            found.extend(entries.map(|entry| entry.expect("an entry").path()));
        }
        at += 1;
    }
    found
}

/// A BPF object that the kernel has: what it is, and its number.
pub(crate) type BpfObject = (&'static str, u32);

/// The BPF objects that a process holds.
pub(crate) fn bpf_objects_of(pid: u32) -> BTreeSet<BpfObject> {
    let mut found = BTreeSet::new();
    let folder = format!("/proc/{pid}/fdinfo");
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let info = fs::read_to_string(entry.path()).unwrap_or_default();
        for (key, kind) in [("link_id:", "link"), ("map_id:", "map")] {
            let ids = info.lines().filter_map(|line| line.strip_prefix(key));
            found.extend(ids.filter_map(|id| Some((kind, id.trim().parse().ok()?))));
        }
        let is_link = info.lines().any(|line| line.starts_with("link_id:"));
        let progs = info
            .lines()
            .filter_map(|line| line.strip_prefix("prog_id:"));
        if !is_link {
            found.extend(progs.filter_map(|id| Some(("program", id.trim().parse().ok()?))));
        }
    }
    found
}

/// All BPF objects of the machine.
pub(crate) fn bpf_objects() -> BTreeSet<BpfObject> {
    use libbpf_rs::query::{LinkInfoIter, MapInfoIter, ProgInfoIter};
    let mut found: BTreeSet<BpfObject> = BTreeSet::new();
    found.extend(ProgInfoIter::default().map(|info| ("program", info.id)));
    found.extend(LinkInfoIter::default().map(|info| ("link", info.id)));
    found.extend(MapInfoIter::default().map(|info| ("map", info.id)));
    found
}

/// A disk of its own, small. Taken off when dropped.
pub(crate) struct Disk(tempfile::TempDir);

impl Disk {
    pub(crate) fn new(options: &str) -> Self {
        let dir = scratch();
        let args = ["-t", "tmpfs", "-o", options, "none", text(dir.path())];
        run(&mut program("mount", &args)).exits(0);
        Disk(dir)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// From now on nobody writes there, root neither.
    pub(crate) fn make_read_only(&self) {
        let args = ["-o", "remount,ro", text(self.path())];
        run(&mut program("mount", &args)).exits(0);
    }

    pub(crate) fn fill(&self) {
        let script = "dd if=/dev/zero of=\"$0/filler\" bs=4k 2>/dev/null; true";
        run(&mut program("sh", &["-c", script, text(self.path())])).exits(0);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}
