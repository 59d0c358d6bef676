//! `whywait __names`: reads the names that files of the target give. The files may have been made
//! to hang, crash or exhaust their reader: so this process has no privileges, each file is read by
//! a child of its own, and that has limits.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Gid, Pid, Uid, fork, setgroups, setresgid, setresuid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    PidfdFlags, Resource, Rlimit, pidfd_open, set_parent_process_death_signal, setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};
use whywait_stacks::{Job, next_job};

use crate::errors::FAILED;

/// The user that owns nothing.
const NOBODY: u32 = 65_534;
/// What a reader may allocate. The file itself is mapped, and does not count.
const MEMORY: u64 = 256 << 20;
/// What it may write: the copy of a file, in memory.
const WRITTEN: u64 = 128 << 20;
const DESCRIPTORS: u64 = 64;

pub(crate) fn run() -> anyhow::Result<u8> {
    give_up_everything()?;
    limit(Resource::Core, 0)?;
    limit(Resource::Data, MEMORY)?;
    limit(Resource::Fsize, WRITTEN)?;
    limit(Resource::Nofile, DESCRIPTORS)?;
    // Whoever ends whywait, or all of a service, does not mean this: it ends by itself.
    for ignored in [
        Signal::SIGHUP,
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGTERM,
    ] {
        // SAFETY: no handler is installed.
        unsafe { signal(ignored, SigHandler::SigIgn) }?;
    }
    // Not a line about a bug: a file that makes its reader panic is the file's fault.
    std::panic::set_hook(Box::new(|_| {}));
    let jobs = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    while let Some(job) = next_job(&jobs)? {
        in_child(job)?;
    }
    Ok(0)
}

/// # Errors
/// Fails when privileges are left.
fn give_up_everything() -> io::Result<()> {
    set_no_new_privs(true)?;
    for capability in CapabilitySet::all().iter() {
        // Only those who may change their capabilities can do this; the others have none to come.
        let _ = remove_capability_from_bounding_set(capability);
    }
    if Uid::effective().is_root() {
        let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
        // Root without the right to change its user, or without this user, as in some containers,
        // stays root, and has what files of root's allow.
        let _ = setgroups(&[])
            .and_then(|()| setresgid(group, group, group))
            .and_then(|()| setresuid(user, user, user));
    }
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, none)?;
    ends_with_its_parent()
}

/// A change of the user undoes it.
fn ends_with_its_parent() -> io::Result<()> {
    set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    Ok(())
}

fn limit(resource: Resource, at: u64) -> io::Result<()> {
    let limit = Rlimit {
        current: Some(at),
        maximum: Some(at),
    };
    Ok(setrlimit(resource, limit)?)
}

/// Has a child do the job, and ends it when that takes too long.
fn in_child(job: Job) -> anyhow::Result<()> {
    let at_most = job.at_most();
    // SAFETY: this process has one thread, so that the child's copy of it is in order.
    match unsafe { fork() }? {
        ForkResult::Child => {
            let done = ends_with_its_parent()
                .and_then(|()| limit(Resource::Cpu, at_most.as_secs() + 1))
                .and_then(|()| job.run());
            std::process::exit(done.map_or(FAILED.into(), |()| 0))
        }
        ForkResult::Parent { child } => {
            // Its end of the job's stream: whoever waits for the answer sees that the child ended.
            drop(job);
            if !ends_within(child, at_most) {
                kill(child, Signal::SIGKILL)?;
            }
            waitpid(child, None)?;
            Ok(())
        }
    }
}

fn ends_within(child: Pid, at_most: Duration) -> bool {
    let process = rustix::process::Pid::from_raw(child.as_raw())
        .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let Some(process) = process else { return false };
    let timeout = Timespec {
        tv_sec: at_most.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: at_most.subsec_nanos().into(),
    };
    let mut polled = [PollFd::new(&process, PollFlags::IN)];
    matches!(poll(&mut polled, Some(&timeout)), Ok(ready) if ready > 0)
}
