//! What a goroutine does that is on no thread: its state and its stack, from the memory of its
//! process.
//!
//! A goroutine that waits has left its stack pointer and its program counter in its `g`. They are
//! read along with the stack, and once more after it: the program is not stopped, and what has
//! changed meanwhile is dropped. Nothing is written to the target.
//!
//! Layout: `runtime/runtime2.go` (`g`, `gobuf`).

use std::os::unix::fs::MetadataExt;

use whywait_events::TaskState;

use crate::arch::{self, Registers};
use crate::cfi::UnwindContext;
use crate::elf::{u32_at, u64_at};
use crate::loss::Loss;
use crate::modules::Modules;
use crate::process::{FrameExit, Process};
use crate::unwind::Unwound;

/// A goroutine, as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Goroutine {
    /// No other one of its process ever has this.
    pub id: u64,
    /// What it does.
    pub state: TaskState,
    /// Its stack, if it is on no thread: what a thread does, others show.
    pub stack: Option<Unwound>,
}

/// Where the fields of a `g` are that moved. The others have the same place in all versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct GoLayout {
    /// `atomicstatus`; behind it is `stackLock`.
    status: usize,
    /// `goid`.
    id: usize,
}

/// Those that there have been. `syscallbp`, from 1.23 on, moved the fields behind it, until
/// `gobuf` lost `ret`. Each finds no goroutine in the other's: so the goroutine says which it is.
const LAYOUTS: [GoLayout; 2] = [
    GoLayout {
        status: 144,
        id: 152,
    },
    GoLayout {
        status: 152,
        id: 160,
    },
];

/// `stack.lo` and `stack.hi`.
const STACK: (usize, usize) = (0, 8);
/// `m`, the thread that runs it.
const THREAD: usize = 48;
/// `sched.sp`, `sched.pc` and `sched.g`, which is the goroutine itself.
const SP: usize = 56;
const PC: usize = 64;
const SELF: usize = 72;
/// So much of a `g` is read.
pub(crate) const HEAD: usize = 176;
/// The runtime ends a program whose stack would get larger (`maxstacksize`).
const MAX_STACK: u64 = 1 << 30;
/// More of it is not read: where the goroutine waits is at its lower end.
const MAX_READ: u64 = 64 << 10;
/// Heap addresses are above it, so that no pointer is taken for an id; no program has made as many.
pub(crate) const MAX_ID: u64 = 1 << 39;
/// `_Gscan`: the collector looks at the stack, which stays where it is.
const SCANNED: u32 = 0x1000;

/// Whether goroutines of a version of Go such as `go1.26.8` are laid out as above.
pub(crate) fn is_known(version: &str) -> bool {
    let Some(number) = version.strip_prefix("go1.") else {
        return false;
    };
    let end = number.find(|c: char| !c.is_ascii_digit());
    let minor = number[..end.unwrap_or(number.len())].parse::<u32>();
    minor.is_ok_and(|minor| (18..=27).contains(&minor))
}

/// What of a `g` says where its stack is, and whether it may be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GoroutineHead {
    id: u64,
    state: TaskState,
    stack: (u64, u64),
    sp: u64,
    pc: u64,
}

impl GoroutineHead {
    /// From the first bytes of what should be a `g` at that address; `None`: it is none, or one
    /// that nobody uses.
    pub(crate) fn parse(bytes: &[u8], address: u64) -> Option<Self> {
        let mut agree = LAYOUTS.into_iter();
        let found = agree.find_map(|layout| Self::parse_as(bytes, address, layout));
        let another = agree.find_map(|layout| Self::parse_as(bytes, address, layout));
        found.filter(|_| another.is_none())
    }

    fn parse_as(bytes: &[u8], address: u64, layout: GoLayout) -> Option<Self> {
        let word = |at| u64_at(bytes, at);
        if word(SELF)? != address || u32_at(bytes, layout.status + 4)? != 0 {
            return None;
        }
        let id = word(layout.id)?;
        let (low, high) = (word(STACK.0)?, word(STACK.1)?);
        let bounded = low != 0 && high <= arch::USER_END && high.checked_sub(low)? <= MAX_STACK;
        if id == 0 || id >= MAX_ID || !bounded {
            return None;
        }
        let runs = word(THREAD)? != 0;
        let state = match u32_at(bytes, layout.status)? & !SCANNED {
            1 => TaskState::Runnable,
            2 => TaskState::Running,
            3 => TaskState::SystemCall,
            // One that still has its thread lets the collector look at its stack.
            4 if runs => TaskState::Running,
            4 => TaskState::Waiting,
            _ => return None,
        };
        Some(Self {
            id,
            state,
            stack: (low, high),
            sp: word(SP)?,
            pc: word(PC)?,
        })
    }

    /// No other one ever has it.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The range of its stack in use; `None`: the stack pointer is not on it.
    pub(crate) fn used(&self) -> Option<(u64, usize)> {
        let (low, high) = self.stack;
        let on_stack = self.sp > low && self.sp < high && self.sp.is_multiple_of(8);
        let size = high.checked_sub(self.sp)?.min(MAX_READ);
        on_stack.then_some((self.sp, usize::try_from(size).ok()?))
    }
}

/// A goroutine that was read: its id, its state, and, if it is on no thread, its registers and its
/// stack.
pub(crate) struct GoroutineRead {
    pub(crate) id: u64,
    pub(crate) state: TaskState,
    pub(crate) parked: Option<(Registers, Vec<u8>)>,
}

/// Reads the goroutine at an address of a process.
pub(crate) fn read(
    process: &mut Process,
    address: u64,
    modules: &mut Modules,
    context: &mut UnwindContext,
) -> Result<GoroutineRead, Loss> {
    if !process.has_goroutines(modules) {
        return Err(Loss::GoVersion);
    }
    let head = |process: &mut Process| {
        let mut bytes = [0; HEAD];
        let read = process.read_memory(address, &mut bytes);
        GoroutineHead::parse(&bytes, address).filter(|_| read)
    };
    let before = head(process).ok_or(Loss::GoTask)?;
    if !matches!(before.state, TaskState::Waiting | TaskState::Runnable) {
        return Ok(GoroutineRead {
            id: before.id,
            state: before.state,
            parked: None,
        });
    }
    let (sp, size) = before.used().ok_or(Loss::GoTask)?;
    let place = process.place(before.pc, modules, context);
    if !place.is_some_and(|place| matches!(place.step, FrameExit::Go(_))) {
        return Err(Loss::GoTask);
    }
    let stack = process.read_up_to(sp, size);
    // It may have run since, and its stack may have been moved.
    if head(process) != Some(before) {
        return Err(Loss::GoTaskChanged);
    }
    let registers = Registers {
        ip: before.pc,
        sp,
        bp: 0,
        lr: 0,
    };
    Ok(GoroutineRead {
        id: before.id,
        state: before.state,
        parked: Some((registers, stack)),
    })
}

/// The inode of a process's program.
pub(crate) fn program(tgid: u32) -> Option<u64> {
    let program = std::fs::metadata(format!("/proc/{tgid}/exe")).ok()?;
    Some(program.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: GoLayout = LAYOUTS[0];
    const ADDRESS: u64 = 0xc0_0000_01c0;

    /// A goroutine that waits.
    fn parked() -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        let mut set = |at: usize, value: u64| {
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        };
        set(STACK.0, 0xc0_0005_0000);
        set(STACK.1, 0xc0_0005_8000);
        set(SP, 0xc0_0005_7e00);
        set(PC, 0x48_0000);
        set(SELF, ADDRESS);
        set(LAYOUT.status, 4);
        set(LAYOUT.id, 7);
        bytes
    }

    fn with(at: usize, value: u64) -> Option<GoroutineHead> {
        let mut bytes = parked();
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        GoroutineHead::parse(&bytes, ADDRESS)
    }

    #[test]
    fn a_goroutine_agrees_with_itself() {
        let head = with(LAYOUT.id, 7).expect("a goroutine");
        assert_eq!(head.state, TaskState::Waiting);
        assert_eq!(head.used(), Some((0xc0_0005_7e00, 0x200)));
        let scanned = with(LAYOUT.status, 0x1004).map(|head| head.state);
        assert_eq!(scanned, Some(TaskState::Waiting));
        let by_a_thread = with(THREAD, 0xc0_0000_0200).map(|head| head.state);
        assert_eq!(by_a_thread, Some(TaskState::Running));
    }

    #[test]
    fn what_does_not_agree_is_no_goroutine() {
        assert_eq!(with(SELF, ADDRESS + 8), None, "another's");
        assert_eq!(with(LAYOUT.status, 6), None, "a dead one");
        assert_eq!(with(LAYOUT.status, 0xc0_0000_0004), None, "a pointer");
        assert_eq!(with(LAYOUT.id, 0), None);
        assert_eq!(with(LAYOUT.id, ADDRESS), None, "a pointer");
        assert_eq!(with(STACK.1, 0xd0_0005_0000), None, "too large a stack");
        assert_eq!(with(STACK.1, 0xc0_0004_0000), None, "upside down");
        let off = with(SP, 0xc0_0005_9000).expect("a goroutine");
        assert_eq!(off.used(), None, "its stack pointer is elsewhere");
        assert_eq!(with(SP, 0xc0_0005_7e01).and_then(|head| head.used()), None);
    }

    #[test]
    fn a_goroutine_says_which_layout_it_has() {
        let later = LAYOUTS[1];
        let mut bytes = parked();
        assert_eq!(GoroutineHead::parse_as(&bytes, ADDRESS, later), None);
        let head = GoroutineHead::parse(&bytes, ADDRESS);
        bytes.copy_within(LAYOUT.status..LAYOUT.status + 16, later.status);
        bytes[LAYOUT.status..LAYOUT.status + 8].fill(0);
        assert_eq!(GoroutineHead::parse_as(&bytes, ADDRESS, LAYOUT), None);
        assert!(head.is_some() && GoroutineHead::parse(&bytes, ADDRESS) == head);
    }

    #[test]
    fn versions_that_nobody_looked_at_are_not_known() {
        let known = [
            "go1.18",
            "go1.22.12",
            "go1.26.8 X:nocoverageredesign",
            "go1.27rc1",
        ];
        assert!(known.iter().all(|version| is_known(version)));
        let others = [
            "go1.17.13",
            "go1.28",
            "devel go1.28-3f2a",
            "go2.0",
            "",
            "go1.",
        ];
        assert!(!others.iter().any(|version| is_known(version)));
    }

    /// Whatever is in memory: what is taken for a goroutine keeps its bounds.
    #[test]
    fn made_up_memory_is_bounded() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut taken = 0;
        for _ in 0..200_000 {
            let mut bytes = parked();
            for _ in 0..next() % 4 {
                let at = (next() % (HEAD as u64 / 8)) as usize * 8;
                let value = match next() % 4 {
                    0 => next() % 16,
                    1 => 0xc0_0000_0000 + next() % (1 << 24),
                    2 => u64::MAX - next() % 16,
                    _ => next(),
                };
                bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
            let length = if next() % 8 == 0 {
                next() as usize % HEAD
            } else {
                HEAD
            };
            if let Some(head) = GoroutineHead::parse(&bytes[..length], ADDRESS) {
                taken += 1;
                assert!(head.id > 0 && head.stack.1 - head.stack.0 <= MAX_STACK);
                if let Some((from, size)) = head.used() {
                    assert!(from > head.stack.0 && size as u64 <= MAX_READ);
                    assert!(from + size as u64 <= head.stack.1);
                }
            }
        }
        assert!(taken > 1000, "some are left as they were: {taken}");
    }
}
