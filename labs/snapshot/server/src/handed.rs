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
const TIMER: u64 = 1;
const JOBS: u64 = 2;
/// Connections have the numbers from here on, each its own.
const FIRST_CONNECTION: u64 = 16;

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

    /// Not to be asked for again, though the worker may have it for a moment yet.
    fn forget(&self, source: &UnixStream) -> Result<()> {
        Ok(epoll::delete(&self.epoll, source)?)
    }

    fn expires_in(&self, time: Duration, every: Duration) -> Result<()> {
        let times = Itimerspec {
            it_interval: Timespec::try_from(every)?,
            it_value: Timespec::try_from(time)?,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &times)?;
        Ok(())
    }

    /// What is ready, and whether its other end has gone.
    fn wait(&self) -> Result<Vec<(u64, bool)>> {
        let mut ready = Vec::with_capacity(8);
        epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut ready),
            None,
        )?;
        let gone = epoll::EventFlags::HUP | epoll::EventFlags::RDHUP;
        let tell = |event: &epoll::Event| (event.data.u64(), { event.flags }.intersects(gone));
        Ok(ready.iter().map(tell).collect())
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
    let mut connection: Option<(u64, Arc<UnixStream>)> = None;
    let mut number = FIRST_CONNECTION;
    loop {
        for (token, gone) in this.wait()? {
            match (token, &connection) {
                (LISTENER, _) => {
                    let stream = Arc::new(listener.accept()?.0);
                    number += 1;
                    this.add(&*stream, number)?;
                    if let Some((_, old)) = connection.replace((number, stream)) {
                        this.forget(&old)?;
                    }
                }
                (TIMER, _) => take_count(&this.timer)?,
                // As Firecracker's server does, it is closed and not read to its end.
                (token, Some((its, stream))) if token == *its && gone => {
                    this.forget(stream)?;
                    connection = None;
                }
                (token, Some((its, stream))) if token == *its => {
                    take_request(stream, jobs, kick, worker)?;
                }
                _ => {}
            }
        }
    }
}

/// Reads a line, which comes as one, and answers it or has it answered.
#[inline(never)]
fn take_request(
    stream: &Arc<UnixStream>,
    jobs: &Sender<Job>,
    kick: &OwnedFd,
    worker: i32,
) -> Result<()> {
    let mut bytes = [0; 256];
    let length = (&**stream).read(&mut bytes)?;
    let request = String::from_utf8_lossy(&bytes[..length]).trim().to_owned();
    match request.as_str() {
        "" => {}
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
    Ok(())
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
        for (token, _) in this.wait()? {
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
