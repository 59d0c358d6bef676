//! What a sleep was for, by all that is known of its kind.

use whywait_events::{Wait, WakeContext};

use crate::joined::Joined;
use crate::waits::futex::{Primitive, WaitClass};
use crate::waits::kind::WaitKind;
use crate::waits::objects::WaitKey;
use crate::waits::system_call::system_call_name;

impl Joined {
    /// What a sleep was for.
    pub fn key_of(&self, wait: &Wait) -> WaitKey {
        self.objects.key(wait, &self.stacks)
    }

    /// What a sleep on a futex, or for a lock, was for, as far as the evidence goes; `None` for
    /// other sleeps.
    pub fn class_of(&self, wait: &Wait) -> Option<WaitClass> {
        if !self.objects.may_have_class(wait, &self.stacks) {
            return ended_by_timeout(wait).then_some(WaitClass::Timer);
        }
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

    /// Whether a sleep was one for a lock.
    pub fn is_lock_wait(&self, wait: &Wait) -> bool {
        self.class_of(wait) == Some(WaitClass::Lock)
    }

    /// What a sleep was for, in a word or two: what the kernel's stack says, or the system call's
    /// name.
    pub fn what(&self, wait: &Wait) -> String {
        if self.primitive_of(wait) == Some(Primitive::Sleep) {
            return Primitive::Sleep.name().to_owned();
        }
        self.kind_of(wait)
            .map_or_else(|| system_call_name(wait), |kind| kind.name.to_owned())
    }
}

/// Whether the timeout of its call ended a sleep.
pub(crate) fn ended_by_timeout(wait: &Wait) -> bool {
    wait.timeout && wait.wake_context == WakeContext::Hardirq
}
