//! Waits: what threads slept for.

pub(crate) mod futex;
pub(crate) mod handover;
pub(crate) mod kind;
pub(crate) mod locks;
pub(crate) mod objects;
pub(crate) mod sleeps;
pub(crate) mod system_call;
pub(crate) mod table;

use whywait_events::{Wait, WakeContext};

use crate::model::Model;

pub use futex::{Primitive, Seen, WaitClass};
pub use kind::{WaitKind, broad_kind, wait_kind};
pub use locks::{Across, Hold};
pub use objects::{WaitKey, WaitObject, WaitObjects, WaitSums};
pub use system_call::{SystemCall, descriptor, is_accept, system_call, system_call_name};
pub use table::{WaitRow, WaitThread, WaitWaker};

impl Model {
    /// What a sleep was for.
    pub fn key_of(&self, wait: &Wait) -> WaitKey {
        self.objects.key(wait, &self.stacks)
    }

    /// What a sleep on a futex, or for a lock, was for, as far as the evidence goes; `None` for
    /// other sleeps.
    pub fn class_of(&self, wait: &Wait) -> Option<WaitClass> {
        let key = self.key_of(wait);
        // CPython asks for its lock every 5 ms until it has it.
        let tries_again = key.object.primitive().is_some_and(Primitive::tries_again);
        if ended_by_timeout(wait) && !tries_again {
            return Some(WaitClass::Timer);
        }
        self.objects.get(&key)?.class
    }

    /// What a thread that slept on a futex, or for a lock, called, by its stack.
    pub fn primitive_of(&self, wait: &Wait) -> Option<Primitive> {
        self.key_of(wait).object.primitive()
    }

    /// What a sleep was for, by the kernel's stack.
    pub fn kind_of(&self, wait: &Wait) -> Option<WaitKind> {
        self.objects.kind(wait, &self.stacks)
    }
}

/// Whether the timeout of its call ended a sleep.
pub(crate) fn ended_by_timeout(wait: &Wait) -> bool {
    wait.timeout && wait.wake_context == WakeContext::Hardirq
}
