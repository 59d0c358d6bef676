//! `whywait record --rotate`: a folder of recordings, one after the other, bounded by age and size.
//!
//! Each recording is made by a process of its own, which gives up its privileges as it begins: so
//! this one reads nothing that the target has made, and goes on when a recording fails. Between two
//! recordings nothing is attached to the target, for the time that it takes to attach again.
//!
//! A command is launched by this process. It waits at its gate until the first recording says that
//! it watches.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};

use crate::args::{Detail, RecordArgs};
use crate::config::{self, Target};
use crate::errors::{FAILED, Usage, complain, eprintln_quietly};
use crate::kept::{self, Kept};
use crate::launch::exit_code;
use crate::session::{self, Running};
use crate::signals::Signals;
use crate::user::Invoker;

/// How often this process looks up.
const LOOK: Duration = Duration::from_millis(200);
/// How often it looks what the recordings take. A segment is a minute.
const LOOK_AT_SIZE: Duration = Duration::from_secs(10);
/// After a recording that failed, so long until the next …
const AFTER_FAILURE: Duration = Duration::from_secs(10);
/// … and when so many in a row did, there is none.
const FAILURES: u32 = 5;

/// Records until the target ends, the time is up, or a signal says so.
///
/// # Errors
/// Fails when the folder cannot be used, or no process can be made.
pub(crate) fn run(args: &RecordArgs, every: Duration) -> anyhow::Result<u8> {
    let target = config::target(&args.target)?;
    let Some(folder) = &args.output else {
        return Err(Usage::new(
            "--rotate needs a folder for the recordings",
            "name it with -o: whywait record -p 1234 --rotate 1h -o /var/lib/whywait",
        )
        .into());
    };
    let kept = Kept::new(own_folder(folder)?, args.keep_for, args.max_size);
    let mut rotation = Rotation {
        args,
        watched: Watched::new(target)?,
        every,
        kept,
        until: args
            .target
            .duration
            .map(|duration| Instant::now() + duration),
    };
    if let Watched::Process { pid, .. } = &rotation.watched {
        eprintln_quietly(&format!(
            "whywait: watching process {pid}; Ctrl-C ends the recording"
        ));
    }
    let code = rotation.run()?;
    rotation.watched.exit_code(code)
}

struct Rotation<'a> {
    args: &'a RecordArgs,
    watched: Watched,
    every: Duration,
    kept: Kept,
    until: Option<Instant>,
}

/// What is recorded again and again.
enum Watched {
    /// A process that ran already.
    Process { pid: u32, signals: Signals },
    /// A command that this process launched. It waits at its gate as long as its words are here.
    Command {
        running: Running,
        waiting: Vec<OsString>,
    },
}

impl Watched {
    fn new(target: Target) -> anyhow::Result<Self> {
        Ok(match target {
            Target::Process(pid) => Self::Process {
                pid,
                signals: Signals::around_process().context("cannot handle signals")?,
            },
            Target::Command(command) => Self::Command {
                running: Running::prepare(&command, Invoker::from_env())?,
                waiting: command,
            },
        })
    }

    fn pid(&self) -> u32 {
        match self {
            Self::Process { pid, .. } => *pid,
            Self::Command { running, .. } => running.pid(),
        }
    }

    /// The words of a command that waits at its gate; empty when there is none.
    fn waiting(&self) -> &[OsString] {
        match self {
            Self::Process { .. } => &[],
            Self::Command { waiting, .. } => waiting,
        }
    }

    /// Whether there is something to record. A command has the signals passed on.
    fn goes_on(&mut self) -> bool {
        match self {
            Self::Process { pid, signals } => !signals.any() && session::is_alive(*pid),
            Self::Command { running, .. } => running.goes_on(),
        }
    }

    /// The exit code, when recording has ended with `code`: a command's own where it failed.
    fn exit_code(self, code: u8) -> anyhow::Result<u8> {
        match self {
            Self::Command { running, waiting } if waiting.is_empty() => {
                let own = running.wait()?;
                Ok(if own == 0 { code } else { own })
            }
            Self::Process { .. } | Self::Command { .. } => Ok(code),
        }
    }
}

/// How a recording ended.
enum Ended {
    /// Its time was up, or it took too much space: the next one follows.
    Rotated,
    /// A signal, the time, or the target's end: that was all.
    Over,
    /// It failed.
    Failed(u8),
}

impl Rotation<'_> {
    fn run(&mut self) -> anyhow::Result<u8> {
        let mut failures = 0;
        loop {
            self.kept.prune();
            match self.record()? {
                Ended::Over => break,
                Ended::Rotated => failures = 0,
                Ended::Failed(code) => {
                    failures += 1;
                    // What fails at once, as for want of privileges, fails again.
                    let at_once = self.kept.is_empty() || !self.watched.waiting().is_empty();
                    if failures == FAILURES || at_once {
                        return Ok(code);
                    }
                    complain("a recording failed; the next one begins in 10 s");
                    if self.pause(AFTER_FAILURE) {
                        break;
                    }
                }
            }
        }
        self.kept.prune();
        Ok(0)
    }

    /// One recording.
    fn record(&mut self) -> anyhow::Result<Ended> {
        let now = SystemTime::now();
        let mut remaining = self.until_next(now);
        let last = self
            .until
            .map(|until| until.saturating_duration_since(Instant::now()));
        if let Some(last) = last
            && last <= remaining
        {
            if last.is_zero() {
                return Ok(Ended::Over);
            }
            remaining = last;
        }
        let path = self.kept.next_path(now);
        let mut child = self.start(&path, remaining)?;
        self.open_gate(&mut child, &path)?;
        let (mut asked, mut over) = (false, false);
        let mut looked = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().context("cannot wait for a recording")? {
                break status;
            }
            over |= !self.watched.goes_on();
            let mut full = false;
            if looked.elapsed() >= LOOK_AT_SIZE {
                looked = Instant::now();
                full = self.kept.prune_with(&path);
            }
            if (over || full) && !asked {
                asked = true;
                ask_to_end(&child);
            }
            thread::sleep(LOOK);
        };
        self.kept.add(path);
        let waits = !self.watched.waiting().is_empty();
        Ok(match exit_code(status) {
            // The command did not run: it ends, too.
            code if waits => Ended::Failed(code.max(FAILED)),
            _ if over || !self.watched.goes_on() => Ended::Over,
            0 if last == Some(remaining) => Ended::Over,
            0 => Ended::Rotated,
            code => Ended::Failed(code),
        })
    }

    /// Lets a command run that waits at its gate, as soon as the recording watches it.
    ///
    /// # Errors
    /// [`crate::errors::Reported`] when the command cannot be run.
    fn open_gate(&mut self, child: &mut Child, path: &Path) -> anyhow::Result<()> {
        let (Watched::Command { running, waiting }, Some(mut said)) =
            (&mut self.watched, child.stdout.take())
        else {
            return Ok(());
        };
        // Without a line the recording has failed, and said why.
        if said.read_exact(&mut [0]).is_err() {
            return Ok(());
        }
        waiting.clear();
        if let Err(error) = running.go() {
            // There was no command to record.
            ask_to_end(child);
            let _ = child.wait();
            if path.exists() {
                kept::delete(path);
            }
            return Err(error);
        }
        self.until = self.args.target.duration.map(|time| Instant::now() + time);
        Ok(())
    }

    /// Starts the process that records.
    fn start(&self, path: &Path, remaining: Duration) -> anyhow::Result<Child> {
        let args = &self.args.capture;
        // Not the path of whywait's file: it may have been replaced by now.
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("whywait")
            .args([
                "record",
                "--in-rotation",
                "--pid",
                &self.watched.pid().to_string(),
            ])
            .args(["--duration", &format!("{}ns", remaining.as_nanos())])
            .args(["--stack-bytes", &args.stack_bytes.to_string()])
            .args(["--threshold", &format!("{}ns", args.threshold.as_nanos())])
            .arg("--output")
            .arg(path)
            // A terminal's Ctrl-C is for this process, which passes it on.
            .process_group(0);
        if args.detail == Detail::Full {
            command.args(["--detail", "full"]);
        }
        for word in self.watched.waiting() {
            command.arg("--launched").arg(word).stdout(Stdio::piped());
        }
        command
            .spawn()
            .context("cannot start a process that records")
    }

    /// Until the wall clock is at the next multiple: recordings of an hour begin on the hour, and
    /// so have a file of each published table.
    fn until_next(&self, now: SystemTime) -> Duration {
        let every = self.every.as_nanos().max(1);
        let since = now
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_nanos();
        let remaining = every - since % every;
        Duration::from_nanos(u64::try_from(remaining).unwrap_or(u64::MAX))
    }

    /// Waits; `true` when there is nothing to record any more.
    fn pause(&mut self, time: Duration) -> bool {
        let until = Instant::now() + time;
        while Instant::now() < until && self.watched.goes_on() {
            thread::sleep(LOOK);
        }
        !self.watched.goes_on()
    }
}

fn ask_to_end(child: &Child) {
    if let Ok(pid) = i32::try_from(child.id()) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
}

/// The folder of recordings, which is made unless it is there. It is no link, and one's own.
fn own_folder(path: &Path) -> anyhow::Result<PathBuf> {
    let invoker = Invoker::from_env();
    let refused = |what: &str| {
        Usage::new(
            format!("{} {what}", path.display()),
            "name a folder of your own, or one that does not exist yet",
        )
    };
    let made = DirBuilder::new().mode(0o700).create(path);
    match made {
        Ok(()) => {
            if let Some(user) = invoker {
                chown(path, Some(user.uid), Some(user.gid))
                    .with_context(|| format!("cannot give {} away", path.display()))?;
            }
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let named: PathBuf = path.components().collect();
            let found = fs::symlink_metadata(named)
                .with_context(|| format!("cannot use {}", path.display()))?;
            let user = Uid::effective().as_raw();
            let own = found.uid() == user || invoker.is_some_and(|user| user.uid == found.uid());
            if found.is_symlink() {
                return Err(refused("is a symbolic link").into());
            }
            if !found.is_dir() {
                return Err(refused("is not a folder").into());
            }
            if !own {
                return Err(refused("belongs to another user").into());
            }
        }
        Err(error) => {
            return Err(error).with_context(|| format!("cannot make {}", path.display()));
        }
    }
    Ok(path.to_path_buf())
}
