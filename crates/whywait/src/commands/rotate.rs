//! `whywait record --rotate`: a folder of recordings, one after the other, bounded by age and size.
//!
//! Each recording is made by a process of its own, which gives up its privileges as it begins: so
//! this one reads nothing that the target has made, and goes on when a recording fails. The next
//! recording loads its programs while the one before goes on, attaches when the time of that is up,
//! and then that one ends: so there is no gap, and for a moment both watch.
//!
//! A command is launched by this process. It waits at its gate until the first recording says that
//! it watches.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use whywait_capture::Target;

use crate::args::{Detail, RecordArgs};
use crate::capture::processes;
use crate::config::{self, WatchTarget};
use crate::errors::{FAILED, Usage, complain, eprintln_quietly, line};
use crate::kept::{self, Kept};
use crate::launch::exit_code;
use crate::session::LaunchedTarget;
use crate::signals::Signals;
use crate::user::Invoker;

/// How often this process looks up.
const LOOK: Duration = Duration::from_millis(200);
/// … and while one recording takes over from another.
const LOOK_AT_CHANGE: Duration = Duration::from_millis(20);
/// A recording is started so long before it begins, and by half of what the last one took more.
const LEAD: Duration = Duration::from_millis(500);
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
        watched: RotateTarget::new(target)?,
        every,
        kept,
        until: args
            .target
            .duration
            .map(|duration| Instant::now() + duration),
        took: Duration::ZERO,
    };
    if let RotateTarget::Running { target, .. } = &rotation.watched {
        rotation.say(&format!(
            "watching {}; Ctrl-C ends the recording",
            processes(target)
        ));
    }
    let code = rotation.run()?;
    rotation.watched.exit_code(code)
}

struct Rotation<'a> {
    args: &'a RecordArgs,
    watched: RotateTarget,
    every: Duration,
    kept: Kept,
    until: Option<Instant>,
    /// How long a recording took to watch, of the last one that was waited for.
    took: Duration,
}

/// A process that records, or is about to.
struct Recording {
    child: Child,
    path: PathBuf,
    started: Instant,
    /// It is to attach so long after it was started.
    waits: Duration,
    /// When the next one takes over, by the wall clock …
    ends: SystemTime,
    /// … and as far as is known now.
    until: Instant,
    /// It watches.
    watches: bool,
}

/// How far a recording is that is about to begin.
enum Begun {
    NotYet,
    Watches,
    /// It has ended, and said why.
    Failed,
}

/// What is recorded again and again.
enum RotateTarget {
    /// What ran already.
    Running { target: Target, signals: Signals },
    /// A command that this process launched. It waits at its gate as long as its words are here.
    Command {
        running: LaunchedTarget,
        waiting: Vec<OsString>,
    },
}

impl RotateTarget {
    fn new(target: WatchTarget) -> anyhow::Result<Self> {
        Ok(match target {
            WatchTarget::Running(target) => Self::Running {
                target,
                signals: Signals::around_process().context("cannot handle signals")?,
            },
            WatchTarget::Command(command) => Self::Command {
                running: LaunchedTarget::prepare(&command, Invoker::from_env())?,
                waiting: command,
            },
        })
    }

    /// What each recording watches, as arguments. What has ended meanwhile is none of it.
    fn arguments(&self) -> Vec<OsString> {
        let target = match self {
            Self::Running { target, .. } => target.clone(),
            Self::Command { running, .. } => Target::from(running.pid()),
        };
        let pids = target
            .pids
            .iter()
            .filter(|pid| whywait_target::alive(**pid));
        let pids = pids.flat_map(|pid| ["--pid".into(), pid.to_string().into()]);
        let cgroups = target.cgroups.iter();
        let cgroups = cgroups.flat_map(|dir| ["--cgroup".into(), dir.clone().into_os_string()]);
        pids.chain(cgroups).collect()
    }

    /// The words of a command that waits at its gate; empty when there is none.
    fn waiting(&self) -> &[OsString] {
        match self {
            Self::Running { .. } => &[],
            Self::Command { waiting, .. } => waiting,
        }
    }

    /// Whether there is something to record. A command has the signals passed on.
    fn goes_on(&mut self) -> bool {
        match self {
            Self::Running { target, signals } => !signals.any() && target.lives(),
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
            Self::Running { .. } | Self::Command { .. } => Ok(code),
        }
    }
}

/// How a recording ended.
enum RecordingEnd {
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
        let mut next = None;
        loop {
            self.kept.prune();
            if self.time_is_up() {
                break;
            }
            let current = match next.take() {
                Some(recording) => recording,
                None => self.start_now()?,
            };
            let (ended, follows) = self.follow(current)?;
            next = follows;
            match ended {
                RecordingEnd::Over => break,
                RecordingEnd::Rotated => failures = 0,
                RecordingEnd::Failed(_) if next.is_some() => failures = 0,
                RecordingEnd::Failed(code) => {
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
        if let Some(recording) = next {
            self.end(recording)?;
        }
        self.kept.prune();
        Ok(0)
    }

    /// A recording, until it has ended; and the one that has taken over.
    fn follow(
        &mut self,
        mut current: Recording,
    ) -> anyhow::Result<(RecordingEnd, Option<Recording>)> {
        self.open_gate(&mut current)?;
        let mut next: Option<Recording> = None;
        let (mut asked, mut over, mut failed) = (false, false, false);
        let mut looked = Instant::now();
        let mut begins = Some(current.ends);
        let status = loop {
            if let Some(status) = current
                .child
                .try_wait()
                .context("cannot wait for a recording")?
            {
                break status;
            }
            self.look_whether_it_watches(&mut current);
            over |= !self.watched.goes_on() || self.time_is_up();
            if looked.elapsed() >= LOOK_AT_SIZE {
                looked = Instant::now();
                if self.kept.prune_with(&current.path) && next.is_none() {
                    current.until = Instant::now();
                    begins = None;
                }
            }
            let wanted = next.is_none() && !failed && !over && !self.is_last(&current);
            if wanted && until(current.until) <= self.lead() {
                next = Some(match begins {
                    Some(at) => self.start_at(at)?,
                    None => self.start_now()?,
                });
            }
            if let Some(recording) = &mut next
                && matches!(self.look_whether_it_watches(recording), Begun::Failed)
            {
                let _ = recording.child.wait();
                next = None;
                failed = true;
            }
            let replaced = failed || next.as_ref().is_some_and(|it| it.watches);
            let due = until(current.until).is_zero() && replaced;
            if (over || due) && !asked {
                asked = true;
                ask_to_end(&current.child);
            }
            thread::sleep(if next.is_some() || asked {
                LOOK_AT_CHANGE
            } else {
                LOOK
            });
        };
        self.say_ended(&current);
        self.kept.add(current.path);
        let waits = !self.watched.waiting().is_empty();
        let ended = match exit_code(status) {
            // The command did not run: it ends, too.
            code if waits => RecordingEnd::Failed(code.max(FAILED)),
            _ if over || !self.watched.goes_on() => RecordingEnd::Over,
            0 => RecordingEnd::Rotated,
            code => RecordingEnd::Failed(code),
        };
        Ok((ended, next))
    }

    /// Ends one that has just begun, or was about to.
    fn end(&mut self, mut recording: Recording) -> anyhow::Result<()> {
        self.look_whether_it_watches(&mut recording);
        if recording.watches {
            ask_to_end(&recording.child);
        } else {
            // It has nothing yet.
            let _ = recording.child.kill();
        }
        let status = recording
            .child
            .wait()
            .context("cannot wait for a recording")?;
        if recording.watches && status.success() {
            self.say_ended(&recording);
            self.kept.add(recording.path);
        } else if recording.path.exists() {
            kept::delete(&recording.path);
        }
        Ok(())
    }

    fn time_is_up(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Whether the time is up before another recording would begin.
    fn is_last(&self, current: &Recording) -> bool {
        self.until.is_some_and(|until| until <= current.until)
    }

    /// So long before it begins the next recording is started.
    fn lead(&self) -> Duration {
        (LEAD + self.took * 3 / 2).min(self.every * 3 / 4)
    }

    /// Looks, without waiting, whether a recording watches by now.
    fn look_whether_it_watches(&mut self, recording: &mut Recording) -> Begun {
        if recording.watches {
            return Begun::Watches;
        }
        let Some(said) = &mut recording.child.stdout else {
            return Begun::Failed;
        };
        if !can_be_read(said) {
            return Begun::NotYet;
        }
        // Without a line the recording has failed, and said why.
        if said.read_exact(&mut [0]).is_err() {
            return Begun::Failed;
        }
        self.watches(recording);
        Begun::Watches
    }

    fn watches(&mut self, recording: &mut Recording) {
        recording.watches = true;
        let took = recording.started.elapsed();
        // One that was ready in time tells nothing of how long it took.
        if took > recording.waits + LEAD {
            self.took = took;
        }
        self.say(&format!("recording to {}", recording.path.display()));
    }

    fn say_ended(&self, recording: &Recording) {
        if recording.watches {
            self.say(&format!("recorded {}", recording.path.display()));
        }
    }

    fn say(&self, text: &str) {
        if !self.args.target.quiet {
            eprintln_quietly(&line(&format!("whywait: {text}")));
        }
    }

    /// Lets a command run that waits at its gate, as soon as the recording watches it.
    ///
    /// # Errors
    /// [`crate::errors::Reported`] when the command cannot be run.
    fn open_gate(&mut self, recording: &mut Recording) -> anyhow::Result<()> {
        if self.watched.waiting().is_empty() {
            return Ok(());
        }
        let said = recording.child.stdout.as_mut();
        // Without a line the recording has failed, and said why.
        if said.is_none_or(|said| said.read_exact(&mut [0]).is_err()) {
            return Ok(());
        }
        self.watches(recording);
        let RotateTarget::Command { running, waiting } = &mut self.watched else {
            return Ok(());
        };
        waiting.clear();
        if let Err(error) = running.go() {
            // There was no command to record.
            ask_to_end(&recording.child);
            let _ = recording.child.wait();
            if recording.path.exists() {
                kept::delete(&recording.path);
            }
            return Err(error);
        }
        self.until = self.args.target.duration.map(|time| Instant::now() + time);
        Ok(())
    }

    /// Starts a process that records from now on.
    fn start_now(&mut self) -> anyhow::Result<Recording> {
        let now = SystemTime::now();
        self.start(now, None)
    }

    /// Starts a process that records from then on.
    fn start_at(&mut self, begins: SystemTime) -> anyhow::Result<Recording> {
        self.start(begins, Some(begins))
    }

    fn start(
        &mut self,
        begins: SystemTime,
        attach_at: Option<SystemTime>,
    ) -> anyhow::Result<Recording> {
        let path = self.kept.next_path(begins);
        let args = &self.args.capture;
        // Not the path of whywait's file: it may have been replaced by now.
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("whywait")
            .args(["record", "--in-rotation", "--quiet"])
            .args(self.watched.arguments())
            .args(["--stack-bytes", &args.stack_bytes.to_string()])
            .args(["--threshold", &format!("{}ns", args.threshold.as_nanos())])
            .arg("--output")
            .arg(&path)
            // A terminal's Ctrl-C is for this process, which passes it on.
            .process_group(0)
            .stdout(Stdio::piped());
        if args.detail == Detail::Full {
            command.args(["--detail", "full"]);
        }
        for names in &args.names {
            command.args(["--names", names.name()]);
        }
        if let Some(folder) = &args.debug_files {
            command.arg("--debug-files").arg(folder);
        }
        if let Some(at) = attach_at {
            let at = at.duration_since(UNIX_EPOCH).unwrap_or_default();
            command.args(["--begin-at", &at.as_nanos().to_string()]);
        }
        for word in self.watched.waiting() {
            command.arg("--launched").arg(word);
        }
        let waits = begins.duration_since(SystemTime::now()).unwrap_or_default();
        let lasts = self.until_next(begins);
        Ok(Recording {
            child: command
                .spawn()
                .context("cannot start a process that records")?,
            path,
            started: Instant::now(),
            waits,
            ends: begins + lasts,
            until: Instant::now() + waits + lasts,
            watches: false,
        })
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

/// How long it is until then.
fn until(then: Instant) -> Duration {
    then.saturating_duration_since(Instant::now())
}

/// Whether there is something to read, or the end.
fn can_be_read(pipe: &ChildStdout) -> bool {
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut polled = [PollFd::new(pipe, PollFlags::IN)];
    matches!(poll(&mut polled, Some(&at_once)), Ok(ready) if ready > 0)
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
