//! What only std has: channels, parking, joining, scopes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, Thread, sleep};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use lab_kit::named;

use crate::{Kind, PATIENCE, WORK, jobs};

/// Starts the helpers, and returns what requests may ask of them.
pub(crate) fn start() -> Result<Vec<Kind>> {
    named("timer-park-0", || {
        loop {
            thread::park_timeout(Duration::from_millis(25));
        }
    })?;
    let (_never, silence) = channel::<()>();
    named("timer-recv-0", move || {
        // The sender is kept, or there would be nothing to wait for.
        let _kept = _never;
        loop {
            silence.recv_timeout(Duration::from_millis(25)).ok();
        }
    })?;
    let (worker, logger) = (start_worker()?, Logger::start()?);
    Ok(vec![
        (
            "result-chan",
            Box::new(move || ask_worker(&worker, &logger)),
        ),
        ("result-park", Box::new(park_until_done)),
        ("result-join", Box::new(join_a_thread)),
        ("result-scope", Box::new(await_a_scope)),
    ])
}

fn start_worker() -> Result<Sender<Sender<()>>> {
    let (ask, asked) = channel::<Sender<()>>();
    named("idle-chan-0", move || {
        for reply in asked {
            sleep(WORK);
            // Nobody listens any more when the client has gone.
            reply.send(()).ok();
        }
    })?;
    Ok(ask)
}

/// A thread that is given things, and that nobody waits for.
struct Logger {
    thread: Thread,
    lines: Arc<AtomicU64>,
}

impl Logger {
    fn start() -> Result<Self> {
        let lines = Arc::new(AtomicU64::new(0));
        let given = Arc::clone(&lines);
        let thread = named("idle-park-0", move || {
            let mut written = 0;
            loop {
                while written == given.load(Ordering::Acquire) {
                    thread::park();
                }
                written += 1;
            }
        })?;
        Ok(Self {
            thread: thread.thread().clone(),
            lines,
        })
    }

    fn log(&self) {
        self.lines.fetch_add(1, Ordering::Release);
        self.thread.unpark();
    }
}

fn ask_worker(worker: &Sender<Sender<()>>, logger: &Logger) -> Result<()> {
    logger.log();
    let (reply, answered) = channel();
    worker.send(reply)?;
    answered
        .recv_timeout(PATIENCE)
        .context("no answer in time")?;
    Ok(())
}

fn park_until_done() -> Result<()> {
    let done = Arc::new(AtomicBool::new(false));
    let (theirs, asker) = (Arc::clone(&done), thread::current());
    jobs::hand_over(move || {
        theirs.store(true, Ordering::Release);
        asker.unpark();
    });
    while !done.load(Ordering::Acquire) {
        thread::park();
    }
    Ok(())
}

fn join_a_thread() -> Result<()> {
    let helper = named("helper", || sleep(WORK))?;
    helper.join().map_err(|_| anyhow!("the helper panicked"))
}

fn await_a_scope() -> Result<()> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            sleep(WORK);
            done.store(true, Ordering::Release);
        });
    });
    ensure!(done.load(Ordering::Acquire), "the helper was not awaited");
    Ok(())
}
