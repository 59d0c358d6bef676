//! x86-64.

use framehop::x86_64::UnwindRegsX86_64;
pub(crate) use framehop::x86_64::{CacheX86_64 as Cache, UnwinderX86_64 as Unwinder};
use gimli::{Register, RegisterRule, X86_64};

use super::Registers;
use crate::elf::u64_at;

/// The registers that unwind tables tell of a caller.
pub(crate) const RETURN_ADDRESS: Register = X86_64::RA;
pub(crate) const FRAME_POINTER: Register = X86_64::RBP;

/// In which interpreters have their frame and instruction, and which functions save that use them.
pub(crate) const KEPT: [Register; 2] = [X86_64::R14, X86_64::R15];

/// Whether a function has no caller, by the rule for its return address.
pub(crate) fn has_no_caller<T: gimli::ReaderOffset>(rule: Option<RegisterRule<T>>) -> bool {
    matches!(rule, None | Some(RegisterRule::Undefined))
}

/// Registers from frame to frame, as framehop has them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnwindRegs(pub(crate) UnwindRegsX86_64);

impl UnwindRegs {
    pub(crate) fn new(registers: Registers) -> Self {
        Self(UnwindRegsX86_64::new(
            registers.ip,
            registers.sp,
            registers.bp,
        ))
    }

    pub(crate) fn sp(&self) -> u64 {
        self.0.sp()
    }

    pub(crate) fn bp(&self) -> u64 {
        self.0.bp()
    }

    /// There is no link register.
    pub(crate) fn lr(&self) -> u64 {
        0
    }

    /// Becomes those of the caller.
    pub(crate) fn leave(&mut self, return_address: u64, sp: u64, bp: u64) {
        *self = Self(UnwindRegsX86_64::new(return_address, sp, bp));
    }
}

/// Where a frame of Go of so many bytes has the return address, `None`: in the link register; where
/// it has the caller's frame pointer, if it has one; and the caller's stack pointer.
pub(crate) fn go_frame(sp: u64, size: u32) -> (Option<u64>, Option<u64>, u64) {
    let at = sp.saturating_add(u64::from(size));
    // A frame's uppermost word is the caller's frame pointer.
    (Some(at), (size >= 8).then(|| at - 8), at.saturating_add(8))
}

/// Registers of the interrupted code, from a signal frame. In the trampoline `sp` points to `struct
/// ucontext` (`arch/x86/include/uapi/asm/sigcontext.h`: `r8` is at 40, then in the order of
/// `REG_*`).
pub(crate) fn interrupted(sp: u64, read: impl Fn(u64) -> Option<u64>) -> Option<Registers> {
    let at = |offset: u64| read(sp.checked_add(offset)?);
    Some(Registers {
        bp: at(120)?,
        sp: at(160)?,
        ip: at(168)?,
        lr: 0,
    })
}

/// Registers of the caller of a function that keeps its frame pointer, from the bytes at that
/// pointer.
pub(crate) fn caller(frame_pointer: u64, bytes: &[u8]) -> Option<Registers> {
    let word = |at| u64_at(bytes, at);
    Some(Registers {
        bp: word(0)?,
        ip: word(8)?,
        sp: frame_pointer.checked_add(16)?,
        lr: 0,
    })
}
