//! A server whose threads each accept a connection, serve it to its end, and come back for the
//! next. With `--acceptor`, one thread accepts for all, and they take connections from a channel.
//!
//! The work on a request is a call of another service (`--upstream`), or CPU time (`--burn-ms`).
//! With `--lock`, one of them works at a time. Without `--keep-alive-ms` a connection ends with its
//! first answer; with it, the connection keeps its thread until it was idle for so long.

use std::hint::black_box;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab_kit::sync::{Mutex, lock};
use lab_kit::{announce, monotonic_ms, named};
use lexopt::prelude::*;

#[derive(Clone, Default)]
struct Options {
    workers: usize,
    acceptor: bool,
    lock: bool,
    upstream: Option<String>,
    burn: Duration,
    keep_alive: Option<Duration>,
}

fn main() -> Result<()> {
    let options = parse()?;
    let listener = Arc::new(TcpListener::bind(("127.0.0.1", 0))?);
    let (sender, receiver) = channel();
    let source = if options.acceptor {
        Source::Channel(Arc::new(Mutex::new(receiver)))
    } else {
        Source::Listener(Arc::clone(&listener))
    };
    let shared = options.lock.then(Arc::default);
    for number in 0..options.workers {
        let (source, shared) = (source.clone(), shared.clone());
        let work = Work::new(&options)?;
        named(&format!("worker-{number}"), move || {
            serve(&source, work, shared.as_deref(), options.keep_alive)
        })?;
    }
    announce(&listener.local_addr()?.to_string())?;
    if options.acceptor {
        for stream in listener.incoming() {
            sender.send(stream?)?;
        }
    }
    loop {
        std::thread::park();
    }
}

/// Where a worker has its connections from.
#[derive(Clone)]
enum Source {
    Listener(Arc<TcpListener>),
    /// Who waits for the next one has the lock meanwhile, and the other idle ones wait for that.
    Channel(Arc<Mutex<Receiver<TcpStream>>>),
}

impl Source {
    fn next(&self) -> Result<TcpStream> {
        Ok(match self {
            Self::Listener(listener) => listener.accept()?.0,
            Self::Channel(receiver) => lock(receiver).recv()?,
        })
    }
}

fn parse() -> Result<Options> {
    let mut options = Options::default();
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("workers") => options.workers = parser.value()?.parse()?,
            // As many as there are CPUs, and no fewer than two.
            Long("worker-per-cpu") => {
                options.workers = std::thread::available_parallelism()?.get().max(2);
            }
            Long("acceptor") => options.acceptor = true,
            Long("lock") => options.lock = true,
            Long("upstream") => options.upstream = Some(parser.value()?.string()?),
            Long("burn-ms") => options.burn = Duration::from_millis(parser.value()?.parse()?),
            Long("keep-alive-ms") => {
                options.keep_alive = Some(Duration::from_millis(parser.value()?.parse()?));
            }
            _ => return Err(arg.unexpected().into()),
        }
    }
    ensure!(options.workers > 0, "no --workers given");
    Ok(options)
}

/// What a worker does for a request.
enum Work {
    Upstream(TcpStream),
    Burn(Duration),
}

impl Work {
    fn new(options: &Options) -> Result<Self> {
        let Some(upstream) = &options.upstream else {
            return Ok(Self::Burn(options.burn));
        };
        let stream = TcpStream::connect(upstream).context("cannot reach the upstream")?;
        stream.set_nodelay(true)?;
        Ok(Self::Upstream(stream))
    }

    fn run(&mut self, shared: Option<&Mutex<()>>) -> io::Result<()> {
        match self {
            Self::Upstream(stream) => match shared {
                Some(shared) => fetch_report_under_lock(stream, shared),
                None => fetch_report(stream),
            },
            Self::Burn(time) => {
                render_report(*time);
                Ok(())
            }
        }
    }
}

/// The fault of `lock`: others that want to ask wait for this one's answer.
#[inline(never)]
fn fetch_report_under_lock(upstream: &mut TcpStream, shared: &Mutex<()>) -> io::Result<()> {
    WANT_IT.fetch_add(1, Ordering::SeqCst);
    let held = lock(shared);
    WANT_IT.fetch_sub(1, Ordering::SeqCst);
    let turn = TURNS.fetch_add(1, Ordering::SeqCst) + 1;
    let fetched = fetch_report(upstream);
    drop(held);
    // The lock is not fair: who lets it go would have it again before another one has woken up.
    while WANT_IT.load(Ordering::SeqCst) > 0 && TURNS.load(Ordering::SeqCst) == turn {
        std::thread::sleep(Duration::from_micros(100));
    }
    fetched
}

/// How many wait for the lock, and how often it was taken.
static WANT_IT: AtomicUsize = AtomicUsize::new(0);
static TURNS: AtomicUsize = AtomicUsize::new(0);

/// Asks the other service and waits for its answer.
#[inline(never)]
fn fetch_report(upstream: &mut TcpStream) -> io::Result<()> {
    upstream.write_all(b"GET / HTTP/1.1\r\n\r\n")?;
    let mut answer = [0; 4096];
    match upstream.read(&mut answer)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

/// Computes until a fixed wall time is over.
#[inline(never)]
fn render_report(time: Duration) {
    let end = Instant::now() + time;
    let mut pixel = 1_u64;
    while Instant::now() < end {
        for _ in 0..1000 {
            pixel = black_box(
                pixel
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1),
            );
        }
    }
}

/// One connection after the other.
fn serve(
    source: &Source,
    mut work: Work,
    shared: Option<&Mutex<()>>,
    keep_alive: Option<Duration>,
) -> Result<()> {
    loop {
        let stream = source.next()?;
        // A client that goes away, or has nothing to say, ends its connection and nothing else.
        converse(&stream, &mut work, shared, keep_alive).ok();
    }
}

fn converse(
    stream: &TcpStream,
    work: &mut Work,
    shared: Option<&Mutex<()>>,
    keep_alive: Option<Duration>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(keep_alive)?;
    let mut lines = BufReader::new(stream).lines();
    while lines.next().transpose()?.is_some() {
        while !lines.next().unwrap_or(Ok(String::new()))?.is_empty() {}
        let read = monotonic_ms();
        work.run(shared)?;
        let ended = monotonic_ms();
        let body = serde_json::json!({"read": read, "begun": read, "ended": ended}).to_string();
        let length = body.len();
        let mut stream = stream;
        stream.write_all(
            format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}").as_bytes(),
        )?;
        if keep_alive.is_none() {
            break;
        }
    }
    Ok(())
}
