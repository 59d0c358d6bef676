//! Whether whywait was started without standard output (`>&-`). Rust's runtime puts `/dev/null` in
//! its place before `main`, where it looks like a choice.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

use nix::fcntl::{FcntlArg, fcntl};

static STDOUT: AtomicBool = AtomicBool::new(false);

/// Whether there was no standard output.
pub(crate) fn stdout() -> bool {
    STDOUT.load(Ordering::Relaxed)
}

extern "C" fn look() {
    STDOUT.store(fcntl(1, FcntlArg::F_GETFD).is_err(), Ordering::Relaxed);
}

// SAFETY: the C library calls what is in this section, in the form that it has there, before Rust's
// runtime begins; `look` needs nothing of it.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = look;
