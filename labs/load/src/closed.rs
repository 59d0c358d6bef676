//! A closed loop: each connection sends its next request when it has the answer to the last one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use lexopt::prelude::*;
use serde_json::json;

use crate::http::Connection;
use crate::promise::{self, Outcome, Rule, ms, print_ground_truth, summary};

/// How often the probe asks: often enough to meet every blocked stretch of 100 ms or more.
const PROBE_PAUSE: Duration = Duration::from_millis(20);

struct Options {
    address: SocketAddr,
    path: String,
    connections: usize,
    rounds: usize,
    probe: Option<String>,
    rules: Vec<Rule>,
}

pub(crate) fn run(parser: lexopt::Parser) -> Result<Outcome> {
    let options = parse(parser)?;
    let start = Instant::now();
    // One answer before the load: what a server does on its first request only is no part of the lab.
    Connection::open(options.address)?.get(options.probe.as_deref().unwrap_or(&options.path))?;

    let done = Arc::new(AtomicBool::new(false));
    let probe = options.probe.clone().map(|path| {
        let (address, done) = (options.address, Arc::clone(&done));
        thread::spawn(move || probe(address, &path, &done))
    });
    let clients: Vec<_> = (0..options.connections)
        .map(|_| {
            let (address, path, rounds) = (options.address, options.path.clone(), options.rounds);
            thread::spawn(move || client(address, &path, rounds))
        })
        .collect();
    let load = clients.into_iter().map(join).collect::<Result<Vec<_>>>();
    done.store(true, Ordering::Relaxed);
    let probe = probe.map(join).transpose()?;

    let mut truth = json!({
        "load": summary(load?.concat()),
        "total_ms": ms(start.elapsed()),
    });
    if let Some(probe) = probe {
        truth["probe"] = summary(probe);
    }
    print_ground_truth(&truth);
    promise::check(&options.rules, &truth)
}

fn parse(mut parser: lexopt::Parser) -> Result<Options> {
    let mut address = None;
    let mut path = None;
    let (mut connections, mut rounds) = (4, 3);
    let mut probe = None;
    let mut rules = Vec::new();
    while let Some(arg) = parser.next()? {
        match arg {
            Value(value) if address.is_none() => address = Some(value.parse()?),
            Long("path") => path = Some(parser.value()?.string()?),
            Long("connections") => connections = parser.value()?.parse()?,
            Long("rounds") => rounds = parser.value()?.parse()?,
            Long("probe") => probe = Some(parser.value()?.string()?),
            Long("expect") => rules.push(Rule::parse(&parser.value()?.string()?)?),
            _ => return Err(arg.unexpected().into()),
        }
    }
    Ok(Options {
        address: address.context("no address given")?,
        path: path.context("no --path given")?,
        connections,
        rounds,
        probe,
        rules,
    })
}

fn client(address: SocketAddr, path: &str, rounds: usize) -> Result<Vec<Duration>> {
    let mut connection = Connection::open(address)?;
    (0..rounds).map(|_| timed(&mut connection, path)).collect()
}

/// A bystander: quick requests of its own, which show what the load does to everybody else.
fn probe(address: SocketAddr, path: &str, done: &AtomicBool) -> Result<Vec<Duration>> {
    let mut connection = Connection::open(address)?;
    let mut latencies = Vec::new();
    while !done.load(Ordering::Relaxed) {
        latencies.push(timed(&mut connection, path)?);
        thread::sleep(PROBE_PAUSE);
    }
    Ok(latencies)
}

fn timed(connection: &mut Connection, path: &str) -> Result<Duration> {
    let start = Instant::now();
    connection.get(path)?;
    Ok(start.elapsed())
}

fn join<T>(thread: thread::JoinHandle<Result<T>>) -> Result<T> {
    thread
        .join()
        .map_err(|_| anyhow!("a client thread panicked"))?
}
