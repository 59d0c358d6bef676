//! What whywait does when a signal comes.
//!
//! A terminal sends Ctrl-C to whywait and to the command that it launched alike. The command
//! decides what it means; whywait has to live on to report. Nothing here runs in a signal handler
//! but the setting of a flag.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::flag;

/// Signals that came in since whywait started to watch. Dropping it gives them their usual effect
/// again, but for a rotation's.
pub(crate) struct Signals {
    /// The signals that the caller wants to know about, and whether each came.
    seen: Vec<(i32, Arc<AtomicBool>)>,
    /// While this is false, signals only set flags.
    over: Arc<AtomicBool>,
    /// Also when this is dropped they do no more.
    lasts: bool,
}

impl Signals {
    /// For a launched command: the terminal's signals are the command's business; those that were
    /// sent to whywait alone are for [`Signals::take`] to pass on.
    pub(crate) fn around_command() -> io::Result<Self> {
        let signals = Self::catch(&[SIGTERM, SIGHUP], false)?;
        for signal in [SIGINT, SIGQUIT] {
            signals.swallow(signal)?;
        }
        Ok(signals)
    }

    /// For a process that is attached to: whatever would end whywait ends the recording. A second
    /// one ends whywait.
    pub(crate) fn around_process() -> io::Result<Self> {
        Self::catch(&[SIGINT, SIGTERM, SIGHUP], true)
    }

    /// For a process that another whywait asked to be watched: a service manager may send a signal
    /// to both, so that it comes twice; and one that comes late is no reason to leave the recording
    /// incomplete.
    pub(crate) fn around_process_in_rotation() -> io::Result<Self> {
        let mut signals = Self::catch(&[SIGINT, SIGTERM, SIGHUP], false)?;
        signals.lasts = true;
        Ok(signals)
    }

    fn catch(signals: &[i32], second_ends: bool) -> io::Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let ignored = ignored();
        let mut seen = Vec::new();
        // Who starts whywait with a signal ignored (nohup, a shell's `&`) wants that for whywait
        // and the command alike. A handler would undo it for both: exec resets handlers to the
        // default, but leaves ignored signals ignored.
        for &signal in signals.iter().filter(|signal| !is_in(ignored, **signal)) {
            let came = Arc::new(AtomicBool::new(false));
            flag::register_conditional_default(signal, Arc::clone(&over))?;
            if second_ends {
                // Before the flag is registered: actions run in this order, so that the first
                // signal finds it unset.
                flag::register_conditional_default(signal, Arc::clone(&came))?;
            }
            flag::register(signal, Arc::clone(&came))?;
            seen.push((signal, came));
        }
        Ok(Signals {
            seen,
            over,
            lasts: false,
        })
    }

    fn swallow(&self, signal: i32) -> io::Result<()> {
        if !is_in(ignored(), signal) {
            flag::register_conditional_default(signal, Arc::clone(&self.over))?;
        }
        Ok(())
    }

    /// The signals that came since the last call.
    pub(crate) fn take(&self) -> impl Iterator<Item = i32> + '_ {
        self.seen
            .iter()
            .filter(|(_, came)| came.swap(false, Ordering::Relaxed))
            .map(|(signal, _)| *signal)
    }

    /// Whether any signal came.
    pub(crate) fn any(&self) -> bool {
        self.seen
            .iter()
            .any(|(_, came)| came.load(Ordering::Relaxed))
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.over.store(!self.lasts, Ordering::Relaxed);
    }
}

/// The signals that this process ignores, as the kernel's mask; none when the kernel does not say.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

fn is_in(mask: u64, signal: i32) -> bool {
    mask >> (signal - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks() {
        // SIGPIPE, 13: Rust programs ignore it.
        assert!(is_in(0x1000, 13));
        assert!(!is_in(0x1000, 12));
        assert!(is_in(ignored(), 13));
    }
}
