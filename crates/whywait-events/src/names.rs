//! The names under which a recording and reports show the vocabulary's enumerations.

use crate::uring::{LagKind, RingOrigin};
use crate::{ModuleKind, ThreadChange, WakeContext};

macro_rules! names {
    ($type:ty { $($variant:ident = $name:literal),+ $(,)? }) => {
        impl $type {
            /// The name that reports and the recording use.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }

            /// The variant of that name; `None` for a name that this version does not know.
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

names!(ThreadChange { Found = "found", Fork = "fork", Exec = "exec", Rename = "rename", Exit = "exit" });
names!(WakeContext {
    Unknown = "unknown",
    Task = "task",
    Softirq = "softirq",
    Hardirq = "hardirq",
    Exit = "exit",
});
names!(ModuleKind { Elf = "elf", Kernel = "kernel", Jit = "jit", Python = "python", Unknown = "unknown" });
names!(RingOrigin { Created = "created", Found = "found", FirstEvent = "first-event" });
names!(LagKind { Unreaped = "unreaped", Unsubmitted = "unsubmitted" });
