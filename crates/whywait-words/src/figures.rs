//! Figures without a unit.

use crate::{count, counted};

/// A mean with three digits, all of them where it is more: `0.25`, `3.21`, `12.3`, `12,345`. What
/// is exact has no zeros behind the point: `2`.
pub fn figure(value: f64) -> String {
    // Of a forged recording it may be below nothing, or no number.
    let value = if value > 0.0 { value } else { 0.0 };
    if value > 0.0 && value < 0.005 {
        return "<0.01".to_owned();
    }
    let places = match value {
        ..9.995 => 2,
        ..99.95 => 1,
        _ => return count(value.round() as u64),
    };
    let text = format!("{value:.places$}");
    match text.parse() == Ok(value) {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// How often a second, with three digits: `943,000`, `12.3`. More is not known.
pub fn rate(per_second: f64) -> String {
    // A forged recording may say anything.
    let per_second = per_second.min(1e12);
    if per_second >= 1_000.0 {
        let unit = 10_f64.powf((per_second.log10() - 2.0).floor());
        figure((per_second / unit).round() * unit)
    } else {
        figure(per_second)
    }
}

/// So many bytes, with three digits: `812 bytes`, `1.5 MB`. A kB is 1,000 bytes.
pub fn bytes(n: f64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    let n = n.clamp(0.0, 1e18);
    if n < 999.5 {
        return counted(n.round() as u64, "byte");
    }
    let mut value = n / 1_000.0;
    let mut units = UNITS.into_iter();
    let mut unit = units.next().unwrap_or_default();
    for larger in units {
        if value < 999.5 {
            break;
        }
        value /= 1_000.0;
        unit = larger;
    }
    format!("{} {unit}", figure(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_three_digits_and_a_unit() {
        for (n, text) in [
            (0.0, "0 bytes"),
            (1.0, "1 byte"),
            (999.4, "999 bytes"),
            (999.6, "1.00 kB"),
            (1_500.0, "1.5 kB"),
            (999_600.0, "1.00 MB"),
            (12_345_678.0, "12.3 MB"),
            (f64::INFINITY, "1,000 PB"),
            (-1.0, "0 bytes"),
        ] {
            assert_eq!(bytes(n), text);
        }
    }

    #[test]
    fn means_have_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.004, "<0.01"),
            (0.25, "0.25"),
            (2.0, "2"),
            (1.5, "1.5"),
            (1.501, "1.50"),
            (9.996, "10.0"),
            (12.34, "12.3"),
            (99.96, "100"),
            (12_345.6, "12,346"),
            (-1.0, "0"),
            (f64::NAN, "0"),
            (f64::INFINITY, "18,446,744,073,709,551,615"),
        ] {
            assert_eq!(figure(value), text);
        }
    }

    #[test]
    fn rates_have_three_digits() {
        for (per_second, text) in [
            (0.0, "0"),
            (12.34, "12.3"),
            (999.6, "1,000"),
            (12_345.6, "12,300"),
            (942_600.0, "943,000"),
            (9_999.0, "10,000"),
            (f64::INFINITY, "1,000,000,000,000"),
        ] {
            assert_eq!(rate(per_second), text);
        }
    }
}
