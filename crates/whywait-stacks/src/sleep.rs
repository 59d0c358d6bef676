//! Whether a thread sleeps where its stack was copied, so that more of its process's memory can be
//! read in peace.

use crate::arch::Registers;
use crate::process::Process;

/// A thread's stack as it was copied.
#[derive(Clone, Copy)]
pub(crate) struct Sleeper<'a> {
    pub(crate) tid: u32,
    pub(crate) regs: Registers,
    /// Two more, as [`RunningThread`](crate::RunningThread) has them, if known.
    pub(crate) kept: [Option<u64>; 2],
    pub(crate) stack: &'a [u8],
}

/// A thread's sleep: system call, registers, and how often it has run so far.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sleep {
    syscall: String,
    runs: String,
}

impl Sleep {
    /// The sleep of a thread that sleeps now where its stack was copied; `None`: it does not.
    pub(crate) fn now(process: &mut Process, sleeper: Sleeper<'_>) -> Option<Self> {
        let task = format!("/proc/{}/task/{}", process.tgid(), sleeper.tid);
        let syscall = std::fs::read_to_string(format!("{task}/syscall")).ok()?;
        // "nr six-arguments sp ip", "-1 sp ip" or "running"
        let mut fields = syscall.split_ascii_whitespace().rev();
        let mut hex = || u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok();
        if hex()? != sleeper.regs.ip || hex()? != sleeper.regs.sp {
            return None;
        }
        // The same place may be reached from other code: then the stack's bytes differ.
        let mut stack = vec![0; sleeper.stack.len()];
        if !process.read_memory(sleeper.regs.sp, &mut stack) || stack != sleeper.stack {
            return None;
        }
        let runs = std::fs::read_to_string(format!("{task}/schedstat")).unwrap_or_default();
        Some(Self { syscall, runs })
    }

    /// Whether the thread has slept on since.
    pub(crate) fn goes_on(&self, process: &mut Process, sleeper: Sleeper<'_>) -> bool {
        Self::now(process, sleeper).as_ref() == Some(self)
    }
}
