//! What people type: durations, sizes, files.

use std::time::Duration;

use clap::builder::{PathBufValueParser, TypedValueParser};

use crate::output::Destination;

/// The units of [`duration`], in nanoseconds.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// A duration with its unit: `10s`, `500ms`, `2m`, `1.5h`; seconds without one. More than nothing,
/// at most 30 days.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    const MAX: Duration = Duration::from_secs(30 * 86_400);
    let is_number = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let duration = match is_number && !text.is_empty() {
        true => parse_duration(&format!("{text}s"))?,
        false => parse_duration(text)?,
    };
    if duration.is_zero() {
        return Err("must be more than nothing".to_owned());
    }
    if duration > MAX {
        return Err("must be at most 30 days".to_owned());
    }
    Ok(duration)
}

/// How long a recording of several is: five seconds to a day.
pub(crate) fn rotation(text: &str) -> Result<Duration, String> {
    let range = Duration::from_secs(5)..=Duration::from_secs(86_400);
    match parse_duration(text)? {
        time if range.contains(&time) => Ok(time),
        _ => Err("must be from 5s to 24h, such as 1h".to_owned()),
    }
}

/// How long something is kept: up to ten years.
pub(crate) fn age(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        age if age.is_zero() => Err("must be more than nothing".to_owned()),
        age if age > Duration::from_secs(3_653 * 86_400) => {
            Err("must be at most ten years".to_owned())
        }
        age => Ok(age),
    }
}

/// Space on a disk: 16M and more (1M is 1024 K, 1K is 1024 bytes).
pub(crate) fn space(text: &str) -> Result<u64, String> {
    const HINT: &str = "must be a size such as 500M or 20G";
    let (digits, unit) = split(text);
    let unit: u64 = match unit.trim_end_matches("iB").trim_end_matches('B') {
        "M" => 1 << 20,
        "G" => 1 << 30,
        "T" => 1 << 40,
        _ => return Err(HINT.to_owned()),
    };
    let number: u64 = digits.parse().map_err(|_| HINT.to_owned())?;
    match number.checked_mul(unit) {
        Some(bytes) if bytes >= 16 << 20 => Ok(bytes),
        Some(_) => Err("must be at least 16M".to_owned()),
        None => Err("is too much".to_owned()),
    }
}

/// A threshold: 10us to 10s.
pub(crate) fn threshold(text: &str) -> Result<Duration, String> {
    let range = Duration::from_micros(10)..=Duration::from_secs(10);
    let threshold = parse_duration(text)?;
    if range.contains(&threshold) {
        Ok(threshold)
    } else {
        Err("must be from 10us to 10s".to_owned())
    }
}

/// A size of stack: 1K to 32K (1K is 1024 bytes).
pub(crate) fn stack_bytes(text: &str) -> Result<u32, String> {
    let (digits, unit) = split(text);
    let unit = match unit {
        "" | "B" => 1,
        "K" | "k" | "KB" | "KiB" => 1_024,
        _ => return Err("must be a size such as 8K or 8192".to_owned()),
    };
    let number: u32 = digits
        .parse()
        .map_err(|_| "must be a size such as 8K or 8192".to_owned())?;
    match number.checked_mul(unit) {
        Some(bytes @ 1_024..=32_768) => Ok(bytes),
        _ => Err("must be from 1K to 32K".to_owned()),
    }
}

/// A file to write to.
pub(crate) fn destination() -> impl TypedValueParser<Value = Destination> {
    PathBufValueParser::new().map(Destination::new)
}

/// A name to label with: not empty, of at most 200 characters.
pub(crate) fn label(text: &str) -> Result<String, String> {
    match text.chars().count() {
        0 => Err("must not be empty".to_owned()),
        1..=200 => Ok(text.to_owned()),
        _ => Err("must have at most 200 characters".to_owned()),
    }
}

/// A family-wise error: more than 0, less than 1.
pub(crate) fn alpha(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(alpha) if alpha > 0.0 && alpha < 1.0 => Ok(alpha),
        _ => Err("must be between 0 and 1, such as 0.05".to_owned()),
    }
}

/// A share in per cent: `5%`.
pub(crate) fn percent(text: &str) -> Result<f64, String> {
    let digits = text.strip_suffix('%').map(str::trim_end);
    match digits.map(str::parse::<f64>) {
        Some(Ok(percent)) if (0.0..=1000.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err("must be a share, such as 5%".to_owned()),
    }
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    const HINT: &str = "must be a number and a unit, such as 10s, 500ms or 2m";
    let (digits, unit) = split(text);
    let (_, unit_ns) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(HINT)?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let decimal = digits.contains('.');
    // More digits than nanoseconds have are a typing error.
    if whole.is_empty() || (decimal && fraction.is_empty()) || fraction.len() > 9 {
        return Err(HINT.to_owned());
    }
    let parse = |digits: &str| digits.parse::<u64>().map_err(|_| HINT.to_owned());
    let scale = 10_u64.pow(fraction.len() as u32);
    let fraction = if decimal { parse(fraction)? } else { 0 };
    // Wide enough for u64 times an hour: no overflow to think about.
    let ns = u128::from(parse(whole)?) * u128::from(*unit_ns)
        + u128::from(fraction) * u128::from(*unit_ns) / u128::from(scale);
    u64::try_from(ns)
        .map(Duration::from_nanos)
        .map_err(|_| "is too long".to_owned())
}

/// The number and what follows it. Signs and exponents are not part of a number here.
fn split(text: &str) -> (&str, &str) {
    text.split_at(
        text.find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, ns) in [
            ("1ns", 1),
            ("340us", 340_000),
            ("500ms", 500_000_000),
            ("10s", 10_000_000_000),
            ("10", 10_000_000_000),
            ("0.5", 500_000_000),
            ("1.5s", 1_500_000_000),
            ("0.000000001s", 1),
            ("2m", 120_000_000_000),
            ("2min", 120_000_000_000),
            ("1h", 3_600_000_000_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_nanos(ns)), "{text}");
        }
        for text in [
            "",
            ".",
            "0",
            "s",
            "-1s",
            "+1s",
            "1 s",
            "1.s",
            ".5s",
            "1.2.3s",
            "1e3s",
            "0s",
            "31000000s",
            "99999999999999999999s",
            "18446744073709551615h",
            "1é",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rotations() {
        assert_eq!(rotation("1h"), Ok(Duration::from_secs(3600)));
        assert_eq!(age("7d"), Ok(Duration::from_secs(7 * 86_400)));
        assert_eq!(space("16M"), Ok(16 << 20));
        assert_eq!(space("2GiB"), Ok(2 << 30));
        for text in ["1s", "25h"] {
            assert!(rotation(text).is_err(), "{text}");
        }
        for text in ["0s", "4000d"] {
            assert!(age(text).is_err(), "{text}");
        }
        for text in ["16", "16K", "15M", "1.5G", "99999999999T", ""] {
            assert!(space(text).is_err(), "{text}");
        }
    }

    #[test]
    fn thresholds() {
        assert_eq!(threshold("10us"), Ok(Duration::from_micros(10)));
        assert_eq!(threshold("10s"), Ok(Duration::from_secs(10)));
        assert!(threshold("9us").is_err());
        assert!(threshold("11s").is_err());
    }

    #[test]
    fn shares() {
        assert_eq!(percent("5%"), Ok(0.05));
        assert_eq!(alpha("0.01"), Ok(0.01));
        for text in ["5", "-5%", "%", "NaN%", "inf%", "1e9%"] {
            assert!(percent(text).is_err(), "{text}");
        }
        for text in ["0", "1", "-1", "NaN", "x"] {
            assert!(alpha(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("1K", 1_024),
            ("8K", 8_192),
            ("8192", 8_192),
            ("32KiB", 32_768),
        ] {
            assert_eq!(stack_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "K", "1", "1.5K", "33K", "4194305K", "8M", "-8K"] {
            assert!(stack_bytes(text).is_err(), "{text}");
        }
    }
}
