//! The time in which a target is watched: when it begins, and what ends it.
//!
//! The capture drives it: [`TargetSession::begin`], attach to [`TargetSession::target`],
//! [`TargetSession::go`], then take events while [`TargetSession::running`] says so, then
//! [`TargetSession::finish`].

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use whywait_capture::Target;

use crate::config::{CaptureConfig, WatchTarget};
use crate::errors::Usage;
use crate::launch::{Launch, exit_code};
use crate::signals::Signals;
use crate::user::Invoker;

/// A target that is watched.
pub(crate) struct TargetSession {
    watched: Watched,
    duration: Option<Duration>,
    started: Option<Instant>,
}

enum Watched {
    Running {
        target: Target,
        /// Those that were found first.
        held: Vec<OwnedFd>,
        signals: Signals,
    },
    Command(LaunchedTarget),
}

/// A launched command, and the signals to pass on to it.
pub(crate) struct LaunchedTarget {
    launch: Launch,
    signals: Signals,
}

impl TargetSession {
    /// Launches the command up to its gate, or takes hold of the process.
    ///
    /// # Errors
    /// Fails when the process is gone, or no process can be made.
    pub(crate) fn begin(config: &CaptureConfig) -> anyhow::Result<Self> {
        let watched = match &config.target {
            WatchTarget::Command(command) => {
                Watched::Command(LaunchedTarget::prepare(command, config.owner)?)
            }
            WatchTarget::Running(target) => {
                let held: Vec<OwnedFd> = target.pids.iter().filter_map(|pid| hold(*pid)).collect();
                if held.is_empty() && !target.lives() {
                    return Err(Usage::new(
                        format!("process {} has ended", target.head),
                        "it ended before whywait could watch it: name what runs",
                    )
                    .into());
                }
                let signals = match config.in_rotation {
                    true => Signals::around_process_in_rotation(),
                    false => Signals::around_process(),
                }
                .context("cannot handle signals")?;
                Watched::Running {
                    target: target.clone(),
                    held,
                    signals,
                }
            }
        };
        Ok(TargetSession {
            watched,
            duration: config.duration,
            started: None,
        })
    }

    /// What to watch.
    pub(crate) fn target(&self) -> Target {
        match &self.watched {
            Watched::Running { target, .. } => target.clone(),
            Watched::Command(running) => Target::from(running.pid()),
        }
    }

    /// Everything is attached: the command may run, and the clock starts.
    ///
    /// # Errors
    /// [`crate::errors::Reported`] when the command cannot be run.
    pub(crate) fn go(&mut self) -> anyhow::Result<()> {
        if let Watched::Command(running) = &mut self.watched {
            running.go()?;
        }
        self.started = Some(Instant::now());
        Ok(())
    }

    /// Whether to go on recording. To be called often: it also passes signals on to a launched
    /// command. Costs a system call.
    ///
    /// # Errors
    /// Fails when the kernel will not say how the command is.
    pub(crate) fn running(&mut self) -> anyhow::Result<bool> {
        let over = match (self.duration, self.started) {
            (Some(duration), Some(started)) => started.elapsed() >= duration,
            _ => false,
        };
        let alive = match &mut self.watched {
            Watched::Running {
                target,
                held,
                signals,
            } => !signals.any() && (held.iter().any(lives) || target.lives_in_cgroups()),
            Watched::Command(running) => running.alive()?,
        };
        Ok(alive && !over)
    }

    /// How long it is still to be watched; `None`: until it ends, or a signal says so.
    pub(crate) fn left(&self) -> Option<Duration> {
        let passed = self.started.map_or(Duration::ZERO, |it| it.elapsed());
        Some(self.duration?.saturating_sub(passed))
    }

    /// A launched command's exit code, as a shell has it; `None` while it runs and for a process
    /// that was attached to.
    pub(crate) fn exit_status(&self) -> Option<i32> {
        match &self.watched {
            Watched::Command(running) => running.launch.status().map(exit_code).map(i32::from),
            Watched::Running { .. } => None,
        }
    }

    /// Ends the recording. A launched command may still run, after `-d`.
    pub(crate) fn finish(self) -> Option<LaunchedTarget> {
        match self.watched {
            Watched::Command(running) => Some(running),
            Watched::Running { .. } => None,
        }
    }
}

impl LaunchedTarget {
    /// Launches a command up to its gate, as `user` if one is given.
    ///
    /// # Errors
    /// Fails when no process can be made.
    pub(crate) fn prepare(command: &[OsString], user: Option<Invoker>) -> anyhow::Result<Self> {
        // Before the child exists, so that no signal finds whywait unprepared with a child to lose.
        let signals = Signals::around_command().context("cannot handle signals")?;
        Ok(LaunchedTarget {
            launch: Launch::prepare(command, user)?,
            signals,
        })
    }

    /// The command's process id.
    pub(crate) fn pid(&self) -> u32 {
        self.launch.pid()
    }

    /// Opens the gate.
    ///
    /// # Errors
    /// [`crate::errors::Reported`] when the command cannot be run.
    pub(crate) fn go(&mut self) -> anyhow::Result<()> {
        self.launch.go()
    }

    /// Whether the command has not ended yet. Passes signals on.
    pub(crate) fn goes_on(&mut self) -> bool {
        self.alive().unwrap_or(false)
    }

    fn alive(&mut self) -> anyhow::Result<bool> {
        for signal in self.signals.take() {
            self.launch.signal(signal);
        }
        Ok(self
            .launch
            .try_wait()
            .context("cannot wait for the command")?
            .is_none())
    }

    /// Waits for the command to end, passing signals on, and gives its exit code.
    ///
    /// # Errors
    /// Fails when the kernel will not say how the command ended.
    pub(crate) fn wait(mut self) -> anyhow::Result<u8> {
        // A pause that nobody notices; blocking would leave a signal lying until the command ends
        // on its own.
        const PAUSE: Duration = Duration::from_millis(20);
        while self.alive()? {
            std::thread::sleep(PAUSE);
        }
        Ok(exit_code(
            self.launch.wait().context("cannot wait for the command")?,
        ))
    }
}

/// Holds a process by more than its number, which may become another one's. `None` when there is
/// none, or only its remains.
fn hold(pid: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok().filter(lives)
}

/// Whether any of its threads lives: the file becomes readable when the last one is gone
/// (pidfd_open(2)).
fn lives(process: &OwnedFd) -> bool {
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut polled = [PollFd::new(process, PollFlags::IN)];
    // Interrupted by a signal: the next look will show it.
    !matches!(poll(&mut polled, Some(&at_once)), Ok(ready) if ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_held_until_it_is_gone() {
        assert!(hold(0).is_none());
        assert!(hold(u32::MAX).is_none());
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("cat is there");
        let held = hold(child.id()).expect("it runs");
        assert!(lives(&held));
        drop(child.stdin.take());
        child.wait().expect("it ends");
        assert!(!lives(&held));
    }

    #[test]
    fn what_remains_of_a_process_is_none() {
        let mut child = std::process::Command::new("true")
            .spawn()
            .expect("true is there");
        let pid = child.id();
        // It is dead as soon as it cannot be held any more; nobody has waited for it yet.
        while hold(pid).is_some() {
            std::thread::yield_now();
        }
        child.wait().expect("it ended");
    }

    #[test]
    fn a_process_lives_while_one_of_its_threads_does() {
        // The first thread ends at once, another one when its input does.
        let program = "
import ctypes, sys, threading
threading.Thread(target=sys.stdin.readline).start()
print(flush=True)
ctypes.CDLL(None).syscall(60, 0)
";
        let mut child = std::process::Command::new("/usr/bin/python3")
            .args(["-c", program])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("Python is there");
        let mut output = child.stdout.take().expect("it is piped");
        std::io::Read::read_exact(&mut output, &mut [0]).expect("it says a word");
        let stat = format!("/proc/{}/stat", child.id());
        let first_is_gone =
            || std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") Z "));
        while !first_is_gone() {
            std::thread::yield_now();
        }
        let held = hold(child.id()).expect("the other thread lives");
        assert!(lives(&held));
        drop(child.stdin.take());
        child.wait().expect("it ends");
        assert!(!lives(&held));
    }
}
