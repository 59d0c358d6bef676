//! What completions offer, from what runs on this machine.

use std::ffi::OsStr;

use clap_complete::CompletionCandidate;
use whywait_target::Offer;

/// Those that begin as what was typed so far. Of a list that has commas only what follows the last
/// one is still open.
fn offer(typed: &OsStr, all: impl FnOnce() -> Vec<Offer>) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy();
    let (before, open) = match typed.rfind(',') {
        Some(at) => typed.split_at(at + 1),
        None => ("", &*typed),
    };
    // A shell would take a newline in a name for the end of one.
    let is_plain = |name: &str| !name.contains(|c: char| c.is_control());
    all()
        .into_iter()
        .filter_map(|Offer { name, what }| {
            let name = name.to_str()?;
            (name.starts_with(open) && is_plain(name)).then(|| {
                CompletionCandidate::new(format!("{before}{name}")).help(Some(what.into()))
            })
        })
        .collect()
}

pub(crate) fn pids(typed: &OsStr) -> Vec<CompletionCandidate> {
    offer(typed, whywait_target::pids)
}

pub(crate) fn ports(typed: &OsStr) -> Vec<CompletionCandidate> {
    offer(typed, whywait_target::ports)
}

pub(crate) fn units(typed: &OsStr) -> Vec<CompletionCandidate> {
    offer(typed, whywait_target::units)
}

pub(crate) fn containers(typed: &OsStr) -> Vec<CompletionCandidate> {
    offer(typed, whywait_target::containers)
}
