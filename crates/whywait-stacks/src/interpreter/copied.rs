//! Functions that are copied with a thread's stack, and where they are to be copied from.

use super::RawFrame;

/// Where an interpreter has what a thread runs, as offsets: to be copied with its stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FramePlaces {
    /// The thread's state.
    pub state: StatePlace,
    /// In that: the innermost frame, or …
    pub current: u64,
    /// … what has it here.
    pub current_in_cframe: Option<u64>,
    /// In a frame: the one outside of it.
    pub previous: u64,
    /// In a frame: its code object.
    pub code: u64,
    /// In a frame: its instruction.
    pub instruction: u64,
    /// Which frame is the last one of a call of the interpreter's loop.
    pub last_of_call: LastOfCall,
    /// `None`: it has none that are told apart.
    pub coroutines: Option<CoroutinePlaces>,
}

/// Where the state of a thread is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatePlace {
    /// Each thread has its own.
    Own {
        /// Where its own data (`pthread_setspecific`) have the address, from the thread pointer
        /// on. `None`: not found.
        at: Option<u64>,
        /// In the state: the thread pointer.
        thread_pointer: u64,
    },
    /// There is one, at this address, of the process's first thread.
    First(u64),
}

/// How the last frame of a call of the interpreter's loop is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastOfCall {
    /// Each frame is.
    Each,
    /// By bits of a byte in it, of which one is set.
    Flag {
        /// The byte.
        at: u64,
        /// The bits.
        mask: u8,
    },
    /// It is the C function's that called the loop, and has no function: by who owns it.
    Shim(u64),
}

/// How to know the coroutine that a thread of Python runs.
///
/// A coroutine has its frame within itself. So the outermost of the frames that a generator owns is
/// that of the task, for as long as that lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoroutinePlaces {
    /// In a frame: who owns it.
    pub owner: u64,
    /// Ids in the process's own pid namespace, and addresses of the states.
    pub threads: Vec<(u32, u64)>,
}

/// A function on a thread's stack, as it was when that was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopiedFunction {
    /// Address of its code object; 0: the frame is C's, and has none.
    pub code: u64,
    /// Address of its instruction.
    pub instruction: u64,
    /// Its frame says that it is the last one of a call of the interpreter's loop.
    pub last: bool,
}

/// The functions that were copied with a stack, innermost first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedFunctions {
    /// When the sample was taken; 0: it is the stack of a sleep.
    pub at_ns: u64,
    /// Where the thread was: instruction and stack pointer.
    pub place: [u64; 2],
    /// The functions.
    pub functions: Vec<CopiedFunction>,
    /// There are no outer ones beyond these.
    pub all: bool,
}

/// Frames of which the functions were copied, innermost first.
#[derive(Debug, Default)]
pub(crate) struct CopiedFrames {
    pub(crate) frames: Vec<RawFrame>,
    /// There was one more that is not what it was.
    pub(crate) cut: bool,
}
