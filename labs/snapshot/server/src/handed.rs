//! The same API on two loops: one thread reads all requests and answers some, a worker answers the
//! others. Each is in epoll, with a timerfd of its own.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use lab_kit::{ms, named, tid};
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use serde_json::json;

/// What a snapshot takes: the worker's timer says when it is done.
const SNAPSHOT: Duration = Duration::from_millis(60);
/// What the API's thread does on its own is a timer's work.
const TICK: Duration = Duration::from_millis(20);

const LISTENER: u64 = 0;
const CONNECTION: u64 = 1;
const TIMER: u64 = 2;
const JOBS: u64 = 3;

/// A request that the worker answers.
struct Job {
    request: String,
    from: Arc<UnixStream>,
}

struct Loop {
    epoll: OwnedFd,
    timer: OwnedFd,
}

impl Loop {
    fn new() -> Result<Self> {
        let this = Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            timer: timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?,
        };
        this.add(&this.timer, TIMER)?;
        Ok(this)
    }

    fn add(&self, source: impl AsFd, token: u64) -> Result<()> {
        let token = epoll::EventData::new_u64(token);
        Ok(epoll::add(
            &self.epoll,
            source,
            token,
            epoll::EventFlags::IN,
        )?)
    }

    fn expires_in(&self, time: Duration, every: Duration) -> Result<()> {
        let times = Itimerspec {
            it_interval: Timespec::try_from(every)?,
            it_value: Timespec::try_from(time)?,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &times)?;
        Ok(())
    }

    /// What is ready.
    fn wait(&self) -> Result<Vec<u64>> {
        let mut ready = Vec::with_capacity(8);
        epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut ready),
            None,
        )?;
        Ok(ready.iter().map(|event| event.data.u64()).collect())
    }
}

fn take_count(from: &OwnedFd) -> Result<()> {
    rustix::io::read(from, &mut [0; 8])?;
    Ok(())
}

/// Starts both; returns the one that serves the API.
pub(crate) fn start(listener: UnixListener) -> Result<JoinHandle<Result<()>>> {
    let (jobs, received) = channel();
    let kick = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
    let kicked = Arc::clone(&kick);
    let (tell, told) = channel();
    named("worker", move || {
        tell.send(tid()).ok();
        run_worker(&received, &kicked)
    })?;
    let worker = told.recv()??;
    named("api", move || serve(&listener, &jobs, &kick, worker))
}

fn serve(listener: &UnixListener, jobs: &Sender<Job>, kick: &OwnedFd, worker: i32) -> Result<()> {
    let this = Loop::new()?;
    this.add(listener, LISTENER)?;
    this.expires_in(TICK, TICK)?;
    let mut connection = None;
    loop {
        for token in this.wait()? {
            match (token, &connection) {
                (LISTENER, _) => {
                    let stream = Arc::new(listener.accept()?.0);
                    this.add(&*stream, CONNECTION)?;
                    connection = Some(stream);
                }
                (CONNECTION, Some(stream)) => {
                    if !take_request(stream, jobs, kick, worker)? {
                        connection = None;
                    }
                }
                _ => take_count(&this.timer)?,
            }
        }
    }
}

/// Reads a line, which comes as one, and answers it or has it answered. False: the client has gone.
#[inline(never)]
fn take_request(
    stream: &Arc<UnixStream>,
    jobs: &Sender<Job>,
    kick: &OwnedFd,
    worker: i32,
) -> Result<bool> {
    let mut bytes = [0; 256];
    let length = (&**stream).read(&mut bytes)?;
    let request = String::from_utf8_lossy(&bytes[..length]).trim().to_owned();
    match request.as_str() {
        "" => return Ok(false),
        "ABOUT" => answer(stream, &json!({"tids": {"api": tid()?, "worker": worker}}))?,
        "PING api" => answer(stream, &json!({"by": "api"}))?,
        _ => {
            let from = Arc::clone(stream);
            jobs.send(Job { request, from })
                .ok()
                .context("the worker has gone")?;
            rustix::io::write(kick, &1_u64.to_ne_bytes())?;
        }
    }
    Ok(true)
}

fn answer(mut stream: &UnixStream, answer: &serde_json::Value) -> Result<()> {
    stream.write_all(format!("{answer}\n").as_bytes())?;
    Ok(())
}

#[inline(never)]
fn run_worker(jobs: &Receiver<Job>, kicked: &OwnedFd) -> Result<()> {
    let this = Loop::new()?;
    this.add(kicked, JOBS)?;
    let mut snapshot: Option<Job> = None;
    loop {
        for token in this.wait()? {
            if token == TIMER {
                take_count(&this.timer)?;
                if let Some(job) = snapshot.take() {
                    let took = ms(SNAPSHOT);
                    let waits = json!({"waits_ms": {"api": took}, "work_ms": took});
                    answer(&job.from, &waits)?;
                }
                continue;
            }
            take_count(kicked)?;
            for job in jobs.try_iter() {
                if job.request.starts_with("BRANCH ") {
                    this.expires_in(SNAPSHOT, Duration::ZERO)?;
                    snapshot = Some(job);
                } else {
                    answer(&job.from, &json!({"by": "worker"}))?;
                }
            }
        }
    }
}
