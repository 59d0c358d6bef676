//! A closed loop: each connection sends its next request when it has the answer to the last one.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use lexopt::prelude::*;
use serde_json::{Value as Json, json};

use crate::http::Connection;
use crate::promise::{self, Outcome, Rule, ms, precise_summary, print_ground_truth, summary};

/// How often the probe asks: often enough to meet every blocked interval of 100 ms or more.
const PROBE_PAUSE: Duration = Duration::from_millis(20);

struct Options {
    address: SocketAddr,
    path: String,
    connections: usize,
    rounds: usize,
    /// How long a client has its answer before it asks again.
    pause: Duration,
    /// A client asks again when all have their answers: they ask at the same time.
    together: bool,
    probe: Option<String>,
    about: Option<String>,
    rules: Vec<Rule>,
}

/// How long whywait may take to attach.
const DEADLINE: Duration = Duration::from_secs(30);

/// Where the lab's driver is to attach only now (`attach` in lab.toml), asks it to; returns when
/// whywait watches.
fn let_attach() -> Result<()> {
    let Some(file) = std::env::var_os("ATTACH_FILE") else {
        return Ok(());
    };
    std::fs::write(&file, "")?;
    let begun = Instant::now();
    while std::fs::exists(&file)? {
        ensure!(begun.elapsed() < DEADLINE, "whywait did not attach");
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

pub(crate) fn run(parser: lexopt::Parser) -> Result<Outcome> {
    let options = parse(parser)?;
    // All connections are known to the server, and have been answered once, before the load starts:
    // who is accepted late, and what a server does on its first request only, is no part of the
    // lab. Only `wire` has that.
    let warm_up = options.probe.as_deref().unwrap_or(&options.path);
    let mut first = Vec::new();
    let mut open = || {
        let mut connection = Connection::open(options.address)?;
        connection.stamp()?;
        connection.get(warm_up)?;
        first.push(connection.on_the_wire()?);
        Ok(connection)
    };
    let connections = (0..options.connections)
        .map(|_| open())
        .collect::<Result<Vec<_>>>()?;
    let bystander = options
        .probe
        .clone()
        .map(|path| open().map(|connection| (connection, path)))
        .transpose()?;
    let_attach()?;

    let start = Instant::now();
    let done = Arc::new(AtomicBool::new(false));
    let probe = bystander.map(|(connection, path)| {
        let done = Arc::clone(&done);
        thread::spawn(move || probe(connection, &path, &done))
    });
    let round = Arc::new(Barrier::new(match options.together {
        true => connections.len(),
        false => 1,
    }));
    let clients: Vec<_> = connections
        .into_iter()
        .map(|connection| {
            let (path, rounds, pause) = (options.path.clone(), options.rounds, options.pause);
            let round = Arc::clone(&round);
            thread::spawn(move || client(connection, &path, rounds, pause, &round))
        })
        .collect();
    let load = clients.into_iter().map(join).collect::<Result<Vec<_>>>();
    done.store(true, Ordering::Relaxed);
    let probe = probe.map(join).transpose()?;

    let mut load = load?.into_iter().fold(Waited::default(), Waited::and);
    let mut truth = json!({
        "load": summary(load.program),
        "total_ms": ms(start.elapsed()),
    });
    load.wire.extend(first);
    if let Some(probe) = probe {
        truth["probe"] = summary(probe.program);
        load.wire.extend(probe.wire);
    }
    if let Some(path) = &options.about {
        truth["server"] = about(options.address, path)?;
    } else {
        truth["wire"] = precise_summary(load.wire);
    }
    print_ground_truth(&truth);
    promise::check(&options.rules, &truth)
}

fn parse(mut parser: lexopt::Parser) -> Result<Options> {
    let mut address = None;
    let mut path = None;
    let (mut connections, mut rounds) = (4, 3);
    let mut pause = Duration::ZERO;
    let mut together = false;
    let mut probe = None;
    let mut about = None;
    let mut rules = Vec::new();
    while let Some(arg) = parser.next()? {
        match arg {
            Value(value) if address.is_none() => address = Some(value.parse()?),
            Long("path") => path = Some(parser.value()?.string()?),
            Long("connections") => connections = parser.value()?.parse()?,
            Long("rounds") => rounds = parser.value()?.parse()?,
            Long("pause-ms") => pause = Duration::from_millis(parser.value()?.parse()?),
            Long("together") => together = true,
            Long("probe") => probe = Some(parser.value()?.string()?),
            Long("about") => about = Some(parser.value()?.string()?),
            Long("expect") => rules.push(Rule::parse(&parser.value()?.string()?)?),
            _ => return Err(arg.unexpected().into()),
        }
    }
    Ok(Options {
        address: address.context("no address given")?,
        path: path.context("no --path given")?,
        connections,
        rounds,
        pause,
        together,
        probe,
        about,
        rules,
    })
}

/// How long it took until a client had its responses, and how long until its kernel had them: a
/// client without a CPU has them later.
#[derive(Default)]
struct Waited {
    program: Vec<Duration>,
    wire: Vec<Duration>,
}

impl Waited {
    fn ask(&mut self, connection: &mut Connection, path: &str) -> Result<()> {
        let start = Instant::now();
        connection.get(path)?;
        self.program.push(start.elapsed());
        self.wire.push(connection.on_the_wire()?);
        Ok(())
    }

    fn and(mut self, more: Self) -> Self {
        self.program.extend(more.program);
        self.wire.extend(more.wire);
        self
    }
}

fn client(
    mut connection: Connection,
    path: &str,
    rounds: usize,
    pause: Duration,
    round: &Barrier,
) -> Result<Waited> {
    let mut waited = Waited::default();
    for _ in 0..rounds {
        round.wait();
        waited.ask(&mut connection, path)?;
        thread::sleep(pause);
    }
    Ok(waited)
}

/// A bystander: quick requests of its own, which show what the load does to everybody else.
fn probe(mut connection: Connection, path: &str, done: &AtomicBool) -> Result<Waited> {
    let mut waited = Waited::default();
    while !done.load(Ordering::Relaxed) {
        waited.ask(&mut connection, path)?;
        thread::sleep(PROBE_PAUSE);
    }
    Ok(waited)
}

/// What the server itself measured: a client cannot tell a wait for a lock from any other.
fn about(address: SocketAddr, path: &str) -> Result<Json> {
    let body = Connection::open(address)?.get(path)?;
    serde_json::from_str(&body).with_context(|| format!("{path} is not JSON: {body:?}"))
}

fn join(thread: thread::JoinHandle<Result<Waited>>) -> Result<Waited> {
    thread
        .join()
        .map_err(|_| anyhow!("a client thread panicked"))?
}
