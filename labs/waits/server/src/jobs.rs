//! Threads that are asked for something, and those that ask them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, ensure};
use lab_kit::named;

use crate::sync::{Condvar, Mutex, lock, wait, wait_for};
use crate::{PATIENCE, WORK};

type Job = Box<dyn FnOnce() + Send>;

/// Jobs for threads that wait for them.
pub(crate) struct Queue {
    jobs: Mutex<VecDeque<Job>>,
    more: Condvar,
}

/// Several threads wait for these.
static POOL: Queue = Queue::new();
/// One thread waits for these, and looks up now and then: it would, were there ever a long time
/// without.
static TIMED: Queue = Queue::new();

impl Queue {
    const fn new() -> Self {
        Self {
            jobs: Mutex::new(VecDeque::new()),
            more: Condvar::new(),
        }
    }

    /// Notifies without the lock, so that whoever is woken does not wait for it.
    fn push(&self, job: Job) {
        lock(&self.jobs).push_back(job);
        self.more.notify_one();
    }

    fn pop(&self) -> Job {
        let mut jobs = lock(&self.jobs);
        loop {
            if let Some(job) = jobs.pop_front() {
                return job;
            }
            jobs = wait(&self.more, jobs);
        }
    }

    fn pop_timed(&self) -> Job {
        let mut jobs = lock(&self.jobs);
        loop {
            if let Some(job) = jobs.pop_front() {
                return job;
            }
            jobs = wait_for(&self.more, jobs, PATIENCE);
        }
    }
}

/// The place for one answer.
#[derive(Default)]
struct Reply {
    done: Mutex<bool>,
    arrived: Condvar,
}

impl Reply {
    fn put(&self) {
        *lock(&self.done) = true;
        self.arrived.notify_one();
    }

    fn take(&self) {
        let mut done = lock(&self.done);
        while !*done {
            done = wait(&self.arrived, done);
        }
    }

    fn take_timed(&self) -> bool {
        let done = lock(&self.done);
        *done || *wait_for(&self.arrived, done, PATIENCE)
    }
}

/// Helpers that wait for jobs, and one thread that asks without anybody asking it.
pub(crate) fn start() -> Result<()> {
    for number in 0..4 {
        named(&format!("idle-queue-{number}"), || {
            loop {
                work(POOL.pop());
            }
        })?;
    }
    named("idle-timed-0", || {
        loop {
            work(TIMED.pop_timed());
        }
    })?;
    named("result-batch-0", || {
        loop {
            ask().take();
            sleep(WORK);
        }
    })?;
    Ok(())
}

fn work(job: Job) {
    sleep(WORK);
    job();
}

fn ask() -> Arc<Reply> {
    ask_of(&POOL)
}

fn ask_of(queue: &Queue) -> Arc<Reply> {
    let reply = Arc::new(Reply::default());
    let theirs = Arc::clone(&reply);
    queue.push(Box::new(move || theirs.put()));
    reply
}

/// Has the pool do something, and waits for it.
pub(crate) fn ask_pool() -> Result<()> {
    ask().take();
    Ok(())
}

/// The same, but not for longer than a deadline that is never reached.
pub(crate) fn ask_timed() -> Result<()> {
    ensure!(ask_of(&TIMED).take_timed(), "no answer in time");
    Ok(())
}

/// Has the pool do something, and `done` be called at its end.
#[cfg(not(feature = "parking_lot"))]
pub(crate) fn hand_over(done: impl FnOnce() + Send + 'static) {
    POOL.push(Box::new(done));
}

/// How long a timer takes that nobody ends before its time.
const TICK: Duration = Duration::from_millis(25);

/// Threads that wait for a time, though what they wait on could be notified.
pub(crate) fn start_timers() -> Result<()> {
    for number in 0..2 {
        named(&format!("timer-own-{number}"), || {
            let (mutex, never) = (Mutex::new(()), Condvar::new());
            loop {
                wait_a_tick(&mutex, &never);
            }
        })?;
        named(&format!("timer-same-{number}"), || {
            loop {
                wait_a_shared_tick();
            }
        })?;
    }
    Ok(())
}

/// Two threads and a request wait for this one, which is never notified.
pub(crate) fn wait_a_shared_tick() {
    static MUTEX: Mutex<()> = Mutex::new(());
    static NEVER: Condvar = Condvar::new();
    wait_a_tick(&MUTEX, &NEVER);
}

fn wait_a_tick(mutex: &Mutex<()>, never: &Condvar) {
    drop(wait_for(never, lock(mutex), TICK));
    // Away from the mutex, which the others take at the same time.
    sleep(Duration::from_millis(2));
}
