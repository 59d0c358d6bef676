//! `whywait __exec`: the child's side of a launch. Waits for one byte on the gate, gives up root,
//! becomes the command.
//!
//! Exit codes are a shell's: 127 when there is no such command, 126 when it cannot be run, 125 when
//! it was not whywait's intention any more to run it.

use std::ffi::OsStr;
use std::io::{Error, ErrorKind};
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{MsgFlags, send};
use nix::unistd::read;

use whywait_words::{Charset, escape};

use crate::args::ExecArgs;
use crate::errors::eprintln_quietly;
use crate::user::Invoker;

/// The command was not started, and nothing is wrong with it.
const NOT_STARTED: u8 = 125;
/// The command is there but cannot be run.
const CANNOT_RUN: u8 = 126;
/// There is no such command.
const NOT_FOUND: u8 = 127;

pub(crate) fn run(args: &ExecArgs) -> anyhow::Result<u8> {
    let code = match wait_at_gate(args.gate_fd) {
        Ok(true) => become_command(args),
        Ok(false) => fail(
            NOT_STARTED,
            "the watcher ended before it was ready: the command was not started",
        ),
        Err(errno) => fail(
            NOT_STARTED,
            &format!(
                "cannot wait at descriptor {}: {}",
                args.gate_fd,
                errno.desc()
            ),
        ),
    };
    // For the launcher, if it listens: it cannot know from the exit code alone, which the command
    // could have too.
    let _ = send(args.gate_fd, &[code], MsgFlags::MSG_NOSIGNAL);
    Ok(code)
}

/// Whether the gate opened; `false` when whoever was to open it is gone.
fn wait_at_gate(gate: RawFd) -> nix::Result<bool> {
    let mut byte = [0];
    let opened = loop {
        match read(gate, &mut byte) {
            Err(Errno::EINTR) => {}
            other => break other? > 0,
        }
    };
    // Closes as the command starts: which is how the launcher knows that it did, and why the
    // command never sees it.
    fcntl(gate, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    Ok(opened)
}

/// Only returns when it fails, with the exit code.
fn become_command(args: &ExecArgs) -> u8 {
    let (program, rest) = args.command.split_first().expect("clap requires a command");
    let mut command = Command::new(program);
    command.args(rest);
    if let (Some(uid), Some(gid)) = (args.uid, args.gid) {
        let user = Invoker { uid, gid };
        command.envs(user.env());
        if let Err(errno) = user.become_it() {
            return fail(
                CANNOT_RUN,
                &format!("cannot become user {uid}: {}", errno.desc()),
            );
        }
    }
    // Rust programs ignore SIGPIPE, which a command must not inherit; `exec` puts that and the
    // signal mask right.
    let error = command.exec();
    let code = if error.kind() == ErrorKind::NotFound {
        NOT_FOUND
    } else {
        CANNOT_RUN
    };
    fail(
        code,
        &format!("cannot run {}: {}", shown(program), reason(&error)),
    )
}

fn shown(program: &OsStr) -> String {
    escape(&program.to_string_lossy(), Charset::Unicode, 200)
}

/// The system's own words, without the number that Rust adds.
fn reason(error: &Error) -> String {
    error.raw_os_error().map_or_else(
        || error.to_string(),
        |code| Errno::from_raw(code).desc().to_owned(),
    )
}

fn fail(code: u8, message: &str) -> u8 {
    eprintln_quietly(&format!("whywait: {message}"));
    code
}
