//! What the relay knows of itself: the ground truth.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::meminfo;

/// Counters of both threads. Each has one writer, which adds to it once a round.
pub(crate) struct Stats {
    /// Of which the kernel counts the losses.
    ingress: Arc<UdpSocket>,
    pub(crate) egress_tid: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) allocation_failures: AtomicU64,
    pub(crate) sent: AtomicU64,
    pub(crate) send_failures: AtomicU64,
    pub(crate) rounds: AtomicU64,
    /// What the egress thread did, in nanoseconds of wall time.
    pub(crate) draining: AtomicU64,
    pub(crate) preparing: AtomicU64,
    pub(crate) reaping: AtomicU64,
    pub(crate) submitting: AtomicU64,
    pub(crate) idle: AtomicU64,
    /// From the end of the call that submitted an operation until it was reaped, summed over
    /// operations, in nanoseconds. Sends over loopback and veth complete in that call.
    pub(crate) unreaped: AtomicU64,
    /// Most operations prepared or in flight at a time.
    pub(crate) most_in_flight: AtomicU64,
    /// Packets in the queue when a batch was prepared, summed over rounds.
    pub(crate) queued: AtomicU64,
}

impl Stats {
    pub(crate) fn new(ingress: Arc<UdpSocket>) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            ingress,
            egress_tid: zero(),
            received: zero(),
            allocation_failures: zero(),
            sent: zero(),
            send_failures: zero(),
            rounds: zero(),
            draining: zero(),
            preparing: zero(),
            reaping: zero(),
            submitting: zero(),
            idle: zero(),
            unreaped: zero(),
            most_in_flight: zero(),
            queued: zero(),
        }
    }

    /// All counters as they are at the moment; the load takes differences.
    pub(crate) fn json(&self, at: Duration) -> Result<Value> {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        Ok(json!({
            "at_ns": u64::try_from(at.as_nanos())?,
            "egress_cpu_ns": cpu_time(read(&self.egress_tid))?,
            "received": read(&self.received),
            "ingress_drops": meminfo::drops(&self.ingress)?,
            "allocation_failures": read(&self.allocation_failures),
            "sent": read(&self.sent),
            "send_failures": read(&self.send_failures),
            "rounds": read(&self.rounds),
            "drain_ingress_ns": read(&self.draining),
            "prepare_batch_ns": read(&self.preparing),
            "reap_completions_ns": read(&self.reaping),
            "submit_batch_ns": read(&self.submitting),
            "idle_ns": read(&self.idle),
            "unreaped_ns": read(&self.unreaped),
            "most_in_flight": read(&self.most_in_flight),
            "queued": read(&self.queued),
        }))
    }
}

/// Adds what a round has measured.
pub(crate) fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Relaxed);
}

/// A time as it is counted.
pub(crate) fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// What the thread has been on a CPU, in nanoseconds.
fn cpu_time(tid: u64) -> Result<u64> {
    if tid == 0 {
        return Ok(0);
    }
    let schedstat = std::fs::read_to_string(format!("/proc/self/task/{tid}/schedstat"))?;
    let first = schedstat
        .split_whitespace()
        .next()
        .context("an empty schedstat")?;
    Ok(first.parse()?)
}
