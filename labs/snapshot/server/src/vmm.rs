//! The threads: who waits for whom, and for how long.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use lab_kit::sync::Mutex;
use lab_kit::{ms, named, tid};
use serde_json::{Value as Json, json};

use crate::Work;
use crate::memory::{self, Memory, cpu_time, read_generation};

const VCPUS: [&str; 2] = ["vcpu-0", "vcpu-1"];
/// What a vCPU does while it is not paused is a timer's work.
const TICK: Duration = Duration::from_millis(2);
/// The n-th episode of `GrowingCpu` has n times the one and once the other.
const GROWTH: Duration = Duration::from_millis(30);
const CONSTANT: Duration = Duration::from_millis(20);

/// What the API thread tells a vCPU.
enum Order {
    Pause,
    Resume,
    /// Look at the memory, which takes its lock.
    Look,
}

/// A vCPU's answer: the end of its wait, and how long that was.
struct Waited(Duration);

struct Vcpu {
    orders: Sender<Order>,
    waited: Receiver<Waited>,
}

/// What the worker did in an episode.
struct Done {
    wall: Duration,
    cpu: Duration,
}

struct Worker {
    jobs: Sender<usize>,
    /// Says that the work on the memory has begun, and with `UnderLock` that the lock is held.
    started: Receiver<()>,
    results: Receiver<Result<Done>>,
}

struct Api {
    work: Arc<Work>,
    memory: Arc<Mutex<Memory>>,
    vcpus: Vec<Vcpu>,
    worker: Worker,
    tids: Json,
}

pub(crate) fn listen(socket: &Path) -> Result<UnixListener> {
    UnixListener::bind(socket).with_context(|| format!("cannot listen on {}", socket.display()))
}

/// Starts all threads; returns the one that serves the API.
pub(crate) fn start(listener: UnixListener, work: Work) -> Result<JoinHandle<Result<()>>> {
    let work = Arc::new(work);
    let memory = Arc::new(Mutex::new(Memory::default()));
    // Every thread says its number first, for the ground truth.
    let (tell, heard) = channel();
    let mut vcpus = Vec::new();
    for name in VCPUS {
        let (orders, received) = channel();
        let (answer, waited) = channel();
        let (memory, tell) = (Arc::clone(&memory), tell.clone());
        named(name, move || {
            tell.send((name, tid())).ok();
            vcpu(&received, &answer, &memory);
        })?;
        vcpus.push(Vcpu { orders, waited });
    }
    let (jobs, received) = channel();
    let (start, started) = channel();
    let (result, results) = channel();
    let worker = Worker {
        jobs,
        started,
        results,
    };
    let (its_work, its_memory, its_tell) = (Arc::clone(&work), Arc::clone(&memory), tell.clone());
    named("worker", move || {
        its_tell.send(("worker", tid())).ok();
        run_worker(&received, &its_work, &its_memory, &start, &result);
    })?;
    named("api", move || {
        tell.send(("api", tid())).ok();
        let mut tids = json!({});
        for _ in 0..VCPUS.len() + 2 {
            let (name, tid) = heard.recv()?;
            tids[name] = json!(tid?);
        }
        let api = Api {
            work,
            memory,
            vcpus,
            worker,
            tids,
        };
        for stream in listener.incoming() {
            api.serve(&stream?)?;
        }
        Ok(())
    })
}

impl Api {
    fn serve(&self, stream: &UnixStream) -> Result<()> {
        for line in BufReader::new(stream).lines() {
            let mut answer = self.answer(&line?)?.to_string();
            answer.push('\n');
            let mut stream = stream;
            stream.write_all(answer.as_bytes())?;
        }
        Ok(())
    }

    fn answer(&self, request: &str) -> Result<Json> {
        if request == "ABOUT" {
            let mb = match &*self.work {
                Work::File(disk) => Some(disk.mb()),
                _ => None,
            };
            return Ok(json!({"tids": self.tids, "snapshot_mb": mb}));
        }
        let episode = request
            .strip_prefix("BRANCH ")
            .and_then(|number| number.parse().ok());
        let Some(episode) = episode.filter(|episode| *episode > 0) else {
            return Ok(json!({"error": format!("not BRANCH n: {request:?}")}));
        };
        let begun = Instant::now();
        let mut answer = match &*self.work {
            Work::File(_) | Work::GrowingCpu => self.pause_and_wait(episode)?,
            Work::UnderLock(times) => self.wait_for_lock(episode, nth(times, episode))?,
            Work::OutsideLock(times) => {
                let time = nth(times, episode);
                let mut answer = self.wait_for_lock(episode, time)?;
                answer["background_ms"] = ms(time);
                answer
            }
        };
        answer["episode"] = json!(episode);
        answer["total_ms"] = ms(begun.elapsed());
        Ok(answer)
    }

    /// The worker's result is what everybody waits for, on a channel each.
    fn pause_and_wait(&self, episode: usize) -> Result<Json> {
        for vcpu in &self.vcpus {
            vcpu.orders.send(Order::Pause)?;
        }
        self.worker.jobs.send(episode)?;
        let (done, waited) = await_result(&self.worker.results)?;
        let mut waits = json!({"api": ms(waited)});
        for (name, vcpu) in VCPUS.into_iter().zip(&self.vcpus) {
            vcpu.orders.send(Order::Resume)?;
            waits[name] = ms(vcpu.waited.recv()?.0);
        }
        Ok(json!({"waits_ms": waits, "work_ms": ms(done.wall), "work_cpu_ms": ms(done.cpu)}))
    }

    /// Everybody wants the memory, whose lock the worker may have. Its work takes the given time,
    /// from when it said that it has begun.
    fn wait_for_lock(&self, episode: usize, time: Duration) -> Result<Json> {
        self.worker.jobs.send(episode)?;
        self.worker.started.recv()?;
        for vcpu in &self.vcpus {
            vcpu.orders.send(Order::Look)?;
        }
        let mut waits = json!({"api": ms(read_generation(&self.memory))});
        for (name, vcpu) in VCPUS.into_iter().zip(&self.vcpus) {
            waits[name] = ms(vcpu.waited.recv()?.0);
        }
        Ok(json!({"waits_ms": waits, "work_ms": ms(time)}))
    }
}

/// Waits for the worker. Not inlined, so that its frame is in the stack of a release build.
#[inline(never)]
fn await_result(results: &Receiver<Result<Done>>) -> Result<(Done, Duration)> {
    let begun = Instant::now();
    let Ok(done) = results.recv() else {
        bail!("the worker has gone");
    };
    let waited = begun.elapsed();
    Ok((done?, waited))
}

fn vcpu(orders: &Receiver<Order>, waited: &Sender<Waited>, memory: &Mutex<Memory>) {
    loop {
        let wait = match orders.recv_timeout(TICK) {
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return,
            // Nobody sends it to a vCPU that is not paused.
            Ok(Order::Resume) => continue,
            Ok(Order::Look) => read_generation(memory),
            Ok(Order::Pause) => stay_paused(orders),
        };
        if waited.send(Waited(wait)).is_err() {
            return;
        }
    }
}

/// A paused vCPU has nothing to do but to wait. Not inlined, so that its frame is in the stack of a
/// release build.
#[inline(never)]
fn stay_paused(orders: &Receiver<Order>) -> Duration {
    let begun = Instant::now();
    while let Ok(order) = orders.recv() {
        if let Order::Resume = order {
            break;
        }
    }
    begun.elapsed()
}

fn run_worker(
    jobs: &Receiver<usize>,
    work: &Work,
    memory: &Mutex<Memory>,
    started: &Sender<()>,
    results: &Sender<Result<Done>>,
) {
    for episode in jobs {
        let (wall, cpu) = (Instant::now(), cpu_time());
        let worked = match work {
            Work::File(disk) => disk.write().map_err(Into::into),
            Work::GrowingCpu => {
                memory::checksum_pages(CONSTANT);
                memory::compact_index(GROWTH * u32::try_from(episode).unwrap_or(u32::MAX));
                Ok(())
            }
            // Nobody waits for their result.
            Work::UnderLock(times) => {
                memory::rebuild_under_lock(memory, nth(times, episode), started);
                continue;
            }
            Work::OutsideLock(times) => {
                memory::rebuild_outside_lock(memory, nth(times, episode), started);
                continue;
            }
        };
        let done = worked.map(|()| Done {
            wall: wall.elapsed(),
            cpu: cpu_time() - cpu,
        });
        if results.send(done).is_err() {
            return;
        }
    }
}

/// The time of the n-th episode, counted from one; the list is repeated.
fn nth(times: &[Duration], episode: usize) -> Duration {
    times[(episode - 1) % times.len()]
}
