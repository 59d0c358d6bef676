//! A packet relay: ingress → unbounded queue → egress over UDP, the egress through an io_uring.
//!
//! Everything that was blamed for the relay's slowness is a switch of its own, so that what each of
//! them is worth can be measured: see `lab.toml` for the variants. Without a switch everything is
//! as in the regression. Orders come by datagram: `start ADDRESS` names where the packets go,
//! `stats` is answered with the counters.

mod egress;
mod ingress;
mod meminfo;
mod ring;
mod stats;
mod veth;

use std::net::UdpSocket;
use std::sync::{Arc, mpsc};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use rustix::net::sockopt;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::egress::{Egress, Order, Switches};
use crate::stats::Stats;

/// Buffers that there are in all: whoever finds none free drops the packet.
const POOL: usize = 1000;
/// What a buffer holds. The packets have 1400 bytes.
pub(crate) const BUFFER_SIZE: usize = 2048;
/// What the ingress socket holds while its thread has no CPU: the loss to be seen is the pool's.
const RECEIVE_BUFFER: usize = 4 << 20;

/// One buffer of the pool. Whoever has the box has the buffer.
pub(crate) type Buffer = Box<[u8; BUFFER_SIZE]>;

fn main() -> Result<()> {
    let options = parse_args()?;
    let host = if options.veth {
        veth::enter()?
    } else {
        veth::Host::loopback()
    };
    let ingress = Arc::new(UdpSocket::bind((host.address, 0))?);
    let egress = UdpSocket::bind((host.address, 0))?;
    let control = UdpSocket::bind((host.address, 0))?;
    set_receive_buffer(&ingress)?;
    sockopt::set_socket_send_buffer_size(&egress, options.send_buffer / 2).or_else(|_| {
        sockopt::set_socket_send_buffer_size_force(&egress, options.send_buffer / 2)
    })?;

    let stats = Arc::new(Stats::new(Arc::clone(&ingress)));
    let (give_back, pool) = mpsc::channel();
    for _ in 0..POOL {
        give_back.send(Box::new([0; BUFFER_SIZE]))?;
    }
    let (to_egress, from_ingress) = mpsc::channel();
    lab_kit::announce(&format!(
        "{},{}{}",
        ingress.local_addr()?,
        control.local_addr()?,
        host.namespace()
    ))?;

    // Nothing is relayed before it is known where to.
    let begun = Instant::now();
    answer_until_started(&control, &egress)?;
    let counted = Arc::clone(&stats);
    lab_kit::named("ingress", move || {
        pin(false);
        ended(
            "ingress",
            ingress::run(&ingress, &pool, &to_egress, &counted),
        );
    })?;
    let counted = Arc::clone(&stats);
    lab_kit::named("egress", move || {
        pin(true);
        let mut egress = match Egress::new(egress, options.switches, give_back, counted) {
            Ok(egress) => egress,
            Err(error) => return ended("egress", Err(error)),
        };
        ended("egress", egress.run(&from_ingress));
    })?;
    let mut order = [0; 128];
    loop {
        let (length, client) = control.recv_from(&mut order)?;
        ensure!(&order[..length] == b"stats", "an order that there is not");
        control.send_to(stats.json(begun.elapsed())?.to_string().as_bytes(), client)?;
    }
}

/// Takes the first order, which says where the packets go.
fn answer_until_started(control: &UdpSocket, egress: &UdpSocket) -> Result<()> {
    let mut order = [0; 128];
    let (length, client) = control.recv_from(&mut order)?;
    let order = std::str::from_utf8(&order[..length])?;
    let to = order
        .strip_prefix("start ")
        .with_context(|| format!("the first order must be to start, not {order:?}"))?;
    egress.connect(to)?;
    control.send_to(b"started", client)?;
    Ok(())
}

/// A relay without one of its threads is none.
fn ended(what: &str, result: Result<()>) {
    if let Err(error) = result {
        eprintln!("relay: {what}: {error:#}");
    }
    std::process::exit(1);
}

/// The egress has a CPU of its own where there are two; the ingress shares the other one with the
/// load. Otherwise it would be chance which of them the scheduler keeps waiting.
fn pin(egress: bool) {
    let Ok(allowed) = sched_getaffinity(None) else {
        return;
    };
    let cpus: Vec<_> = (0..CpuSet::MAX_CPU)
        .filter(|cpu| allowed.is_set(*cpu))
        .collect();
    let (Some(&first), Some(&last)) = (cpus.first(), cpus.last()) else {
        return;
    };
    let mut own = CpuSet::new();
    own.set(if egress { last } else { first });
    sched_setaffinity(None, &own).ok();
}

fn set_receive_buffer(socket: &UdpSocket) -> Result<()> {
    // Beyond the system's limit only for root.
    sockopt::set_socket_recv_buffer_size_force(socket, RECEIVE_BUFFER)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(socket, RECEIVE_BUFFER))?;
    Ok(())
}

struct Options {
    switches: Switches,
    /// As `SO_SNDBUF` reads it, in bytes: the kernel doubles what it is given.
    send_buffer: usize,
    veth: bool,
}

fn parse_args() -> Result<Options> {
    use lexopt::prelude::*;
    let mut options = Options {
        switches: Switches::published(),
        send_buffer: 208 << 10,
        veth: false,
    };
    let switches = &mut options.switches;
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("reap") => switches.reap = order(&parser.value()?.string()?, "late")?,
            Long("submit") => switches.submit = order(&parser.value()?.string()?, "main-loop")?,
            Long("drain") => {
                let bound = parser.value()?.string()?;
                switches.drain = if bound == "all" {
                    usize::MAX
                } else {
                    bound.parse()?
                };
            }
            Long("queue") => {
                switches.deque = match parser.value()?.string()?.as_str() {
                    "deque" => true,
                    "vec-remove0" => false,
                    other => bail!("--queue is deque or vec-remove0, not {other}"),
                }
            }
            Long("depth") => switches.depth = parser.value()?.parse()?,
            Long("batch") => switches.batch = parser.value()?.parse()?,
            Long("log") => switches.log = true,
            Long("sndbuf") => options.send_buffer = parser.value()?.parse()?,
            Long("veth") => options.veth = true,
            _ => return Err(arg.unexpected().into()),
        }
    }
    ensure!(
        switches.batch >= 1 && switches.drain >= 1 && (1..=4096).contains(&switches.depth),
        "batch, drain and depth must be at least 1, and the depth 4096 at most"
    );
    Ok(options)
}

fn order(text: &str, later: &str) -> Result<Order> {
    match text {
        "at-once" => Ok(Order::AtOnce),
        _ if text == later => Ok(Order::Later),
        _ => bail!("at-once or {later}, not {text}"),
    }
}
