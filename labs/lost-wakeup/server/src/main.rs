//! A worker hands results over through a flag and a condition variable.
//!
//! The waiter looks at the flag and, when it is not set, waits, both under the mutex. A worker that
//! sets the flag and notifies without the mutex can do so between the two: nobody waits yet, nobody
//! is woken, and the waiter then waits for good. `/unlucky` makes that certain, for the worker has
//! leave to publish only within that window, and the waiter to wait only after it. All other
//! requests, and with `--fixed` all, have the mutex taken for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier, Condvar, Mutex, MutexGuard, PoisonError};

use anyhow::{Result, bail};
use lab_kit::{http, named, tid};
use serde_json::json;

struct Exchange {
    ready: AtomicBool,
    mutex: Mutex<()>,
    handed_over: Condvar,
    /// Where waiter and worker meet, so that each knows how far the other is.
    window: Barrier,
}

struct Job {
    /// Whether the worker publishes without the mutex.
    careless: bool,
}

fn main() -> Result<()> {
    let fixed = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("--fixed") => true,
        Some(other) => bail!("{other} is unknown"),
    };
    let exchange = Arc::new(Exchange {
        ready: AtomicBool::new(false),
        mutex: Mutex::new(()),
        handed_over: Condvar::new(),
        window: Barrier::new(2),
    });
    let (jobs, received) = channel();
    let shared = Arc::clone(&exchange);
    named("worker", move || work(&received, &shared))?;
    let waiter = Mutex::new(None);
    http::serve(move |path| {
        let careless = match path {
            "/lucky" => false,
            "/unlucky" => !fixed,
            "/about" => {
                let waiter = waiter.lock().unwrap_or_else(PoisonError::into_inner);
                return Ok(json!({"waiter_tid": *waiter}).to_string());
            }
            _ => bail!("no {path}"),
        };
        *waiter.lock().unwrap_or_else(PoisonError::into_inner) = Some(tid()?);
        ask(&jobs, &exchange, Job { careless })?;
        Ok("done".to_owned())
    })
}

fn ask(jobs: &Sender<Job>, exchange: &Exchange, job: Job) -> Result<()> {
    let careless = job.careless;
    let guard = lock(exchange);
    jobs.send(job)?;
    wait_for_result(exchange, guard, careless);
    Ok(())
}

/// Not inlined, so that its frame is in the stack of a release build.
#[inline(never)]
fn wait_for_result(exchange: &Exchange, mut guard: MutexGuard<()>, careless: bool) {
    let mut seen = exchange.ready.swap(false, Ordering::AcqRel);
    // It has looked: now the worker may go on, and the careless one is done before the wait begins.
    exchange.window.wait();
    if careless {
        exchange.window.wait();
    }
    while !seen {
        let woken = exchange.handed_over.wait(guard);
        guard = woken.unwrap_or_else(PoisonError::into_inner);
        seen = exchange.ready.swap(false, Ordering::AcqRel);
    }
}

fn work(jobs: &Receiver<Job>, exchange: &Exchange) {
    for job in jobs {
        exchange.window.wait();
        if job.careless {
            publish_without_mutex(exchange);
            exchange.window.wait();
        } else {
            publish_result(exchange);
        }
    }
}

/// The fault.
#[inline(never)]
fn publish_without_mutex(exchange: &Exchange) {
    exchange.ready.store(true, Ordering::Release);
    exchange.handed_over.notify_one();
}

/// Has the mutex only once the waiter waits.
#[inline(never)]
fn publish_result(exchange: &Exchange) {
    let guard = lock(exchange);
    exchange.ready.store(true, Ordering::Release);
    exchange.handed_over.notify_one();
    drop(guard);
}

fn lock(exchange: &Exchange) -> MutexGuard<'_, ()> {
    exchange
        .mutex
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}
