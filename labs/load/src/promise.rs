//! What a lab promises, and whether it was kept.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// Exit code for "the lab ran, but its schedule did not come about": `EX_TEMPFAIL`. The only one
/// that the driver answers with another try.
pub(crate) const NOT_REPRODUCED: u8 = 75;

/// How a lab's run compares with its promise.
pub(crate) enum Outcome {
    /// The lab showed what it promises.
    Kept,
    /// It did not; the text says what was seen instead.
    NotReproduced(String),
}

/// Prints the ground truth, for people and for the driver alike.
pub(crate) fn print_ground_truth(truth: &Value) {
    eprintln!("ground-truth: {truth}");
}

/// A duration in milliseconds with one decimal: what the labs' promises are made in.
pub(crate) fn ms(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 10_000.0).round() / 10.0
}

/// Count, median, 99th percentile, maximum and sum of a series of latencies.
pub(crate) fn summary(latencies: Vec<Duration>) -> Value {
    summary_in(latencies, ms)
}

/// The same to the microsecond: what a recording is held against.
pub(crate) fn precise_summary(latencies: Vec<Duration>) -> Value {
    summary_in(latencies, |each| (each.as_secs_f64() * 1e6).round() / 1e3)
}

fn summary_in(mut latencies: Vec<Duration>, ms: impl Fn(Duration) -> f64) -> Value {
    latencies.sort_unstable();
    let Some(last) = latencies.len().checked_sub(1) else {
        return json!({"count": 0});
    };
    // Nearest rank, so that the 99th percentile of few requests is their maximum.
    let at = |percent: usize| {
        ms(latencies[(latencies.len() * percent).div_ceil(100).clamp(1, last + 1) - 1])
    };
    let sum = ms(latencies.iter().sum());
    json!({"count": last + 1, "p50_ms": at(50), "p99_ms": at(99), "max_ms": at(100), "sum_ms": sum})
}

/// A bound on one number of the ground truth, such as `probe.max_ms<=100`.
pub(crate) struct Rule {
    text: String,
    pointer: String,
    at_most: bool,
    bound: f64,
}

impl Rule {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let (name, at_most, bound) = match (text.split_once("<="), text.split_once(">=")) {
            (Some((name, bound)), None) => (name, true, bound),
            (None, Some((name, bound))) => (name, false, bound),
            _ => bail!("a rule is NAME<=NUMBER or NAME>=NUMBER, not {text:?}"),
        };
        let bound = bound
            .parse()
            .with_context(|| format!("not a number in the rule {text:?}"))?;
        let pointer = format!("/{}", name.replace('.', "/"));
        Ok(Self {
            text: text.to_owned(),
            pointer,
            at_most,
            bound,
        })
    }

    /// An unknown name is an error: a rule about nothing would always be kept.
    fn broken_by(&self, truth: &Value) -> Result<Option<String>> {
        let seen = truth
            .pointer(&self.pointer)
            .and_then(Value::as_f64)
            .with_context(|| {
                format!("the ground truth has no number for the rule {}", self.text)
            })?;
        let kept = if self.at_most {
            seen <= self.bound
        } else {
            seen >= self.bound
        };
        Ok((!kept).then(|| format!("{} was {seen}, promised is {}", self.pointer, self.text)))
    }
}

/// Holds the ground truth against all rules.
pub(crate) fn check(rules: &[Rule], truth: &Value) -> Result<Outcome> {
    let mut broken = Vec::new();
    for rule in rules {
        broken.extend(rule.broken_by(truth)?);
    }
    Ok(if broken.is_empty() {
        Outcome::Kept
    } else {
        Outcome::NotReproduced(broken.join("; "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(rule: &str, truth: &Value) -> bool {
        matches!(
            check(&[Rule::parse(rule).unwrap()], truth).unwrap(),
            Outcome::Kept
        )
    }

    #[test]
    fn a_rule_holds_one_number_against_its_bound() {
        let truth = json!({"probe": {"max_ms": 100.0}});
        assert!(kept("probe.max_ms<=100", &truth));
        assert!(kept("probe.max_ms>=100", &truth));
        assert!(!kept("probe.max_ms<=99.9", &truth));
    }

    #[test]
    fn a_rule_about_nothing_is_an_error() {
        assert!(check(&[Rule::parse("prob.max_ms<=1").unwrap()], &json!({})).is_err());
        assert!(Rule::parse("probe.max_ms<1").is_err());
    }

    #[test]
    fn the_summary_uses_nearest_ranks() {
        let series = (1..=200).map(Duration::from_millis).collect();
        let expected = json!({
            "count": 200, "p50_ms": 100.0, "p99_ms": 198.0, "max_ms": 200.0, "sum_ms": 20_100.0,
        });
        assert_eq!(summary(series), expected);
        assert_eq!(summary(Vec::new()), json!({"count": 0}));
    }
}
