//! One mutex under two implementations: std's, or with the feature `parking_lot` that crate's.

#[cfg(not(feature = "parking_lot"))]
mod chosen {
    use std::sync::PoisonError;
    pub use std::sync::{Mutex, MutexGuard};

    /// Waits for the lock. Inlined, so that its caller's frame is next to the mutex's own.
    #[inline(always)]
    pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(feature = "parking_lot")]
mod chosen {
    pub use parking_lot::{Mutex, MutexGuard};

    /// Waits for the lock. Inlined, so that its caller's frame is next to the mutex's own.
    #[inline(always)]
    pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock()
    }
}

pub use chosen::{Mutex, MutexGuard, lock};
