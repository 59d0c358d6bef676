//! What depends on the processor: a file for each.

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
mod native;

pub(crate) use native::*;

/// Registers of a thread in user mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Registers {
    /// Instruction pointer.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer (`rbp`, `x29`); 0 when unknown.
    pub bp: u64,
    /// Link register (`x30`): where the function returns to, until it has saved that; 0 where
    /// return addresses are on the stack from the beginning.
    pub lr: u64,
}

/// User addresses are below this (x86-64: 47 bits, 56 with five-level page tables; arm64: 48, or
/// 52).
pub(crate) const USER_END: u64 = 1 << 56;
