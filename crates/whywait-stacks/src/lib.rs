//! From the copied bytes of a thread's stack to names.
//!
//! Two halves share the notion of a module (a mapped file, the kernel, a just-in-time compiler's
//! code, an interpreter):
//!
//! - [`Unwinder`], while recording: turns registers and stack bytes into
//!   [`Frame`](whywait_events::Frame)s of the vocabulary, by the unwind tables of the mapped files
//!   (framehop), Go's function table, what a function's code is about to do, or the frame pointer.
//!   It also reads goroutines that are on no thread, and gives the names that only the
//!   running process or kernel can give. Stack bytes never leave it.
//! - [`Symboliser`], later: names for frames of ELF files (blazesym), by a process without
//!   privileges where there is one.
//!
//! The observed program is not trusted: its files, its memory and its `/proc` entries may hold
//! anything.

mod arch;
mod budget;
mod cfi;
#[cfg(target_arch = "x86_64")]
mod code;
mod elf;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod go;
mod goroutine;
mod goroutines;
mod hotspot;
mod interner;
mod interpreter;
mod kernel;
mod loss;
#[cfg(any(test, fuzzing))]
mod made_up;
mod managed;
mod maps;
#[cfg(test)]
mod memory_tests;
mod modules;
mod perf_map;
mod php;
mod process;
mod python;
mod ruby;
mod runtimes;
mod sleep;
mod symbolise;
mod tls;
mod unread;
mod unwind;
mod v8;

pub use arch::Registers;
pub use goroutine::Goroutine;
pub use goroutines::Family;
pub use interpreter::{
    CopiedFunction, CopiedFunctions, CoroutinePlaces, FramePlaces, LastOfCall, StatePlace,
};
pub use maps::mapped_at;
pub use perf_map::thread_id as own_id;
pub use python::{CoroutineTask, TaskLocks, TaskPlace};
pub use runtimes::Runtimes;
pub use symbolise::{Job, Symboliser, Unnamed, WhyUnnamed, next_job};
pub use tls::{TlsCall, TlsFile, TlsFunction, TlsLibraries};
pub use unread::UnreadRuntime;
pub use unwind::{LargeFrame, RunningThread, StackBehind, Unwinder, Unwound};
