//! A server that asks another service for each request and answers with what became of it when.
//!
//! `upstream UPSTREAM [--pool N] [--held] [--calls N] [--work-ms N]`: the options are those of the
//! other servers. It is tokio's runtime of several threads, a task for each connection, which has a
//! connection to the other service of its own, unless there is a pool.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use lab_kit::{announce, monotonic_ms};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::Semaphore;

const CALL: &[u8] = b"GET /report HTTP/1.1\r\nHost: upstream\r\n\r\n";

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
}

impl Options {
    fn parse() -> Result<Self> {
        use lexopt::prelude::{Long, Value, ValueExt};
        let (mut upstream, mut pool, mut held, mut calls, mut work_ms) = (None, 0, false, 1, 0.0);
        let mut parser = lexopt::Parser::from_env();
        while let Some(argument) = parser.next()? {
            match argument {
                Long("pool") => pool = parser.value()?.parse()?,
                Long("held") => held = true,
                Long("calls") => calls = parser.value()?.parse()?,
                Long("work-ms") => work_ms = parser.value()?.parse()?,
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
        while receive_head(&mut client).await? {
            let read = monotonic_ms();
            let mut calls = Vec::new();
            for _ in 0..self.options.calls {
                calls.push(match &mut own {
                    Some(upstream) => self.fetch_with_lock(upstream).await?,
                    None => self.fetch_from_pool().await?,
                });
            }
            compute_answer(self.options.work_ms);
            client.write_all(answer(read, &calls).as_bytes()).await?;
        }
        Ok(())
    }

    async fn fetch_with_lock(&self, upstream: &mut TcpStream) -> Result<[f64; 2]> {
        let _held = match self.options.held {
            true => Some(self.lock.lock().await),
            false => None,
        };
        fetch_report(upstream).await
    }

    async fn fetch_from_pool(&self) -> Result<[f64; 2]> {
        let _permit = self.free.acquire().await?;
        let mut upstream = self
            .with_connections(Vec::pop)
            .context("a permit without a connection")?;
        let call = fetch_report(&mut upstream).await?;
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

/// All that comes up to an empty line; `false` when the connection ends.
async fn receive_head(client: &mut TcpStream) -> Result<bool> {
    let mut received = Vec::new();
    while !received.ends_with(b"\r\n\r\n") {
        if client.read_buf(&mut received).await? == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The call, from when there is a connection until its reply is read.
async fn fetch_report(upstream: &mut TcpStream) -> Result<[f64; 2]> {
    let begun = monotonic_ms();
    upstream.write_all(CALL).await?;
    let mut reply = [0; 4096];
    ensure!(
        upstream.read(&mut reply).await? > 0,
        "the other service has gone"
    );
    Ok([begun, monotonic_ms()])
}

#[inline(never)]
fn compute_answer(milliseconds: f64) {
    let end = monotonic_ms() + milliseconds;
    while monotonic_ms() < end {}
}

fn answer(read: f64, calls: &[[f64; 2]]) -> String {
    let (begun, ended) = (calls[0][0], calls[calls.len() - 1][1]);
    let said = json!({ "read": read, "begun": begun, "ended": ended, "calls": calls });
    let body = said.to_string();
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}")
}
