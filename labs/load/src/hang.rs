//! Requests that are answered, then requests of which some never are.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use lexopt::prelude::*;
use serde_json::json;

use crate::http::Connection;
use crate::promise::{self, Outcome, Rule, ms, print_ground_truth, summary};

/// So long without an answer, where a healthy one takes about a millisecond, is called unanswered.
/// That it would never have come is for the server to say, by how it is built.
const PATIENCE_MS: u64 = 1500;
const HEALTHY_ROUNDS: usize = 10;

pub(crate) fn run(mut parser: lexopt::Parser) -> Result<Outcome> {
    let mut address: Option<SocketAddr> = None;
    let (mut healthy, mut paths) = (Vec::new(), Vec::new());
    let mut about = None;
    let mut patience = Duration::from_millis(PATIENCE_MS);
    let mut rules = Vec::new();
    while let Some(arg) = parser.next()? {
        match arg {
            Value(value) if address.is_none() => address = Some(value.parse()?),
            Long("healthy") => healthy.push(parser.value()?.string()?),
            Long("path") => paths.push(parser.value()?.string()?),
            Long("about") => about = Some(parser.value()?.string()?),
            Long("patience-ms") => patience = Duration::from_millis(parser.value()?.parse()?),
            Long("expect") => rules.push(Rule::parse(&parser.value()?.string()?)?),
            _ => return Err(arg.unexpected().into()),
        }
    }
    let address = address.context("no address given")?;
    ensure!(!healthy.is_empty(), "no --healthy given");
    ensure!(!paths.is_empty(), "no --path given");

    // The connections that will hang have been answered before, as those of a real client have.
    let mut connections = Vec::new();
    for _ in &paths {
        connections.push(Connection::open(address)?);
    }
    let mut answered = Vec::new();
    for _ in 0..HEALTHY_ROUNDS {
        for (connection, path) in connections.iter_mut().zip(healthy.iter().cycle()) {
            let start = Instant::now();
            connection.get(path)?;
            answered.push(start.elapsed());
        }
    }

    let begun = Instant::now();
    let pending: Vec<_> = connections
        .into_iter()
        .zip(paths)
        .map(|(connection, path)| thread::spawn(move || ask(connection, &path, begun + patience)))
        .collect();
    // The connections stay open until all are looked at: a server may end a request whose client
    // has gone.
    let asked = pending
        .into_iter()
        .map(|thread| {
            thread
                .join()
                .map_err(|_| anyhow!("a client thread panicked"))?
        })
        .collect::<Result<Vec<_>>>()?;
    let latencies: Vec<_> = asked.iter().filter_map(|(_, latency)| *latency).collect();
    let mut truth = json!({
        "healthy": summary(answered),
        "asked": asked.len(),
        "unanswered": asked.len() - latencies.len(),
        "answered": summary(latencies),
        "waited_ms": ms(begun.elapsed()),
    });
    if let Some(path) = about {
        let body = Connection::open(address)?.get(&path)?;
        truth["server"] =
            serde_json::from_str(&body).with_context(|| format!("{path} is not JSON: {body:?}"))?;
    }
    print_ground_truth(&truth);
    promise::check(&rules, &truth)
}

/// Asks, and returns after how long the answer came, if it did; with the connection, which is still
/// open.
fn ask(
    mut connection: Connection,
    path: &str,
    until: Instant,
) -> Result<(Connection, Option<Duration>)> {
    let begun = Instant::now();
    connection.send(path)?;
    let latency = connection.response_until(until)?.map(|_| begun.elapsed());
    Ok((connection, latency))
}
