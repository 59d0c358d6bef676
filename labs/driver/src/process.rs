//! Child processes that cannot outlive the driver, and waiting with a deadline.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// How often a condition is looked at again. Short for a lab, long for the cost of looking.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// A child in a process group of its own, which is killed with all that it started when this is
/// dropped.
pub(crate) struct Group {
    child: Child,
    what: String,
    over: bool,
}

impl Group {
    pub(crate) fn spawn(what: &str, command: &mut Command) -> Result<Self> {
        // The terminal's ^C does not reach a group of its own: `interrupted` is how it does.
        let child = command.process_group(0).spawn().with_context(|| {
            format!("cannot start {what} ({})", command.get_program().display())
        })?;
        Ok(Self {
            child,
            what: what.to_owned(),
            over: false,
        })
    }

    /// The child itself, to take its pipes.
    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// What it is, for messages.
    pub(crate) fn what(&self) -> &str {
        &self.what
    }

    pub(crate) fn exited(&mut self) -> Result<Option<ExitStatus>> {
        let status = self.child.try_wait()?;
        self.over |= status.is_some();
        Ok(status)
    }

    /// Asks the child to end, as ^C does.
    pub(crate) fn interrupt(&self) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), Signal::INT)?)
    }

    pub(crate) fn wait(&mut self, deadline: Duration) -> Result<ExitStatus> {
        let what = format!("{} to end", self.what);
        wait_for(&what, deadline, || self.exited())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        kill_process_group(Pid::from_child(&self.child), Signal::KILL).ok();
        self.child.wait().ok();
    }
}

/// A process that is not our child: killed when this is dropped, unless it was seen to end before.
pub(crate) struct Foreign {
    pid: Pid,
    over: bool,
}

impl Foreign {
    pub(crate) fn new(pid: i32) -> Result<Self> {
        // 0, 1 and negative numbers would mean ourselves, init or whole groups.
        let pid = if pid > 1 { Pid::from_raw(pid) } else { None };
        Ok(Self {
            pid: pid.context("the server gave no pid of a process of its own")?,
            over: false,
        })
    }

    pub(crate) fn terminate(&self) -> Result<()> {
        kill_process(self.pid, Signal::TERM).context("the server ended by itself")?;
        // One that is stopped ends when it goes on.
        kill_process(self.pid, Signal::CONT).ok();
        Ok(())
    }

    /// To be called once its parent, which reaps it, has ended: the pid may then be another's.
    pub(crate) fn is_over(&mut self) {
        self.over = true;
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        if !self.over {
            kill_process(self.pid, Signal::KILL).ok();
        }
    }
}

/// Waits until `look` finds something.
pub(crate) fn wait_for<T>(
    what: &str,
    deadline: Duration,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = deadline * slower();
    let end = Instant::now() + deadline;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if interrupted() {
            bail!("interrupted");
        }
        if Instant::now() >= end {
            bail!("waited {} s in vain for {what}", deadline.as_secs());
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// So many times slower than others this machine is, as an emulated one: each deadline is longer.
fn slower() -> u32 {
    let said = std::env::var("LABS_SLOWER").ok();
    said.and_then(|times| times.parse().ok()).unwrap_or(1)
}

/// Whether the driver was asked to stop. An ordinary error then, so that the children are cleaned
/// up.
fn interrupted() -> bool {
    use std::sync::LazyLock;
    static FLAG: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            // Without it the driver just ends at once.
            signal_hook::flag::register(signal, Arc::clone(&flag)).ok();
        }
        flag
    });
    FLAG.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_hangs_is_an_error_and_is_killed() {
        let mut group = Group::spawn(
            "a shell",
            Command::new("sh").args(["-c", "sleep 1000 & wait"]),
        )
        .unwrap();
        let pid = group.child().id();
        assert!(group.wait(Duration::from_millis(50)).is_err());
        drop(group);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn only_a_real_pid_is_taken() {
        for wrong in [0, 1, -5] {
            assert!(Foreign::new(wrong).is_err());
        }
    }
}
