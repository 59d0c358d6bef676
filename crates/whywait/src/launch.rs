//! Launches a command that waits at a gate until whywait is ready to watch it.
//!
//! The child is whywait itself (`whywait __exec`, see `commands/exec.rs`) and becomes the command
//! once the gate opens. So the command's process id is known, and its BPF programs attached, before
//! its first instruction; and it is whywait's own child, so that its exit code can be passed on.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};

use anyhow::Context;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::errors::Reported;
use crate::user::Invoker;

/// A command that was launched, or that waits to be.
pub(crate) struct Launch {
    child: Child,
    /// Whywait's end of the gate, until the command runs.
    gate: Option<UnixStream>,
    status: Option<ExitStatus>,
}

impl Launch {
    /// Starts a child that waits to become `command`, as `user` if one is given.
    pub(crate) fn prepare(command: &[OsString], user: Option<Invoker>) -> anyhow::Result<Self> {
        // Not the path of whywait's file: it may have been replaced, or be out of reach by now.
        Self::prepare_from(Path::new("/proc/self/exe"), command, user)
    }

    /// The same with another whywait to wait at the gate.
    pub(crate) fn prepare_from(
        whywait: &Path,
        command: &[OsString],
        user: Option<Invoker>,
    ) -> anyhow::Result<Self> {
        let (ours, theirs) =
            UnixStream::pair().context("cannot make a socket pair for the command")?;
        // The child is to inherit its end. Whywait starts no other process meanwhile that could
        // inherit it too.
        fcntl(theirs.as_raw_fd(), FcntlArg::F_SETFD(FdFlag::empty()))
            .context("cannot prepare the command's gate")?;
        let mut stub = Command::new(whywait);
        stub.arg0("whywait")
            .arg("__exec")
            .arg("--gate-fd")
            .arg(theirs.as_raw_fd().to_string());
        if let Some(user) = user {
            stub.arg("--uid")
                .arg(user.uid.to_string())
                .arg("--gid")
                .arg(user.gid.to_string());
        }
        let child = stub
            .arg("--")
            .args(command)
            .spawn()
            .context("cannot start a process for the command")?;
        Ok(Launch {
            child,
            gate: Some(ours),
            status: None,
        })
    }

    /// The process id that the command has, or is going to have.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Opens the gate and returns once the command runs.
    ///
    /// # Errors
    /// [`Reported`] when the command cannot be run: the child has said so on standard error.
    pub(crate) fn go(&mut self) -> anyhow::Result<()> {
        let Some(mut gate) = self.gate.take() else {
            return Ok(());
        };
        let mut failure = [0];
        // The child's end closes as it becomes the command. Before that it sends a byte if it
        // cannot.
        match gate.write_all(&[1]).and_then(|()| gate.read(&mut failure)) {
            Ok(1) => {
                self.wait()?;
                Err(Reported(failure[0]).into())
            }
            // A child that was killed at the gate closes it too: its status will show that.
            Ok(_) => Ok(()),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
                ) =>
            {
                Ok(())
            }
            Err(error) => Err(error).context("cannot start the command"),
        }
    }

    /// How the command ended; `None` while it runs.
    pub(crate) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            self.status = self.child.try_wait()?;
        }
        Ok(self.status)
    }

    /// How the command ended, as far as [`Launch::try_wait`] and [`Launch::wait`] have seen.
    pub(crate) fn status(&self) -> Option<ExitStatus> {
        self.status
    }

    /// Waits for the command to end.
    pub(crate) fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait()?;
        self.status = Some(status);
        Ok(status)
    }

    /// Sends the command a signal, if it still runs.
    pub(crate) fn signal(&self, signal: i32) {
        // Once it was waited for, its number may belong to somebody else.
        if self.status.is_some() {
            return;
        }
        if let (Ok(signal), Ok(pid)) = (Signal::try_from(signal), i32::try_from(self.pid())) {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }
}

impl Drop for Launch {
    fn drop(&mut self) {
        // A command that runs is left alone. One that whywait failed to get ready for must not stay
        // at the gate.
        if self.gate.is_some() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A command's exit code as shells have it: 128 + N when signal N ended it.
pub(crate) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_a_shells() {
        assert_eq!(exit_code(ExitStatus::from_raw(0)), 0);
        assert_eq!(exit_code(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(exit_code(ExitStatus::from_raw(15)), 143);
        assert_eq!(exit_code(ExitStatus::from_raw(11 | 0x80)), 139);
    }
}
