//! One limit of a budget, as it is written: `ready-unserved.stranded p99 < 5ms`.

use crate::measures::Unit;
use crate::measures::catalogue::{self, NamedMeasure};

/// What a measure has to keep to.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    /// As it was written.
    pub text: String,
    /// The measure's name in a run: `ready-unserved.stranded.p99`.
    pub measure: String,
    /// How it is to compare.
    pub op: Comparison,
    /// The limit, in the measure's unit.
    pub value: f64,
    /// What is counted.
    pub unit: Unit,
}

/// How a measure is to compare with its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// Below.
    Less,
    /// Not above.
    AtMost,
    /// Above.
    More,
    /// Not below.
    AtLeast,
}

impl Comparison {
    /// Whether a value keeps to a limit.
    pub fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            Comparison::Less => value < limit,
            Comparison::AtMost => value <= limit,
            Comparison::More => value > limit,
            Comparison::AtLeast => value >= limit,
        }
    }

    /// Whether less is better.
    pub fn is_upper(self) -> bool {
        matches!(self, Comparison::Less | Comparison::AtMost)
    }
}

/// Why a limit cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitError {
    /// From which byte of the text on it is wrong.
    pub at: usize,
    /// What is wrong, and what would be right.
    pub message: String,
}

const OPS: [(&str, Comparison); 4] = [
    ("<=", Comparison::AtMost),
    (">=", Comparison::AtLeast),
    ("<", Comparison::Less),
    (">", Comparison::More),
];

/// Reads a limit.
///
/// # Errors
/// When it is not `MEASURE [STATISTIC] OP VALUE`, or names something that is not measured.
pub fn parse(text: &str) -> Result<Limit, LimitError> {
    let error = |at: usize, message: String| Err(LimitError { at, message });
    let Some(at) = text.find(['<', '>']) else {
        return error(
            0,
            "a limit is MEASURE STATISTIC < VALUE, such as latency p99 < 20ms".to_owned(),
        );
    };
    let Some((symbol, op)) = OPS
        .iter()
        .find(|(symbol, _)| text[at..].starts_with(symbol))
    else {
        return error(at, "expected <, <=, > or >=".to_owned());
    };
    let words = words(&text[..at]);
    let (name, of, stat) = match words[..] {
        [catalogue::UPSTREAM] => {
            let message = "whose? Such as upstream 127.0.0.1:5432 p99 < 20ms".to_owned();
            return error(0, message);
        }
        [catalogue::ROUTE] => {
            let message = "which? Such as route \"GET /orders/{id}\" p99 < 20ms".to_owned();
            return error(0, message);
        }
        [name @ (catalogue::UPSTREAM | catalogue::ROUTE), of] => (name, Some(of), None),
        [name @ (catalogue::UPSTREAM | catalogue::ROUTE), of, stat] => (name, Some(of), Some(stat)),
        [name] => (name, None, None),
        [name, stat] => (name, None, Some(stat)),
        _ => {
            return error(
                0,
                "before the comparison there is one measure and one statistic, such as latency p99"
                    .to_owned(),
            );
        }
    };
    let name_at = offset(text, name);
    let of_name: Vec<&NamedMeasure> = catalogue::ALL
        .iter()
        .filter(|entry| entry.name == name)
        .collect();
    if of_name.is_empty() {
        return error(
            name_at,
            format!("there is no measure {name}; there are: {}", names()),
        );
    }
    let stats: Vec<&str> = of_name
        .iter()
        .flat_map(|entry| entry.stats.iter().copied())
        .collect();
    let Some(stat) = stat.or(stats.first().copied()) else {
        return error(name_at, "expected a statistic".to_owned());
    };
    let Some(entry) = catalogue::entry(name, stat) else {
        let message = format!("{name} has no {stat}; it has: {}", stats.join(", "));
        return error(
            if text.contains(stat) {
                offset(text, stat)
            } else {
                name_at
            },
            message,
        );
    };
    let unit = catalogue::unit(entry, stat);
    let value_at = at + symbol.len();
    let value = text[value_at..].trim();
    let value_at = value_at + (text[value_at..].len() - text[value_at..].trim_start().len());
    match quantity(value, unit) {
        Some(value) => Ok(Limit {
            text: text.split_whitespace().collect::<Vec<_>>().join(" "),
            measure: match of {
                Some(of) => format!("{name} {of}.{stat}"),
                None => format!("{name}.{stat}"),
            },
            op: *op,
            value,
            unit,
        }),
        None => error(
            value_at.min(text.len()),
            format!("{name} {stat} is {}", expected(unit)),
        ),
    }
}

/// The words of a text. One in quotes may have spaces.
fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let quoted = rest.strip_prefix('"').and_then(|rest| rest.split_once('"'));
        let (word, more) = quoted
            .or_else(|| rest.split_once(char::is_whitespace))
            .unwrap_or((rest, ""));
        words.push(word);
        rest = more.trim_start();
    }
    words
}

/// Where a word that was split off a text begins in it.
fn offset(text: &str, word: &str) -> usize {
    (word.as_ptr() as usize)
        .saturating_sub(text.as_ptr() as usize)
        .min(text.len())
}

fn names() -> String {
    let mut names: Vec<&str> = catalogue::ALL.iter().map(|entry| entry.name).collect();
    names.dedup();
    names.join(", ")
}

fn expected(unit: Unit) -> &'static str {
    match unit {
        Unit::Ns => "a duration with its unit, such as 5ms or 300us",
        Unit::PerSecond => "a rate, such as 1000/s",
        Unit::Count | Unit::Severity => "a number, such as 100",
        Unit::Share => "a share, such as 10%",
    }
}

/// A number with its unit, in the measure's own unit.
fn quantity(text: &str, unit: Unit) -> Option<f64> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    let plain = digits.starts_with(|c: char| c.is_ascii_digit()) && digits.len() <= 18;
    let number: f64 = if plain {
        digits.parse().ok()?
    } else {
        return None;
    };
    let scale = match (unit, suffix.trim()) {
        (Unit::Ns, "ns") => 1.0,
        (Unit::Ns, "us") => 1e3,
        (Unit::Ns, "ms") => 1e6,
        (Unit::Ns, "s") => 1e9,
        (Unit::PerSecond, "/s") | (Unit::Count, "") => 1.0,
        (Unit::Share, "%") => 0.01,
        _ => return None,
    };
    Some(number * scale).filter(|value| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read() {
        for (text, measure, op, value) in [
            (
                "ready-unserved.stranded p99 < 5ms",
                "ready-unserved.stranded.p99",
                Comparison::Less,
                5e6,
            ),
            (
                "latency p99<=1.5s",
                "latency.p99",
                Comparison::AtMost,
                1.5e9,
            ),
            (
                "  requests  rate >  1000/s ",
                "requests.rate",
                Comparison::More,
                1000.0,
            ),
            ("latency < 20 ms", "latency.mean", Comparison::Less, 20e6),
            ("lock share < 10%", "lock.share", Comparison::Less, 0.1),
            (
                "requests count >= 100",
                "requests.count",
                Comparison::AtLeast,
                100.0,
            ),
            (
                "calls per-request < 5",
                "calls.per-request",
                Comparison::Less,
                5.0,
            ),
            (
                "upstream 127.0.0.1:5432 p99 < 20ms",
                "upstream 127.0.0.1:5432.p99",
                Comparison::Less,
                20e6,
            ),
            (
                "upstream /run/db.sock <= 2ms",
                "upstream /run/db.sock.mean",
                Comparison::AtMost,
                2e6,
            ),
            (
                "route \"GET /orders/{id}\" p99 < 200ms",
                "route GET /orders/{id}.p99",
                Comparison::Less,
                2e8,
            ),
            (
                "cpu per-request < 300us",
                "cpu.per-request",
                Comparison::Less,
                300e3,
            ),
        ] {
            let limit = parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
            assert_eq!((limit.measure.as_str(), limit.op), (measure, op), "{text}");
            assert!((limit.value - value).abs() < value * 1e-12, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_pointed_at() {
        for (text, at, word) in [
            ("", 0, "MEASURE"),
            ("latency p99 5ms", 0, "MEASURE"),
            ("latncy p99 < 5ms", 0, "no measure latncy"),
            ("latency p98 < 5ms", 8, "no p98"),
            ("latency p99 < 5", 14, "duration"),
            ("latency p99 <", 13, "duration"),
            ("requests rate > 5ms", 16, "rate"),
            ("latency p99 < -5ms", 14, "duration"),
            ("latency p99 < 1e3ms", 14, "duration"),
            ("latency p99 max < 5ms", 0, "one measure"),
            ("lock share < .5%", 13, "share"),
            ("é < 5ms", 0, "no measure"),
            ("upstream < 5ms", 0, "whose"),
            ("route < 5ms", 0, "which"),
            ("route GET / p99 < 5ms", 0, "one measure"),
            ("route \"GET / p99 < 5ms", 0, "one measure"),
            ("upstream [::1]:80 p98 < 5ms", 18, "no p98"),
            ("upstream a b c < 5ms", 0, "one measure"),
        ] {
            let error = parse(text).expect_err(text);
            assert_eq!(error.at, at, "{text}: {error:?}");
            assert!(error.message.contains(word), "{text}: {error:?}");
        }
    }
}
