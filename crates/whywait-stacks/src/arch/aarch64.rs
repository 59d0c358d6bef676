//! arm64.

pub(crate) use framehop::aarch64::{CacheAarch64 as Cache, UnwinderAarch64 as Unwinder};
use framehop::aarch64::{PtrAuthMask, UnwindRegsAarch64};
use gimli::{AArch64, Register, RegisterRule};

use super::Registers;
use crate::elf::u64_at;

/// The registers that unwind tables tell of a caller.
pub(crate) const RETURN_ADDRESS: Register = AArch64::X30;
pub(crate) const FRAME_POINTER: Register = AArch64::X29;

/// The largest address of a program: what is above it in a return address authenticates it.
const LARGEST: u64 = (1 << 48) - 1;

/// In which interpreters have their frame and instruction, and which functions save that use them.
pub(crate) const KEPT: [Register; 2] = [AArch64::X19, AArch64::X20];

/// Whether a function has no caller, by the rule for its return address. Without one it is in the
/// link register.
pub(crate) fn has_no_caller<T: gimli::ReaderOffset>(rule: Option<RegisterRule<T>>) -> bool {
    matches!(rule, Some(RegisterRule::Undefined))
}

/// Registers from frame to frame, as framehop has them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnwindRegs(pub(crate) UnwindRegsAarch64);

impl UnwindRegs {
    pub(crate) fn new(registers: Registers) -> Self {
        Self(UnwindRegsAarch64::new_with_ptr_auth_mask(
            PtrAuthMask::from_max_known_address(LARGEST),
            registers.lr,
            registers.sp,
            registers.bp,
        ))
    }

    pub(crate) fn sp(&self) -> u64 {
        self.0.sp()
    }

    pub(crate) fn bp(&self) -> u64 {
        self.0.fp()
    }

    /// The link register, without what authenticates it.
    pub(crate) fn lr(&self) -> u64 {
        self.0.lr()
    }

    /// Becomes those of the caller.
    pub(crate) fn leave(&mut self, return_address: u64, sp: u64, bp: u64) {
        self.0.set_lr(return_address);
        self.0.set_sp(sp);
        self.0.set_fp(bp);
    }
}

/// Where a frame of Go of so many bytes has the return address, `None`: in the link register; where
/// it has the caller's frame pointer, if it has one; and the caller's stack pointer.
pub(crate) fn go_frame(sp: u64, size: u32) -> (Option<u64>, Option<u64>, u64) {
    let caller = sp.saturating_add(u64::from(size));
    // The frame's lowest word is the return address, and below it is the frame pointer.
    match size {
        0 => (None, None, caller),
        _ => (Some(sp), sp.checked_sub(8), caller),
    }
}

/// Registers of the interrupted code, from a signal frame. In the trampoline `sp` points to `struct
/// rt_sigframe` (`arch/arm64/kernel/signal.c`): 128 bytes of `siginfo`, then `ucontext`, of which
/// the registers are at 184 (`arch/arm64/include/uapi/asm/ucontext.h`, `sigcontext.h`).
pub(crate) fn interrupted(sp: u64, read: impl Fn(u64) -> Option<u64>) -> Option<Registers> {
    let at = |offset: u64| read(sp.checked_add(offset)?);
    let register = |number: u64| at(128 + 184 + 8 * number);
    Some(Registers {
        bp: register(29)?,
        lr: register(30)?,
        sp: register(31)?,
        ip: register(32)?,
    })
}

/// Registers of the caller of a function that keeps its frame pointer, from the bytes at that
/// pointer.
pub(crate) fn caller(frame_pointer: u64, bytes: &[u8]) -> Option<Registers> {
    let word = |at| u64_at(bytes, at);
    let ip = word(8)? & LARGEST;
    Some(Registers {
        bp: word(0)?,
        ip,
        sp: frame_pointer.checked_add(16)?,
        lr: ip,
    })
}
