//! The time in which a target is watched: when it begins, and what ends it.
//!
//! The capture drives it: [`Session::begin`], attach to [`Session::pid`], [`Session::go`], then take events while
//! [`Session::running`] says so, then [`Session::finish`].

use std::time::{Duration, Instant};

use anyhow::Context;

use crate::config::{CaptureConfig, Target};
use crate::errors::Usage;
use crate::launch::{Launch, exit_code};
use crate::signals::Signals;

/// A target that is watched.
pub(crate) struct Session {
    watched: Watched,
    duration: Option<Duration>,
    started: Option<Instant>,
}

enum Watched {
    Process {
        pid: u32,
        start_time: u64,
        signals: Signals,
    },
    Command(Running),
}

/// A launched command, and the signals that are to be passed on to it.
pub(crate) struct Running {
    launch: Launch,
    signals: Signals,
}

impl Session {
    /// Launches the command up to its gate, or takes hold of the process.
    ///
    /// # Errors
    /// Fails when the process is gone, or no process can be made.
    pub(crate) fn begin(config: &CaptureConfig) -> anyhow::Result<Self> {
        let watched = match &config.target {
            Target::Command(command) => {
                // Before the child exists, so that no signal finds whywait unprepared with a child to lose.
                let signals = Signals::around_command().context("cannot handle signals")?;
                Watched::Command(Running {
                    launch: Launch::prepare(command, config.owner)?,
                    signals,
                })
            }
            Target::Process(pid) => {
                let gone = || {
                    Usage::new(
                        format!("there is no process {pid}"),
                        "it ended before whywait could watch it",
                    )
                };
                let start_time = start_time(*pid).ok_or_else(gone)?;
                let signals = Signals::around_process().context("cannot handle signals")?;
                Watched::Process {
                    pid: *pid,
                    start_time,
                    signals,
                }
            }
        };
        Ok(Session {
            watched,
            duration: config.duration,
            started: None,
        })
    }

    /// The process to watch.
    pub(crate) fn pid(&self) -> u32 {
        match &self.watched {
            Watched::Process { pid, .. } => *pid,
            Watched::Command(running) => running.launch.pid(),
        }
    }

    /// Everything is attached: the command may run, and the clock starts.
    ///
    /// # Errors
    /// [`crate::errors::Reported`] when the command cannot be run.
    pub(crate) fn go(&mut self) -> anyhow::Result<()> {
        if let Watched::Command(running) = &mut self.watched {
            running.launch.go()?;
        }
        self.started = Some(Instant::now());
        Ok(())
    }

    /// Whether to go on recording. To be called often: it also passes signals on to a launched command. Costs a system
    /// call or two.
    ///
    /// # Errors
    /// Fails when the kernel will not say how the command is.
    pub(crate) fn running(&mut self) -> anyhow::Result<bool> {
        let over = match (self.duration, self.started) {
            (Some(duration), Some(started)) => started.elapsed() >= duration,
            _ => false,
        };
        let alive = match &mut self.watched {
            Watched::Process {
                pid,
                start_time,
                signals,
            } => !signals.any() && self::start_time(*pid) == Some(*start_time),
            Watched::Command(running) => running.alive()?,
        };
        Ok(alive && !over)
    }

    /// A launched command's exit code, as a shell has it; `None` while it runs and for a process that was attached to.
    pub(crate) fn exit_status(&self) -> Option<i32> {
        match &self.watched {
            Watched::Command(running) => running.launch.status().map(exit_code).map(i32::from),
            Watched::Process { .. } => None,
        }
    }

    /// Ends the recording. A launched command may still run, after `-d`.
    pub(crate) fn finish(self) -> Option<Running> {
        match self.watched {
            Watched::Command(running) => Some(running),
            Watched::Process { .. } => None,
        }
    }
}

impl Running {
    /// Whether the command has not ended yet.
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
        // A pause that nobody notices; blocking would leave a signal lying until the command ends on its own.
        const PAUSE: Duration = Duration::from_millis(20);
        while self.alive()? {
            std::thread::sleep(PAUSE);
        }
        Ok(exit_code(
            self.launch.wait().context("cannot wait for the command")?,
        ))
    }
}

/// When a process started, in clock ticks since boot: with its number this names it for good. `None` when there is no
/// such process, or only its remains.
fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse_start_time(&String::from_utf8_lossy(&stat))
}

fn parse_start_time(stat: &str) -> Option<u64> {
    // The second field is the name in brackets and may hold anything, brackets and blanks too.
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?;
    // State is field 3, the number of threads field 20, the start time field 22. A zombie may be the first thread only,
    // which ended before the others.
    let threads: u64 = fields.nth(20 - 4)?.parse().ok()?;
    if state == "X" || (state == "Z" && threads <= 1) {
        return None;
    }
    fields.nth(22 - 21)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_named_by_when_it_started() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20 21";
        assert_eq!(parse_start_time(stat), Some(4242));
        assert_eq!(
            parse_start_time(&stat.replace(" S ", " Z ")),
            Some(4242),
            "17 threads live"
        );
        let dead = stat.replace(" S ", " Z ").replace(" 17 18 ", " 1 18 ");
        assert_eq!(parse_start_time(&dead), None);
        assert_eq!(parse_start_time("7 (a"), None);
        assert!(start_time(std::process::id()).is_some());
    }
}
