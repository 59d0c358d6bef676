//! Code that a runtime made while it ran, and that is in no file: what the runtime itself knows of
//! it says which functions it is, and how its frames are left.

use std::sync::Arc;

use whywait_events::Frame;

use crate::arch::Registers;
use crate::elf::ReadAt;
use crate::hotspot::HotSpot;
use crate::loss::{Loss, Losses};
use crate::modules::Modules;
use crate::unwind::CopiedStack;
use crate::v8::{V8, V8Code};

/// The runtime of a process whose code of its own can be read.
#[derive(Debug, Default)]
pub(crate) enum Managed {
    #[default]
    NotLookedFor,
    None,
    /// Its library is mapped, and none of its code was met yet.
    Mapped,
    /// It cannot be read.
    Refused,
    HotSpot(Box<HotSpot>),
    V8(Box<V8>),
}

/// The file of HotSpot's library.
pub(crate) const HOTSPOT: &[u8] = b"libjvm.so";

/// Where a thread is, or called from.
#[derive(Clone, Copy)]
pub(crate) struct ManagedPlace<'a> {
    pub(crate) registers: Registers,
    /// The instruction is the next one of the thread, and not where it returns to.
    pub(crate) innermost: bool,
    pub(crate) stack: CopiedStack<'a>,
}

impl ManagedPlace<'_> {
    /// An address within the instruction that is executed, or that called.
    pub(crate) fn address(&self) -> u64 {
        match self.innermost {
            true => self.registers.ip,
            false => self.registers.ip.saturating_sub(1),
        }
    }
}

/// The functions at a place, and the way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ManagedFrames {
    /// Innermost first: those that were inlined have frames of their own. Empty: nothing is known
    /// but the way out.
    pub(crate) frames: Arc<[Frame]>,
    pub(crate) exit: ManagedExit,
}

/// How such a frame is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ManagedExit {
    /// To the caller, which has these registers.
    To(Registers),
    /// As its code is about to do, or by the frame pointer: the runtime does not say.
    ByCode,
    Lost(Loss),
}

impl Managed {
    /// What the runtime says of a place; `None`: it is not in its code, or nothing is known of it.
    /// `Err` says why. `v8_code` says what of V8 lies at an address.
    pub(crate) fn frames(
        &mut self,
        place: ManagedPlace<'_>,
        memory: &dyn ReadAt,
        v8_code: &dyn Fn(u64) -> V8Code,
        modules: &mut Modules,
        losses: &mut Losses,
    ) -> Result<Option<ManagedFrames>, Loss> {
        match self {
            Self::HotSpot(vm) => match vm.covers(memory, place.address()) {
                true => vm.frames(place, memory, modules).map(Some),
                false => Ok(None),
            },
            Self::V8(v8) => Ok(v8.frames(place, memory, v8_code, modules, losses)),
            _ => Ok(None),
        }
    }
}
