//! One run of a lab: server, load, end, report.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::thread::{CpuSet, sched_getaffinity};
use tempfile::TempDir;

use crate::peer::Peer;
use crate::process::{Foreign, Group, wait_for};
use crate::spec::{BusyCpu, Lab, Ready, Variant, expand};
use crate::watcher::{self, Watcher};

/// whywait has to load its BPF programs first, and a Java server to start.
pub(crate) const READY_DEADLINE: Duration = Duration::from_secs(60);
/// No lab's load takes longer than about ten seconds.
const LOAD_DEADLINE: Duration = Duration::from_secs(60);
/// whywait has to finish its recording after the server's end.
pub(crate) const END_DEADLINE: Duration = Duration::from_secs(60);
const REPORT_DEADLINE: Duration = Duration::from_secs(120);

/// The load's exit code for "ran, but the schedule did not come about".
const NOT_REPRODUCED: i32 = 75;
/// What the load's line with the ground truth begins with.
const TRUTH: &str = "ground-truth: ";

/// What to run.
pub(crate) struct Run<'a> {
    pub(crate) labs: &'a Path,
    pub(crate) lab: &'a Lab,
    pub(crate) variant: &'a Variant,
    /// Where the variant's program was built.
    pub(crate) out: &'a Path,
    /// Arguments of the server besides those of the variant.
    pub(crate) server_args: &'a [String],
    /// Another program wants the first CPU while the load runs.
    pub(crate) busy: bool,
    /// None: the server runs on its own.
    pub(crate) watch: Option<Watch<'a>>,
}

/// How the server is watched.
pub(crate) struct Watch<'a> {
    pub(crate) whywait: &'a Path,
    pub(crate) recording: &'a Path,
    /// What `whywait record` is told besides.
    pub(crate) options: &'a [String],
    /// It is there afterwards: where to read it is worth a line.
    pub(crate) kept: bool,
}

/// What whywait says when the recording can be read, and where it is.
const RECORDED: &str = "whywait: recorded;";

impl Watch<'_> {
    pub(crate) fn record(&self) -> Command {
        let mut command = Command::new(self.whywait);
        command.args(["record", "-o"]).arg(self.recording);
        command.args(self.options);
        command
    }
}

/// Whether something that whywait says is worth a line. `kept`: the recording is.
pub(crate) fn is_shown(said: &str, kept: bool) -> bool {
    kept || !said.starts_with(RECORDED)
}

/// What came of a run.
pub(crate) enum Outcome {
    /// The lab showed what it promises; with the ground truth that the load met.
    Kept(String),
    NotReproduced,
}

/// A folder for one invocation of the driver, removed at its end.
pub(crate) fn temp_dir() -> Result<TempDir> {
    let dir = tempfile::Builder::new().prefix("whywait-lab-").tempdir()?;
    give_to_invoker(dir.path())?;
    Ok(dir)
}

/// Folders for one run besides its temporary one, for servers to which it matters what a file is
/// kept on. The system's temporary folder may be either.
#[derive(Default)]
struct Storage {
    /// `{disk}`: where the programs are built, or where LABS_DISK says.
    disk: Option<TempDir>,
    /// `{shm}`: in memory.
    shm: Option<TempDir>,
}

impl Storage {
    fn new(run: &Run) -> Result<Self> {
        let disk = std::env::var_os("LABS_DISK");
        let disk = disk.map_or_else(|| run.labs.join("target"), PathBuf::from);
        let folder = |name: &str, parent: &Path| -> Result<Option<TempDir>> {
            if !run.variant.server.iter().any(|word| word.contains(name)) {
                return Ok(None);
            }
            let dir = tempfile::Builder::new()
                .prefix("whywait-lab-")
                .tempdir_in(parent)
                .with_context(|| format!("cannot make a folder in {}", parent.display()))?;
            give_to_invoker(dir.path())?;
            Ok(Some(dir))
        };
        Ok(Self {
            disk: folder("{disk}", &disk)?,
            shm: folder("{shm}", Path::new("/dev/shm"))?,
        })
    }
}

/// Nothing names a folder that was not made.
fn storage_path(dir: &Option<TempDir>) -> Result<&str> {
    dir.as_ref().map_or(Ok(""), |dir| path(dir.path()))
}

/// Under sudo, whywait starts the server as the invoking user, who must be able to write here.
fn give_to_invoker(dir: &Path) -> Result<()> {
    let id = |name| std::env::var(name).ok().and_then(|id| id.parse().ok());
    if let (Some(uid), Some(gid)) = (id("SUDO_UID"), id("SUDO_GID")) {
        std::os::unix::fs::chown(dir, Some(uid), Some(gid))?;
    }
    Ok(())
}

/// Runs server and load once, with files in `tmp`.
pub(crate) fn run(run: &Run, tmp: &Path) -> Result<Outcome> {
    std::fs::create_dir(tmp)?;
    give_to_invoker(tmp)?;
    // Outlives the server, which has its files there.
    let storage = Storage::new(run)?;
    let peer = Peer::start(run, tmp)?;
    let mut server = Server::start(run, tmp, &storage, peer.as_ref())?;
    let (pid, address) = server.wait_until_ready(run.variant.ready)?;
    let mut target = Foreign::new(pid)?;
    eprintln!(
        "labs: {} {} serves on {address}",
        run.lab.name, run.variant.name
    );
    let _spinner = run.busy.then(|| spinner(run.lab.busy_cpu)).transpose()?;
    let mut watcher = None;
    let ends = Ends {
        pid,
        address: &address,
        peer: peer.as_ref(),
    };
    let outcome = load(run, tmp, &ends, &mut watcher)?;
    if let Some(watcher) = watcher {
        watcher.stop()?;
    }
    target.terminate()?;
    server.wait_until_over()?;
    target.is_over();
    Ok(outcome)
}

/// A program that wants a CPU all the time.
fn spinner(wanted: BusyCpu) -> Result<Group> {
    let allowed = sched_getaffinity(None)?;
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    let cpu = match wanted {
        BusyCpu::First => cpus.next(),
        BusyCpu::Last => cpus.next_back(),
    };
    let cpu = cpu.context("there is no CPU to run on")?.to_string();
    let mut command = Command::new("taskset");
    command.args(["-c", &cpu, "sh", "-c", "while :; do :; done"]);
    Group::spawn("the spinner", &mut command)
}

/// The server, or whywait with the server as its child.
struct Server {
    group: Group,
    ready_file: PathBuf,
    pidfile: PathBuf,
    port: u16,
}

impl Server {
    fn start(run: &Run, tmp: &Path, storage: &Storage, peer: Option<&Peer>) -> Result<Self> {
        let ready_file = tmp.join("ready");
        let pidfile = tmp.join("server.pid");
        // Only a server that cannot choose a port itself uses this one.
        let port = free_port()?;
        let port_text = port.to_string();
        let mut values = vec![
            ("disk", storage_path(&storage.disk)?),
            ("shm", storage_path(&storage.shm)?),
            ("port", &port_text),
            ("pidfile", path(&pidfile)?),
        ];
        values.extend(peer.map(|peer| ("peer", peer.address())));
        let words = expand_all(run, tmp, &run.variant.server, &values)?;
        let watched = run.watch.as_ref().filter(|_| !run.variant.attach);
        let mut command = match watched {
            None => Command::new(&words[0]),
            Some(watch) => {
                let mut command = watch.record();
                command.args((!watch.kept).then_some("--quiet"));
                command.args(["--", &words[0]]);
                command
            }
        };
        command
            .args(&words[1..])
            .args(run.server_args)
            .envs(&run.variant.env)
            .env("READY_FILE", &ready_file);
        command.stdin(Stdio::null()).stdout(std::io::stderr());
        let what = if watched.is_some() {
            "whywait"
        } else {
            "the server"
        };
        Ok(Self {
            group: Group::spawn(what, &mut command)?,
            ready_file,
            pidfile,
            port,
        })
    }

    /// Returns pid and address.
    fn wait_until_ready(&mut self, ready: Ready) -> Result<(i32, String)> {
        wait_for("the server to be ready", READY_DEADLINE, || {
            let found = match ready {
                Ready::File => read_ready_file(&self.ready_file)?,
                Ready::Pidfile => read_pidfile(&self.pidfile, self.port)?,
            };
            if found.is_none()
                && let Some(status) = self.group.exited()?
            {
                bail!(
                    "{} ended before the server was ready: {status}",
                    self.group.what()
                );
            }
            Ok(found)
        })
    }

    fn wait_until_over(&mut self) -> Result<()> {
        use std::os::unix::process::ExitStatusExt;
        const SIGTERM: i32 = 15;
        let status = self.group.wait(END_DEADLINE)?;
        // Both are how a server ends that does not catch SIGTERM: by itself, or with a parent
        // passing it on.
        let terminated = status.signal() == Some(SIGTERM) || status.code() == Some(128 + SIGTERM);
        ensure!(
            status.success() || terminated,
            "{} ended badly: {status}",
            self.group.what()
        );
        Ok(())
    }
}

/// A file without its final newline is still being written.
pub(crate) fn read_ready_file(file: &Path) -> Result<Option<(i32, String)>> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let Some(line) = text.strip_suffix('\n') else {
        return Ok(None);
    };
    let (pid, address) = line
        .split_once(' ')
        .with_context(|| format!("not PID ADDRESS in READY_FILE: {line:?}"))?;
    Ok(Some((
        pid.parse()
            .with_context(|| format!("not a pid in READY_FILE: {pid:?}"))?,
        address.to_owned(),
    )))
}

fn read_pidfile(file: &Path, port: u16) -> Result<Option<(i32, String)>> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    match text.trim().parse() {
        Ok(pid) if text.ends_with('\n') && is_listening(port)? => {
            Ok(Some((pid, format!("127.0.0.1:{port}"))))
        }
        _ => Ok(None),
    }
}

/// Looks it up, rather than connect: a connection that asks for nothing would be in the recording.
fn is_listening(port: u16) -> Result<bool> {
    const LISTEN: &str = "0A";
    let table = std::fs::read_to_string("/proc/net/tcp")?;
    Ok(table.lines().any(|line| {
        let mut columns = line.split_whitespace().skip(1);
        let local = columns.next().unwrap_or_default();
        local.ends_with(&format!(":{port:04X}")) && columns.nth(1) == Some(LISTEN)
    }))
}

fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind(("127.0.0.1", 0))?
        .local_addr()?
        .port())
}

/// The interpreter itself: `python3` may be a script that starts others first, which would all be
/// recorded.
fn python(words: &[String]) -> Result<String> {
    if !words.iter().any(|word| word.contains("{python}")) {
        return Ok(String::new());
    }
    let output = Command::new("python3")
        .args(["-c", "import sys; print(sys.executable)"])
        .output();
    let output = output.context("cannot run python3")?;
    ensure!(output.status.success(), "python3 failed: {}", output.status);
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Whom the load deals with.
struct Ends<'a> {
    pid: i32,
    address: &'a str,
    peer: Option<&'a Peer>,
}

/// Runs the load from outside of what is watched. `watcher` is who watches since the load asked for
/// it, where a variant is of that kind.
fn load(run: &Run, tmp: &Path, ends: &Ends, watcher: &mut Option<Watcher>) -> Result<Outcome> {
    let load = run.labs.join("target/release/lab-load");
    let pid = ends.pid.to_string();
    let mut values = vec![
        ("addr", ends.address),
        ("load", path(&load)?),
        ("pid", &pid),
    ];
    values.extend(ends.peer.map(|peer| ("peer", peer.address())));
    let words = expand_all(run, tmp, &run.variant.load, &values)?;
    let attach_file = run.variant.attach.then(|| tmp.join("attach"));
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .stdin(Stdio::null())
        .stdout(std::io::stderr())
        .stderr(Stdio::piped());
    if let Some(file) = &attach_file {
        command.env(watcher::ATTACH_FILE, file);
    }
    let mut group = Group::spawn("the load", &mut command)?;
    let stderr = group
        .child()
        .stderr
        .take()
        .context("the load has no stderr")?;
    let reader = std::thread::spawn(move || relay(BufReader::new(stderr)));
    let status = wait_for("the load to end", LOAD_DEADLINE, || {
        // The file is there while the load waits to be watched, and gone when it is.
        if let Some(file) = attach_file.as_ref().filter(|file| file.exists()) {
            if let Some(watch) = &run.watch {
                *watcher = Some(Watcher::attach(watch, ends.pid)?);
            }
            std::fs::remove_file(file)?;
        }
        group.exited()
    })?;
    ensure!(
        watcher.is_some() || attach_file.is_none() || run.watch.is_none() || !status.success(),
        "the load did not ask for whywait to attach"
    );
    let truth = reader.join().ok().flatten();
    match status.code() {
        Some(0) => Ok(Outcome::Kept(
            truth.context("the load printed no ground truth")?,
        )),
        Some(NOT_REPRODUCED) => Ok(Outcome::NotReproduced),
        _ => bail!("the load failed: {status}"),
    }
}

/// Passes the load's words on, and keeps the ground truth among them.
fn relay(lines: impl BufRead) -> Option<String> {
    let mut truth = None;
    for line in lines.lines().map_while(Result::ok) {
        eprintln!("{line}");
        if let Some(found) = line.strip_prefix(TRUTH) {
            truth = Some(found.to_owned());
        }
    }
    truth
}

/// Prints the report on stdout; returns whywait's exit code.
pub(crate) fn report(whywait: &Path, recording: &Path, args: &[std::ffi::OsString]) -> Result<u8> {
    let mut command = Command::new(whywait);
    command.arg("report").arg(recording).args(args);
    let status = Group::spawn("whywait report", &mut command)?.wait(REPORT_DEADLINE)?;
    let code = status
        .code()
        .with_context(|| format!("whywait report ended badly: {status}"))?;
    Ok(u8::try_from(code)?)
}

/// Fills in what every command of a lab may name, and what this one may beside.
pub(crate) fn expand_all(
    run: &Run,
    tmp: &Path,
    words: &[String],
    more: &[(&str, &str)],
) -> Result<Vec<String>> {
    ensure!(!words.is_empty(), "an empty command in lab.toml");
    let python = python(words)?;
    let mut values = vec![
        ("lab", path(&run.lab.dir)?),
        ("out", path(run.out)?),
        ("tmp", path(tmp)?),
        ("python", &python),
    ];
    values.extend(more);
    words.iter().map(|word| expand(word, &values)).collect()
}

fn path(path: &Path) -> Result<&str> {
    path.to_str()
        .with_context(|| format!("{} is not UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_keep_a_recording_is_not_told_where_it_is() {
        let recorded = "whywait: recorded; read it with: whywait report /tmp/rec";
        assert!(is_shown(recorded, true) && !is_shown(recorded, false));
        assert!(is_shown("whywait: watching process 1", false));
    }

    #[test]
    fn a_ready_file_counts_when_it_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ready");
        assert_eq!(read_ready_file(&file).unwrap(), None);
        std::fs::write(&file, "12 127.0.0.1:8").unwrap();
        assert_eq!(read_ready_file(&file).unwrap(), None);
        std::fs::write(&file, "12 127.0.0.1:80\n").unwrap();
        assert_eq!(
            read_ready_file(&file).unwrap(),
            Some((12, "127.0.0.1:80".to_owned()))
        );
        std::fs::write(&file, "80\n").unwrap();
        assert!(read_ready_file(&file).is_err());
    }

    #[test]
    fn listening_is_looked_up() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(is_listening(port).unwrap());
        drop(listener);
        assert!(!is_listening(port).unwrap());
    }

    #[test]
    fn the_ground_truth_is_found_among_other_words() {
        let words = "hello\nground-truth: {\"a\":1}\nbye\n";
        assert_eq!(relay(words.as_bytes()).as_deref(), Some("{\"a\":1}"));
        assert_eq!(relay("hello\n".as_bytes()), None);
    }
}
