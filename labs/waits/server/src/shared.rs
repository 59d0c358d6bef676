//! Threads that contend for locks. Each holds its lock for a while, and stays away for a moment, so
//! that who waits gets it.

use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use lab_kit::named;

use crate::sync::{Mutex, RwLock, lock, read, write};

const HOLD: Duration = Duration::from_millis(10);
const AWAY: Duration = Duration::from_millis(3);

static MUTEX: Mutex<u64> = Mutex::new(0);
static RWLOCK: RwLock<u64> = RwLock::new(0);

pub(crate) fn start() -> Result<()> {
    for number in 0..3 {
        named(&format!("lock-mutex-{number}"), || {
            loop {
                use_it(HOLD);
                sleep(AWAY);
            }
        })?;
    }
    for number in 0..2 {
        named(&format!("lock-rwlock-{number}"), || {
            loop {
                let guard = read(&RWLOCK);
                sleep(HOLD);
                drop(guard);
                sleep(AWAY);
            }
        })?;
    }
    // One writer: two would take turns for good, and shut the readers out, for writers go first.
    named("lock-rwlock-2", || {
        loop {
            let mut guard = write(&RWLOCK);
            *guard += 1;
            sleep(HOLD);
            drop(guard);
            sleep(AWAY);
        }
    })?;
    #[cfg(feature = "parking_lot")]
    for number in 0..2 {
        named(&format!("lock-timed-{number}"), || {
            static TIMED: Mutex<()> = Mutex::new(());
            loop {
                // It never runs out.
                let guard = TIMED.try_lock_for(crate::PATIENCE);
                sleep(HOLD);
                drop(guard);
                sleep(AWAY);
            }
        })?;
    }
    Ok(())
}

/// For the threads that only contend, and for requests that need the same lock.
pub(crate) fn use_it(hold: Duration) {
    let mut guard = lock(&MUTEX);
    *guard += 1;
    sleep(hold);
}
