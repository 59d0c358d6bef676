//! What the threads wait on: std's, or with the feature `parking_lot` that crate's. One interface
//! for both.

pub(crate) use lab_kit::sync::{Mutex, MutexGuard, lock};

#[cfg(not(feature = "parking_lot"))]
mod chosen {
    use std::sync::PoisonError;
    pub(crate) use std::sync::{Condvar, RwLock, RwLockReadGuard, RwLockWriteGuard};
    use std::time::Duration;

    use super::MutexGuard;

    pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn wait_for<'a, T>(
        condvar: &Condvar,
        guard: MutexGuard<'a, T>,
        most: Duration,
    ) -> MutexGuard<'a, T> {
        let woken = condvar.wait_timeout(guard, most);
        woken.unwrap_or_else(PoisonError::into_inner).0
    }

    pub(crate) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
        lock.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
        lock.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(feature = "parking_lot")]
mod chosen {
    use std::time::Duration;

    pub(crate) use parking_lot::{Condvar, RwLock, RwLockReadGuard, RwLockWriteGuard};

    use super::MutexGuard;

    pub(crate) fn wait<'a, T>(
        condvar: &Condvar,
        mut guard: MutexGuard<'a, T>,
    ) -> MutexGuard<'a, T> {
        condvar.wait(&mut guard);
        guard
    }

    pub(crate) fn wait_for<'a, T>(
        condvar: &Condvar,
        mut guard: MutexGuard<'a, T>,
        most: Duration,
    ) -> MutexGuard<'a, T> {
        condvar.wait_for(&mut guard, most);
        guard
    }

    pub(crate) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
        lock.read()
    }

    pub(crate) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
        lock.write()
    }
}

pub(crate) use chosen::{Condvar, RwLock, read, wait, wait_for, write};
