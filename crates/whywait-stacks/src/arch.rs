//! What depends on the processor: x86-64.

pub(crate) use framehop::x86_64::{
    CacheX86_64 as Cache, UnwindRegsX86_64 as UnwindRegs, UnwinderX86_64 as Unwinder,
};

/// Registers of a thread in user mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Registers {
    /// Instruction pointer.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer (`rbp`); 0 when unknown.
    pub bp: u64,
}

/// User addresses are below this (47 bits; 56 with five-level page tables).
pub(crate) const USER_END: u64 = 1 << 56;

/// Registers of the interrupted code, from a signal frame. In the trampoline `sp` points to `struct
/// ucontext` (`arch/x86/include/uapi/asm/sigcontext.h`: `r8` is at 40, then in the order of
/// `REG_*`).
pub(crate) fn interrupted(sp: u64, read: impl Fn(u64) -> Option<u64>) -> Option<Registers> {
    let at = |offset: u64| read(sp.checked_add(offset)?);
    Some(Registers {
        bp: at(120)?,
        sp: at(160)?,
        ip: at(168)?,
    })
}

/// Registers of the caller of a function that keeps its frame pointer, from the bytes at that
/// pointer.
pub(crate) fn caller(frame_pointer: u64, bytes: &[u8]) -> Option<Registers> {
    let word = |at| crate::elf::u64_at(bytes, at);
    Some(Registers {
        bp: word(0)?,
        ip: word(8)?,
        sp: frame_pointer.checked_add(16)?,
    })
}
