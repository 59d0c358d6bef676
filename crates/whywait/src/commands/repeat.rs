//! Records a command several times, each time as `whywait record` would, for `whywait gate`.
//!
//! Each recording is made by a process of its own: a recorder gives up its privileges for good.

use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, anyhow};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use whywait_events::recording::Recording;

use crate::args::GateArgs;
use crate::config;
use crate::errors::{FAILED, Reported, eprintln_quietly};
use crate::launch::exit_code;
use crate::output;
use crate::signals::Signals;
use crate::user::Invoker;

/// A pause that nobody notices.
const PAUSE: Duration = Duration::from_millis(20);

/// What was recorded.
pub(crate) struct Recorded {
    /// The recordings, in order.
    pub(crate) recordings: Vec<PathBuf>,
    /// Removed when dropped, unless --keep keeps them.
    _folder: Option<TempDir>,
}

/// Runs the command as often as asked for; `routes`: the recordings are to have names of routes.
///
/// # Errors
/// Fails when a recording does not come about, and when the command or its load fails: what a
/// benchmark that failed measured is nothing to judge by.
pub(crate) fn record(args: &GateArgs, routes: bool) -> anyhow::Result<Recorded> {
    let (folder, temporary) = folder(args)?;
    let signals = Signals::around_process().context("cannot handle signals")?;
    let mut recordings = Vec::new();
    for number in 1..=args.runs {
        eprintln_quietly(&format!("whywait: run {number} of {}", args.runs));
        let recording = folder.join(format!("run-{number:03}"));
        once(args, &recording, &signals, routes)
            .with_context(|| format!("run {number} of {}", args.runs))?;
        recordings.push(recording);
    }
    Ok(Recorded {
        recordings,
        _folder: temporary,
    })
}

fn folder(args: &GateArgs) -> anyhow::Result<(PathBuf, Option<TempDir>)> {
    let Some(path) = &args.keep else {
        let dir = output::temporary_folder()?;
        return Ok((dir.path().to_path_buf(), Some(dir)));
    };
    config::new_folder(path)?;
    std::fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()))?;
    if let Some(user) = Invoker::from_env() {
        std::os::unix::fs::chown(path, Some(user.uid), Some(user.gid))
            .with_context(|| format!("cannot give {} to its owner", path.display()))?;
    }
    Ok((path.clone(), None))
}

fn once(
    args: &GateArgs,
    recording: &std::path::Path,
    signals: &Signals,
    routes: bool,
) -> anyhow::Result<()> {
    let mut recorder = OwnedProcess::start(
        Command::new("/proc/self/exe")
            .arg("record")
            .arg("--threshold")
            .arg(format!("{}ns", args.threshold.as_nanos()))
            .args(
                routes
                    .then_some(["--names", "routes"])
                    .into_iter()
                    .flatten(),
            )
            .arg("-o")
            .arg(recording)
            .arg("--")
            .args(&args.command),
        "the recorder",
    )?;
    let mut load = match &args.load {
        Some(load) => Some(OwnedProcess::start(
            Command::new("sh").arg("-c").arg(load),
            "the load",
        )?),
        None => None,
    };
    let mut ending = false;
    let status = loop {
        if signals.any() {
            recorder.end()?;
            return Err(anyhow!("interrupted"));
        }
        if let Some(status) = recorder.ended()? {
            break status;
        }
        if let Some(load) = &mut load
            && !ending
            && let Some(status) = load.ended()?
        {
            recorder.ask_to_end();
            ending = true;
            if !status.success() {
                recorder.end()?;
                return Err(anyhow!(
                    "the load failed: {status}; run it by hand to see why"
                ));
            }
        }
        std::thread::sleep(PAUSE);
    };
    let whole = Recording::open(recording).is_ok_and(|recording| recording.meta().complete);
    if !whole {
        // The recorder has said why.
        return Err(Reported(FAILED).into());
    }
    match &args.load {
        Some(_) if !ending => Err(anyhow!(
            "the command ended before its load did: {status}; it must run until the load ends"
        )),
        // whywait ended it, and its exit code is its own business.
        Some(_) => Ok(()),
        None if status.success() => Ok(()),
        None => Err(anyhow!(
            "the command failed: exit code {}; run it by hand to see why",
            exit_code(status)
        )),
    }
}

/// A process that does not outlive this one's interest in it.
struct OwnedProcess {
    child: Child,
    status: Option<ExitStatus>,
}

impl OwnedProcess {
    /// Starts it. Standard output is for what machines read, and is whywait's alone.
    fn start(command: &mut Command, what: &str) -> anyhow::Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .stdout(io::stderr())
            .spawn()
            .with_context(|| format!("cannot start {what}"))?;
        Ok(Self {
            child,
            status: None,
        })
    }

    fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            self.status = self.child.try_wait().context("cannot wait for a process")?;
        }
        Ok(self.status)
    }

    fn ask_to_end(&self) {
        if self.status.is_none()
            && let Ok(pid) = i32::try_from(self.child.id())
        {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
    }

    /// Asks it to end, and waits until it has.
    fn end(&mut self) -> anyhow::Result<()> {
        self.ask_to_end();
        if self.status.is_none() {
            self.status = Some(self.child.wait().context("cannot wait for a process")?);
        }
        Ok(())
    }
}

impl Drop for OwnedProcess {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
