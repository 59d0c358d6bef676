//! A first budget, from recordings of a server as it is: what it has now, with room.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::date::Date;
use crate::measures::{Found, Run};

/// Beyond the worst run, latencies and costs may be so much more.
const ROOM: f64 = 1.5;
/// Rates may be so much less than the worst run's.
const LESS: f64 = 0.7;

/// The limits that are written, with the least value each may have: shorter waits are not recorded
/// one by one.
const LIMITS: [(&str, &str); 4] = [
    ("latency p50", "latency.p50"),
    ("latency p99", "latency.p99"),
    ("ready-unserved.stranded p99", "ready-unserved.stranded.p99"),
    ("cpu per-request", "cpu.per-request"),
];

/// A budget that these runs keep to. `until`: the day until which findings that they have are
/// allowed.
pub fn render(runs: &[Run], until: Date) -> String {
    let mut text = String::from(
        "# What whywait gate holds recordings of this server against: see docs/ci.md.\n\
         schema = 1\n\
         # Whether lines that the recordings cannot decide fail the gate.\n\
         fail-when-undecided = false\n\n\
         # MEASURE STATISTIC < VALUE; each is the median of the runs.\nlimits = [\n",
    );
    for (name, measure) in LIMITS {
        let worst = runs
            .iter()
            .filter_map(|run| run.measures.get(measure))
            .map(|measure| measure.at_most.unwrap_or(measure.value))
            .filter(|value| value.is_finite())
            .fold(None, |worst: Option<f64>, value| {
                Some(worst.map_or(value, |worst| worst.max(value)))
            });
        if let Some(worst) = worst {
            let _ = writeln!(text, "  \"{name} < {}\",", above(worst * ROOM));
        }
    }
    let rates = runs.iter().filter_map(|run| run.value("requests.rate"));
    let least = rates.fold(f64::INFINITY, f64::min) * LESS;
    if least.is_finite() && least >= 1.0 {
        let _ = writeln!(text, "  \"requests rate > {}/s\",", rounded(least).floor());
    }
    text.push_str("]\n\n[findings]\nmax-severity = \"note\"\n");
    let mut allow: BTreeMap<String, &Found> = BTreeMap::new();
    for found in runs.iter().flat_map(|run| &run.findings) {
        if found.rank() > 1 {
            let worst = allow.entry(found.key()).or_insert(found);
            if found.rank() > worst.rank() {
                *worst = found;
            }
        }
    }
    for found in allow.values() {
        let _ = write!(
            text,
            "\n[[findings.allow]]\ncode = \"{}\"\nmax-severity = \"{}\"\n",
            found.code, found.severity
        );
        if !found.thread.is_empty() {
            let _ = writeln!(text, "thread = {}", quoted(&found.thread));
        }
        let _ = writeln!(
            text,
            "reason = \"it was there when this budget was written\"\nuntil = {until}"
        );
    }
    text.push_str(
        "\n# With a file that `whywait gate --save-baseline FILE` wrote from at least four runs:\n\
         # [regressions]\n# baseline = \"baseline.json\"\n# alpha = 0.05\n# min-effect = \"5%\"\n",
    );
    text
}

/// A duration that is not below `ns`, with two digits.
fn above(ns: f64) -> String {
    let (unit_ns, unit) = match ns {
        ..1e6 => (1e3, "us"),
        ..1e9 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    // Nothing shorter can be measured, and nobody keeps to a limit of 0.
    let value = (ns / unit_ns).max(1.0);
    let step = 10f64.powi((value.log10().floor() as i32 - 1).max(0));
    format!("{}{unit}", (value / step).ceil() * step)
}

fn rounded(value: f64) -> f64 {
    let step = 10f64.powi((value.log10().floor() as i32 - 1).max(0));
    (value / step).floor() * step
}

/// A hostile name as a TOML string.
fn quoted(name: &str) -> String {
    toml::Value::String(name.to_owned()).to_string()
}
