//! A server that asks another service for each request and answers with what became of it when.
//!
//! `upstream UPSTREAM [--pool N] [--held] [--calls N] [--work-ms N] [--forward]`: the options are
//! those of the other servers. It is tokio's runtime of several threads, a task for each
//! connection, which has a connection to the other service of its own, unless there is a pool.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use lab_kit::{announce, monotonic_ms};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::Semaphore;

const PATH: &str = "/report";

/// What it does with each request.
struct Options {
    upstream: SocketAddr,
    /// So many connections to the other service at most; 0: each client's has one of its own.
    pool: usize,
    /// A lock is held across each call.
    held: bool,
    /// So many calls for each request, one after another.
    calls: usize,
    /// It computes for so long before it answers.
    work_ms: f64,
    /// The call has the request's path, and its reply says when it was given.
    forward: bool,
}

impl Options {
    fn parse() -> Result<Self> {
        use lexopt::prelude::{Long, Value, ValueExt};
        let (mut upstream, mut pool, mut held, mut calls, mut work_ms) = (None, 0, false, 1, 0.0);
        let mut forward = false;
        let mut parser = lexopt::Parser::from_env();
        while let Some(argument) = parser.next()? {
            match argument {
                Long("pool") => pool = parser.value()?.parse()?,
                Long("held") => held = true,
                Long("calls") => calls = parser.value()?.parse()?,
                Long("work-ms") => work_ms = parser.value()?.parse()?,
                Long("forward") => forward = true,
                Value(address) => upstream = Some(address.parse()?),
                _ => bail!(argument.unexpected()),
            }
        }
        ensure!(calls > 0, "a request makes a call at least");
        Ok(Self {
            upstream: upstream.context("whom to ask?")?,
            pool,
            held,
            calls,
            work_ms,
            forward,
        })
    }
}

fn main() -> Result<()> {
    let options = Options::parse()?;
    // As many threads as one has who does not say how many: one for each CPU.
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(options))
}

async fn serve(options: Options) -> Result<()> {
    let service = Arc::new(Service::new(options).await?);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    announce(&listener.local_addr()?.to_string())?;
    loop {
        let (stream, _) = listener.accept().await?;
        let service = Arc::clone(&service);
        tokio::spawn(async move {
            if let Err(error) = service.converse(stream).await {
                eprintln!("upstream: {error:#}");
                std::process::exit(1);
            }
        });
    }
}

/// The service that is asked, and what requests share of it.
struct Service {
    options: Options,
    free: Semaphore,
    connections: Mutex<Vec<TcpStream>>,
    lock: tokio::sync::Mutex<()>,
}

impl Service {
    async fn new(options: Options) -> Result<Self> {
        let mut connections = Vec::new();
        for _ in 0..options.pool {
            connections.push(connect(options.upstream).await?);
        }
        Ok(Self {
            free: Semaphore::new(options.pool),
            connections: Mutex::new(connections),
            lock: tokio::sync::Mutex::new(()),
            options,
        })
    }

    /// Serves a client, keep-alive, until it goes.
    async fn converse(&self, mut client: TcpStream) -> Result<()> {
        client.set_nodelay(true)?;
        let mut own = match self.options.pool {
            0 => Some(connect(self.options.upstream).await?),
            _ => None,
        };
        while let Some(path) = receive_path(&mut client).await? {
            let read = monotonic_ms();
            let forwarded = self.options.forward.then_some(&*path);
            let mut calls = Vec::new();
            for _ in 0..self.options.calls {
                calls.push(match &mut own {
                    Some(upstream) => self.fetch_with_lock(upstream, forwarded).await?,
                    None => self.fetch_from_pool(forwarded).await?,
                });
            }
            let work = self.options.forward.then(monotonic_ms);
            compute_answer(self.options.work_ms);
            client
                .write_all(answer(read, &calls, work).as_bytes())
                .await?;
        }
        Ok(())
    }

    async fn fetch_with_lock(&self, upstream: &mut TcpStream, path: Path<'_>) -> Result<Call> {
        let _held = match self.options.held {
            true => Some(self.lock.lock().await),
            false => None,
        };
        fetch_report(upstream, path).await
    }

    async fn fetch_from_pool(&self, path: Path<'_>) -> Result<Call> {
        let _permit = self.free.acquire().await?;
        let mut upstream = self
            .with_connections(Vec::pop)
            .context("a permit without a connection")?;
        let call = fetch_report(&mut upstream, path).await?;
        self.with_connections(|all| all.push(upstream));
        Ok(call)
    }

    fn with_connections<T>(&self, what: impl FnOnce(&mut Vec<TcpStream>) -> T) -> T {
        what(
            &mut self
                .connections
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }
}

async fn connect(upstream: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(upstream).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The path that is asked for, of all that comes up to an empty line; `None` when the connection
/// ends.
async fn receive_path(client: &mut TcpStream) -> Result<Option<String>> {
    let mut received = Vec::new();
    while !received.ends_with(b"\r\n\r\n") {
        if client.read_buf(&mut received).await? == 0 {
            return Ok(None);
        }
    }
    let head = String::from_utf8(received)?;
    let path = head.split(' ').nth(1).context("a request without a path")?;
    Ok(Some(path.to_owned()))
}

/// The path of a call; `None`: the usual one.
type Path<'a> = Option<&'a str>;
/// When a call began and ended, and when its reply was given if that says so.
type Call = Vec<f64>;

/// The call, from when there is a connection until its reply is read.
async fn fetch_report(upstream: &mut TcpStream, path: Path<'_>) -> Result<Call> {
    let call = format!(
        "GET {} HTTP/1.1\r\nHost: upstream\r\n\r\n",
        path.unwrap_or(PATH)
    );
    let begun = monotonic_ms();
    upstream.write_all(call.as_bytes()).await?;
    let mut reply = [0; 4096];
    let length = upstream.read(&mut reply).await?;
    ensure!(length > 0, "the other service has gone");
    let mut moments = vec![begun, monotonic_ms()];
    if path.is_some() {
        let said = std::str::from_utf8(&reply[..length])?.split_whitespace();
        moments.push(said.last().context("an empty reply")?.parse()?);
    }
    Ok(moments)
}

#[inline(never)]
fn compute_answer(milliseconds: f64) {
    let end = monotonic_ms() + milliseconds;
    while monotonic_ms() < end {}
}

fn answer(read: f64, calls: &[Call], work: Option<f64>) -> String {
    let (begun, ended) = (calls[0][0], calls[calls.len() - 1][1]);
    let mut said = json!({ "read": read, "begun": begun, "ended": ended, "calls": calls });
    if let Some(work) = work {
        said["work"] = work.into();
        said["answered"] = monotonic_ms().into();
    }
    let body = said.to_string();
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}")
}
