//! What the labs' servers in Rust have in common. `kit.h` beside it is the same for those in C.

pub mod disk;
pub mod http;
pub mod sync;

use std::path::PathBuf;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

/// Tells the lab's driver, which waits for this file, that connections are accepted, and where.
pub fn announce(address: &str) -> Result<()> {
    let ready = std::env::var_os("READY_FILE")
        .map(PathBuf::from)
        .context("READY_FILE must name the file to write when ready")?;
    std::fs::write(&ready, format!("{} {address}\n", std::process::id()))
        .with_context(|| format!("cannot write {}", ready.display()))
}

/// Starts a thread under a name that a report can show.
pub fn named<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    Ok(Builder::new().name(name.to_owned()).spawn(body)?)
}

/// The number of this thread, by which a report knows it.
pub fn tid() -> Result<i32> {
    let link = std::fs::read_link("/proc/thread-self")?;
    let last = link.file_name().and_then(|name| name.to_str());
    Ok(last.context("/proc/thread-self names no thread")?.parse()?)
}

/// Now, in milliseconds of the clock that all processes share: what a client compares its own with.
pub fn monotonic_ms() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as f64 * 1e3 + now.tv_nsec as f64 / 1e6
}

/// A duration in milliseconds, for the ground truth.
pub fn ms(time: Duration) -> Value {
    json!((time.as_secs_f64() * 1_000_000.0).round() / 1000.0)
}

/// Median, 99th percentile, maximum and sum of a series of durations.
pub fn summary(mut series: Vec<Duration>) -> Value {
    series.sort_unstable();
    let Some(last) = series.len().checked_sub(1) else {
        return json!({"count": 0});
    };
    // Nearest ranks, as the clients have them.
    let at =
        |percent: usize| ms(series[(series.len() * percent).div_ceil(100).clamp(1, last + 1) - 1]);
    json!({
        "count": last + 1, "p50_ms": at(50), "p99_ms": at(99), "max_ms": at(100),
        "sum_ms": ms(series.iter().sum()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_knows_its_number() {
        let task = format!("/proc/self/task/{}", tid().unwrap());
        assert!(std::path::Path::new(&task).exists());
        let other = named("other", tid).unwrap().join().unwrap().unwrap();
        assert_ne!(other, tid().unwrap());
    }

    #[test]
    fn a_series_is_summed_up() {
        let series = (1..=200).map(Duration::from_millis).collect();
        let seen = summary(series);
        assert_eq!(
            (&seen["p50_ms"], &seen["p99_ms"]),
            (&json!(100.0), &json!(198.0))
        );
        assert_eq!(seen["sum_ms"], 20_100.0);
        assert_eq!(summary(Vec::new()), json!({"count": 0}));
    }
}
