//! redis-benchmark, which is what everybody loads a redis with.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use lexopt::prelude::*;
use serde_json::{Value as Json, json};

use crate::promise::{Outcome, print_ground_truth};

const CONNECTIONS: usize = 50;

pub(crate) fn run(mut parser: lexopt::Parser) -> Result<Outcome> {
    let mut address: Option<SocketAddr> = None;
    let mut requests = 100_000;
    let mut pipeline = 1;
    while let Some(arg) = parser.next()? {
        match arg {
            Value(value) if address.is_none() => address = Some(value.parse()?),
            Long("requests") => requests = parser.value()?.parse()?,
            Long("pipeline") => pipeline = parser.value()?.parse()?,
            _ => return Err(arg.unexpected().into()),
        }
    }
    let address = address.context("no address given")?;
    let output = Command::new("redis-benchmark")
        .args([
            "-h",
            &address.ip().to_string(),
            "-p",
            &address.port().to_string(),
        ])
        .args(["-c", &CONNECTIONS.to_string(), "-n", &requests.to_string()])
        .args(["-P", &pipeline.to_string(), "-t", "set,get", "--csv"])
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run redis-benchmark (Debian package redis-tools)")?;
    ensure!(
        output.status.success(),
        "redis-benchmark failed: {}",
        output.status
    );
    print_ground_truth(&summary(&String::from_utf8_lossy(&output.stdout))?);
    Ok(Outcome::Kept)
}

/// Takes rate and latencies of every command from redis-benchmark's CSV.
fn summary(csv: &str) -> Result<Json> {
    let mut rows = csv.lines().map(|line| {
        line.split(',')
            .map(|cell| cell.trim_matches('"'))
            .collect::<Vec<_>>()
    });
    let header = rows.next().context("redis-benchmark printed nothing")?;
    let column = |name: &str| {
        header
            .iter()
            .position(|cell| *cell == name)
            .with_context(|| format!("redis-benchmark gave no column {name}"))
    };
    let (rps, p50, p99, max) = (
        column("rps")?,
        column("p50_latency_ms")?,
        column("p99_latency_ms")?,
        column("max_latency_ms")?,
    );
    let mut truth = json!({});
    for row in rows {
        let number = |at: usize| -> Result<f64> {
            let cell = row.get(at).context("redis-benchmark gave a short line")?;
            cell.parse()
                .with_context(|| format!("not a number: {cell}"))
        };
        truth[row[0].to_lowercase()] = json!({
            "rps": number(rps)?,
            "p50_ms": number(p50)?,
            "p99_ms": number(p99)?,
            "max_ms": number(max)?,
        });
    }
    ensure!(
        truth.get("get").is_some() && truth.get("set").is_some(),
        "redis-benchmark did not run GET and SET"
    );
    Ok(truth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_redis_benchmark_prints() {
        let csv = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\
                   \"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
                   \"SET\",\"100000.00\",\"0.3\",\"0.1\",\"0.2\",\"0.4\",\"0.5\",\"1.5\"\n\
                   \"GET\",\"110000.00\",\"0.3\",\"0.1\",\"0.2\",\"0.4\",\"0.6\",\"1.0\"\n";
        let truth = summary(csv).unwrap();
        assert_eq!(truth["get"]["p99_ms"], 0.6);
        assert_eq!(truth["set"]["rps"], 100_000.0);
        assert!(summary("").is_err());
    }
}
