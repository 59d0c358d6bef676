//! Waits: what threads slept for.

pub mod futex;
pub(crate) mod kernel;
pub(crate) mod locks;
pub mod objects;
pub(crate) mod sleeps;
pub(crate) mod system_call;
pub(crate) mod table;

use whywait_events::{Wait, WakeContext};

use crate::model::Model;
use futex::{Class, Primitive};
use kernel::Kind;
use objects::Key;

pub use table::{WaitRow, WaitThread, WaitWaker};

impl Model {
    /// What a sleep was for.
    pub fn key_of(&self, wait: &Wait) -> Key {
        self.objects.key(wait, &self.stacks)
    }

    /// What a sleep on a futex, or for a lock, was for, as far as the evidence goes; `None` for
    /// other sleeps.
    pub fn class_of(&self, wait: &Wait) -> Option<Class> {
        let key = self.key_of(wait);
        // CPython asks for its lock every 5 ms until it has it.
        if wait.timeout
            && wait.wake_context == WakeContext::Hardirq
            && key.object.primitive() != Some(Primitive::Gil)
        {
            return Some(Class::Timer);
        }
        self.objects.get(&key)?.class
    }

    /// What a thread that slept on a futex, or for a lock, called, as its stack tells.
    pub fn primitive_of(&self, wait: &Wait) -> Option<Primitive> {
        self.key_of(wait).object.primitive()
    }

    /// What a sleep was for, as the kernel's stack tells.
    pub fn kind_of(&self, wait: &Wait) -> Option<Kind> {
        self.objects.kind(wait, &self.stacks)
    }
}
