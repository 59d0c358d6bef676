//! Threads that wait on futexes, each for one reason, which its name tells: `CLASS-WHAT-NUMBER`.
//!
//! The class is what a report must say of the thread's waits, or that it does not know: `lock`,
//! `idle`, `result`, `timer`. Nothing in the programs but the names tells, and whywait does not go
//! by names. `unknown` are waits of which nobody could say from outside what they are for. A thread
//! waits on futexes for one reason only; where it has to wait for anything else, it sleeps. All
//! locks but those of the `lock` threads are held for moments.

mod jobs;
mod shared;
#[cfg(not(feature = "parking_lot"))]
mod std_only;
mod sync;

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use lab_kit::{http, named};
use rustix::io::Errno;
use rustix::thread::futex;

/// How long a helper takes for what it is asked.
const WORK: Duration = Duration::from_millis(20);
/// Time-outs that never run out.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a connection's thread waits for, and how it is brought to it.
type Kind = (&'static str, Box<dyn Fn() -> Result<()> + Send + Sync>);

fn main() -> Result<()> {
    shared::start()?;
    jobs::start()?;
    jobs::start_timers()?;
    start_relay()?;
    let kinds = kinds()?;
    let names: Vec<_> = kinds.iter().map(|(name, _)| *name).collect();
    http::serve_by_number(
        move |number| format!("{}-{number}", names[number % names.len()]),
        move |number, _| {
            let (_, ask) = &kinds[number % kinds.len()];
            ask().map(|()| "done".to_owned())
        },
    )
}

fn kinds() -> Result<Vec<Kind>> {
    let mut kinds: Vec<Kind> = vec![
        ("result-cond", Box::new(jobs::ask_pool)),
        ("result-timed", Box::new(jobs::ask_timed)),
        (
            "lock-request",
            Box::new(|| {
                shared::use_it(Duration::from_millis(5));
                Ok(())
            }),
        ),
        (
            "timer-request",
            Box::new(|| {
                jobs::wait_a_shared_tick();
                Ok(())
            }),
        ),
    ];
    #[cfg(not(feature = "parking_lot"))]
    kinds.extend(std_only::start()?);
    #[cfg(feature = "parking_lot")]
    kinds.push(("result-cond", Box::new(jobs::ask_pool)));
    Ok(kinds)
}

/// Two threads in turns, with a word of their own. From outside it may be a lock that is handed on,
/// one that asks and one that answers, or two that wait for something to do.
fn start_relay() -> Result<()> {
    static WORD: AtomicU32 = AtomicU32::new(1000);
    for me in 0..2 {
        named(&format!("unknown-relay-{me}"), move || {
            loop {
                let turn = WORD.load(Ordering::Acquire);
                if turn % 2 == me {
                    sleep(Duration::from_millis(15));
                    WORD.store(turn + 1, Ordering::Release);
                    futex::wake(&WORD, futex::Flags::PRIVATE, 1)?;
                    continue;
                }
                match futex::wait(&WORD, futex::Flags::PRIVATE, turn, None) {
                    Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
                    Err(error) => return Err(anyhow::Error::from(error)),
                }
            }
            #[allow(unreachable_code)]
            Ok(())
        })?;
    }
    Ok(())
}
