//! Turns a panic of the Parquet decoder on hostile bytes into an error, quietly.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static DECODING: Cell<bool> = const { Cell::new(false) };
}

/// Runs `decode`; `None` when it panicked. Only decoding belongs in here: a panic of the caller's
/// own code must show.
pub(crate) fn quietly<T>(decode: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    // The hook belongs to the process, so it is put in once and looks at the thread, rather than
    // being swapped around each call, which would race with other threads' panics.
    HOOK.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !DECODING.get() {
                previous(info);
            }
        }));
    });
    let nested = DECODING.replace(true);
    // What `decode` leaves half done is thrown away by the callers: a file that panics is not read
    // on.
    let result = panic::catch_unwind(AssertUnwindSafe(decode)).ok();
    DECODING.set(nested);
    result
}
