//! What whywait gives up once everything is attached.
//!
//! From then on it parses what a hostile target may have made (its files, its memory, its names)
//! for as long as the recording takes, and needs little of what root may do. A command is launched
//! before, and gives up root by itself.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::Uid;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set,
    set_capabilities, set_no_new_privs,
};

use crate::config::{CaptureConfig, WatchTarget};

/// Gives up for good all privileges that recording and reporting do not need. Whywait has one
/// thread at that time: the kernel changes the calling thread alone.
///
/// # Errors
/// Fails when the kernel refuses, which it does not.
pub(crate) fn drop_unneeded(config: &CaptureConfig) -> io::Result<()> {
    set_no_new_privs(true)?;
    let mut sets = capabilities(None)?;
    let keep = sets.permitted & needed(config, sets.permitted);
    for capability in (!keep).iter() {
        // Only those who may change their capabilities can do this; the others have nothing to gain
        // by a program they start.
        let _ = remove_capability_from_bounding_set(capability);
    }
    sets = CapabilitySets {
        effective: sets.effective & keep,
        permitted: keep,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets)?;
    Ok(())
}

/// What is missing without CAP_SYS_PTRACE.
pub(crate) const NO_PTRACE: &str =
    "without CAP_SYS_PTRACE the stacks of other users' processes cannot be read";

/// What is missing without CAP_DAC_READ_SEARCH.
pub(crate) const NO_MEMORY: &str = "without CAP_DAC_READ_SEARCH the memory and the files of other \
                                    users' processes cannot be read: functions of Python and \
                                    tasks have no names";

/// What a process's owner keeps from whywait here, and by which capability it would be had.
pub(crate) fn lacks(pid: u32) -> Option<&'static str> {
    let has = |capability| capabilities(None).is_ok_and(|sets| sets.effective.contains(capability));
    let is_shut = |file| fs::File::open(format!("/proc/{pid}/{file}")).is_err();
    if !has(CapabilitySet::SYS_PTRACE) && is_shut("maps") {
        Some(NO_PTRACE)
    } else if !has(CapabilitySet::DAC_READ_SEARCH) && is_shut("mem") {
        Some(NO_MEMORY)
    } else {
        None
    }
}

fn needed(config: &CaptureConfig, permitted: CapabilitySet) -> CapabilitySet {
    // Sweeps over processes that the target makes: before Linux 5.16 each use of BPF asks for this.
    let mut needed = CapabilitySet::BPF
        // The maps and the memory of other users' processes, and of those that changed their user.
        | CapabilitySet::SYS_PTRACE
        // Their files, for unwind tables and symbols …
        | CapabilitySet::DAC_READ_SEARCH
        // … also deleted and replaced ones (/proc/PID/map_files).
        | CapabilitySet::CHECKPOINT_RESTORE
        // Addresses in /proc/kallsyms, when the first kernel stack comes.
        | CapabilitySet::SYSLOG;
    // Where these do not exist, as in older container runtimes, this one stands for them.
    if !permitted.contains(CapabilitySet::BPF) {
        needed |= CapabilitySet::SYS_ADMIN;
    }
    if matches!(config.target, WatchTarget::Command(_)) {
        // Signals are passed on to a command that runs as another user, or becomes one.
        needed |= CapabilitySet::KILL;
    }
    if config.owner.is_some() {
        needed |= CapabilitySet::CHOWN;
    }
    let written = config.later.iter().chain([&config.recording]);
    if config.owner.is_some() || !written.into_iter().all(|path| is_writable(path)) {
        needed |= CapabilitySet::DAC_OVERRIDE | CapabilitySet::FOWNER;
    }
    needed
}

/// Whether a file or folder, or the folder where it is going to be, can be written to without
/// privileges. Groups are left out: at worst a privilege is kept.
fn is_writable(path: &Path) -> bool {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let user = Uid::effective().as_raw();
    fs::metadata(path)
        .or_else(|_| fs::metadata(folder))
        .is_ok_and(|found| {
            let mode = found.mode();
            if found.uid() == user {
                mode & 0o200 != 0
            } else {
                mode & 0o002 != 0
            }
        })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_can_be_written_without_privileges() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let file = dir.path().join("report");
        assert!(is_writable(&file), "it can be made");
        fs::write(&file, "").expect("a file");
        assert!(is_writable(&file));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o400)).expect("its owner may");
        assert!(!is_writable(&file));
        assert!(!is_writable(Path::new("/no/such/folder")));
        assert!(is_writable(Path::new("/tmp")));
    }
}
