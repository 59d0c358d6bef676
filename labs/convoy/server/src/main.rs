//! A ledger: each transfer is in the log on the disk before it is answered.
//!
//! A commit writes the whole state into the log and syncs it, so it costs the same for one transfer
//! as for several. Broken: each transfer commits for itself, under the lock that all want. Fixed:
//! whoever finds no commit under way commits for all that have been entered until then, with the
//! lock released.

mod log;

use std::path::PathBuf;
use std::sync::{Condvar, Mutex as StdMutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab_kit::sync::{Mutex, lock};
use lab_kit::{disk, http, summary};
use serde_json::json;

use crate::log::{Log, append_log};

fn main() -> Result<()> {
    let (dir, fixed) = parse_args()?;
    disk::require_disk(&dir)?;
    let log = Log::create(&dir.join("log"))?;
    let waits = StdMutex::new(Vec::new());
    let (commit_ms, commit_mb) = (log.commit_time(), log.commit_mb());
    let about = move |waits: &StdMutex<Vec<Duration>>| {
        let waits = waits.lock().unwrap_or_else(PoisonError::into_inner);
        json!({
            "commit_ms": lab_kit::ms(commit_ms),
            "commit_mb": commit_mb,
            "lock_wait": summary(waits.clone()),
        })
        .to_string()
    };
    let note = |waits: &StdMutex<Vec<Duration>>, waited: Duration| {
        waits
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(waited);
    };
    if fixed {
        let ledger = Ledger::new(log);
        http::serve(move |path| match path {
            "/about" => Ok(about(&waits)),
            _ => {
                note(&waits, ledger.transfer()?);
                Ok("done".to_owned())
            }
        })
    } else {
        let ledger = Mutex::new((0, log));
        http::serve(move |path| match path {
            "/about" => Ok(about(&waits)),
            _ => {
                note(&waits, transfer_under_lock(&ledger)?);
                Ok("done".to_owned())
            }
        })
    }
}

fn parse_args() -> Result<(PathBuf, bool)> {
    use lexopt::prelude::*;
    let (mut dir, mut fixed) = (None, false);
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("dir") => dir = Some(PathBuf::from(parser.value()?)),
            Long("fixed") => fixed = true,
            _ => return Err(arg.unexpected().into()),
        }
    }
    Ok((dir.context("no --dir given")?, fixed))
}

/// Enters a transfer and commits it, all under the lock: the fault. Returns how long it took to get
/// the lock. Not inlined, so that its frame is in the stack of a release build.
#[inline(never)]
fn transfer_under_lock(ledger: &Mutex<(u64, Log)>) -> Result<Duration> {
    let begun = Instant::now();
    let mut ledger = lock(ledger);
    let waited = begun.elapsed();
    ledger.0 += 1;
    let (entered, log) = &*ledger;
    append_log(log, *entered)?;
    Ok(waited)
}

/// The fixed ledger. Its condition variable is std's, and with it its mutex.
struct Ledger {
    state: StdMutex<State>,
    committed: Condvar,
    log: Log,
}

#[derive(Default)]
struct State {
    entered: u64,
    committed: u64,
    committing: bool,
    failed: bool,
}

impl Ledger {
    fn new(log: Log) -> Self {
        Self {
            state: StdMutex::default(),
            committed: Condvar::new(),
            log,
        }
    }

    /// Enters a transfer and waits until it is committed. Returns how long it took to get the lock.
    #[inline(never)]
    fn transfer(&self) -> Result<Duration> {
        let begun = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = begun.elapsed();
        state.entered += 1;
        let mine = state.entered;
        while state.committed < mine {
            ensure!(!state.failed, "a commit has failed");
            if state.committing {
                let woken = self.committed.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.committing = true;
            let entered = state.entered;
            drop(state);
            let appended = append_log(&self.log, entered);
            state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.committing = false;
            match &appended {
                Ok(()) => state.committed = entered,
                Err(_) => state.failed = true,
            }
            self.committed.notify_all();
            appended?;
        }
        Ok(waited)
    }
}
