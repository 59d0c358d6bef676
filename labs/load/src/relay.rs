//! Packets for a relay, more than it can pass on, and how many of them come out.
//!
//! The receiver does not read: what comes out of the relay is counted by the kernel, which drops it
//! when the socket is full. A reader would want as much of a CPU as the relay does.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lexopt::prelude::*;
use rustix::thread::{
    CpuSet, LinkNameSpaceType, move_into_link_name_space, sched_getaffinity, sched_setaffinity,
};
use serde_json::{Value as Json, json};

use crate::gso;
use crate::promise::{self, Outcome, Rule, print_ground_truth};

const PACKET: usize = 1400;
/// Packets that are handed to the kernel in one call.
const TRAIN: usize = 32;
/// How often the generator looks whether trains are due.
const TICK: Duration = Duration::from_micros(300);
/// Until pool and queue are as full as they will be.
const WARM_UP: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a rate is tried before it is found too low to fill the pool, by how much the next one
/// is higher, and how often that is tried.
const TRIAL: Duration = Duration::from_millis(250);
const STEP: f64 = 1.15;
const TRIALS: u32 = 8;
/// Of what the ingress receives, so much is to find no buffer.
const OVERLOAD: f64 = 0.12;

struct Options {
    relay: SocketAddr,
    control: SocketAddr,
    /// Where the load's own sockets are.
    host: IpAddr,
    rate: f64,
    measured: Duration,
    rules: Vec<Rule>,
}

pub(crate) fn run(parser: lexopt::Parser) -> Result<Outcome> {
    let options = parse(parser)?;
    let receiver = UdpSocket::bind((options.host, 0))?;
    let control = UdpSocket::bind((options.host, 0))?;
    control.set_read_timeout(Some(PATIENCE))?;
    control.connect(options.control)?;
    let answer = ask(&control, &format!("start {}", receiver.local_addr()?))?;
    ensure!(answer == "started", "the relay answered {answer:?}");
    let (relay, rate) = (options.relay, options.rate);
    let generator = UdpSocket::bind((options.host, 0))?;
    let dial = Arc::new(Dial::at(rate));
    let turned = dial.clone();
    let generator = thread::spawn(move || generate(&generator, relay, &turned));
    thread::sleep(WARM_UP);
    let port = receiver.local_addr()?.port();
    for _ in 0..TRIALS {
        if is_overloaded(&control, port, &dial)? {
            break;
        }
    }
    let (sent, begun) = (dial.sent(), Instant::now());
    let before = snapshot(&control, port)?;
    while begun.elapsed() < options.measured {
        is_overloaded(&control, port, &dial)?;
    }
    let after = snapshot(&control, port)?;
    let offered = (dial.sent() - sent) as f64 / begun.elapsed().as_secs_f64();
    dial.stop();
    generator
        .join()
        .map_err(|_| anyhow::anyhow!("the generator panicked"))??;
    let mut truth = truth(&before, &after, offered)?;
    // The receiver must be there for as long as anything is on its way: it would be refused
    // otherwise.
    truth["sent"] = json!(sent_in_the_end(&control, port)?);
    print_ground_truth(&truth);
    promise::check(&options.rules, &truth)
}

fn parse(mut parser: lexopt::Parser) -> Result<Options> {
    let mut address: Option<String> = None;
    let (mut rate, mut measured) = (None, Duration::from_secs(4));
    let mut rules = Vec::new();
    while let Some(arg) = parser.next()? {
        match arg {
            Value(value) if address.is_none() => address = Some(value.string()?),
            Long("rate") => rate = Some(parser.value()?.parse()?),
            Long("seconds") => measured = Duration::from_secs(parser.value()?.parse()?),
            Long("expect") => rules.push(Rule::parse(&parser.value()?.string()?)?),
            _ => return Err(arg.unexpected().into()),
        }
    }
    let address = address.context("no address given")?;
    let mut parts = address.split(',');
    let mut next = || parts.next().context("not INGRESS,CONTROL[,OWN,NAMESPACE]");
    let (relay, control) = (next()?.parse()?, next()?.parse()?);
    let host = if let Some(host) = parts.next() {
        let namespace = parts.next().context("no namespace after the own address")?;
        let file = File::open(namespace).with_context(|| format!("cannot open {namespace}"))?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
        host.parse()?
    } else {
        IpAddr::V4(Ipv4Addr::LOCALHOST)
    };
    Ok(Options {
        relay,
        control,
        host,
        rate: rate.context("no --rate given")?,
        measured,
        rules,
    })
}

fn ask(control: &UdpSocket, order: &str) -> Result<String> {
    let mut answer = [0; 2048];
    control.send(order.as_bytes())?;
    let length = control
        .recv(&mut answer)
        .context("the relay does not answer")?;
    Ok(std::str::from_utf8(&answer[..length])?.to_owned())
}

/// How many packets a second are to be sent, and how many were sent so far.
struct Dial {
    /// 0: no more.
    rate: AtomicU64,
    sent: AtomicU64,
}

impl Dial {
    fn at(rate: f64) -> Self {
        Self {
            rate: AtomicU64::new(rate as u64),
            sent: AtomicU64::new(0),
        }
    }

    fn rate(&self) -> f64 {
        self.rate.load(Relaxed) as f64
    }

    fn raise(&self) {
        self.rate.store((self.rate() * STEP) as u64, Relaxed);
    }

    fn stop(&self) {
        self.rate.store(0, Relaxed);
    }

    fn sent(&self) -> u64 {
        self.sent.load(Relaxed)
    }
}

/// Looks for a while whether more comes in than the relay can send, and raises the rate if not: how
/// much that is depends on the machine, and on what else it does.
fn is_overloaded(control: &UdpSocket, port: u16, dial: &Dial) -> Result<bool> {
    let before = snapshot(control, port)?;
    thread::sleep(TRIAL);
    let truth = truth(&before, &snapshot(control, port)?, dial.rate())?;
    // What the ingress does not get to see, because its CPU is used up, a higher rate would not
    // bring it either.
    let overloaded = number(&truth, "allocation_failures") >= OVERLOAD
        || number(&truth, "ingress_loss") >= OVERLOAD;
    if !overloaded {
        dial.raise();
    }
    Ok(overloaded)
}

fn number(truth: &Json, name: &str) -> f64 {
    truth[name].as_f64().unwrap_or(0.0)
}

/// Sends as many packets a second as the dial says, in trains, until it says none.
fn generate(socket: &UdpSocket, relay: SocketAddr, dial: &Dial) -> Result<()> {
    share_first_cpu();
    socket.connect(relay)?;
    let train = if gso::split(socket, PACKET) { TRAIN } else { 1 };
    let packets = vec![0x5a; PACKET * train];
    let mut looked = Instant::now();
    let mut due: f64 = 0.0;
    while dial.rate() > 0.0 {
        due += looked.elapsed().as_secs_f64() * dial.rate();
        looked = Instant::now();
        // After it had to wait for a CPU, a generator does not make up for all of it: that would be
        // a flood.
        let mut left = 64;
        while due > 0.0 && left > 0 {
            socket.send(&packets)?;
            dial.sent.fetch_add(train as u64, Relaxed);
            due -= train as f64;
            left -= 1;
        }
        thread::sleep(TICK);
    }
    Ok(())
}

/// The relay's egress has the last CPU.
fn share_first_cpu() {
    if let Ok(allowed) = sched_getaffinity(None)
        && let Some(first) = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu))
    {
        let mut own = CpuSet::new();
        own.set(first);
        sched_setaffinity(None, &own).ok();
    }
}

/// What the relay has counted so far, and what has arrived.
fn snapshot(control: &UdpSocket, port: u16) -> Result<Json> {
    let answer = ask(control, "stats")?;
    let mut counters: Json =
        serde_json::from_str(&answer).with_context(|| format!("not JSON: {answer:?}"))?;
    counters["arrived"] = json!(dropped(port)?);
    Ok(counters)
}

/// All packets that the relay has sent, also before they were counted, when nothing is left.
fn sent_in_the_end(control: &UdpSocket, port: u16) -> Result<u64> {
    let begun = Instant::now();
    let mut before = None;
    loop {
        let sent = snapshot(control, port)?["sent"].as_u64();
        if sent.is_some() && sent == before {
            return sent.context("the relay counts nothing sent");
        }
        ensure!(
            begun.elapsed() < PATIENCE,
            "the relay does not come to an end"
        );
        before = sent;
        thread::sleep(Duration::from_millis(50));
    }
}

/// Packets that the kernel dropped because the receiver was full, which is all but the first few.
fn dropped(port: u16) -> Result<u64> {
    let table = std::fs::read_to_string("/proc/thread-self/net/udp")?;
    let local = format!(":{port:04X}");
    let row = table.lines().find(|line| {
        line.split_whitespace()
            .nth(1)
            .is_some_and(|address| address.ends_with(&local))
    });
    let drops = row.and_then(|row| row.split_whitespace().next_back());
    Ok(drops
        .context("the kernel does not list the receiver")?
        .parse()?)
}

/// What happened between two snapshots.
fn truth(before: &Json, after: &Json, offered: f64) -> Result<Json> {
    let more = |name: &str| -> Result<f64> {
        let read = |counters: &Json| {
            counters[name]
                .as_f64()
                .with_context(|| format!("the relay counts no {name}"))
        };
        Ok(read(after)? - read(before)?)
    };
    let ns = more("at_ns")?;
    let seconds = ns / 1e9;
    let (received, drops, sent) = (more("received")?, more("ingress_drops")?, more("sent")?);
    ensure!(sent > 0.0, "the relay has sent nothing");
    let rounded = |value: f64| json!((value * 1000.0).round() / 1000.0);
    let share = |part: f64, of: f64| rounded(if of > 0.0 { part / of } else { 0.0 });
    let mut spent = json!({});
    for function in [
        "drain_ingress",
        "prepare_batch",
        "reap_completions",
        "submit_batch",
        "idle",
    ] {
        spent[function] = share(more(&format!("{function}_ns"))?, ns);
    }
    Ok(json!({
        "seconds": rounded(seconds),
        "packets_per_s": rounded(sent / seconds),
        "offered_per_s": rounded(offered),
        "received_per_s": rounded(received / seconds),
        // Of what reached the ingress socket, what its thread was too late for.
        "ingress_loss": share(drops, received + drops),
        // Of what was received, what found no buffer.
        "allocation_failures": share(more("allocation_failures")?, received),
        // Of what reached the ingress socket, what is lost because it is too much: for the ingress
        // or for the egress.
        "overload": share(drops + more("allocation_failures")?, received + drops),
        "send_failures": more("send_failures")?,
        // Of what was sent, what did not arrive.
        "egress_loss": share((sent - more("arrived")?).max(0.0), sent),
        "spent": spent,
        // The egress is never idle: what else runs on its CPU makes the rate smaller, but not this.
        "packets_per_cpu_s": rounded(sent / (more("egress_cpu_ns")? / 1e9)),
        "cpu_us_per_packet": rounded(more("egress_cpu_ns")? / 1e3 / sent),
        "packets_per_round": rounded(sent / more("rounds")?),
        "queue_length": rounded(more("queued")? / more("rounds")?),
        "unreaped_us": rounded(more("unreaped_ns")? / 1e3 / sent),
        "most_in_flight": after["most_in_flight"],
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_truth_is_what_came_between() {
        let counters = |n: u64| {
            json!({
                "at_ns": n * 1_000_000_000, "egress_cpu_ns": n * 900_000_000, "received": n * 400,
                "ingress_drops": n * 100, "sent": n * 100, "allocation_failures": n * 300,
                "send_failures": 0, "arrived": n * 100, "rounds": n * 10, "drain_ingress_ns": 0,
                "prepare_batch_ns": n * 500_000_000, "reap_completions_ns": 0,
                "submit_batch_ns": 0, "idle_ns": 0, "unreaped_ns": n * 2_000_000,
                "queued": n * 50, "most_in_flight": 32,
            })
        };
        let truth = truth(&counters(1), &counters(3), 500.0).unwrap();
        assert_eq!(truth["packets_per_s"], 100.0);
        assert_eq!(truth["ingress_loss"], 0.2);
        assert_eq!(truth["allocation_failures"], 0.75);
        assert_eq!(truth["overload"], 0.8);
        assert_eq!(truth["spent"]["prepare_batch"], 0.5);
        assert_eq!(truth["unreaped_us"], 20.0);
        assert_eq!(truth["packets_per_round"], 10.0);
    }

    #[test]
    fn a_relay_that_counts_something_else_is_an_error() {
        assert!(truth(&json!({"at_ns": 0}), &json!({"at_ns": 1}), 1.0).is_err());
    }
}
